"""LZ4 in the framing of HDF5 filter 32004. Parameters are ignored.

The data begin with the decoded size (8 bytes) and the size of a block (4 bytes). Each block begins with its stored size
(4 bytes). All sizes are big-endian. A block whose stored size equals its decoded size is uncompressed.
"""

import numpy as np

from aggarray.codecs._lz4_block import lz4_block, number
from aggarray.codecs.base import Parameters


class Lz4Hdf5:
    """Codec by numcodecs, block by block."""

    name = "lz4_hdf5"
    ratio = 256

    def usable(self, parameters: Parameters) -> bool:
        """Return True: numcodecs is a dependency."""
        return True

    def grown(self, size: int, parameters: Parameters) -> None:
        """Return None: the size depends on the data."""
        return None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress block by block, into ``out`` if its size matches."""
        decoded, block = number(data, 0, 8), number(data, 8, 4)
        if decoded > size:
            raise ValueError(f"decodes to {decoded} bytes, {size} expected")
        if decoded and not block:
            raise ValueError("damaged: blocks of 0 bytes")
        result = out if out is not None and decoded == size else np.empty(decoded, np.uint8)
        position = 12
        for start in range(0, decoded, block or 1):
            part = result[start : start + block]
            stored = number(data, position, 4)
            position += 4
            if position + stored > data.size:
                raise ValueError("truncated")
            if stored == part.size:
                part[...] = data[position : position + stored]
            else:
                lz4_block(data[position : position + stored], part)
            position += stored
        return result


CODEC = Lz4Hdf5()
