"""Aggregation of arrays: rules, stages, and reports."""
