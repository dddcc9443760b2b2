"""Regular chunk sizes: one per dimension, at stored chunks where possible.

Zarr and cubed have chunks of one size, of which the last may be smaller. Chunks of files of different lengths, such as months,
are not regular: then the chunks that decode the fewest stored chunks more than once are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aggarray.partition.chunk_sizes import AxisCuts, ChunkSizes

#: Most sizes that are compared where none ends at stored chunks.
_MOST = 1000


def regular_sizes(axes: Sequence[AxisCuts], itemsize: int, nbytes: int) -> ChunkSizes:
    """Return equal chunk sizes of at most ``nbytes``, or of one stored chunk.

    Unlike `chunk_sizes`, a chunk may span partitions. Sizes grow along the dimensions with several partitions first, then along
    the others from the last to the first. Contiguous values have no stored chunks: there a chunk first takes all values of a
    partition, so that few chunks read the same file.

    >>> months, free = np.array([0, 31, 59, 90]), np.zeros(3, bool)
    >>> time = AxisCuts(months, np.zeros(0, int), free)
    >>> regular_sizes([time], 1, 70), regular_sizes([time], 1, 90), regular_sizes([time], 1, 45)
    (((59, 31),), ((90,),), ((45, 45),))
    """
    most = max(1, nbytes // max(1, itemsize))
    allowed = [_allowed(axis) for axis in axes]
    atoms = [int(np.diff(np.flatnonzero(cuts)).max(initial=1)) for cuts in allowed]
    sizes = list(atoms)
    joined = [d for d, axis in enumerate(axes) if len(axis.edges) > 2] or [0]
    others = [d for d in reversed(range(len(axes))) if d not in joined]
    contiguous = [d for d in others if axes[d].free.all()]
    for d in [*contiguous, *joined, *others] if axes else ():
        limit = most // max(1, prod(size for other, size in enumerate(sizes) if other != d))
        sizes[d] = _best(allowed[d], max(limit, atoms[d]))
    return tuple(_cut(len(cuts) - 1, size) for cuts, size in zip(allowed, sizes, strict=True))


def _allowed(axis: AxisCuts) -> np.ndarray:
    """Return whether each position, up to the size, cuts no stored chunk."""
    allowed = np.zeros(int(axis.edges[-1]) + 1, bool)
    allowed[axis.edges] = True
    allowed[axis.cuts] = True
    allowed[:-1] |= np.repeat(axis.free, np.diff(axis.edges))
    return allowed


def _best(allowed: np.ndarray, limit: int) -> int:
    """Return the size, up to ``limit``, that cuts the fewest stored chunks."""
    length = len(allowed) - 1
    if limit >= length:
        return max(1, length)
    unit = _unit(allowed, limit)
    if unit is None:
        lowest = max(1, limit // 2, limit - _MOST)
        sizes = {limit - n for n in range(limit - lowest + 1)}
        return min(sizes, key=lambda size: (int(np.count_nonzero(~allowed[size:length:size])), -(-length // size), size))
    count = -(-length // (limit // unit * unit))
    return -(-length // (count * unit)) * unit


def _unit(allowed: np.ndarray, limit: int) -> int | None:
    """Return the least size with all ends at stored chunks, up to a limit."""
    length = len(allowed) - 1
    sizes = np.flatnonzero(allowed[: limit + 1])[1:]
    for factor in range(2, 9):
        multiples = sizes * factor
        sizes = sizes[(multiples >= length) | allowed[np.minimum(multiples, length)]]
    return next((size for size in sizes.tolist() if allowed[size:length:size].all()), None)


def _cut(length: int, size: int) -> tuple[int, ...]:
    """Return the sizes of regular chunks.

    >>> _cut(7, 3), _cut(6, 3), _cut(0, 1)
    ((3, 3, 1), (3, 3), (0,))
    """
    return (*[size] * (length // size), *[length % size] * bool(length % size)) or (0,)
