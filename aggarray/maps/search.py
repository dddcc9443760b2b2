"""Fast assignment of many numbers to the intervals between cuts.

A table of buckets gives an approximate interval; a few comparisons correct it.
"""

import numpy as np

#: Buckets per cut; numbers per bucket above which the table is faster; steps up to which it beats a binary search.
_BUCKETS, _WORTH, _STEPS = 16, 4, 4


def find_intervals(edges: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return the index of the interval that contains each number.

    The result equals that of a binary search and is much faster for many numbers. ``edges``: ascending int64 from 0;
    ``numbers``: int64 from 0 and less than the last edge.

    >>> find_intervals(np.array([0, 2, 2, 5]), np.array([0, 1, 2, 4])).tolist()
    [0, 0, 2, 2]
    """
    buckets = _BUCKETS * len(edges)
    if numbers.size >= _WORTH * buckets:
        width = -(-int(edges[-1]) // buckets)
        first = np.searchsorted(edges, np.arange(buckets) * width, side="right") - 1
        steps = int(np.diff(first, append=len(edges) - 2).max())
        if steps <= _STEPS:
            intervals: np.ndarray = first[numbers // width]
            for _ in range(steps):
                intervals += numbers >= edges[intervals + 1]
            return intervals
    return np.asarray(np.searchsorted(edges, numbers, side="right") - 1)
