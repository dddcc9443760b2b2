"""Raw LZ4 blocks, decoded by numcodecs.

numcodecs expects the decoded size in four bytes before the block.
"""

import struct

import numpy as np


def lz4_block(data: np.ndarray, out: np.ndarray) -> None:
    """Decompress a raw block into a buffer of its exact size. Raises ValueError or RuntimeError for damaged data."""
    from numcodecs import lz4

    if not data.size:
        raise ValueError("truncated")
    framed = np.empty(data.size + 4, np.uint8)
    framed[:4] = np.frombuffer(struct.pack("<I", out.size), np.uint8)
    framed[4:] = data
    lz4.decompress(framed, out)


def number(data: np.ndarray, start: int, length: int) -> int:
    """Return the big-endian integer of ``length`` bytes at ``start``. Raises ValueError for truncated data."""
    part = data[start : start + length].tobytes()
    if len(part) < length:
        raise ValueError("truncated")
    return int.from_bytes(part, "big")
