"""Bytes of elements gathered by their place: all first bytes, then all second bytes (HDF5 filter 2, numcodecs' Shuffle).

Parameter: size of an element in bytes. What is left over at the end, less than an element, is stored as it is.
"""

import numpy as np

from aggarray.codecs._blosc_frame import BYTES, MAX_ITEM, Frame
from aggarray.codecs.base import Parameters

#: So many bytes are undone at a time: they stay in the processor's cache between one copy and the next.
_PIECE = 1 << 20
#: Below so many bytes preparing a frame costs more than it saves.
_SMALL = 1 << 15


def unshuffle_into(planes: np.ndarray, itemsize: int, out: np.ndarray) -> None:
    """Write the elements whose bytes lie in ``planes`` to ``out``: contiguous, uint8, of the same size, apart in memory.

    >>> out = np.empty(5, np.uint8)
    >>> unshuffle_into(np.array([1, 2, 10, 20, 99], np.uint8), 2, out)
    >>> out.tolist()
    [1, 10, 2, 20, 99]
    """
    count = planes.size // itemsize
    whole = count * itemsize
    if itemsize == 1 or count <= 1:
        out[...] = planes
        return
    out[whole:] = planes[whole:]
    source = planes[:whole].reshape(itemsize, count)
    if itemsize > MAX_ITEM or whole < _SMALL:
        elements = out[:whole].reshape(count, itemsize)
        for place in range(itemsize):
            elements[:, place] = source[place]
        return
    step = min(count, max(1, _PIECE // itemsize))
    for start in range(0, count, step):
        width = min(step, count - start)
        if start == 0 or width != step:
            frame = Frame(itemsize, BYTES, width * itemsize)
            rows = frame.rows.reshape(itemsize, width)
        rows[...] = source[:, start : start + width]
        frame.undo(out[start * itemsize : (start + width) * itemsize])


class Shuffle:
    """The codec; no more than `unshuffle_into` in new memory where there is none."""

    name = "shuffle"

    def usable(self, parameters: Parameters) -> bool:
        """One parameter, the element size, at least 1."""
        return len(parameters) == 1 and isinstance(parameters[0], int) and parameters[0] >= 1

    def grown(self, size: int, parameters: Parameters) -> int:
        """Size stays."""
        return size

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Undo it; elements of one byte are given back as they are."""
        itemsize = int(parameters[0])
        if data.size != size and out is not None:
            raise ValueError(f"{data.size} bytes where {size} should be")
        if itemsize == 1 or data.size < 2 * itemsize:
            return data
        result = np.empty(data.size, np.uint8) if out is None else out
        unshuffle_into(data, itemsize, result)
        return result


CODEC = Shuffle()
