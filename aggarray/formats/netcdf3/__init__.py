"""Format of netCDF-3 files."""

from aggarray.formats.netcdf3.format import FORMAT

__all__ = ["FORMAT"]
