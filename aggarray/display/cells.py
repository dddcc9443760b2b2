"""Cells of a partition matrix: their contents and positions in a picture.

The columns cover all cells at once, and no file is opened. If there are more cells than a picture can show, `Cells.fewer`
merges neighbours.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.cf.attributes import text_attribute
from aggarray.cf.units.recognition import is_reference_time
from aggarray.dataclass import dataclass
from aggarray.errors import AggarrayError
from aggarray.partition.matrix import Matrix, are_used

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

    def fewer(self, most: Sequence[int]) -> "Cells":
        """Return at most ``most`` cells per dimension; merged ones show one file."""
        kept = [evenly_spaced(n, m) for n, m in zip(self.files.shape, most, strict=True)]
        merges, columns = (np.maximum, np.logical_or, np.logical_or, np.maximum), self._columns
        for axis, first in enumerate(kept):
            if len(first) < self.files.shape[axis]:
                columns = [merge.reduceat(a, first, axis=axis) for merge, a in zip(merges, columns, strict=True)]
        files, virtual, holes, templates = columns
        return Cells(files, virtual, holes, templates, tuple(s[f] for s, f in zip(self.starts, kept, strict=True)))

    def plane(self, across: int | None, up: int | None) -> "Cells":
        """Return the cells of two dimensions (None: absent), others at index 0."""
        first = tuple(slice(None) if axis in (across, up) else 0 for axis in range(self.files.ndim))
        transposed = across is not None and up is not None and across < up
        starts = tuple(np.zeros(1, np.int64) if axis is None else self.starts[axis] for axis in (up, across))
        planes = [column[first].T if transposed else column[first] for column in self._columns]
        files, virtual, holes, templates = (p.reshape(1 if up is None else len(p), -1) for p in planes)
        return Cells(files, virtual, holes, templates, starts)

    @property
    def file_count(self) -> int:
        """The number of files."""
        files = self.files[self.files >= 0]
        return int(np.count_nonzero(are_used(files, int(files.max(initial=-1)) + 1)))

    @property
    def _columns(self) -> list[np.ndarray]:
        return [self.files, self.virtual, self.holes, self.templates]


def cells_of(array: Any) -> Cells:
    """Return the cells of the partition matrix of an array."""
    matrix: Matrix = array._matrix
    present = matrix.refs >= 0
    files, templates = np.full(len(present), MISSING, np.int32), np.full(len(present), -1, np.int32)
    files[present] = matrix.references.uri[matrix.refs[present]]
    templates[present] = matrix.references.template[matrix.refs[present]]
    shape = matrix.cells
    columns = files.reshape(shape), _virtual(matrix, present).reshape(shape), ~present.reshape(shape), templates.reshape(shape)
    return Cells(*columns, tuple(np.arange(n) for n in shape))


def _virtual(matrix: Matrix, present: np.ndarray) -> np.ndarray:
    """Return which cells show only a part of their sub-array."""
    references = matrix.references
    virtual = np.zeros(len(matrix.refs), bool)
    sizes = [dict(zip(t.dimensions, t.shape, strict=True)) for t in references.templates]
    for name in dict.fromkeys((*matrix.dimensions, *(d for by_name in sizes for d in by_name))):
        size = np.array([by_name.get(name, 1) for by_name in sizes], np.int64)
        axis = matrix.dimensions.index(name) if name in matrix.dimensions else None
        extents = np.ones(1, np.int64) if axis is None else np.diff(matrix.edges[axis])
        if (size == extents[0]).all() and (extents == extents[0]).all():
            continue  # the common case: all of every sub-array
        cells = np.flatnonzero(present)
        index = 0 if axis is None else np.unravel_index(cells, matrix.cells)[axis]
        virtual[cells] |= size[references.template[matrix.refs[cells]]] != extents[index]
    return virtual


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
    return next(filter(is_known, best), None)


def is_known(coordinate: Any) -> bool:
    """Return whether the values of a coordinate are known without reading."""
    return coordinate._known is not None or not len(coordinate._matrix.references.uris)


def times_of(array: Any, dimension: str) -> Any:
    """Return the known times of a dimension as numbers, None without any.

    They are in the units of the coordinate. They are strictly increasing and finite, as an axis needs them.
    """
    coordinate = coordinate_of(array, dimension)
    if coordinate is None or not is_reference_time(coordinate.units) or coordinate.dtype.kind not in "iuf":
        return None
    try:
        values = coordinate.read().astype("f8")
    except AggarrayError:
        return None
    return values if len(values) and np.isfinite(values).all() and (np.diff(values) > 0).all() else None


def is_drawn_upwards(array: Any, dimension: str) -> bool:
    """Return whether a dimension is drawn upwards, as a numeric axis is."""
    coordinate = coordinate_of(array, dimension)
    forward: bool = array.directions[array.dimensions.index(dimension)]
    return coordinate is not None and coordinate.dtype.kind in "iuf" and forward


def spans(edges: np.ndarray, values: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return where partitions begin and end along an axis.

    The limits are in ``values`` if given, else in positions. A partition ends one usual step after its last value, or at the
    begin of the next one if that is near. Gaps stay free.

    >>> begin, end = spans(np.array([0, 2, 4]), np.array([0.0, 1.0, 5.0, 6.0]))
    >>> begin.tolist(), end.tolist()
    ([0.0, 5.0], [2.0, 7.0])
    """
    if values is None or len(values) < 2:
        return edges[:-1], edges[1:]
    steps = np.diff(values)
    usual = np.median(steps)
    last = edges[1:] - 1
    before = np.where(np.diff(edges) > 1, steps[np.maximum(last - 1, 0)], usual)
    after = np.append(steps, usual)[last]
    return values[edges[:-1]], values[last] + np.where(after <= _GAP_FACTOR * before, after, np.minimum(before, after))


def spans_of(array: Any, dimension: str, starts: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the begins and ends of cells; ``starts``: first partitions."""
    begin, end = spans(array.partitions.edges[array.dimensions.index(dimension)], values)
    return begin[starts], end[np.append(starts[1:], len(end)) - 1] if len(starts) else end
