"""Operations that make partition matrices from others, without any read.

`tile` puts cells at boxes of a master and cuts them where their edges do not align (virtual partitions); `select`,
`reverse`, `transpose`, `expand` and `rename` are the lazy operations of one matrix. All are pure and columnar.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from aggarray.dataclass import dataclass, replace
from aggarray.errors import AggregationError, SelectionError
from aggarray.partition.grid import GridCover, refine
from aggarray.partition.matrix import MAX_CELLS, Matrix, Parts, References
from aggarray.partition.plan import DimensionPlan
from aggarray.partition.reference_builder import ReferenceBuilder


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Cells without a matrix yet; ``boxes``: int64 (n, dimensions, 2)."""

    dimensions: tuple[str, ...]
    directions: tuple[bool, ...]
    boxes: np.ndarray
    refs: np.ndarray
    parts: Parts
    references: References

    def flips(self, axis: int) -> np.ndarray:
        """Return, per cell, whether its sub-array runs against the master."""
        return Matrix(self.dimensions, self.directions, (), self.references, self.refs).flips(axis)


def gather(matrices: Sequence[Matrix], starts: np.ndarray) -> tuple[Cells, np.ndarray]:
    """Return the cells of several matrices, and the matrix number of each.

    The matrices have equal dimensions and directions; each is shifted by its row of ``starts``, int64 (matrices, dimensions).
    Missing partitions are omitted.
    """
    builder = ReferenceBuilder()
    boxes, refs, origin, parts = [], [], [], []
    for number, (matrix, start) in enumerate(zip(matrices, starts, strict=True)):
        row = builder.extend(matrix.references)
        present = np.flatnonzero(matrix.refs >= 0)
        box = np.zeros((len(present), len(matrix.dimensions), 2), np.int64)
        index = np.unravel_index(present, matrix.cells) if matrix.dimensions else ()
        for d, (edges, i) in enumerate(zip(matrix.edges, index, strict=True)):
            box[:, d, 0], box[:, d, 1] = edges[i], edges[i + 1]
        boxes.append(box + start[:, np.newaxis])
        refs.append(matrix.refs[present] + np.int32(row))
        parts.append((len(present), matrix.parts.take(present)))
        origin.append(np.full(len(present), number))
    first = matrices[0]
    columns = np.concatenate(boxes), np.concatenate(refs), _join_parts(parts)
    return Cells(first.dimensions, first.directions, *columns, builder.build()), np.concatenate(origin)


def _join_parts(blocks: Sequence[tuple[int, Parts]]) -> Parts:
    """Concatenate the parts of blocks of cells; picks are renumbered."""
    starts = {axis for _, p in blocks for axis in p.starts}
    steps = {axis for _, p in blocks for axis in p.steps}
    picks: list[np.ndarray] = []
    columns: dict[str, list[np.ndarray]] = {axis: [] for axis in steps}
    for count, parts in blocks if steps else ():
        for axis in steps:
            step = parts.steps.get(axis, np.ones(count, np.int64))
            columns[axis].append(np.where(step <= 0, step - len(picks), step))
        picks.extend(parts.picks)
    joined = {a: np.concatenate([p.starts.get(a, np.zeros(n, np.int64)) for n, p in blocks]) for a in starts}
    return Parts(joined, {a: np.concatenate(c) for a, c in columns.items()}, tuple(picks))


def tile(cells: Cells, shape: Sequence[int], *, overlap: str = "refuse", name: Callable[[int], str] = str) -> Matrix:
    """Tile a master of ``shape`` with cells; uncovered partitions are missing.

    ``overlap``: "refuse" raises AggregationError with the ``name`` of both cells; "first" and "last" select the cell that
    serves positions that several cover. Raises AggregationError as `grid.refine` does.
    """
    cover = refine(cells.boxes, shape, cells.dimensions, "all" if overlap == "refuse" else overlap)
    if cover.overlap is not None and overlap == "refuse":
        one, other = cover.overlap
        common = np.stack([cells.boxes[[one, other], :, 0].max(axis=0), cells.boxes[[one, other], :, 1].min(axis=0)], axis=-1)
        spans = [f"{d} {low}:{high}" for d, (low, high) in zip(cells.dimensions, common.tolist(), strict=True)]
        where = f"at {', '.join(spans)}" if spans else "in an array without dimensions"
        raise AggregationError(f"{name(one)} and {name(other)} overlap {where}", hint="leave one out or cut it")
    refs = np.full(prod(cover.shape), -1, np.int32)
    refs[cover.cell] = cells.refs[cover.box]
    return Matrix(cells.dimensions, cells.directions, cover.edges, cells.references, refs, _cut(cells, cover))


def _cut(cells: Cells, cover: GridCover) -> Parts:
    """Return the parts of the cells of a cover, cut from those of their boxes."""
    total = prod(cover.shape)
    starts: dict[str, np.ndarray] = {}
    steps: dict[str, np.ndarray] = {}
    picks = list(cells.parts.picks)
    for axis in dict.fromkeys((*cells.dimensions, *cells.parts.starts, *cells.parts.steps)):
        start, step = _columns(cells.parts, axis, cover.box)
        if axis in cells.dimensions:
            d = cells.dimensions.index(axis)
            box = cells.boxes[cover.box, d]
            begin, end = cover.edges[d][cover.index[d]], cover.edges[d][cover.index[d] + 1]
            skipped = np.where(cells.flips(d)[cover.box], box[:, 1] - end, begin - box[:, 0])
            if not (end - begin == box[:, 1] - box[:, 0]).all():
                step = step.copy()
                for cell in np.flatnonzero(step <= 0):
                    picks.append(picks[-step[cell]][skipped[cell] : skipped[cell] + end[cell] - begin[cell]])
                    step[cell] = 1 - len(picks)
            start = start + np.where(step > 0, skipped * step, 0)
        _store(starts, axis, total, cover.cell, start, 0)
        _store(steps, axis, total, cover.cell, step, 1)
    return Parts(starts, steps, tuple(picks))


def _columns(parts: Parts, axis: str, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    start = parts.starts[axis][cells] if axis in parts.starts else np.zeros(len(cells), np.int64)
    return start, (parts.steps[axis][cells] if axis in parts.steps else np.ones(len(cells), np.int64))


def _store(columns: dict[str, np.ndarray], axis: str, total: int, cells: np.ndarray, values: np.ndarray, usual: int) -> None:
    if (values != usual).any():
        columns[axis] = np.full(total, usual, np.int64)
        columns[axis][cells] = values


def select(matrix: Matrix, axis: int, rows: DimensionPlan) -> Matrix:
    """Return the matrix of a lazy selection along one dimension.

    ``rows``: of `plan.runs`, or of `plan.plan_dimension` for ranges; each becomes a partition. A dropped dimension stays in
    ``parts``. Without rows, the result has one empty partition.
    """
    name = matrix.dimensions[axis]
    before, after = matrix.edges[:axis], matrix.edges[axis + 1 :]
    if len(rows.cells) == 0:
        refs = np.full(prod(matrix.cells[:axis]) * prod(matrix.cells[axis + 1 :]), -1, np.int32)
        return replace(matrix, edges=(*before, np.zeros(2, np.int64), *after), refs=refs, parts=Parts())
    selected, row = _touched(matrix, axis, rows.cells)
    parts = matrix.parts.take(selected)
    edges = matrix.edges[axis]
    extent = (edges[rows.cells + 1] - edges[rows.cells])[row]
    opposite = matrix.flips(axis, selected)
    start, step = _columns(matrix.parts, name, selected)
    last = rows.first + (rows.count - 1) * rows.step
    local = np.where(opposite, extent - 1 - last[row], rows.first[row])
    picks = list(parts.picks)
    progression = (step > 0) & (rows.step[row] > 0)
    new_start = np.where(progression, start + step * local, start)
    new_step = np.where(progression, step * rows.step[row], step)
    _pick(rows, row, (extent, opposite, local), (step, new_step), picks)
    starts = {a: s for a, s in parts.starts.items() if a != name}
    steps = {a: s for a, s in parts.steps.items() if a != name}
    _store(starts, name, len(selected), np.arange(len(selected)), new_start, 0)
    _store(steps, name, len(selected), np.arange(len(selected)), new_step, 1)
    cuts = np.concatenate([[0], np.cumsum(rows.count)]).astype(np.int64)
    parts = Parts(starts, steps, tuple(picks))
    result = replace(matrix, edges=(*before, cuts, *after), refs=matrix.refs[selected], parts=parts)
    if not rows.dropped:
        return result
    # One cell of one element remains.
    dimensions, directions = ((*names[:axis], *names[axis + 1 :]) for names in (matrix.dimensions, matrix.directions))
    return replace(result, dimensions=dimensions, directions=directions, edges=(*before, *after))


def _touched(matrix: Matrix, axis: int, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    counts = (*matrix.cells[:axis], len(cells), *matrix.cells[axis + 1 :])
    if prod(counts) > max(MAX_CELLS, len(matrix.refs)):
        what = f"a lazy selection of {len(cells)} runs along {matrix.dimensions[axis]!r} makes {prod(counts)} partitions"
        raise SelectionError(f"{what}, more than {MAX_CELLS}", hint="sort the indices, or read them with array[key]")
    before, after = prod(counts[:axis]), prod(counts[axis + 1 :])
    slabs = np.arange(before)[:, np.newaxis] * matrix.cells[axis] + cells
    flat = slabs[:, :, np.newaxis] * after + np.arange(after)
    row = np.broadcast_to(np.arange(len(cells))[:, np.newaxis], flat.shape)
    return flat.ravel(), row.ravel()


def _pick(
    rows: DimensionPlan, row: np.ndarray, columns: Sequence[np.ndarray], steps: Sequence[np.ndarray], picks: list[np.ndarray]
) -> None:
    """Set the steps of cells from picks; equal picks are stored once."""
    extent, against, local = columns
    step, new_step = steps
    stored: dict[tuple[int, int, bool, int], int] = {}
    for cell in np.flatnonzero((step <= 0) | (rows.step[row] == 0)):
        r, old_step, flipped = int(row[cell]), int(step[cell]), bool(against[cell])
        key = (r, old_step, flipped, int(extent[cell]))
        if key not in stored:
            if r in rows.picks:
                pick = (extent[cell] - 1 - rows.picks[r])[::-1] if flipped else rows.picks[r]
            else:
                pick = local[cell] + rows.step[r] * np.arange(rows.count[r])
            picks.append(old_step * pick if old_step > 0 else picks[-old_step][pick])
            stored[key] = 1 - len(picks)
        new_step[cell] = stored[key]


def reverse(matrix: Matrix, axis: int) -> Matrix:
    """Reverse a dimension: the order of its cells and its direction.

    Parts do not change; they count in the sub-array's direction.
    """
    mirrored = matrix.edges[axis][-1] - matrix.edges[axis][::-1]
    edges = (*matrix.edges[:axis], mirrored, *matrix.edges[axis + 1 :])
    directions = tuple(forward != (d == axis) for d, forward in enumerate(matrix.directions))
    turned = replace(matrix, edges=edges, directions=directions)
    if matrix.cells[axis] == 1:
        return turned
    order = np.flip(np.arange(len(matrix.refs)).reshape(matrix.cells), axis).ravel()
    return replace(turned, refs=matrix.refs[order], parts=matrix.parts.take(order))


def transpose(matrix: Matrix, order: Sequence[int]) -> Matrix:
    """Return the matrix with its dimensions in another order."""
    if list(order) == list(range(len(matrix.dimensions))):
        return matrix
    dimensions, edges = tuple(matrix.dimensions[i] for i in order), tuple(matrix.edges[i] for i in order)
    turned = replace(matrix, dimensions=dimensions, directions=tuple(matrix.directions[i] for i in order), edges=edges)
    if len(matrix.refs) == 1:
        return turned
    cells = np.arange(len(matrix.refs)).reshape(matrix.cells).transpose(order).ravel()
    return replace(turned, refs=matrix.refs[cells], parts=matrix.parts.take(cells))


def expand(matrix: Matrix, dimension: str) -> Matrix:
    """Insert a leading dimension of size 1.

    If the dimension had been dropped, the parts still hold its position in the sub-array.
    """
    edges = (np.array([0, 1], np.int64), *matrix.edges)
    return replace(matrix, dimensions=(dimension, *matrix.dimensions), directions=(True, *matrix.directions), edges=edges)


def rename(matrix: Matrix, names: Mapping[str, str]) -> Matrix:
    """Rename dimensions in the matrix, its parts and its templates."""
    changed = {old: new for old, new in names.items() if old != new}
    if not changed:
        return matrix
    templates = [replace(t, dimensions=tuple(changed.get(d, d) for d in t.dimensions)) for t in matrix.references.templates]
    starts, steps = ({changed.get(a, a): c for a, c in s.items()} for s in (matrix.parts.starts, matrix.parts.steps))
    parts = Parts(starts, steps, matrix.parts.picks)
    dimensions = tuple(changed.get(d, d) for d in matrix.dimensions)
    return replace(matrix, dimensions=dimensions, references=matrix.references.with_templates(templates), parts=parts)


def relabel(matrix: Matrix, axis: int) -> Matrix:
    """Reverse a dimension's direction in name only; reorder no values."""
    name = matrix.dimensions[axis]
    directions = tuple(forward != (d == axis) for d, forward in enumerate(matrix.directions))
    templates = [
        replace(t, directions=tuple(forward != (d == name) for d, forward in zip(t.dimensions, t.directions, strict=True)))
        for t in matrix.references.templates
    ]
    return replace(matrix, directions=directions, references=matrix.references.with_templates(templates))


def by_position(matrix: Matrix, dimensions: Sequence[str]) -> Matrix:
    """Return a matrix whose sub-arrays are numbered by their lowest position.

    ``dimensions``: along which positions count, the first one most. A matrix with values in memory does not change.
    """
    references, cells = matrix.references, np.flatnonzero(matrix.refs >= 0)
    if references.memory:
        return matrix
    index, edges, axes = np.unravel_index(cells, matrix.cells), matrix.edges, [matrix.axis(d) for d in dimensions]
    lows = [edges[a][index[a]] if matrix.directions[a] else -edges[a][index[a] + 1] for a in axes]
    order = cells[np.lexsort(lows[::-1])]
    rows, numbers = _by_occurrence(matrix.refs[order])
    refs = matrix.refs.copy()
    refs[order] = numbers
    if references.external is None:
        return replace(matrix, references=_in_order(references, rows), refs=refs)
    from aggarray.partition.external import with_entries

    return replace(matrix, references=with_entries(references, rows, _in_order), refs=refs)


def _in_order(references: References, rows: np.ndarray) -> References:
    """Return some sub-arrays of files, which are numbered by occurrence."""
    codes, uri = _by_occurrence(references.uri[rows])
    names, variable = _by_occurrence(references.variable[rows])
    kinds, template = _by_occurrence(references.template[rows])
    uris, variables = (str(references.uris[n]) for n in codes.tolist()), (references.variables[n] for n in names.tolist())
    templates = (references.templates[n] for n in kinds.tolist())
    stamps, seen = (None if known is None else known[codes] for known in (references.stamps, references.seen))
    columns = uri, variable, template, stamps, references.tables, seen
    return References(tuple(uris), tuple(variables), tuple(templates), (), *columns)


def _by_occurrence(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct numbers of a column in order, and where each is.

    >>> [part.tolist() for part in _by_occurrence(np.array([7, 3, 7, 1]))]
    [[7, 3, 1], [0, 1, 0, 2]]
    """
    values, first, places = np.unique(column, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order))
    return values[order], rank[places]
