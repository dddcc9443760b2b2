"""What does each cell of a partition matrix show, and where is it drawn?

Columns over all cells at once, from what is known: no file is touched. Where there are more cells than a picture can show,
`Cells.fewer` has neighbours share one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggarray.cf.units import is_reference_time
from aggarray.errors import AggarrayError
from aggarray.formats.templates import text_attribute
from aggarray.partition.matrix import Matrix

#: In `Cells.files`: values in memory, and no sub-array at all.
INSIDE, MISSING = -1, -2
#: A step this much longer than usual is no longer drawn as covered by what lies before it.
_LONG = 1.5


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """What cells show: arrays that have a dimension for every dimension of the master.

    ``files``: a code of the references, `INSIDE` or `MISSING`; ``virtual``: is less shown than the whole sub-array;
    ``holes``: is anything missing; ``templates``: the number of the template, -1 where missing; ``starts``: along each
    dimension, which partition the cells begin with.
    """

    files: np.ndarray
    virtual: np.ndarray
    holes: np.ndarray
    templates: np.ndarray
    starts: tuple[np.ndarray, ...]

    def fewer(self, most: Sequence[int]) -> "Cells":
        """Return at most so many cells along each dimension: each shows a file of those that share it."""
        kept = [some(n, m) for n, m in zip(self.files.shape, most, strict=True)]
        shrunk = self._columns
        for axis, (first, count) in enumerate(zip(kept, self.files.shape, strict=True)):
            if len(first) < count:
                ways = (np.maximum, np.logical_or, np.logical_or, np.maximum)
                found = [way.reduceat(a, first, axis=axis) for way, a in zip(ways, shrunk, strict=True)]
                shrunk = (found[0], found[1], found[2], found[3])
        starts = tuple(s[f] for s, f in zip(self.starts, kept, strict=True))
        return Cells(shrunk[0], shrunk[1], shrunk[2], shrunk[3], starts)

    def plane(self, across: int | None, up: int | None) -> "Cells":
        """Return what two dimensions show (up, across), the others at their first partition; None: there is no such one."""
        first = tuple(slice(None) if axis in (across, up) else 0 for axis in range(self.files.ndim))
        turned = across is not None and up is not None and across < up
        shown = []
        for column in self._columns:
            found = column[first].T if turned else column[first]
            shown.append(found.reshape(1 if up is None else found.shape[0], -1))
        starts = [np.zeros(1, np.int64) if axis is None else self.starts[axis] for axis in (up, across)]
        return Cells(shown[0], shown[1], shown[2], shown[3], tuple(starts))

    @property
    def _columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        return self.files, self.virtual, self.holes, self.templates


def cells_of(array: Any) -> Cells:
    """Return what the cells of the matrix of an array show."""
    matrix: Matrix = array._matrix
    present = matrix.refs >= 0
    files, templates = np.full(len(present), MISSING, np.int32), np.full(len(present), -1, np.int32)
    files[present] = matrix.references.uri[matrix.refs[present]]
    templates[present] = matrix.references.template[matrix.refs[present]]
    shape = matrix.cells
    columns = files.reshape(shape), _virtual(matrix, present).reshape(shape), ~present.reshape(shape), templates.reshape(shape)
    return Cells(*columns, tuple(np.arange(n) for n in shape))


def _virtual(matrix: Matrix, present: np.ndarray) -> np.ndarray:
    """Tell per cell whether it shows less than its whole sub-array."""
    references = matrix.references
    found = np.zeros(len(matrix.refs), bool)
    cells = np.flatnonzero(present)
    numbers = references.template[matrix.refs[cells]]
    sizes = [dict(zip(t.dimensions, t.shape, strict=True)) for t in references.templates]
    index = np.unravel_index(cells, matrix.cells) if matrix.cells else ()
    for name in dict.fromkeys((*matrix.dimensions, *(d for one in sizes for d in one))):
        size = np.array([one.get(name, 1) for one in sizes], np.int64)[numbers]
        axis = matrix.dimensions.index(name) if name in matrix.dimensions else None
        found[cells] |= size != (1 if axis is None else np.diff(matrix.edges[axis])[index[axis]])
    return found


def some(count: int, most: int) -> np.ndarray:
    """Return at most so many of ``count`` numbers, evenly.

    >>> some(5, 10).tolist(), some(1000, 3).tolist()
    ([0, 1, 2, 3, 4], [0, 333, 666])
    """
    kept = min(count, most)
    return np.arange(kept) * count // max(kept, 1)


def shown(array: Any) -> tuple[str, ...]:
    """Return the partitioned dimensions in the order in which a picture shows them: across, up, then others.

    Times run across; without any the last dimension does, as on a map. Nothing partitioned: the dimension that would be.
    """
    several = array.pmdimensions or array.dimensions[:1]
    times = [d for d in several if d == "time" or times_of(array, d) is not None]
    first = times[:1] or list(several[-1:])
    return (*first, *(d for d in several[::-1] if d not in first))


def coordinate_of(array: Any, dimension: str) -> Any:
    """Return the coordinate of a dimension where its values are known without reading a file, else None.

    That of its name; where it is none of time, the one along it whose standard name is ``time``.
    """
    own = {name: c for name, c in array.coords.items() if c.dimensions == (dimension,)}
    named = own.get(dimension)
    times = [c for c in (named, *own.values()) if c is not None and is_reference_time(c.units)]
    best = [c for c in times if c is named or text_attribute(c.attrs.get("standard_name")) == "time"] + [
        c for c in (named,) if c is not None
    ]
    return next((c for c in best if c._known is not None or not len(c._matrix.references.uris)), None)


def times_of(array: Any, dimension: str) -> Any:
    """Return the times of a dimension, where they are known, as numbers in the coordinate's own units; None for none.

    Increasing and without missing ones: as an axis needs them.
    """
    coordinate = coordinate_of(array, dimension)
    if coordinate is None or not is_reference_time(coordinate.units) or coordinate.dtype.kind not in "iuf":
        return None
    try:
        values = coordinate.read().astype("f8")
    except AggarrayError:
        return None
    return values if len(values) and np.isfinite(values).all() and (np.diff(values) > 0).all() else None


def runs_up(array: Any, dimension: str) -> bool:
    """Tell whether a picture draws a dimension upwards, as axes of increasing numbers; others run down, as lists do."""
    coordinate = coordinate_of(array, dimension)
    forward: bool = array.directions[array.dimensions.index(dimension)]
    return coordinate is not None and coordinate.dtype.kind in "iuf" and forward


def spans(edges: np.ndarray, values: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return where partitions begin and end along an axis: at ``values`` where there are any, else at their positions.

    A partition ends a usual step after its last value, or at the next one's beginning where that is not much further: what
    is missing in between stays free.

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
    return values[edges[:-1]], values[last] + np.where(after <= _LONG * before, after, np.minimum(before, after))


def spans_of(array: Any, dimension: str, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where the cells of a dimension that begin with these partitions begin and end along an axis."""
    begin, end = spans(array.partitions.edges[array.dimensions.index(dimension)], times_of(array, dimension))
    return begin[starts], end[np.append(starts[1:], len(end)) - 1] if len(starts) else end
