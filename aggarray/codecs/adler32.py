"""Adler-32 checksum, four bytes, little-endian (numcodecs' Adler32).

Parameter: location of the checksum, "start" or "end".
"""

import zlib

import numpy as np

from aggarray.codecs._checksum32 import checked, usable
from aggarray.codecs.base import Parameters


class Adler32:
    """Codec that verifies and removes the checksum."""

    name = "adler32"

    def usable(self, parameters: Parameters) -> bool:
        """Return whether the parameter is a location. zlib is part of Python."""
        return usable(parameters)

    def grown(self, size: int, parameters: Parameters) -> int:
        """Return ``size`` and the four bytes of the checksum."""
        return size + 4

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Verify the checksum and return the data without a copy."""
        return checked(data, parameters[0], lambda body: zlib.adler32(body.data))


CODEC = Adler32()
