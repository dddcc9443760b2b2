"""Chunk grid of a stored distributed array, with one writer per chunk.

Blocks cut at multiples of a chunk are kept; other distributions are converted to such blocks.
"""

from math import gcd, prod

import numpy as np

from aggarray.maps import Block, Distribution, Map

#: Maximum bytes of a chunk. Cuts are kept if chunks have at least 1 / _FINEST of the size of an even block.
_MOST, _FINEST = 16 << 20, 2


def chunk_layout(distribution: Distribution, itemsize: int) -> tuple[tuple[int, ...], Distribution]:
    """Return a chunk shape and blocks over the same processes.

    The blocks are cut between chunks and have no padding.

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
    """Return the cuts of blocks, or even cuts where chunks would be too small."""
    even = max(-(-one.size // one.nprocs), 1)
    if isinstance(one, Block) and _common(np.asarray(one.bounds)) * _FINEST >= min(even, one.size):
        return np.asarray(one.bounds)
    return np.minimum(np.arange(one.nprocs + 1) * even, one.size)


def _common(cuts: np.ndarray) -> int:
    """Return the largest side of which all inner cuts are multiples."""
    size = int(cuts[-1])
    return gcd(*(int(c) for c in cuts[1:-1] if 0 < c < size)) or max(size, 1)


def _fitting(side: int, whole: int, cut: bool) -> int:
    """Return the side, or a slightly smaller one that divides ``whole``.

    ``cut``: whether there are inner cuts to keep.

    >>> _fitting(6, 12, True), _fitting(50, 101, True), _fitting(50, 99, True), _fitting(50, 99, False)
    (6, 50, 33, 50)
    """
    divisors = (n for n in range(side, side // 2, -1) if whole % n == 0) if cut else iter(())
    return next(divisors, side)


def _moved(cuts: np.ndarray, side: int) -> np.ndarray:
    """Return cuts at the nearest multiples of a side.

    >>> _moved(np.array([0, 101, 202, 230]), 50).tolist()
    [0, 100, 200, 230]
    """
    size = int(cuts[-1])
    found: np.ndarray = np.minimum((cuts + side // 2) // side * side, size)
    found[-1] = size
    return found
