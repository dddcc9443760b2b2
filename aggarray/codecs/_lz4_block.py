"""How is one block of LZ4 decoded, without a frame around it? By numcodecs, which wants its size in four bytes before it."""

import struct

import numpy as np


def lz4_block(data: np.ndarray, out: np.ndarray) -> None:
    """Decompress a raw block into a buffer of its exact size; ValueError or RuntimeError where it is damaged."""
    from numcodecs import lz4

    if not data.size:
        raise ValueError("cut short")
    framed = np.empty(data.size + 4, np.uint8)
    framed[:4] = np.frombuffer(struct.pack("<I", out.size), np.uint8)
    framed[4:] = data
    lz4.decompress(framed, out)


def number(data: np.ndarray, start: int, length: int) -> int:
    """Return the big-endian number of ``length`` bytes at ``start``; ValueError where the data ends before."""
    part = data[start : start + length].tobytes()
    if len(part) < length:
        raise ValueError("cut short")
    return int.from_bytes(part, "big")
