"""Search of the references of an index for the name of a file."""

from __future__ import annotations

import os

import numpy as np

from aggarray.memory.texts import Texts

#: Number of references that are compared at a time.
_BLOCK = 1 << 14
#: Words of eight equal bytes, to find percent signs.
_PERCENTS, _ONES, _HIGH = (np.uint64(int.from_bytes(bytes([byte]) * 8, "little")) for byte in b"%\x01\x80")


def rows_named(references: Texts, name: str) -> np.ndarray:
    """Return the rows of references that may lead to a file of this name.

    No reference is empty.

    >>> rows_named(Texts.of(["a.nc", "b.nc", "%61.nc", "c/../a.nc", "a.nc/."]), "a.nc").tolist()
    [0, 2, 3, 4]
    """
    candidates = _ending_like(references, os.fsencode(name))
    references = references.take(candidates)
    buffer, suffix = references.buffer, os.fsencode(name)[::-1]
    possible = [np.zeros(0, np.int64)]
    for first in range(0, len(references), _BLOCK):
        starts, lengths = references.starts[first : first + _BLOCK], references.lengths[first : first + _BLOCK]
        ends = starts + lengths
        last, third = buffer[ends - 1], buffer[np.maximum(ends - 3, starts)]
        is_folder = (last == ord("/")) | (last == ord("."))
        rows = np.flatnonzero(is_folder | (last == suffix[0]) | (third == ord("%")))
        possible.append(first + rows[is_folder[rows]])
        rows = rows[~is_folder[rows]]
        for back, byte in enumerate(suffix, 1):
            rows = rows[lengths[rows] >= back]
            at = ends[rows] - back
            # This character may be the last of a percent-encoded one.
            is_encoded = buffer[np.maximum(at - 2, starts[rows])] == ord("%")
            possible.append(first + rows[is_encoded])
            rows = rows[~is_encoded & (buffer[at] == byte)]
        possible.append(first + rows)
    return np.asarray(candidates[np.sort(np.concatenate(possible))])


def _ending_like(references: Texts, name: bytes) -> np.ndarray:
    """Return the rows of references whose last characters permit a name.

    They are the name's, or one is percent-encoded, or the last is a slash or a dot.
    """
    tails = references.tails()
    if tails is None:
        return np.arange(len(references))
    # A percent-encoded character among the last six has its percent sign among the last eight.
    ending = name[-6:]
    suffix, unused = np.uint64(int.from_bytes(ending, "little")), np.uint64(64 - 8 * len(ending))
    rows = [np.zeros(0, np.int64)]
    for first in range(0, len(references), _BLOCK):
        word = tails[first : first + _BLOCK, 1].copy()  # operations on columns side by side are faster
        last = word.view(np.uint8)[7::8]
        possible = (word >> unused == suffix) | (last == ord("/")) | (last == ord("."))
        if (word.view(np.uint8) == ord("%")).any():
            others = word ^ _PERCENTS
            possible |= (others - _ONES) & ~others & _HIGH != 0
        rows.append(first + np.flatnonzero(possible))
    return np.concatenate(rows)
