"""Fletcher checksum of HDF5, four bytes after the data, no parameters.

It is HDF5 filter 3 and numcodecs' Fletcher32. The data are big-endian words of 16 bits; an odd last byte is the upper half of
one. The plain and the running sum modulo 65535 are stored as one little-endian integer. HDF5 before 1.6.3 swapped the bytes of
each sum; both forms are valid, as in HDF5.
"""

from __future__ import annotations

import numpy as np

from aggarray.codecs.base import Codec, Parameters

_ROW = 1024
#: Largest number of rows of 16-bit words whose column sums fit into 32 bits.
_ROWS = 1 << 16


def fletcher32(data: np.ndarray) -> int:
    """Return the checksum of a uint8 buffer.

    >>> hex(fletcher32(np.frombuffer(b"abcd", np.uint8)))
    '0x2629c4c6'
    """
    words = data[: data.size & ~1].view("<u2")
    plain, running = 0, 0
    for start in range(0, words.size, _ROW * _ROWS):
        part = words[start : start + _ROW * _ROWS]
        part_plain, part_running = _sums(part)
        # Each word of a part adds the sum of the words before the part once more.
        running += plain * part.size + part_running
        plain += part_plain
    if data.size % 2:
        plain += int(data[-1])
        running += plain
    # Words were added as little-endian: multiplying by 256 modulo 65535 swaps the bytes of a sum.
    return _reduced(256 * running) << 16 | _reduced(256 * plain)


def _sums(words: np.ndarray) -> tuple[int, int]:
    """Return the sums of at most ``_ROW * _ROWS`` words, plain and running."""
    rows, rest = divmod(words.size, _ROW)
    plain, running = 0, 0
    if rows:
        table = words[: rows * _ROW].reshape(rows, _ROW)
        row_sums = np.add.reduce(table, axis=1, dtype=np.uint32).astype(np.uint64)
        column_sums = np.add.reduce(table, axis=0, dtype=np.uint32).astype(np.uint64)
        plain = int(row_sums.sum())
        inner = int((column_sums * np.arange(_ROW, 0, -1, dtype=np.uint64)).sum())
        after = np.arange(rows - 1, -1, -1, dtype=np.uint64)
        running = inner + _ROW * int((row_sums * after).sum())
    if rest:
        tail = words[rows * _ROW :].astype(np.uint64)
        running += plain * rest + int((tail * np.arange(rest, 0, -1, dtype=np.uint64)).sum())
        plain += int(tail.sum())
    return plain, running


def _reduced(total: int) -> int:
    """Return a sum with its carries folded: multiples of 65535 give 65535."""
    return (total - 1) % 65535 + 1 if total else 0


class Fletcher32(Codec):
    """Codec that verifies and removes the checksum."""

    name = "fletcher32"

    def grown(self, size: int, parameters: Parameters) -> int:
        """Return ``size`` and the four bytes of the checksum."""
        return size + 4

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Verify the checksum and return the data without a copy."""
        if data.size < 4:
            raise ValueError(f"truncated: {data.size} bytes have no checksum")
        body, stored = data[:-4], int.from_bytes(data[-4:].tobytes(), "little")
        computed = fletcher32(body)
        swapped = (computed & 0x00FF00FF) << 8 | computed >> 8 & 0x00FF00FF
        # promise: fletcher32-checksum
        if stored not in (computed, swapped):
            raise ValueError(f"damaged: checksum {computed:#010x}, stored {stored:#010x}")
        return body


CODEC = Fletcher32()
