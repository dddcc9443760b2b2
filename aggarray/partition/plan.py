"""Read plans: the partitions and elements that a selection touches.

Per dimension, `plan_dimension` cuts a selector at the edges of the partitions by binary search. The cost of a selection
depends on the partitions that it touches, not on the size of the matrix. `pieces` multiplies the dimensions last: one `Piece`
per touched partition, in sub-array indices. All functions here are pure; `aggarray.read` executes the plans.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

import numpy as np

from aggarray.dataclass import NamedTuple, dataclass, field, replace
from aggarray.memory.selection import Range, Selector, as_range
from aggarray.partition.matrix import Matrix, Template

Indices = slice | np.ndarray


class TakePositions(NamedTuple):
    """Destination of the elements of an index array.

    ``positions`` in the result; ``take``: which of the elements read, None for all in order.
    """

    positions: np.ndarray
    take: np.ndarray | None


@dataclass(frozen=True, slots=True, eq=False)
class DimensionPlan:
    """Partitions that a selection touches along a dimension, a row per run.

    ``cells``: partition numbers. A run takes ``count`` elements ``first + step * i`` of the partition (counted in the
    master's direction), or ``picks[row]`` (strictly increasing) where step is 0. It fills the result from ``out`` on, or at
    ``places[row]``. ``size``: length of the result; ``dropped``: the dimension does not appear in it; ``backwards``: the
    result runs against the rows.
    """

    size: int
    cells: np.ndarray
    first: np.ndarray
    count: np.ndarray
    step: np.ndarray
    out: np.ndarray
    picks: Mapping[int, np.ndarray] = field(default_factory=dict)
    places: Mapping[int, TakePositions] = field(default_factory=dict)
    dropped: bool = False
    backwards: bool = False


def plan_dimension(selector: Selector, edges: np.ndarray) -> DimensionPlan:
    """Cut a selector at the edges of the partitions of one dimension.

    Each touched partition has one row.

    >>> rows = plan_dimension(Range(1, 4, 2), np.array([0, 4, 10]))
    >>> rows.cells.tolist(), rows.first.tolist(), rows.count.tolist(), rows.out.tolist()
    ([0, 1], [1, 1], [2, 2], [0, 2])
    """
    if isinstance(selector, int):
        return _range_rows(Range(selector, 1), edges, dropped=True)
    progression = as_range(selector) if isinstance(selector, np.ndarray) else selector
    if progression is None:
        return _array_rows(np.asarray(selector), edges)
    if progression.step < 0:
        return _range_rows(progression.reversed(), edges, backwards=True)
    return _range_rows(progression, edges)


def _range_rows(progression: Range, edges: np.ndarray, dropped: bool = False, backwards: bool = False) -> DimensionPlan:
    if progression.count == 0:
        empty = np.zeros(0, np.int64)
        return DimensionPlan(0, empty, empty, empty, empty, empty)
    low, high = (np.searchsorted(edges, (progression.start, progression.last), side="right") - 1).tolist()
    if low == high:  # most dimensions of most reads
        row = np.array([[low], [progression.start - edges[low]], [progression.count], [progression.step], [0]])
        return DimensionPlan(progression.count, row[0], row[1], row[2], row[3], row[4], dropped=dropped, backwards=backwards)
    cuts = -((progression.start - edges[low : high + 2]) // progression.step)  # first element at or after each edge (a ceiling)
    cuts[0], cuts[-1] = 0, progression.count
    cells, count, cuts = np.arange(low, high + 1), np.diff(cuts), cuts[:-1]
    if progression.step > 1:
        touched = np.flatnonzero(count)
        cells, count, cuts = cells[touched], count[touched], cuts[touched]
    first = progression.start + progression.step * cuts - edges[cells]
    step = np.full(len(cells), progression.step)
    return DimensionPlan(progression.count, cells, first, count, step, cuts, dropped=dropped, backwards=backwards)


def _array_rows(indices: np.ndarray, edges: np.ndarray) -> DimensionPlan:
    """Return one row per touched partition, for indices in any order."""
    if (np.diff(indices) > 0).all():
        return runs(indices, edges)
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    distinct = np.concatenate([[True], np.diff(ordered) != 0])
    rank = np.cumsum(distinct) - 1
    rows = runs(ordered[distinct], edges)
    begins = np.searchsorted(rank, rows.out)
    ends = [*begins[1:].tolist(), len(ordered)]
    places: dict[int, TakePositions] = {}
    columns = zip(begins.tolist(), ends, rows.out.tolist(), rows.count.tolist(), strict=True)
    for row, (begin, end, out, count) in enumerate(columns):
        take = rank[begin:end] - out if count < end - begin else None
        places[row] = TakePositions(order[begin:end], take)
    return replace(rows, size=len(indices), out=begins, places=places)


def runs(indices: np.ndarray, edges: np.ndarray) -> DimensionPlan:
    """Cut a non-empty index array into runs that increase in one partition.

    The runs keep the order of the indices. Each run of a lazy selection becomes a partition.

    >>> rows = runs(np.array([5, 6, 1, 1]), np.array([0, 4, 10]))
    >>> rows.cells.tolist(), rows.first.tolist(), rows.count.tolist()
    ([1, 0, 0], [1, 1, 1], [2, 1, 1])
    """
    number = np.searchsorted(edges, indices, side="right") - 1
    jump = np.diff(indices)
    cut = (np.diff(number) != 0) | (jump <= 0)
    begins = np.concatenate([[0], np.flatnonzero(cut) + 1])
    count = np.diff(np.append(begins, len(indices)))
    cells = number[begins]
    first = indices[begins] - edges[cells]
    step = np.where(count > 1, np.append(jump, 1)[begins], 1)
    # A run with unequal steps is not a progression: its indices are stored.
    uneven = np.flatnonzero(~cut[1:] & ~cut[:-1] & (jump[1:] != jump[:-1]))
    picks: dict[int, np.ndarray] = {}
    for row in np.unique(np.searchsorted(begins, uneven, side="right") - 1).tolist():
        picks[row] = indices[begins[row] : begins[row] + count[row]] - edges[cells[row]]
        first[row] = step[row] = 0
    return DimensionPlan(len(indices), cells, first, count, step, begins, picks)


class Piece(NamedTuple):
    """One read: a selection of one sub-array, and its destination.

    ``ref``: the sub-array, -1 for a missing partition, whose selection is empty. ``selection``: per dimension of the sub-array.
    ``flip``: the axes to reverse. ``out`` and ``take`` have one entry per dimension of the master; ``shape`` is that of the
    block in the master's dimensions.
    """

    ref: int
    selection: tuple[Indices, ...]
    flip: tuple[int, ...]
    out: tuple[Indices, ...]
    take: tuple[np.ndarray | None, ...]
    shape: tuple[int, ...]


class _Entry(NamedTuple):
    """Row of a `DimensionPlan`; ``offset``: added to the flat cell number."""

    offset: int
    number: int
    first: int
    extent: int
    step: int
    pick: np.ndarray | None
    out: Indices
    take: np.ndarray | None


def _entries(rows: DimensionPlan, stride: int) -> list[_Entry]:
    entries = []
    lists = (column.tolist() for column in (rows.cells, rows.first, rows.count, rows.step, rows.out))
    for row, (cell, first, count, step, out) in enumerate(zip(*lists, strict=True)):
        taken = rows.places.get(row)
        destination: Indices = slice(out, out + count) if taken is None else taken.positions
        entries.append(_Entry(cell * stride, cell, first, count, step, rows.picks.get(row), destination, taken and taken.take))
    return entries


#: Maximum number of cached index sets.
_MAX_CACHED = 1 << 12


def pieces(matrix: Matrix, rows: Sequence[DimensionPlan]) -> Iterator[Piece]:
    """Yield one piece per touched partition; ``rows``: one per dimension."""
    counts = matrix.cells
    columns = [_entries(r, prod(counts[d + 1 :])) for d, r in enumerate(rows)]
    axes: dict[int, list[tuple[int | None, str, bool]]] = {}
    # Many pieces share indices. Entries live as long as the columns, so that their ids are valid keys.
    composed: dict[tuple[int, int, int, bool], Indices] = {}
    parts = matrix.parts if matrix.parts.starts or matrix.parts.steps else None
    for entries in product(*columns):
        # Transposed at once: there may be millions of pieces.
        offsets, _, _, shape, _, _, out, take = zip(*entries, strict=True) if entries else ((),) * len(_Entry._fields)
        cell = sum(offsets)
        ref = int(matrix.refs[cell])
        if ref < 0:
            yield Piece(ref, (), (), out, take, shape)
            continue
        code = int(matrix.references.template[ref])
        if code not in axes:
            axes[code] = _axes(matrix, matrix.references.templates[code])
        selection: list[Indices] = []
        flip: tuple[int, ...] = ()
        for position, (d, name, against) in enumerate(axes[code]):
            start, step = (0, 1) if parts is None else parts.at(name, cell)
            if d is None:
                start += int(matrix.parts.picks[-step][0]) if step <= 0 else 0
                selection.append(slice(start, start + 1, 1))
                continue
            entry = entries[d]
            key = (id(entry), start, step, against)
            if (indices := composed.get(key)) is None:
                if len(composed) >= _MAX_CACHED:
                    composed.clear()
                indices = composed[key] = _compose(matrix, d, entry, (start, step), against)
            selection.append(indices)
            if against and shape[d] > 1:
                flip += (position,)
        yield Piece(ref, tuple(selection), flip, out, take, shape)


def _axes(matrix: Matrix, template: Template) -> list[tuple[int | None, str, bool]]:
    named = zip(template.dimensions, template.directions, strict=True)
    own = ((n, forward, matrix.dimensions.index(n) if n in matrix.dimensions else None) for n, forward in named)
    return [(d, name, d is not None and forward != matrix.directions[d]) for name, forward, d in own]


def _compose(matrix: Matrix, d: int, entry: _Entry, part: tuple[int, int], against: bool) -> Indices:
    """Return the sub-array indices of a row in a cell; ``part``: start, step."""
    start, step = part
    if entry.pick is None and step > 0 and not against:
        begin, stride = start + step * entry.first, step * entry.step
        return slice(begin, begin + stride * (entry.extent - 1) + 1, stride)
    extent = int(matrix.edges[d][entry.number + 1] - matrix.edges[d][entry.number])
    if entry.pick is None:
        last = entry.first + (entry.extent - 1) * entry.step
        first = extent - 1 - last if against else entry.first
        if step > 0:
            begin, stride = start + step * first, step * entry.step
            return slice(begin, begin + stride * (entry.extent - 1) + 1, stride)
        local = first + entry.step * np.arange(entry.extent)
    else:
        local = (extent - 1 - entry.pick)[::-1] if against else entry.pick
    return start + (step * local if step > 0 else matrix.parts.picks[-step][local])


def pieces_by_file(matrix: Matrix, rows: Sequence[DimensionPlan]) -> list[list[Piece]]:
    """Return the pieces grouped by file: one thread at a time reads a file."""
    groups: dict[int, list[Piece]] = defaultdict(list)
    for piece in pieces(matrix, rows):
        groups[int(matrix.references.uri[piece.ref]) if piece.ref >= 0 else -1].append(piece)
    if len(rows) != 1:
        return list(groups.values())
    return [_join_pieces(matrix, group) if len(group) > 1 else group for group in groups.values()]


def _join_pieces(matrix: Matrix, group: list[Piece]) -> list[Piece]:
    """Join 1-d pieces of each sub-array, to decode its chunks once."""
    by_sub_array: dict[int, list[Piece]] = defaultdict(list)
    others: list[Piece] = []
    for piece in group:
        plain = piece.ref >= 0 and not piece.flip and matrix.references.template_of(piece.ref).dimensions == matrix.dimensions
        (by_sub_array[piece.ref] if plain else others).append(piece)
    return [*(_joined(own) if len(own) > 1 else own[0] for own in by_sub_array.values()), *others]


def _joined(group: Sequence[Piece]) -> Piece:
    elements = [_numbers(p.selection[0]) if p.take[0] is None else _numbers(p.selection[0])[p.take[0]] for p in group]
    positions = np.concatenate([_numbers(piece.out[0]) for piece in group])
    stored, ranks = np.unique(np.concatenate(elements), return_inverse=True)
    order = np.argsort(ranks, kind="stable")
    progression, positions = as_range(stored), positions[order]
    selection = stored if progression is None else progression.as_slice()
    take = None if len(stored) == len(positions) else ranks[order]
    adjacent = take is None and (np.diff(positions) == 1).all()
    out = slice(int(positions[0]), int(positions[-1]) + 1) if adjacent else positions
    return Piece(group[0].ref, (selection,), (), (out,), (take,), (len(stored),))


def _numbers(indices: Indices) -> np.ndarray:
    return np.arange(indices.start, indices.stop, indices.step or 1) if isinstance(indices, slice) else indices


def part_of(matrix: Matrix, cell: Sequence[int], template: Template) -> tuple[Indices, ...]:
    """Return the part of its sub-array that a cell shows.

    The result has one entry per dimension of the sub-array, in its own direction; complete dimensions are
    ``slice(0, size, 1)``. ``cell``: one index per dimension of the master.
    """
    zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    extents = [int(e[i + 1] - e[i]) for e, i in zip(matrix.edges, cell, strict=True)]
    rows = [DimensionPlan(n, np.array([i]), zero, np.array([n]), one, zero) for i, n in zip(cell, extents, strict=True)]
    ranges = [(s, None if isinstance(s, slice) else as_range(s)) for s in next(pieces(matrix, rows)).selection]
    return tuple(s if progression is None else progression.as_slice() for s, progression in ranges)
