"""Format of kerchunk references."""

from aggarray.formats.kerchunk.format import FORMAT

__all__ = ["FORMAT"]
