"""Deflate in a zlib stream (HDF5 filter 1, Zarr's zlib)."""

from __future__ import annotations

from aggarray.codecs._inflate import Inflate

CODEC = Inflate("deflate", "zlib")
