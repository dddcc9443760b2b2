"""Sized blocks of HDF5 filters 32004 and 32008."""

from __future__ import annotations

import numpy as np


def number(data: np.ndarray, start: int, length: int) -> int:
    """Return a big-endian integer; raise ValueError for truncated data."""
    part = data[start : start + length].tobytes()
    if len(part) < length:
        raise ValueError("truncated")
    return int.from_bytes(part, "big")


def split_blocks(data: np.ndarray, count: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the bytes of ``count`` blocks, and the bytes after them.

    Raises ValueError for truncated data. Blocks begin after 12 bytes, each after its size as a 4-byte big-endian integer.
    """
    blocks, end = [], 12
    for _ in range(count):
        start = end + 4
        end = start + number(data, end, 4)
        if end > data.size:
            raise ValueError("truncated")
        blocks.append(data[start:end])
    return blocks, data[end:]
