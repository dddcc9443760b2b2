"""Blosc, version 1 of its format (Zarr's blosc, HDF5 filter 32001).

Parameters are ignored: a frame describes itself.
"""

from __future__ import annotations

import numpy as np

from aggarray.codecs._decompressors import decompress_blosc
from aggarray.codecs.base import Codec, Parameters, output_buffer


class Blosc(Codec):
    """Codec by the library in numcodecs."""

    name = "blosc"
    ratio = 1 << 16

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress into ``out`` if its size matches; check the header's sizes."""
        if data.size < 16:
            raise ValueError("truncated")
        decoded, block, stored = (int(n) for n in data[4:16].view("<u4"))
        if stored > data.size or stored < 16:
            raise ValueError(f"truncated: {data.size} bytes, {stored} expected")
        if decoded and not 0 < block <= decoded:
            raise ValueError(f"damaged: blocks of {block} bytes in {decoded}")
        result = output_buffer(decoded, size, out)
        if decoded:
            decompress_blosc(data[:stored], result)
        return result


CODEC = Blosc()
