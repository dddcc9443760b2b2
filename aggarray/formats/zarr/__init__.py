"""The format of Zarr stores: `FORMAT`."""

from aggarray.formats.zarr.format import FORMAT

__all__ = ["FORMAT"]
