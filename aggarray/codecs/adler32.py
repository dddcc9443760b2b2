"""Adler-32 checksum, four bytes, little-endian (numcodecs' Adler32).

Parameter: location of the checksum, "start" or "end".
"""

from __future__ import annotations

import zlib

from aggarray.codecs._checksum32 import Checksum32

CODEC = Checksum32("adler32", zlib.adler32)
