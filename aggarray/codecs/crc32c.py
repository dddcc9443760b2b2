"""CRC-32C checksum of 4 bytes, little-endian (Zarr v3, numcodecs' CRC32C).

Parameter: location of the checksum, "start" or "end"; without it, the end.
"""

from __future__ import annotations

import importlib.util

import numpy as np

from aggarray.codecs._checksum32 import Checksum32
from aggarray.codecs.base import Parameters

#: Bytes per call of the library, which holds the interpreter's lock. Other threads run between calls.
_PIECE = 1 << 20


def crc32c(data: np.ndarray) -> int:
    """Return the checksum of a uint8 buffer."""
    import google_crc32c

    # The library accepts only read-only buffers.
    view = data.view()
    view.flags.writeable = False
    checksum = 0
    for start in range(0, view.size, _PIECE):
        checksum = google_crc32c.extend(checksum, view[start : start + _PIECE])
    return checksum


class Crc32c(Checksum32):
    """Codec by google-crc32c, a dependency of zarr."""

    def usable(self, parameters: Parameters) -> bool:
        """Return whether google-crc32c is installed and the parameter is valid."""
        return (not parameters or super().usable(parameters)) and importlib.util.find_spec("google_crc32c") is not None


CODEC = Crc32c("crc32c", crc32c)
