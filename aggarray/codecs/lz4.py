"""LZ4 block after its decoded size (numcodecs' LZ4).

The size has four bytes, little-endian. Parameters are ignored.
"""

from __future__ import annotations

import numpy as np

from aggarray.codecs._decompressors import decompress_lz4
from aggarray.codecs.base import Codec, Parameters, output_buffer


class Lz4(Codec):
    """Codec by the library in numcodecs."""

    name = "lz4"
    ratio = 256

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress into ``out`` if its size matches."""
        if data.size < 5:
            raise ValueError("truncated")
        decoded = int(data[:4].view("<u4")[0])
        result = output_buffer(decoded, size, out)
        if decoded:
            decompress_lz4(data[4:], result)
        return result


CODEC = Lz4()
