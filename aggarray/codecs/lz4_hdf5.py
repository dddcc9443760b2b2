"""LZ4 in the framing of HDF5 filter 32004. Parameters are ignored.

The data begin with the decoded size (8 bytes) and the size of a block (4 bytes). Each block begins with its stored size
(4 bytes). All sizes are big-endian. A block whose stored size equals its decoded size is uncompressed.
"""

from __future__ import annotations

import numpy as np

from aggarray.codecs._decompressors import decompress_lz4
from aggarray.codecs._sized_blocks import number, split_blocks
from aggarray.codecs.base import Codec, Parameters, output_buffer


class Lz4Hdf5(Codec):
    """Codec by numcodecs, block by block."""

    name = "lz4_hdf5"
    ratio = 256

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress block by block, into ``out`` if its size matches."""
        decoded, block = number(data, 0, 8), number(data, 8, 4)
        if decoded and not block:
            raise ValueError("damaged: blocks of 0 bytes")
        result = output_buffer(decoded, size, out)
        starts = range(0, decoded, block or 1)
        for start, stored in zip(starts, split_blocks(data, len(starts))[0], strict=True):
            part = result[start : start + block]
            if stored.size == part.size:
                part[...] = stored
            else:
                decompress_lz4(stored, part)
        return result


CODEC = Lz4Hdf5()
