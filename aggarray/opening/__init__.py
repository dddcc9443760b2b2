"""Opening of files and indexes as an aggregation."""
