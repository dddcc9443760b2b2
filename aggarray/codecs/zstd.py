"""Zstandard, one frame (Zarr's zstd, HDF5 filter 32015). Parameters, such as the level, do not matter."""

import re

import numpy as np

from aggarray.codecs.base import Parameters

#: What numcodecs says of a frame without a size that holds less than there is room for.
_EXACT = re.compile(r"expected to decompress \d+, got (\d+)")


class Zstd:
    """The codec, by numcodecs."""

    name = "zstd"
    ratio = 1 << 16

    def usable(self, parameters: Parameters) -> bool:
        """Everywhere: numcodecs is always there."""
        return True

    def grown(self, size: int, parameters: Parameters) -> None:
        """Depends on the data."""
        return None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress into ``out`` where the frame says its size, and through it where it does not."""
        from numcodecs import zstd

        stated = _content_size(data)
        held = size if stated is None else stated
        if held > size:
            raise ValueError(f"it holds {held} bytes, {size} should come out")
        result = out if out is not None and held == size else np.empty(held, np.uint8)
        if not held:
            return result
        try:
            zstd.decompress(data, result)
        except RuntimeError as error:
            # The library wants to be given the exact size, and tells it after it has decoded everything.
            exact = _EXACT.search(str(error))
            if stated is not None or exact is None:
                raise
            return result[: int(exact[1])]
        return result


def _content_size(data: np.ndarray) -> int | None:
    """Return the number of bytes that a frame says it holds (RFC 8878, section 3.1.1.1), None where it does not say.

    >>> _content_size(np.frombuffer(bytes([0x28, 0xB5, 0x2F, 0xFD, 0x20, 7]), np.uint8))
    7
    """
    head = data[:18].tobytes()
    if len(head) < 6 or head[:4] != b"\x28\xb5\x2f\xfd":
        raise ValueError("no Zstandard frame")
    single = head[4] >> 5 & 1
    length = (single, 2, 4, 8)[head[4] >> 6]
    start = 5 + (not single) + (0, 1, 2, 4)[head[4] & 3]
    if len(head) < start + length:
        raise ValueError("cut short")
    found = int.from_bytes(head[start : start + length], "little")
    return None if not length else found + (256 if length == 2 else 0)


CODEC = Zstd()
