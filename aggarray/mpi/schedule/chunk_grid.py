"""Chunk grid of a stored distributed array, with one writer per chunk.

Blocks cut at multiples of a chunk are kept; other distributions are converted to such blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

import numpy as np

from aggarray.maps import Block, Distribution, Map
from aggarray.partition.block_shapes import chunk_like

#: Maximum bytes of a chunk. Cuts are kept if chunks have at least 1 / _FINEST of the size of an even block.
_MAX_BYTES, _FINEST = 16 << 20, 2


def chunk_layout(
    distribution: Distribution, itemsize: int, stored: Sequence[int] | None = None
) -> tuple[tuple[int, ...], Distribution]:
    """Return a chunk shape and blocks over the same processes.

    The blocks are cut between chunks and have no padding. ``stored``: the chunk shape of the source: chunks are similar, of 1
    to 4 MB. None: as large as possible.

    >>> chunks, blocks = chunk_layout(Distribution.regular((10, 4), "bc", (4, 2)), 8)
    >>> chunks, [m.bounds.tolist() for m in blocks.maps]
    ((3, 2), [[0, 3, 6, 9, 10], [0, 2, 4]])
    """
    cuts = [_cuts(map_) for map_ in distribution.maps]
    common_sides = [_common_side(axis_cuts) for axis_cuts in cuts]
    sides = list(common_sides if stored is None else chunk_like(common_sides, itemsize, stored))
    while prod(sides) * itemsize > _MAX_BYTES and max(sides) > 1:
        # Chunks that are cut along leading dimensions are contiguous in a block.
        first = next(d for d, side in enumerate(sides) if side > 1)
        sides[first] = -(-sides[first] // 2)
    sides = [
        _fit_side(side, common, len(axis_cuts) > 2) for side, common, axis_cuts in zip(sides, common_sides, cuts, strict=True)
    ]
    blocks = (Block(_align_cuts(axis_cuts, side)) for axis_cuts, side in zip(cuts, sides, strict=True))
    return tuple(sides), Distribution(tuple(blocks))


def _cuts(map_: Map) -> np.ndarray:
    """Return the cuts of blocks, or even cuts where chunks would be too small."""
    even = max(-(-map_.size // map_.nprocs), 1)
    if isinstance(map_, Block) and _common_side(np.asarray(map_.bounds)) * _FINEST >= min(even, map_.size):
        return np.asarray(map_.bounds)
    return np.minimum(np.arange(map_.nprocs + 1) * even, map_.size)


def _common_side(cuts: np.ndarray) -> int:
    """Return the largest side of which all inner cuts are multiples."""
    size = int(cuts[-1])
    return gcd(*(int(c) for c in cuts[1:-1] if 0 < c < size)) or max(size, 1)


def _fit_side(side: int, common: int, cut: bool) -> int:
    """Return the side, or a slightly smaller one that divides ``common``.

    ``cut``: whether there are inner cuts to keep.

    >>> _fit_side(6, 12, True), _fit_side(50, 101, True), _fit_side(50, 99, True), _fit_side(50, 99, False)
    (6, 50, 33, 50)
    """
    divisors = (n for n in range(side, side // 2, -1) if common % n == 0) if cut else iter(())
    return next(divisors, side)


def _align_cuts(cuts: np.ndarray, side: int) -> np.ndarray:
    """Return cuts at the nearest multiples of a side.

    >>> _align_cuts(np.array([0, 101, 202, 230]), 50).tolist()
    [0, 100, 200, 230]
    """
    size = int(cuts[-1])
    aligned: np.ndarray = np.minimum((cuts + side // 2) // side * side, size)
    aligned[-1] = size
    return aligned
