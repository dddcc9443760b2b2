"""Adler-32 checksum, four bytes, little-endian (numcodecs' Adler32).

Parameter: location of the checksum, "start" or "end".
"""

import zlib

from aggarray.codecs._checksum32 import Checksum32


class Adler32(Checksum32):
    """Codec by zlib, a part of Python."""

    name, checksum = "adler32", staticmethod(zlib.adler32)


CODEC = Adler32()
