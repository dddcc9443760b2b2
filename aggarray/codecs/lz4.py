"""One LZ4 block after its decoded size in four bytes, little-endian (numcodecs' LZ4). Parameters do not matter."""

import numpy as np

from aggarray.codecs.base import Parameters


class Lz4:
    """The codec, by numcodecs."""

    name = "lz4"
    ratio = 256

    def usable(self, parameters: Parameters) -> bool:
        """Everywhere: numcodecs is always there."""
        return True

    def grown(self, size: int, parameters: Parameters) -> None:
        """Depends on the data."""
        return None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress into ``out``."""
        from numcodecs import lz4

        if data.size < 5:
            raise ValueError("cut short")
        held = int(data[:4].view("<u4")[0])
        if held > size:
            raise ValueError(f"it holds {held} bytes, {size} should come out")
        result = out if out is not None and held == size else np.empty(held, np.uint8)
        if held:
            lz4.decompress(data, result)
        return result


CODEC = Lz4()
