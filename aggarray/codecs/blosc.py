"""Blosc, version 1 of its format (Zarr's blosc, HDF5 filter 32001). Parameters do not matter: a frame describes itself."""

import numpy as np

from aggarray.codecs.base import Parameters


class Blosc:
    """The codec, by numcodecs."""

    name = "blosc"
    ratio = 1 << 16

    def usable(self, parameters: Parameters) -> bool:
        """Everywhere: numcodecs is always there."""
        return True

    def grown(self, size: int, parameters: Parameters) -> None:
        """Depends on the data."""
        return None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress into ``out``; the library trusts the sizes in the header, so they are checked before."""
        from numcodecs import blosc

        if data.size < 16:
            raise ValueError("cut short")
        held, block, stored = (int(n) for n in data[4:16].view("<u4"))
        if held > size:
            raise ValueError(f"it holds {held} bytes, {size} should come out")
        if stored > data.size or stored < 16:
            raise ValueError(f"{data.size} bytes where {stored} should be")
        if held and not 0 < block <= held:
            raise ValueError(f"damaged: blocks of {block} bytes in {held}")
        result = out if out is not None and held == size else np.empty(held, np.uint8)
        if held:
            blosc.decompress(data[:stored], result)
        return result


CODEC = Blosc()
