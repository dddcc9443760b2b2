"""Chunk sizes for reading an array in pieces.

A chunk never spans two partitions along a dimension, and never ends inside a stored chunk. `stored_cuts` finds the positions
where a dimension may be cut; `chunk_sizes` merges the intervals between them into chunks of at most a number of bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np

from aggarray.dataclass import NamedTuple, dataclass
from aggarray.memory.selection import distinct
from aggarray.partition.matrix import BLOCK, Matrix, is_increasing, largest_step

#: Chunk sizes along each dimension, as dask has them.
ChunkSizes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class AxisCuts:
    """Positions where a dimension may be cut.

    ``edges``: edges of the partitions, from 0 to the size, where it must be cut; ``cuts``: sorted positions between stored
    chunks; ``free``: whether each partition may be cut anywhere, because none of its pieces is stored in chunks.
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


def stored_cuts(matrix: Matrix, axis: int, layouts: np.ndarray, sides: np.ndarray) -> AxisCuts:
    """Return where a dimension can be cut between stored chunks.

    ``layouts``: the number of the layout of each sub-array; those of one layout follow one template. ``sides``: int64, the side
    of the stored chunks of each layout along the dimension, 0 if it is not stored in chunks. A position is a cut if every
    stored piece there has a chunk boundary.
    """
    edges = matrix.edges[axis]
    stored = _are_stored(matrix.refs, layouts, sides) if is_increasing(edges) else np.zeros(len(matrix.refs), bool)
    others = tuple(d for d in range(len(matrix.cells)) if d != axis)
    free = np.asarray(~stored.reshape(matrix.cells).any(axis=others))
    rows = _grids(matrix, axis, layouts, sides, _distinct_cells(matrix, axis, layouts, sides, stored))
    if not rows.size:
        return AxisCuts(edges, np.zeros(0, np.int64), free)
    regular = _Progression(*_distinct(rows[:, rows[3] > 0]))
    positions, intervals = [_boundaries(regular, edges)], [regular.interval]
    for i, side, start, step, flipped in _distinct(rows[:, rows[3] <= 0]).T.tolist():
        chunks = (start + matrix.parts.picks[-step]) // side
        positions.append(np.flatnonzero(np.diff(chunks[::-1] if flipped else chunks)) + 1 + edges[i])
        intervals.append(np.array([i]))
    return AxisCuts(edges, _common(np.concatenate(positions), np.concatenate(intervals), edges), free)


def _are_stored(refs: np.ndarray, layouts: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """Return whether the sub-array of each cell is stored in chunks."""
    chunked = sides > 0
    if not chunked.any():
        return np.zeros(len(refs), bool)
    if chunked.all():
        return refs >= 0
    stored = np.empty(len(refs), bool)
    for at in range(0, len(refs), BLOCK):
        block = refs[at : at + BLOCK]
        stored[at : at + BLOCK] = (block >= 0) & chunked[layouts[block]]
    return stored


def _distinct_cells(matrix: Matrix, axis: int, layouts: np.ndarray, sides: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """Return stored cells with all grids along a dimension that may have cuts.

    Partitions of one element have none.
    """
    name, cells = matrix.dimensions[axis], matrix.cells
    if largest_step(matrix.edges[axis]) == 1:
        return np.zeros(0, np.int64)
    long = np.diff(matrix.edges[axis]) > 1
    if cells[axis] > 1 or name in matrix.parts.starts or name in matrix.parts.steps:
        if not long.all():
            shape = (1,) * axis + (-1,) + (1,) * (len(cells) - axis - 1)
            stored = (stored.reshape(cells) & long.reshape(shape)).ravel()
        return np.flatnonzero(stored)
    # Cells of one partition along the dimension differ in their layout alone.
    one = np.full(len(sides), -1, np.int64)
    for at in range(0, len(stored), BLOCK):
        some = at + np.flatnonzero(stored[at : at + BLOCK])
        one[layouts[matrix.refs[some]]] = some
        if (one[sides > 0] >= 0).all():
            break
    return one[one >= 0]


def _grids(matrix: Matrix, axis: int, layouts: np.ndarray, sides: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return the columns of `_Progression` of cells: int64 (5, cells)."""
    name, parts, references = matrix.dimensions[axis], matrix.parts, matrix.references
    rows = np.zeros((5, len(cells)), np.int64)
    rows[0] = cells // max(1, prod(matrix.cells[axis + 1 :])) % max(1, matrix.cells[axis])
    rows[1] = sides[layouts[matrix.refs[cells]]]
    rows[2] = parts.starts[name][cells] if name in parts.starts else 0
    rows[3] = parts.steps[name][cells] if name in parts.steps else 1
    flipped = np.array([not _is_forward(t.dimensions, t.directions, matrix, axis) for t in references.templates], bool)
    rows[4] = flipped[references.template[matrix.refs[cells]]]
    return rows


def _distinct(rows: np.ndarray) -> np.ndarray:
    """Return the distinct columns; fast if all or none are equal."""
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

    ``positions``: the boundaries of all grids, each once per grid; ``intervals``: the partition of each grid.
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
    return sizes_of(chunk_ends(axes, itemsize, nbytes))


def sizes_of(ends: Sequence[np.ndarray]) -> ChunkSizes:
    """Return the sizes of chunks that end at some positions, from 0 on."""
    return tuple(tuple(np.diff(p).tolist()) or (0,) for p in ends)


def chunk_ends(axes: Sequence[AxisCuts], itemsize: int, nbytes: int) -> list[np.ndarray]:
    """Return where the chunks of `chunk_sizes` end, from 0 on."""
    most = max(1, nbytes // max(1, itemsize))
    points = [_united(axis.edges, axis.cuts) for axis in axes]
    longest = [largest_step(p) for p in points]
    for d, axis in enumerate(axes):
        if axis.free.any():
            points[d] = _cut_free(axis, points[d], max(1, most // _others(longest, d)))
            longest[d] = largest_step(points[d])
    joined = [d for d, axis in enumerate(axes) if len(axis.edges) > 2] or [0]
    for d in [*joined, *(d for d in reversed(range(len(axes))) if d not in joined)] if axes else ():
        points[d] = _merge(axes[d].edges, points[d], max(1, most // _others(longest, d)))
        longest[d] = largest_step(points[d])
    return points


def merged_sizes(sizes: ChunkSizes, dimensions: Sequence[int], itemsize: int, nbytes: int) -> ChunkSizes:
    """Merge chunks along some dimensions up to ``nbytes``, across partitions.

    >>> merged_sizes(((2, 2, 3), (4, 4)), [0], 1, 20), merged_sizes(((2, 2, 3), (4, 4)), [1], 1, 100)
    (((4, 3), (4, 4)), ((2, 2, 3), (8,)))
    """
    ends = [np.cumsum([0, *own]) for own in sizes]
    return sizes_of(merged_ends(ends, dimensions, itemsize, nbytes))


def merged_ends(ends: Sequence[np.ndarray], dimensions: Sequence[int], itemsize: int, nbytes: int) -> list[np.ndarray]:
    """Return where merged chunks end; ``ends``: where the chunks end."""
    open_edges = (e[[0, -1]] if d in dimensions else e for d, e in enumerate(ends))
    return chunk_ends(
        [AxisCuts(edges, own, np.zeros(len(edges) - 1, bool)) for edges, own in zip(open_edges, ends, strict=True)],
        itemsize,
        nbytes,
    )


def _united(edges: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Return the sorted distinct positions of two sorted columns.

    >>> _united(np.array([0, 9]), np.array([0, 4, 9])).tolist(), _united(np.array([0, 3, 9]), np.array([4])).tolist()
    ([0, 4, 9], [0, 3, 4, 9])
    """
    covered = len(edges) == 2 and len(cuts) > 1 and edges[0] == cuts[0] and edges[1] == cuts[-1]
    positions = cuts if covered else np.concatenate([edges, cuts]) if len(cuts) else edges
    return positions if (positions[1:] > positions[:-1]).all() else distinct(positions)


def _others(longest: Sequence[int], axis: int) -> int:
    """Return the elements of the largest piece across an axis."""
    return prod(longest[:axis]) * prod(longest[axis + 1 :])


def _cut_free(axis: AxisCuts, points: np.ndarray, limit: int) -> np.ndarray:
    """Cut the pieces of free partitions into equal ones of at most ``limit``."""
    added = []
    for i in np.flatnonzero(axis.free & (np.diff(axis.edges) > limit)).tolist():
        first, last = int(axis.edges[i]), int(axis.edges[i + 1])
        count = -(-(last - first) // limit)
        added.append(np.arange(first, last, -(-(last - first) // count)))
    return distinct(np.concatenate([points, *added])) if added else points


def _merge(edges: np.ndarray, points: np.ndarray, limit: int) -> np.ndarray:
    """Merge pieces within partitions to at most ``limit``, where they can be."""
    if largest_step(edges) <= limit:
        return edges
    seen: dict[bytes, np.ndarray] = {}
    merged, large = [edges], np.flatnonzero(np.diff(edges) > limit)
    bounds = zip(*(np.searchsorted(points, edges[ends]).tolist() for ends in (large, large + 1)), strict=True)
    for i, (first, last) in zip(large.tolist(), bounds, strict=True):
        relative = points[first : last + 1] - edges[i]
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
