"""Shuffle: transposed bytes of elements (HDF5 filter 2, numcodecs).

The first bytes of all elements are stored first, then the second bytes. Parameter: element size in bytes. Trailing bytes that
fill no element are stored as they are.
"""

from __future__ import annotations

import numpy as np

from aggarray.codecs.base import MAX_ITEM, Codec, Parameters

#: Bytes that are unshuffled at a time: they stay in the processor's cache between two copies.
_PIECE = 1 << 20
#: Below this number of bytes a frame costs more than it saves.
_SMALL = 1 << 15
#: Bytes that NumPy unshuffles in a process before Blosc is loaded, which takes as long as frames save by then.
_LOAD = 1 << 22

_unshuffled = 0


def frames_are_faster(itemsize: int, size: int) -> bool:
    """Return whether frames unshuffle ``size`` more bytes sooner than NumPy."""
    global _unshuffled
    if not 1 < itemsize <= MAX_ITEM:
        return False
    _unshuffled += size
    return _unshuffled >= _LOAD


def unshuffle_into(planes: np.ndarray, itemsize: int, out: np.ndarray) -> None:
    """Unshuffle into ``out``: contiguous uint8, same size, other memory.

    >>> out = np.empty(5, np.uint8)
    >>> unshuffle_into(np.array([1, 2, 10, 20, 99], np.uint8), 2, out)
    >>> out.tolist()
    [1, 10, 2, 20, 99]
    """
    count = planes.size // itemsize
    end = count * itemsize
    if itemsize == 1 or count <= 1:
        out[...] = planes
        return
    out[end:] = planes[end:]
    source = planes[:end].reshape(itemsize, count)
    if end < _SMALL or not frames_are_faster(itemsize, end):
        elements = out[:end].reshape(count, itemsize)
        for i in range(itemsize):
            elements[:, i] = source[i]
        return
    from aggarray.codecs._blosc_frame import BYTES, Frame

    step = min(count, max(1, _PIECE // itemsize))
    for start in range(0, count, step):
        width = min(step, count - start)
        if start == 0 or width != step:
            frame = Frame(itemsize, BYTES, width * itemsize)
            rows = frame.rows.reshape(itemsize, width)
        rows[...] = source[:, start : start + width]
        frame.undo(out[start * itemsize : (start + width) * itemsize])


class Shuffle(Codec):
    """Codec by `unshuffle_into`."""

    name = "shuffle"

    def usable(self, parameters: Parameters) -> bool:
        """Return whether the only parameter is an element size of 1 or more."""
        return len(parameters) == 1 and isinstance(parameters[0], int) and parameters[0] >= 1

    def grown(self, size: int, parameters: Parameters) -> int:
        """Return ``size``."""
        return size

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Unshuffle into ``out`` or new memory; return single bytes unchanged."""
        itemsize = int(parameters[0])
        if data.size != size and out is not None:
            raise ValueError(f"{data.size} bytes, {size} expected")
        if itemsize == 1 or data.size < 2 * itemsize:
            return data
        result = np.empty(data.size, np.uint8) if out is None else out
        unshuffle_into(data, itemsize, result)
        return result


CODEC = Shuffle()
