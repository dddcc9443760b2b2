"""In which chunks is an array stored, and of a distributed one: who writes which, so that no two processes touch one chunk?

Blocks that are cut at multiples of a chunk stay as they are; anything else is brought to such blocks first. What one process
writes is cut into multiples, or parts, of the chunks that it is read from.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import gcd, prod

import numpy as np

from aggarray.maps import Block, Distribution, Map

#: Chunks have about so many bytes at most; blocks stay as they are cut where chunks are at least such a part of an even share.
_MOST, _FINEST = 16 << 20, 2
#: What one process writes is cut into chunks of about so many bytes at least, and at most.
_LITTLE, _MUCH = 1 << 20, 4 << 20


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


def chunk_like(shape: Sequence[int], itemsize: int, stored: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of chunks, of 1 to 4 MB where there is so much, that fit chunks which values are read from.

    ``stored``: the sides of those. Sides grow from the last dimension to the first; the first is cut first.

    >>> chunk_like((3650, 180, 360), 4, (1, 180, 360)), chunk_like((3650, 180, 360), 4, (3650, 180, 360))
    ((8, 180, 360), (15, 180, 360))
    >>> chunk_like((8760, 721, 1440), 4, (8760, 10, 10)), chunk_like((5,), 8, (100,)), chunk_like((), 8, ())
    ((8760, 10, 10), (5,), ())
    """
    sides = [max(1, min(side, size)) for side, size in zip(stored, shape, strict=True)]
    for d in reversed(range(len(sides))):
        while prod(sides) * itemsize < _LITTLE and sides[d] < shape[d]:
            sides[d] = min(sides[d] * 2, shape[d])
    for d in range(len(sides)):
        while prod(sides) * itemsize > _MUCH and sides[d] > 1:
            sides[d] = -(-sides[d] // 2)
    return tuple(sides)


def in_blocks(shape: Sequence[int], chunks: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Yield boxes of whole chunks (edges apart) that cover a shape, in C order, of ``most`` elements or one chunk each.

    >>> list(in_blocks((5, 4), (2, 2), 8))
    [(slice(0, 2, None), slice(0, 4, None)), (slice(2, 4, None), slice(0, 4, None)), (slice(4, 5, None), slice(0, 4, None))]
    """
    sides = list(chunks)
    for d in reversed(range(len(sides))):
        others = prod(sides) // sides[d]
        sides[d] = max(sides[d], min(shape[d], most // others // chunks[d] * chunks[d]))
        if sides[d] < shape[d]:
            break
    starts = (range(0, size, side) for size, side in zip(shape, sides, strict=True))
    for corner in product(*starts):
        yield tuple(slice(a, min(a + side, size)) for a, side, size in zip(corner, sides, shape, strict=True))
