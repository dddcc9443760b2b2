"""Cells of a partition matrix: their contents and positions in a picture.

The columns cover all cells at once, and no file is opened. If there are more cells than a picture can show, neighbours
are merged in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from aggarray.cf.attributes import text_attribute
from aggarray.cf.units import is_reference_time
from aggarray.dataclass import dataclass
from aggarray.partition.matrix import BLOCK, Matrix, has_step, is_increasing

#: In `Cells.files`: values in memory, and no sub-array.
IN_MEMORY, MISSING = -1, -2
#: A step longer than the usual one by this factor is drawn as a gap.
_GAP_FACTOR = 1.5


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Contents of cells, as arrays with the dimensions of the master.

    ``files``: a code of the references, `IN_MEMORY` or `MISSING`; ``virtual``: whether only a part of the sub-array is shown;
    ``holes``: whether a partition is missing; ``templates``: the number of the template, -1 if missing; ``starts``: the first
    partition of the cells along each dimension.
    """

    files: np.ndarray
    virtual: np.ndarray
    holes: np.ndarray
    templates: np.ndarray
    starts: tuple[np.ndarray, ...]

    def plane(self, across: int | None, up: int | None) -> Cells:
        """Return the cells of two dimensions (None: absent), others at index 0."""
        first = tuple(slice(None) if axis in (across, up) else 0 for axis in range(self.files.ndim))
        transposed = across is not None and up is not None and across < up
        starts = tuple(np.zeros(1, np.int64) if axis is None else self.starts[axis] for axis in (up, across))
        planes = [column[first].T if transposed else column[first] for column in self._columns]
        files, virtual, holes, templates = (p.reshape(1 if up is None else len(p), -1) for p in planes)
        return Cells(files, virtual, holes, templates, starts)

    @property
    def _columns(self) -> list[np.ndarray]:
        return [self.files, self.virtual, self.holes, self.templates]


def cells_of(array: Any, most: Sequence[int] | None = None) -> Cells:
    """Return the cells of the partition matrix of an array.

    ``most``: the most cells per dimension, None = all. Merged cells show one of their files.
    """
    matrix: Matrix = array._matrix
    shape = matrix.cells
    starts = tuple(map(np.arange, shape)) if most is None else tuple(map(evenly_spaced, shape, most))
    whole = all(len(first) == count for first, count in zip(starts, shape, strict=True))
    own = _columns_of(matrix, list(_partial(matrix)), 0, len(matrix.refs)) if whole else _merged(matrix, starts)
    files, virtual, missing, templates = (column.reshape(tuple(map(len, starts))) for column in own)
    return Cells(files, virtual, missing, templates, starts)


def _merged(matrix: Matrix, starts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the columns of cells that are merged from those at ``starts``."""
    merges, (first, *others) = (np.maximum, np.logical_or, np.logical_or, np.maximum), starts
    inner = prod(matrix.cells[1:])
    ends = np.append(first[1:], matrix.cells[0])
    # Rows of merged cells are made in blocks, so that columns of all cells are not.
    bounds = np.unique(np.searchsorted(ends, np.arange(0, matrix.cells[0], max(1, BLOCK // max(inner, 1)))))
    partial, blocks = list(_partial(matrix)), []
    for low, high in pairwise([*bounds.tolist(), len(first)]):
        begin, end = int(first[low]), int(ends[high - 1])
        columns = [c.reshape(end - begin, *matrix.cells[1:]) for c in _columns_of(matrix, partial, begin * inner, end * inner)]
        for axis, own in enumerate([first[low:high] - begin, *others]):
            columns = [merge.reduceat(c, own, axis=axis) for merge, c in zip(merges, columns, strict=True)]
        blocks.append(columns)
    return [np.concatenate(columns) for columns in zip(*blocks, strict=True)]


def _columns_of(matrix: Matrix, partial: Sequence[tuple[int | None, np.ndarray]], begin: int, end: int) -> list[np.ndarray]:
    """Return the columns of `Cells` of some cells; ``partial``: `_partial`."""
    refs, references = matrix.refs[begin:end], matrix.references
    present = refs >= 0
    files, templates = np.full(len(refs), MISSING, np.int32), np.full(len(refs), -1, np.int32)
    files[present], templates[present] = references.uri[refs[present]], references.template[refs[present]]
    virtual = np.zeros(len(refs), bool)
    for axis, sizes in partial:
        extents, cells = np.ones(1, np.int64), np.zeros(1, np.int64)
        if axis is not None:
            cells = np.arange(begin, end)[present] // prod(matrix.cells[axis + 1 :]) % matrix.cells[axis]
            extents = matrix.edges[axis][cells + 1] - matrix.edges[axis][cells]
        virtual[present] |= sizes[templates[present]] != extents
    return [files, virtual, ~present, templates]


def _partial(matrix: Matrix) -> Iterator[tuple[int | None, np.ndarray]]:
    """Yield the dimensions along which cells may show part of a sub-array.

    Each comes with the size of each template along it; None for dimensions that the master has dropped.
    """
    sizes = [dict(zip(t.dimensions, t.shape, strict=True)) for t in matrix.references.templates]
    for name in dict.fromkeys((*matrix.dimensions, *(d for by_name in sizes for d in by_name))):
        size = np.array([by_name.get(name, 1) for by_name in sizes], np.int64)
        axis = matrix.dimensions.index(name) if name in matrix.dimensions else None
        first = 1 if axis is None else int(np.diff(matrix.edges[axis][:2]).sum())
        if not (size == first).all() or (axis is not None and not has_step(matrix.edges[axis], first)):
            yield axis, size


def virtual_count(matrix: Matrix) -> int:
    """Return the number of cells that show only a part of their sub-array."""
    partial, count = list(_partial(matrix)), len(matrix.refs)
    blocks = range(0, count, BLOCK) if partial else ()
    return sum(int(_columns_of(matrix, partial, at, min(at + BLOCK, count))[1].sum()) for at in blocks)


def evenly_spaced(count: int, most: int) -> np.ndarray:
    """Return at most ``most`` of the numbers below ``count``, evenly spaced.

    >>> evenly_spaced(5, 10).tolist(), evenly_spaced(1000, 3).tolist()
    ([0, 1, 2, 3, 4], [0, 333, 666])
    """
    kept = min(count, most)
    return np.arange(kept) * count // max(kept, 1)


def displayed_dimensions(array: Any) -> tuple[str, ...]:
    """Return the partitioned dimensions: across, up, then the others.

    A time dimension comes first, else the last dimension, as on a map. Without partitioned dimensions: the first dimension.
    """
    partitioned = array.pmdimensions or array.dimensions[:1]
    times = [d for d in partitioned if d == "time" or times_of(array, d) is not None]
    first = times[:1] or list(partitioned[-1:])
    return (*first, *(d for d in partitioned[::-1] if d not in first))


def coordinate_of(array: Any, dimension: str) -> Any:
    """Return a coordinate if its values are known without reading, or None.

    A coordinate along the dimension with the standard name ``time`` precedes one of its name that is not a time.
    """
    own = {name: c for name, c in array.coords.items() if c.dimensions == (dimension,)}
    named = own.get(dimension)
    times = [c for c in (named, *own.values()) if c is not None and is_reference_time(c.units)]
    best = [c for c in times if c is named or text_attribute(c.attrs.get("standard_name")) == "time"] + [
        c for c in (named,) if c is not None
    ]
    return next((c for c in best if c._is_known), None)


def times_of(array: Any, dimension: str) -> Any:
    """Return the known times of a dimension as numbers, None without any.

    They are in the units of the coordinate. They are strictly increasing and finite, as an axis needs them.
    """
    coordinate = coordinate_of(array, dimension)
    if coordinate is None or not is_reference_time(coordinate.units) or coordinate.dtype.kind not in "iuf":
        return None
    values, mask = coordinate._values_and_mask()
    values = values.astype("f8", copy=False)
    if not len(values) or (mask is not None and mask.any()):
        return None
    # Increasing values are finite where the ends are.
    return values if np.isfinite(values[[0, -1]]).all() and is_increasing(values) else None


def is_drawn_upwards(array: Any, dimension: str) -> bool:
    """Return whether a dimension is drawn upwards, as a numeric axis is."""
    coordinate = coordinate_of(array, dimension)
    forward: bool = array.directions[array.dimensions.index(dimension)]
    return coordinate is not None and coordinate.dtype.kind in "iuf" and forward


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Where partitions begin and end along an axis.

    The limits are in ``values`` if given, else in positions. A partition ends one ``usual`` step after its last value, or at
    the begin of the next one if that is near. Gaps stay free.
    """

    edges: np.ndarray
    values: np.ndarray | None
    usual: float

    def at(self, partitions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the begins and ends of some partitions."""
        first, end = self.edges[partitions], self.edges[partitions + 1]
        values, last = self.values, end - 1
        if values is None:
            return first, end
        before = np.where(end - first > 1, values[last] - values[last - 1], self.usual)
        is_inner = (last >= 0) & (end < len(values))
        after = np.where(is_inner, values[np.minimum(end, len(values) - 1)] - values[last], self.usual)
        return values[first], values[last] + np.where(after <= _GAP_FACTOR * before, after, np.minimum(before, after))

    def limits(self) -> tuple[float, float]:
        """Return the begin of the first partition and the end of the last."""
        begin, end = self.at(np.array([0, len(self.edges) - 2]))
        return float(begin[0]), float(end[1])


def spans(edges: np.ndarray, values: np.ndarray | None = None) -> Spans:
    """Return where partitions begin and end along an axis.

    >>> begin, end = spans(np.array([0, 2, 4]), np.array([0.0, 1.0, 5.0, 6.0])).at(np.arange(2))
    >>> begin.tolist(), end.tolist()
    ([0.0, 5.0], [2.0, 7.0])
    """
    if values is None or len(values) < 2:
        return Spans(edges, None, 0.0)
    step = float(values[1] - values[0])
    return Spans(edges, values, step if has_step(values, step) else float(np.median(np.diff(values))))


def spans_of(array: Any, dimension: str, starts: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the begins and ends of cells; ``starts``: first partitions."""
    edges = array.partitions.edges[array.dimensions.index(dimension)]
    own, last = spans(edges, values), np.append(starts[1:], len(edges) - 1)[: len(starts)] - 1
    return own.at(starts)[0], own.at(last)[1]
