"""Bzip2, consecutive streams (HDF5 filter 307, numcodecs' BZ2).

Parameters, such as the level, are ignored.
"""

import importlib.util

import numpy as np

from aggarray.codecs.base import Codec, Parameters


class Bz2(Codec):
    """Codec by Python's bz2. The data of all streams are joined."""

    name = "bz2"
    ratio = 1 << 21

    def usable(self, parameters: Parameters) -> bool:
        """Return whether Python was built with bzip2."""
        return importlib.util.find_spec("_bz2") is not None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress at most ``size`` bytes and verify the checksums of the streams."""
        import bz2

        parts: list[bytes] = []
        left, room = data.tobytes(), size
        while left or not parts:
            decompressor = bz2.BZ2Decompressor()
            try:
                # One byte above the limit detects a longer stream.
                part = decompressor.decompress(left, room + 1)
            except OSError as error:
                raise ValueError(f"damaged: {error}") from error
            room -= len(part)
            if room < 0:
                raise ValueError(f"longer than {size} bytes")
            if not decompressor.eof:
                raise ValueError("truncated")
            parts.append(part)
            left = decompressor.unused_data
        return np.frombuffer(b"".join(parts), np.uint8)


CODEC = Bz2()
