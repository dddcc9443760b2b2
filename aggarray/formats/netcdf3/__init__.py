"""The format of netCDF-3 files: `FORMAT`."""

from aggarray.formats.netcdf3.format import FORMAT

__all__ = ["FORMAT"]
