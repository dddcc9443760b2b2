"""CRC-32 checksum, four bytes, little-endian (numcodecs' CRC32).

Parameter: location of the checksum, "start" or "end".
"""

from __future__ import annotations

import zlib

from aggarray.codecs._checksum32 import Checksum32

CODEC = Checksum32("crc32", zlib.crc32)
