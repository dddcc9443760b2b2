"""Deflate within gzip members (Zarr's gzip). Parameters, such as the level, do not matter."""

import numpy as np

from aggarray.codecs._inflate import RATIO, inflate
from aggarray.codecs.base import Parameters


class Gzip:
    """The codec: a gzip stream."""

    name = "gzip"
    ratio = RATIO

    def usable(self, parameters: Parameters) -> bool:
        """Everywhere: zlib comes with Python."""
        return True

    def grown(self, size: int, parameters: Parameters) -> None:
        """Depends on the data."""
        return None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Inflate; the checksum of the stream is checked."""
        return inflate(data, size, "gzip")


CODEC = Gzip()
