"""LZF (HDF5 filter 32000, h5py's "lzf"), by imagecodecs.

Parameters are ignored.
"""

from __future__ import annotations

import importlib.util

import numpy as np

from aggarray.codecs.base import Codec, Parameters


class Lzf(Codec):
    """Codec by imagecodecs."""

    name = "lzf"
    ratio = 128

    def usable(self, parameters: Parameters) -> bool:
        """Return whether imagecodecs is installed."""
        return importlib.util.find_spec("imagecodecs") is not None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress at most ``size`` bytes."""
        import imagecodecs

        if not data.size or not size:
            raise ValueError("truncated")
        return np.frombuffer(imagecodecs.lzf_decode(data.tobytes(), out=size), np.uint8)


CODEC = Lzf()
