"""Chunk sizes for reading an array in pieces.

A chunk never spans two partitions along a dimension, and never ends inside a stored chunk. `stored_cuts` finds the positions
where a dimension may be cut, `chunk_sizes` merges what lies between them into chunks of a number of bytes.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np

from aggarray.dataclass import NamedTuple, dataclass
from aggarray.memory.selection import distinct
from aggarray.partition.matrix import Matrix

#: Chunk sizes along each dimension, as dask has them.
ChunkSizes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class AxisCuts:
    """Positions where a dimension may be cut.

    ``edges``: of the partitions, where it must be cut, from 0 to the size; ``cuts``: sorted positions between stored chunks;
    ``free``: whether each partition may be cut anywhere, because no piece in it is stored in chunks.
    """

    edges: np.ndarray
    cuts: np.ndarray
    free: np.ndarray


class _Progression(NamedTuple):
    """Columns of distinct grids of stored chunks, one row each.

    Position i of partition ``interval`` is element ``start + step * i`` of a sub-array with chunks of ``side``, from the other
    end if ``flipped``.
    """

    interval: np.ndarray
    side: np.ndarray
    start: np.ndarray
    step: np.ndarray
    flipped: np.ndarray


def stored_cuts(matrix: Matrix, axis: int, sides: np.ndarray) -> AxisCuts:
    """Return where stored chunks let a dimension be cut.

    ``sides``: int64, the side of the stored chunks of each sub-array along the dimension, 0 if it is not stored in chunks. A
    position is a cut if every stored piece there has a chunk boundary.
    """
    edges = matrix.edges[axis]
    extents = np.diff(edges)
    cells = np.flatnonzero(matrix.refs >= 0) if extents.all() else np.zeros(0, np.int64)
    cells = cells[sides[matrix.refs[cells]] > 0]
    rows = _grids(matrix, axis, sides, cells)
    free = np.ones(len(extents), bool)
    free[rows[0]] = False
    rows = rows[:, extents[rows[0]] > 1]
    regular = _Progression(*_distinct(rows[:, rows[3] > 0]))
    positions, intervals = [_boundaries(regular, edges)], [regular.interval]
    for i, side, start, step, flipped in _distinct(rows[:, rows[3] <= 0]).T.tolist():
        chunks = (start + matrix.parts.picks[-step]) // side
        positions.append(np.flatnonzero(np.diff(chunks[::-1] if flipped else chunks)) + 1 + edges[i])
        intervals.append(np.array([i]))
    return AxisCuts(edges, _common(np.concatenate(positions), np.concatenate(intervals), edges), free)


def _grids(matrix: Matrix, axis: int, sides: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return the columns of `_Progression` of cells: int64 (5, cells)."""
    name, parts, references = matrix.dimensions[axis], matrix.parts, matrix.references
    rows = np.zeros((5, len(cells)), np.int64)
    rows[0] = cells // max(1, prod(matrix.cells[axis + 1 :])) % max(1, matrix.cells[axis])
    rows[1] = sides[matrix.refs[cells]]
    rows[2] = parts.starts[name][cells] if name in parts.starts else 0
    rows[3] = parts.steps[name][cells] if name in parts.steps else 1
    flipped = np.array([not _is_forward(t.dimensions, t.directions, matrix, axis) for t in references.templates], bool)
    rows[4] = flipped[references.template[matrix.refs[cells]]]
    return rows


def _distinct(rows: np.ndarray) -> np.ndarray:
    """Return the distinct columns, quickly where all or none are equal."""
    if (rows == rows[:, :1]).all():
        return rows[:, :1]
    return rows if (np.bincount(rows[0]) <= 1).all() else np.unique(rows, axis=1)


def _is_forward(dimensions: Sequence[str], directions: Sequence[bool], matrix: Matrix, axis: int) -> bool:
    name = matrix.dimensions[axis]
    return name not in dimensions or directions[dimensions.index(name)] == matrix.directions[axis]


def _boundaries(rows: _Progression, edges: np.ndarray) -> np.ndarray:
    """Return the positions of the boundaries of all grids, each once per grid."""
    extent = np.diff(edges)[rows.interval]
    first = rows.start // rows.side + 1
    last = (rows.start + rows.step * (extent - 1)) // rows.side
    count = np.maximum(last - first + 1, 0)
    owner = np.repeat(np.arange(len(count)), count)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count) + first[owner]
    # The first element at or after the beginning of that chunk; a long step may pass over chunks.
    position = -((rows.start[owner] - number * rows.side[owner]) // rows.step[owner])
    if (rows.step > rows.side).any():
        owner, position = np.unique(np.stack([owner, position]), axis=1)
    position = np.where(rows.flipped[owner] == 1, extent[owner] - position, position)
    return np.asarray(position + edges[rows.interval[owner]])


def _common(positions: np.ndarray, intervals: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the positions that every grid of a partition shares.

    ``positions``: of the boundaries of all grids, each once per grid; ``intervals``: the partition of each grid.
    """
    grids = np.bincount(intervals, minlength=len(edges))
    distinct, count = np.unique(positions, return_counts=True)
    return np.asarray(distinct[count == grids[np.searchsorted(edges, distinct, side="right") - 1]])


def chunk_sizes(axes: Sequence[AxisCuts], itemsize: int, nbytes: int) -> ChunkSizes:
    """Return chunk sizes of at most ``nbytes``, or of one stored chunk.

    Stored chunks are merged along the dimensions with several partitions first, then along the others from the last to the
    first. Pieces that are not stored in chunks are cut along the first dimensions, so that whole rows stay together.

    >>> edges, steps = np.array([0, 4, 8]), np.array([1, 2, 3, 5, 6, 7])
    >>> time = AxisCuts(edges, steps, np.zeros(2, bool))
    >>> lat = AxisCuts(np.array([0, 10]), np.array([5]), np.zeros(1, bool))
    >>> chunk_sizes([time, lat], 1, 20), chunk_sizes([time, lat], 1, 1000)
    (((4, 4), (5, 5)), ((4, 4), (10,)))
    """
    most = max(1, nbytes // max(1, itemsize))
    points = [distinct(np.concatenate([axis.edges, axis.cuts])) for axis in axes]
    for d, axis in enumerate(axes):
        points[d] = _cut_free(axis, points[d], max(1, most // _others(points, d)))
    joined = [d for d, axis in enumerate(axes) if len(axis.edges) > 2] or [0]
    for d in [*joined, *(d for d in reversed(range(len(axes))) if d not in joined)] if axes else ():
        points[d] = _merge(axes[d].edges, points[d], max(1, most // _others(points, d)))
    return tuple(tuple(np.diff(p).tolist()) or (0,) for p in points)


def merged_sizes(sizes: ChunkSizes, dimensions: Sequence[int], itemsize: int, nbytes: int) -> ChunkSizes:
    """Merge chunks along some dimensions up to ``nbytes``, across partitions.

    >>> merged_sizes(((2, 2, 3), (4, 4)), [0], 1, 20), merged_sizes(((2, 2, 3), (4, 4)), [1], 1, 100)
    (((4, 3), (4, 4)), ((2, 2, 3), (8,)))
    """
    ends = [np.cumsum([0, *own]) for own in sizes]
    open_edges = (e[[0, -1]] if d in dimensions else e for d, e in enumerate(ends))
    return chunk_sizes(
        [AxisCuts(edges, own, np.zeros(len(edges) - 1, bool)) for edges, own in zip(open_edges, ends, strict=True)],
        itemsize,
        nbytes,
    )


def _others(points: Sequence[np.ndarray], axis: int) -> int:
    """Return the elements of the largest piece across an axis."""
    return prod(int(np.diff(p).max(initial=1)) for d, p in enumerate(points) if d != axis)


def _cut_free(axis: AxisCuts, points: np.ndarray, limit: int) -> np.ndarray:
    """Cut the pieces of free partitions into equal ones of at most ``limit``."""
    added = []
    for i in np.flatnonzero(axis.free & (np.diff(axis.edges) > limit)).tolist():
        first, last = int(axis.edges[i]), int(axis.edges[i + 1])
        count = -(-(last - first) // limit)
        added.append(np.arange(first, last, -(-(last - first) // count)))
    return distinct(np.concatenate([points, *added]))


def _merge(edges: np.ndarray, points: np.ndarray, limit: int) -> np.ndarray:
    """Merge pieces within partitions to at most ``limit``, where they can be."""
    seen: dict[bytes, np.ndarray] = {}
    merged = [edges]
    bounds = np.searchsorted(points, edges)
    for i in np.flatnonzero(np.diff(edges) > limit).tolist():
        relative = points[bounds[i] : bounds[i + 1] + 1] - edges[i]
        key = relative.tobytes()
        if key not in seen:
            seen[key] = np.array(_balanced(relative, limit, len(edges) > 2))
        merged.append(seen[key] + edges[i])
    return distinct(np.concatenate(merged))


def _balanced(points: np.ndarray, limit: int, repeated: bool) -> list[int]:
    """Return some of the points, as few as possible and evenly distributed.

    ``repeated``: other partitions may be alike: a quarter more pieces are made where these are all equal.

    >>> _balanced(np.arange(11), 4, False), _balanced(np.arange(366), 100, True), _balanced(np.array([0, 9, 10, 11]), 4, False)
    ([0, 4, 8, 10], [0, 73, 146, 219, 292, 365], [0, 9, 11])
    """
    greedy = [0]
    while greedy[-1] < len(points) - 1:
        at = int(np.searchsorted(points, points[greedy[-1]] + limit, side="right")) - 1
        greedy.append(max(at, greedy[-1] + 1))
    count, atoms = len(greedy) - 1, len(points) - 1
    for pieces in range(count, count + count // 4 + 1) if repeated else ():
        if atoms % pieces == 0 and len(set(np.diff(points[:: atoms // pieces]).tolist())) == 1:
            return [int(p) for p in points[:: atoms // pieces]]
    even = [*points[:: -(-atoms // count)].tolist(), int(points[-1])]
    longest = max(b - a for a, b in pairwise(even))
    return sorted(set(even)) if longest <= limit else [int(points[i]) for i in greedy]
