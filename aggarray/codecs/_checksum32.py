"""Checksums of four bytes, little-endian, before or after the data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aggarray.codecs.base import Codec, Parameters


class Checksum32(Codec):
    """Codec of a checksum; parameter: its location, "start" or "end"."""

    name = ""

    def __init__(self, name: str, checksum: Callable[..., int]) -> None:
        self.name, self._checksum = name, checksum

    def usable(self, parameters: Parameters) -> bool:
        """Return whether the only parameter is a location."""
        return len(parameters) == 1 and parameters[0] in ("start", "end")

    def grown(self, size: int, parameters: Parameters) -> int:
        """Return ``size`` and the four bytes of the checksum."""
        return size + 4

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Verify the checksum, "end" by default, and return a view of the data."""
        if data.size < 4:
            raise ValueError(f"truncated: {data.size} bytes have no checksum")
        body, tail = (data[4:], data[:4]) if parameters[:1] == ("start",) else (data[:-4], data[-4:])
        stored, computed = int.from_bytes(tail.tobytes(), "little"), self._checksum(body)
        # promise: zarr-checksum
        if computed != stored:
            raise ValueError(f"damaged: checksum {computed:#010x}, stored {stored:#010x}")
        return body
