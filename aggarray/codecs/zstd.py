"""Zstandard, one frame (Zarr's zstd, HDF5 filter 32015).

Parameters, such as the level, are ignored.
"""

from __future__ import annotations

import numpy as np

from aggarray.codecs._decompressors import decompress_zstd
from aggarray.codecs.base import Codec, Parameters, output_buffer


class Zstd(Codec):
    """Codec by the library in numcodecs."""

    name = "zstd"
    ratio = 1 << 16

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress, into ``out`` if it fits; a frame of unknown size may be cut."""
        stated = _content_size(data)
        decoded = size if stated is None else stated
        result = output_buffer(decoded, size, out)
        count = decompress_zstd(data, result) if decoded else 0
        return result if count == decoded else result[:count]


def _content_size(data: np.ndarray) -> int | None:
    """Return a frame's content size (RFC 8878, section 3.1.1.1) or None.

    >>> _content_size(np.frombuffer(bytes([0x28, 0xB5, 0x2F, 0xFD, 0x20, 7]), np.uint8))
    7
    """
    head = data[:18].tobytes()
    if len(head) < 6 or head[:4] != b"\x28\xb5\x2f\xfd":
        raise ValueError("not a Zstandard frame")
    single = head[4] >> 5 & 1
    length = (single, 2, 4, 8)[head[4] >> 6]
    start = 5 + (not single) + (0, 1, 2, 4)[head[4] & 3]
    if len(head) < start + length:
        raise ValueError("truncated")
    size = int.from_bytes(head[start : start + length], "little")
    return None if not length else size + (256 if length == 2 else 0)


CODEC = Zstd()
