"""Deflate in gzip members (Zarr's gzip). Parameters are ignored."""

import numpy as np

from aggarray.codecs._inflate import RATIO, inflate
from aggarray.codecs.base import Parameters


class Gzip:
    """Codec of gzip streams."""

    name = "gzip"
    ratio = RATIO

    def usable(self, parameters: Parameters) -> bool:
        """Return True: zlib is part of Python."""
        return True

    def grown(self, size: int, parameters: Parameters) -> None:
        """Return None: the size depends on the data."""
        return None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Inflate and verify the checksum of the stream."""
        return inflate(data, size, "gzip")


CODEC = Gzip()
