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
    found = [_along(one) for one in distribution.maps]
    sides = [side for side, _ in found]
    while prod(sides) * itemsize > _MOST and max(sides) > 1:
        longest = sides.index(max(sides))
        sides[longest] = _finer(sides[longest])
    # A side still divides the one that the cuts are multiples of.
    return tuple(sides), Distribution(tuple(Block(cuts) for _, cuts in found))


def _along(one: Map) -> tuple[int, np.ndarray]:
    """Return a side and cuts at multiples of it."""
    size, nprocs = one.size, one.nprocs
    even = max(-(-size // nprocs), 1)
    if isinstance(one, Block):
        cuts = np.asarray(one.bounds)
        inner = [int(c) for c in cuts[1:-1] if 0 < c < size]
        side = gcd(*inner) if inner else max(size, 1)
        if side * _FINEST >= min(even, size):
            return side, cuts
    return even, np.minimum(np.arange(nprocs + 1) * even, size)


def _finer(side: int) -> int:
    """Return the largest proper divisor, 1 for a prime number.

    >>> _finer(12), _finer(7)
    (6, 1)
    """
    return next((side // n for n in range(2, int(side**0.5) + 1) if side % n == 0), 1)
