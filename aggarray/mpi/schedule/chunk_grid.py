"""In which chunks is a distributed array stored, and who writes which, so that no two processes touch one chunk?

Blocks that are cut at multiples of a chunk stay as they are; anything else is brought to such blocks first.
"""

from math import gcd, prod

import numpy as np

from aggarray.maps import Block, Distribution, Map

#: Chunks have about so many bytes at most; blocks stay as they are cut where chunks are at least such a part of an even share.
_MOST, _FINEST = 16 << 20, 2


def chunk_layout(distribution: Distribution, itemsize: int) -> tuple[tuple[int, ...], Distribution]:
    """Return the shape of a chunk and blocks, over the same processes, that are cut between chunks, without padding.

    >>> chunks, blocks = chunk_layout(Distribution.regular((10, 4), "bc", (4, 2)), 8)
    >>> chunks, [m.bounds.tolist() for m in blocks.maps]
    ((3, 2), [[0, 3, 6, 9, 10], [0, 2, 4]])
    """
    cuts = [_cuts(one) for one in distribution.maps]
    whole = [_common(one) for one in cuts]
    sides = list(whole)
    while prod(sides) * itemsize > _MOST and max(sides) > 1:
        longest = sides.index(max(sides))
        sides[longest] = -(-sides[longest] // 2)
    sides = [_fitting(side, most, len(one) > 2) for side, most, one in zip(sides, whole, cuts, strict=True)]
    return tuple(sides), Distribution(tuple(Block(_moved(one, side)) for one, side in zip(cuts, sides, strict=True)))


def _cuts(one: Map) -> np.ndarray:
    """Return where blocks are cut: as they are, or evenly where chunks would be too small otherwise."""
    even = max(-(-one.size // one.nprocs), 1)
    if isinstance(one, Block) and _common(np.asarray(one.bounds)) * _FINEST >= min(even, one.size):
        return np.asarray(one.bounds)
    return np.minimum(np.arange(one.nprocs + 1) * even, one.size)


def _common(cuts: np.ndarray) -> int:
    """Return the largest side of which all inner cuts are multiples."""
    size = int(cuts[-1])
    return gcd(*(int(c) for c in cuts[1:-1] if 0 < c < size)) or max(size, 1)


def _fitting(side: int, whole: int, cut: bool) -> int:
    """Return a side of about that size, one that divides ``whole`` where there is such a one and there are cuts to keep.

    >>> _fitting(6, 12, True), _fitting(50, 101, True), _fitting(50, 99, True), _fitting(50, 99, False)
    (6, 50, 33, 50)
    """
    divisors = (n for n in range(side, side // 2, -1) if whole % n == 0) if cut else iter(())
    return next(divisors, side)


def _moved(cuts: np.ndarray, side: int) -> np.ndarray:
    """Return cuts at the multiples of a side that are nearest to others.

    >>> _moved(np.array([0, 101, 202, 230]), 50).tolist()
    [0, 100, 200, 230]
    """
    size = int(cuts[-1])
    found: np.ndarray = np.minimum((cuts + side // 2) // side * side, size)
    found[-1] = size
    return found
