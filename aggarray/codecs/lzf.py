"""LZF (HDF5 filter 32000, h5py's "lzf"), where imagecodecs is installed. Parameters do not matter."""

import importlib.util

import numpy as np

from aggarray.codecs.base import Parameters


class Lzf:
    """The codec, by imagecodecs."""

    name = "lzf"
    ratio = 128

    def usable(self, parameters: Parameters) -> bool:
        """Where imagecodecs is installed."""
        return importlib.util.find_spec("imagecodecs") is not None

    def grown(self, size: int, parameters: Parameters) -> None:
        """Depends on the data."""
        return None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress at most ``size`` bytes."""
        import imagecodecs

        if not data.size or not size:
            raise ValueError("cut short")
        return np.frombuffer(imagecodecs.lzf_decode(data.tobytes(), out=size), np.uint8)


CODEC = Lzf()
