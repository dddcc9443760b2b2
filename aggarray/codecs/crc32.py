"""A CRC-32 checksum, four bytes little-endian (numcodecs' CRC32). Parameter: where it stands, "start" or "end"."""

import zlib

import numpy as np

from aggarray.codecs._checksum32 import checked, usable
from aggarray.codecs.base import Parameters


class Crc32:
    """The codec: the checksum is compared and cut off."""

    name = "crc32"

    def usable(self, parameters: Parameters) -> bool:
        """Everywhere: zlib comes with Python."""
        return usable(parameters)

    def grown(self, size: int, parameters: Parameters) -> int:
        """Four bytes."""
        return size + 4

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Compare; the data is given back without a copy."""
        return checked(data, parameters[0], lambda body: zlib.crc32(body.data))


CODEC = Crc32()
