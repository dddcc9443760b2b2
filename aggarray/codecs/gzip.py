"""Deflate in gzip members (Zarr's gzip)."""

from aggarray.codecs._inflate import Inflate

CODEC = Inflate("gzip", "gzip")
