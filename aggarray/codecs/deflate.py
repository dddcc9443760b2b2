"""Deflate within a zlib stream (HDF5 filter 1, Zarr's zlib). Parameters, such as the level, do not matter."""

import numpy as np

from aggarray.codecs._inflate import RATIO, inflate
from aggarray.codecs.base import Parameters


class Deflate:
    """The codec: a zlib stream."""

    name = "deflate"
    ratio = RATIO

    def usable(self, parameters: Parameters) -> bool:
        """Everywhere: zlib comes with Python."""
        return True

    def grown(self, size: int, parameters: Parameters) -> None:
        """Depends on the data."""
        return None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Inflate; the checksum of the stream is checked."""
        return inflate(data, size, "zlib")


CODEC = Deflate()
