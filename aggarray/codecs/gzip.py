"""Deflate in gzip members (Zarr's gzip)."""

from __future__ import annotations

from aggarray.codecs._inflate import Inflate

CODEC = Inflate("gzip", "gzip")
