"""Conventions of aggregation files: readers and writers."""
