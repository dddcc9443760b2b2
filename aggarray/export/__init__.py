"""Exports: kerchunk references, and extracts to netCDF-4 and Zarr."""
