"""Sized blocks (HDF5 filters 32004, 32008) and raw LZ4, by numcodecs."""

import struct

import numpy as np


def lz4_block(data: np.ndarray, out: np.ndarray) -> None:
    """Decompress a raw block; raise ValueError or RuntimeError if damaged."""
    from numcodecs import lz4

    if not data.size:
        raise ValueError("truncated")
    # numcodecs expects the decoded size before the block.
    framed = np.empty(data.size + 4, np.uint8)
    framed[:4] = np.frombuffer(struct.pack("<I", out.size), np.uint8)
    framed[4:] = data
    lz4.decompress(framed, out)


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
