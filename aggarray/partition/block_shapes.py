"""In which chunks does one process store an array, and how many of them does it read at a time?

In multiples, or parts, of the chunks that it is read from, so that none of these is decoded more often than needed.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

#: Chunks have about so many bytes at least, and at most.
_LITTLE, _MUCH = 1 << 20, 4 << 20


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
