"""Format of Zarr stores."""

from aggarray.formats.zarr.format import FORMAT

__all__ = ["FORMAT"]
