"""Bzip2, one stream after the other (HDF5 filter 307, numcodecs' BZ2). Parameters, such as the level, do not matter."""

import importlib.util

import numpy as np

from aggarray.codecs.base import Parameters


class Bz2:
    """The codec: streams whose data are joined."""

    name = "bz2"
    ratio = 1 << 21

    def usable(self, parameters: Parameters) -> bool:
        """Where Python was built with the library."""
        return importlib.util.find_spec("_bz2") is not None

    def grown(self, size: int, parameters: Parameters) -> None:
        """Depends on the data."""
        return None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress at most ``size`` bytes; checksums of the streams are checked."""
        import bz2

        found: list[bytes] = []
        left, room = data.tobytes(), size
        while left or not found:
            machine = bz2.BZ2Decompressor()
            try:
                # One byte more than there should be shows a longer stream.
                part = machine.decompress(left, room + 1)
            except OSError as error:
                raise ValueError(f"damaged: {error}") from error
            room -= len(part)
            if room < 0:
                raise ValueError(f"more than {size} bytes")
            if not machine.eof:
                raise ValueError("cut short")
            found.append(part)
            left = machine.unused_data
        return np.frombuffer(b"".join(found), np.uint8)


CODEC = Bz2()
