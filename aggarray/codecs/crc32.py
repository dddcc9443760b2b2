"""CRC-32 checksum, four bytes, little-endian (numcodecs' CRC32).

Parameter: location of the checksum, "start" or "end".
"""

import zlib

from aggarray.codecs._checksum32 import Checksum32


class Crc32(Checksum32):
    """Codec by zlib, a part of Python."""

    name, checksum = "crc32", staticmethod(zlib.crc32)


CODEC = Crc32()
