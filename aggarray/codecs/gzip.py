"""Deflate in gzip members (Zarr's gzip)."""

from __future__ import annotations

from aggarray.codecs.deflate import Inflate

CODEC = Inflate("gzip", "gzip")
