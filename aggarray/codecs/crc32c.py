"""A CRC-32C checksum, four bytes little-endian: after the data (Zarr v3), or where the parameter says (numcodecs' CRC32C)."""

import importlib.util

import numpy as np

from aggarray.codecs._checksum32 import checked, usable
from aggarray.codecs.base import Parameters

#: The library holds the interpreter's lock: other threads get their turn between pieces of so many bytes.
_PIECE = 1 << 20


def crc32c(data: np.ndarray) -> int:
    """Return the checksum of a uint8 buffer."""
    import google_crc32c

    # The library takes read-only buffers alone.
    view = data.view()
    view.flags.writeable = False
    found = 0
    for start in range(0, view.size, _PIECE):
        found = google_crc32c.extend(found, view[start : start + _PIECE])
    return found


class Crc32c:
    """The codec: the checksum is compared and cut off. zarr depends on the library."""

    name = "crc32c"

    def usable(self, parameters: Parameters) -> bool:
        """Where google-crc32c is installed."""
        return (not parameters or usable(parameters)) and importlib.util.find_spec("google_crc32c") is not None

    def grown(self, size: int, parameters: Parameters) -> int:
        """Four bytes."""
        return size + 4

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Compare; the data is given back without a copy."""
        return checked(data, parameters[0] if parameters else "end", crc32c)


CODEC = Crc32c()
