"""The format of kerchunk references: `FORMAT`."""

from aggarray.formats.kerchunk.format import FORMAT

__all__ = ["FORMAT"]
