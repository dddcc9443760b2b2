"""Exports: references, Icechunk, a Zarr view, extracts to netCDF and Zarr."""
