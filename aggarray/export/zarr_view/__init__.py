"""Zarr view: conformed values as the chunks of a read-only store."""
