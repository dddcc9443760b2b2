"""Partitions of a master array, as objects that are made on demand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.cf.frozen import FrozenDict
from aggarray.dataclass import dataclass
from aggarray.errors import SelectionError, printable
from aggarray.partition.matrix import BLOCK, Matrix, Step
from aggarray.partition.plan import part_of
from aggarray.partition.stored_sizes import stored_bytes
from aggarray.storage.access import ANYWHERE, Access

if TYPE_CHECKING:
    from aggarray.arrays.subarray import SubArray

_ANY = np.dtype("f8")
Part = tuple[slice | np.ndarray, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """One cell of a partition matrix.

    It has the parameters of the aggregation specification (section 1). ``index``: one number per pmdimension; ``location``:
    (start, stop) per master dimension; ``part``: the part of ``data`` that it shows, per pdimension, in the direction of the
    sub-array; ``data``: the SubArray, None if missing; ``virtual``: it shows only a part of the sub-array.
    """

    index: tuple[int, ...]
    location: tuple[tuple[int, int], ...]
    pdimensions: tuple[str, ...]
    pdirections: tuple[bool, ...]
    punits: str | None
    pcalendar: str | None
    part: Part
    data: SubArray | None
    virtual: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Size along each dimension of the master array."""
        return tuple(stop - start for start, stop in self.location)


@dataclass(frozen=True, slots=True, eq=False)
class PartitionMatrix:
    """Partitions of a master array.

    ``pm[i, j]`` returns one, with one index per partitioned dimension. ``units`` and ``calendar`` are those of the master.
    Raises SelectionError for indices out of range.
    """

    _matrix: Matrix
    units: str | None = None
    calendar: str | None = None
    _access: Access = ANYWHERE

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The dimensions with more than one partition (pmdimensions)."""
        return tuple(d for d, n in zip(self._matrix.dimensions, self._matrix.cells, strict=True) if n > 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of partitions per dimension (pmshape); () for one partition."""
        return tuple(n for n in self._matrix.cells if n > 1)

    @property
    def dims(self) -> tuple[str, ...]:
        """The partitioned dimensions; the name that xarray uses."""
        return self.dimensions

    @property
    def sizes(self) -> FrozenDict[int]:
        """Number of partitions by partitioned dimension, immutable."""
        return FrozenDict(zip(self.dimensions, self.shape, strict=True))

    @property
    def edges(self) -> tuple[np.ndarray, ...]:
        """Read-only int64 cuts of each master dimension, from 0 to its size."""
        edges = tuple(e.view() for e in self._matrix.edges)
        for edge in edges:
            edge.flags.writeable = False
        return edges

    @property
    def _sizes(self) -> str:
        return " x ".join(f"{n} {d}" for d, n in self.sizes.items()) or "1"

    def costs(self) -> tuple[np.ndarray, ...]:
        """Return the cost to read each slab of partitions, per master dimension.

        Costs are bytes, int64. No file is opened. The cost is the number of stored bytes if an index has it, else that of the
        values; missing partitions cost nothing. A partition that shows a part of its sub-array costs that part. All processes
        compute equal costs for the same array.
        """
        table = _cell_costs(self._matrix)
        # A sum over dimensions of one partition would copy the costs.
        axes = [axis for axis, count in enumerate(table.shape) if count != 1]
        squeezed = table.reshape([table.shape[axis] for axis in axes])
        sums = {axis: squeezed.sum(axis=tuple(a for a in range(len(axes)) if a != i)) for i, axis in enumerate(axes)}
        return tuple(sums[axis] if axis in sums else table.sum().reshape(1) for axis in range(table.ndim))

    def __len__(self) -> int:
        return prod(self._matrix.cells)

    def __iter__(self) -> Iterator[Partition]:
        """Yield all partitions in C order."""
        for cell in product(*map(range, self._matrix.cells)):
            yield self._at(cell)

    def __getitem__(self, index: Any) -> Partition:
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) != len(self.shape):
            if not self.shape:
                raise SelectionError("an index for a single partition", hint="write partitions[()]")
            what = f"not one index per dimension for {self.shape} partitions along {self.dimensions}"
            raise SelectionError(what, hint=f"give {len(self.shape)}, not {len(indices)}")
        numbers = iter([_position(i, n, d) for i, n, d in zip(indices, self.shape, self.dimensions, strict=True)])
        return self._at(tuple(next(numbers) if n > 1 else 0 for n in self._matrix.cells))

    def _at(self, cell: tuple[int, ...]) -> Partition:
        from aggarray.arrays.subarray import subarray_at

        matrix = self._matrix
        index = tuple(i for i, n in zip(cell, matrix.cells, strict=True) if n > 1)
        location = tuple((int(e[i]), int(e[i + 1])) for e, i in zip(matrix.edges, cell, strict=True))
        ref = int(matrix.refs[np.ravel_multi_index(cell, matrix.cells)]) if cell else int(matrix.refs[0])
        if ref < 0:
            return Partition(index, location, matrix.dimensions, matrix.directions, self.units, self.calendar, (), None, False)
        template = matrix.references.template_of(ref)
        part = part_of(matrix, cell, template)
        complete = (isinstance(p, slice) and len(range(*p.indices(n))) == n for p, n in zip(part, template.shape, strict=True))
        virtual = not all(complete)
        data = subarray_at(matrix.references, ref, self._access)
        # A file of an index is opened at its first use, and its template is known afterwards.
        known = None
        if template.declared:
            from aggarray.scan.resolution import known_references

            known = known_references(matrix.references, ref, Step(self.units, self.calendar, _ANY))
        if known is not None:
            shown = dict(zip(template.dimensions, part, strict=True))
            template, data = known.template_of(0), subarray_at(known, 0, self._access)
            part = tuple(shown.get(d, slice(0, 1, 1)) for d in template.dimensions)
        units = template.units_in(self.units, self.calendar)
        return Partition(index, location, template.dimensions, template.directions, *units, part, data, virtual)

    def __repr__(self) -> str:
        # promise: escape-partition-repr
        return printable(f"<aggarray.PartitionMatrix {self._sizes}, {int((self._matrix.refs < 0).sum())} missing>")


def _position(index: Any, size: int, dimension: str) -> int:
    if isinstance(index, bool) or not isinstance(index, int | np.integer) or not -size <= index < size:
        what = f"partition {index!r} along {dimension!r} is out of range"
        raise SelectionError(what, hint=f"give an integer from {-size} to {size - 1}")
    return int(index) % size


def _cell_costs(matrix: Matrix) -> np.ndarray:
    """Return the bytes to read for each cell, int64, in the matrix's shape."""
    references, costs = matrix.references, np.zeros(len(matrix.refs), np.int64)
    if not len(references):
        return costs.reshape(matrix.cells)
    shown = np.array([max(prod(t.shape), 1) for t in references.templates], np.int64)
    widths = np.array([t.encoding.stored.itemsize for t in references.templates], np.int64)
    stored, extents = stored_bytes(references), list(map(np.diff, matrix.edges))
    whole = float(prod(int(own[0]) for own in extents if len(own) == 1))
    cut = [own for own in extents if len(own) > 1]
    for at in range(0, len(costs), BLOCK):
        refs = matrix.refs[at : at + BLOCK]
        template: Any = 0 if len(shown) == 1 else references.template[refs]
        known = stored[refs]
        each = np.where(known >= 0, known / shown[template], widths[template])  # bytes of one element
        cells, elements = np.arange(at, at + len(refs)), np.full(len(refs), whole)
        for own in reversed(cut):
            elements *= own[cells % len(own) if own is not cut[0] else cells]
            cells //= len(own)
        costs[at : at + len(refs)] = np.where(refs >= 0, np.rint(each * elements), 0)
    return costs.reshape(matrix.cells)
