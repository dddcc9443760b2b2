"""LZ4 in the framing of HDF5 filter 32004. Parameters do not matter.

Big-endian: decoded size (8 bytes), size of a block (4); then each block after its stored size (4). A block whose stored
size is its decoded size is not compressed.
"""

import numpy as np

from aggarray.codecs._lz4_block import lz4_block, number
from aggarray.codecs.base import Parameters


class Lz4Hdf5:
    """The codec, by numcodecs block by block."""

    name = "lz4_hdf5"
    ratio = 256

    def usable(self, parameters: Parameters) -> bool:
        """Everywhere: numcodecs is always there."""
        return True

    def grown(self, size: int, parameters: Parameters) -> None:
        """Depends on the data."""
        return None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress into ``out``, block by block."""
        held, block = number(data, 0, 8), number(data, 8, 4)
        if held > size:
            raise ValueError(f"it holds {held} bytes, {size} should come out")
        if held and not block:
            raise ValueError("damaged: blocks of 0 bytes")
        result = out if out is not None and held == size else np.empty(held, np.uint8)
        position = 12
        for start in range(0, held, block or 1):
            part = result[start : start + block]
            stored = number(data, position, 4)
            position += 4
            if position + stored > data.size:
                raise ValueError("cut short")
            if stored == part.size:
                part[...] = data[position : position + stored]
            else:
                lz4_block(data[position : position + stored], part)
            position += stored
        return result


CODEC = Lz4Hdf5()
