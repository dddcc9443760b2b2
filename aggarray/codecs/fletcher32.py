"""HDF5's Fletcher checksum, four bytes after the data (HDF5 filter 3, numcodecs' Fletcher32). No parameters.

The data is taken as big-endian words of 16 bits, an odd last byte as the upper half of one. Two sums modulo 65535 are
stored, the plain one and the running one, little-endian together. HDF5 before 1.6.3 stored each sum with its bytes
swapped; both are valid, as they are to HDF5.
"""

import numpy as np

from aggarray.codecs.base import Parameters

_ROW = 1024
#: So many rows of 16-bit words add up within 32 bits.
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
        # Words in front of a part count once more for each of its words.
        running += plain * part.size + part_running
        plain += part_plain
    if data.size % 2:
        plain += int(data[-1])
        running += plain
    # Little-endian words were added up, and 256 times one is, modulo 65535, the same with its bytes swapped.
    return _reduced(256 * running) << 16 | _reduced(256 * plain)


def _sums(words: np.ndarray) -> tuple[int, int]:
    """Return the plain and the running sum of up to ``_ROW * _ROWS`` words: word i of n counts n - i times in the latter."""
    rows, rest = divmod(words.size, _ROW)
    plain, running = 0, 0
    if rows:
        table = words[: rows * _ROW].reshape(rows, _ROW)
        of_rows = np.add.reduce(table, axis=1, dtype=np.uint32).astype(np.uint64)
        of_columns = np.add.reduce(table, axis=0, dtype=np.uint32).astype(np.uint64)
        plain = int(of_rows.sum())
        inner = int((of_columns * np.arange(_ROW, 0, -1, dtype=np.uint64)).sum())
        after = np.arange(rows - 1, -1, -1, dtype=np.uint64)
        running = inner + _ROW * int((of_rows * after).sum())
    if rest:
        tail = words[rows * _ROW :].astype(np.uint64)
        running += plain * rest + int((tail * np.arange(rest, 0, -1, dtype=np.uint64)).sum())
        plain += int(tail.sum())
    return plain, running


def _reduced(total: int) -> int:
    """Return a sum as repeated folding of carries leaves it: 65535 stands for every multiple but 0 itself."""
    return (total - 1) % 65535 + 1 if total else 0


class Fletcher32:
    """The codec: the checksum is compared and cut off."""

    name = "fletcher32"

    def usable(self, parameters: Parameters) -> bool:
        """Everywhere."""
        return True

    def grown(self, size: int, parameters: Parameters) -> int:
        """Four bytes."""
        return size + 4

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Compare; the data is given back without a copy."""
        if data.size < 4:
            raise ValueError(f"{data.size} bytes are too few for a checksum")
        body, stored = data[:-4], int.from_bytes(data[-4:].tobytes(), "little")
        found = fletcher32(body)
        swapped = (found & 0x00FF00FF) << 8 | found >> 8 & 0x00FF00FF
        # promise: fletcher32-checksum
        if stored not in (found, swapped):
            raise ValueError(f"the checksum is {stored:#010x}, that of the data {found:#010x}: the data is damaged")
        return body


CODEC = Fletcher32()
