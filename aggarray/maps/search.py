"""Between which cuts do many numbers lie? A table of buckets tells nearly where, a few steps tell where."""

import numpy as np

#: Buckets for each cut; numbers for each bucket from which on the table pays; steps that still beat a binary search.
_BUCKETS, _WORTH, _STEPS = 16, 4, 4


def between(edges: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return the number of the block that each number lies in: a binary search's answer, for many numbers much sooner.

    ``edges``: ascending int64 from 0; ``numbers``: int64, from 0 and below the last edge.

    >>> between(np.array([0, 2, 2, 5]), np.array([0, 1, 2, 4])).tolist()
    [0, 0, 2, 2]
    """
    buckets = _BUCKETS * len(edges)
    if numbers.size >= _WORTH * buckets:
        width = -(-int(edges[-1]) // buckets)
        first = np.searchsorted(edges, np.arange(buckets) * width, side="right") - 1
        steps = int(np.diff(first, append=len(edges) - 2).max())
        if steps <= _STEPS:
            found: np.ndarray = first[numbers // width]
            for _ in range(steps):
                found += numbers >= edges[found + 1]
            return found
    return np.asarray(np.searchsorted(edges, numbers, side="right") - 1)
