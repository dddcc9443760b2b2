"""Exports: kerchunk references, a Zarr view, extracts to netCDF-4 and Zarr."""
