"""Icechunk repositories: references to stored chunks, and values."""
