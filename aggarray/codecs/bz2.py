"""Bzip2, consecutive streams (HDF5 filter 307, numcodecs' BZ2).

Parameters, such as the level, are ignored.
"""

from __future__ import annotations

import importlib.util

import numpy as np

from aggarray.codecs.base import Codec, Parameters
from aggarray.codecs.streams import decode_streams


class Bz2(Codec):
    """Codec by Python's bz2. The data of all streams are joined."""

    name = "bz2"
    ratio = 1 << 21

    def usable(self, parameters: Parameters) -> bool:
        """Return whether Python was built with bzip2."""
        return importlib.util.find_spec("_bz2") is not None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress at most ``size`` bytes and verify the checksums."""
        import bz2

        return decode_streams(data, size, bz2.BZ2Decompressor, OSError)


CODEC = Bz2()
