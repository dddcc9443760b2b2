"""Szip (HDF5 filter 4), where imagecodecs is installed.

Parameters, as HDF5 stores them: options mask, pixels per block, bits per pixel, pixels per scan line. The data begins
with its decoded size in four bytes, little-endian.
"""

import importlib.util

import numpy as np

from aggarray.codecs.base import Parameters

_LARGEST = (1 << 31) - 1


class Szip:
    """The codec, by imagecodecs."""

    name = "szip"

    def usable(self, parameters: Parameters) -> bool:
        """Where imagecodecs is installed and there are four parameters, which the library has as C's integers."""
        valid = len(parameters) == 4 and all(isinstance(p, int) and 0 <= p <= _LARGEST for p in parameters)
        return valid and importlib.util.find_spec("imagecodecs") is not None

    def grown(self, size: int, parameters: Parameters) -> None:
        """Depends on the data."""
        return None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress the bytes that the data says it holds, at most ``size``."""
        import imagecodecs

        if data.size < 5:
            raise ValueError("cut short")
        held = int(data[:4].view("<u4")[0])
        if not 0 < held <= size:
            raise ValueError(f"it holds {held} bytes, {size} should come out")
        options, per_block, bits, per_line = (int(p) for p in parameters)
        found = imagecodecs.szip_decode(data[4:].tobytes(), options, per_block, bits, per_line, header=False, out=held)
        return np.frombuffer(found, np.uint8)


CODEC = Szip()
