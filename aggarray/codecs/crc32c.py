"""A CRC-32C checksum, four bytes little-endian after the data (Zarr v3). No parameters."""

import importlib.util

import numpy as np

from aggarray.codecs.base import Parameters

#: The library holds the interpreter's lock: other threads get their turn between pieces of so many bytes.
_PIECE = 1 << 20


class Crc32c:
    """The codec: the checksum is compared and cut off. zarr depends on the library."""

    name = "crc32c"

    def usable(self, parameters: Parameters) -> bool:
        """Where google-crc32c is installed."""
        return importlib.util.find_spec("google_crc32c") is not None

    def grown(self, size: int, parameters: Parameters) -> int:
        """Four bytes."""
        return size + 4

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Compare; the data is given back without a copy."""
        import google_crc32c

        if data.size < 4:
            raise ValueError(f"{data.size} bytes are too few for a checksum")
        body, stored = data[:-4], int.from_bytes(data[-4:].tobytes(), "little")
        # The library takes read-only buffers alone.
        view = body.view()
        view.flags.writeable = False
        found = 0
        for start in range(0, view.size, _PIECE):
            found = google_crc32c.extend(found, view[start : start + _PIECE])
        if found != stored:
            raise ValueError(f"the checksum is {stored:#010x}, that of the data {found:#010x}: the data is damaged")
        return body


CODEC = Crc32c()
