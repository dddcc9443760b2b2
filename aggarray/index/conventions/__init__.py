"""Conventions of aggregation files: each module reads or writes one."""
