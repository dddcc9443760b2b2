"""Aggregations written for other programs: kerchunk references, extracts to netCDF-4 and Zarr."""
