"""The format of HDF5 and netCDF-4 files: `FORMAT`."""

from aggarray.formats.hdf5.format import FORMAT

__all__ = ["FORMAT"]
