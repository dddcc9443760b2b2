"""LZ4 block after its decoded size (numcodecs' LZ4).

The size has four bytes, little-endian. Parameters are ignored.
"""

import numpy as np

from aggarray.codecs.base import Parameters


class Lz4:
    """Codec by numcodecs."""

    name = "lz4"
    ratio = 256

    def usable(self, parameters: Parameters) -> bool:
        """Return True: numcodecs is a dependency."""
        return True

    def grown(self, size: int, parameters: Parameters) -> None:
        """Return None: the size depends on the data."""
        return None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress into ``out`` if its size matches."""
        from numcodecs import lz4

        if data.size < 5:
            raise ValueError("truncated")
        decoded = int(data[:4].view("<u4")[0])
        if decoded > size:
            raise ValueError(f"decodes to {decoded} bytes, {size} expected")
        result = out if out is not None and decoded == size else np.empty(decoded, np.uint8)
        if decoded:
            lz4.decompress(data, result)
        return result


CODEC = Lz4()
