"""Conventions of aggregation files, one or two modules each: a reader and a writer."""
