"""Shapes of the chunks and blocks in which arrays are copied.

Both are multiples, or divisors, of the source chunks, so that each source chunk is decoded as few times as possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

#: Approximate bounds of the bytes of a chunk.
_MIN_BYTES, _MAX_BYTES = 1 << 20, 4 << 20


def chunk_like(shape: Sequence[int], itemsize: int, stored: Sequence[int]) -> tuple[int, ...]:
    """Return a chunk shape of 1 to 4 MB that fits the source chunks.

    ``stored``: the shape of the source chunks. Sides grow from the last dimension to the first; the first is cut first.
    A smaller array gives smaller chunks.

    >>> chunk_like((3650, 180, 360), 4, (1, 180, 360)), chunk_like((3650, 180, 360), 4, (3650, 180, 360))
    ((8, 180, 360), (15, 180, 360))
    >>> chunk_like((8760, 721, 1440), 4, (8760, 10, 10)), chunk_like((5,), 8, (100,)), chunk_like((), 8, ())
    ((8760, 10, 10), (5,), ())
    """
    sides = [max(1, min(side, size)) for side, size in zip(stored, shape, strict=True)]
    for d in reversed(range(len(sides))):
        while prod(sides) * itemsize < _MIN_BYTES and sides[d] < shape[d]:
            sides[d] = min(sides[d] * 2, shape[d])
    for d in range(len(sides)):
        while prod(sides) * itemsize > _MAX_BYTES and sides[d] > 1:
            sides[d] = -(-sides[d] // 2)
    return tuple(sides)


def in_blocks(shape: Sequence[int], chunks: Sequence[int], max_elements: int) -> Iterator[tuple[slice, ...]]:
    """Yield blocks of whole chunks that cover a shape, in C order.

    Each block has at most ``max_elements`` elements, or is one chunk. Blocks at the edges may hold partial chunks.

    >>> list(in_blocks((5, 4), (2, 2), 8))
    [(slice(0, 2, None), slice(0, 4, None)), (slice(2, 4, None), slice(0, 4, None)), (slice(4, 5, None), slice(0, 4, None))]
    """
    sides = list(chunks)
    for d in reversed(range(len(sides))):
        others = prod(sides) // sides[d]
        sides[d] = max(sides[d], min(shape[d], max_elements // others // chunks[d] * chunks[d]))
        if sides[d] < shape[d]:
            break
    starts = (range(0, size, side) for size, side in zip(shape, sides, strict=True))
    for corner in product(*starts):
        yield tuple(slice(a, min(a + side, size)) for a, side, size in zip(corner, sides, shape, strict=True))
