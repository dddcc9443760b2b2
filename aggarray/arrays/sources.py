"""Sources of a selection: the files, variables and parts that it reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.arrays.conversions import conversions
from aggarray.arrays.inputs import Inputs, input_sources, inputs_of
from aggarray.dataclass import dataclass, replace
from aggarray.errors import printable
from aggarray.formats import scan
from aggarray.formats.flattened import stored_name
from aggarray.memory.selection import as_range
from aggarray.partition.matrix import References
from aggarray.partition.plan import DimensionPlan, Indices, Piece, pieces, plan_dimension
from aggarray.scan.resolution import resolve_references, touched
from aggarray.storage.access import ANYWHERE, Access

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aggarray.arrays.master import MasterArray
    from aggarray.memory.selection import Selector


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Source:
    """Piece of a selection: the values that one sub-array gives to it.

    ``uri``: the file (None: values in memory); ``variable``: its variable there, None in memory; ``part``: the part of the
    variable, per dimension of the file, in its own direction; ``location``: where the values are in the master array, one
    entry per dimension. Parts and locations are tuples of slices (step >= 1) and increasing int64 arrays, so that they index
    arrays orthogonally. ``conversions``: what reading changes, in words, such as ``"units degC -> K"``: of units, calendar,
    order and direction of dimensions, packing, dtype and missing value. See the aggregation specification, section 1.
    ``a[source.location]`` are its values.

    HDF5 assembles some regions of virtual datasets from other files. The source of such a region is the virtual dataset. The
    datasets that HDF5 reads for it follow, with the same location, and () as the part: all of them.

    >>> from aggarray import MasterArray, SubArray
    >>> pieces = [([(n, n + 2)], SubArray.from_array([n, n + 1.0])) for n in (0, 2)]
    >>> a = MasterArray.from_subarrays(pieces, dimensions=("x",))
    >>> [(s.uri, s.part, s.location) for s in a.sources(3)]
    [(None, (slice(1, 2, 1),), (slice(3, 4, 1),))]
    """

    uri: str | None
    variable: str | None
    part: tuple[Indices, ...]
    location: tuple[Indices, ...]
    conversions: tuple[str, ...]
    _access: Access = ANYWHERE

    @property
    def tracking_id(self) -> str | None:
        """The attribute ``tracking_id`` of the file, read when asked for.

        None if the file has none, and in memory. Raises MissingFileError or FormatError if the file does not open.
        """
        if self.uri is None:
            return None
        self._access.check(self.uri)
        with self._access.reach():
            found = scan(self.uri).attrs.get("tracking_id")
        return found if found is None else str(found)

    def __repr__(self) -> str:
        values = (f"{name}={getattr(self, name)!r}" for name in ("uri", "variable", "part", "location", "conversions"))
        return printable(f"Source({', '.join(values)})")


class Sources(tuple[Source, ...]):
    """Tuple of sources that prints as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        from aggarray.display.sources import sources_text
        from aggarray.display.table import line_width

        return sources_text(self, line_width())


def sources_of(array: MasterArray, selectors: Sequence[Selector]) -> Sources:
    """Return the sources of a selection; see `MasterArray.sources`."""
    matrix = array._matrix
    rows = [plan_dimension(s, e) for s, e in zip(selectors, matrix.edges, strict=True)]
    target = array._target
    matrix = resolve_references(matrix, touched(matrix, rows), target.step, target.access)
    references = matrix.references
    places = product(*(_positions(r, e) for r, e in zip(rows, matrix.edges, strict=True)))
    changes: dict[int, tuple[str, ...]] = {}
    found = []
    for piece, location in zip(pieces(matrix, rows), places, strict=True):
        if piece.ref < 0 or 0 in piece.shape:
            continue
        code = int(references.template[piece.ref])
        if code not in changes:
            changes[code] = conversions(references.templates[code], array)
        uri, change = references.uri_of(piece.ref), changes[code]
        inputs = inputs_of(references.memory[references.variable[piece.ref]]) if uri is None else None
        if inputs is not None:
            found += _computed(inputs, piece, references.templates[code].dimensions, location, array.dimensions, change)
            continue
        name = None if uri is None else references.variables[references.variable[piece.ref]]
        variable = name and stored_name(name)
        if name != variable:
            change = ("rows -> one dimension", *change)
        found.append(Source(uri, variable, tuple(map(_sliced, piece.selection)), location, change, target.access))
        if references.external is not None:
            found += _external_sources(references, piece.ref, found[-1])
    return Sources(found)


def _computed(
    inputs: Inputs,
    piece: Piece,
    names: Sequence[str],
    location: tuple[Indices, ...],
    dimensions: Sequence[str],
    change: tuple[str, ...],
) -> list[Source]:
    """Return the sources of values that were computed from other arrays.

    ``names``: dimensions of the values; ``location``: where they are in an array of ``dimensions``.
    """
    selection, places = [], list[tuple[int, np.ndarray] | None]()
    for number, (name, indices) in enumerate(zip(names, piece.selection, strict=True)):
        selection.append(_listed(indices))
        axis = dimensions.index(name) if name in dimensions else None
        there = None if axis is None else _listed(location[axis])
        places.append(None if axis is None or there is None else (axis, there[::-1] if number in piece.flip else there))
    found = []
    for source, served in input_sources(inputs, selection, places):
        own = tuple(_sliced(served[axis]) if axis in served else indices for axis, indices in enumerate(location))
        found.append(replace(source, location=own, conversions=(*source.conversions, inputs.operation, *change)))
    return found


def _listed(indices: Indices) -> np.ndarray:
    return np.arange(indices.start, indices.stop, indices.step) if isinstance(indices, slice) else indices


def _external_sources(references: References, row: int, assembled: Source) -> Iterator[Source]:
    """Yield the datasets that HDF5 reads for a piece of a virtual dataset."""
    from aggarray.partition.external import external_of

    change = (f"assembled by HDF5 in {assembled.variable} of {os.path.basename(assembled.uri or '')}",)
    for other in external_of(references, row):
        if other.stamp is not None:  # otherwise it did not exist, and gives no values
            yield replace(assembled, uri=other.uri, variable=other.variable or None, part=(), conversions=change)


def _positions(rows: DimensionPlan, edges: np.ndarray) -> list[Indices]:
    """Return the positions in the master of each row of a plan, increasing."""
    columns = (column.tolist() for column in (edges[rows.cells] + rows.first, rows.count, rows.step))
    positions: list[Indices] = []
    for row, (first, count, step) in enumerate(zip(*columns, strict=True)):
        pick: Any = rows.picks.get(row)
        start = int(edges[rows.cells[row]])
        positions.append(slice(first, first + (count - 1) * step + 1, step) if pick is None else start + pick)
    return positions


def _sliced(indices: Indices) -> Indices:
    progression = None if isinstance(indices, slice) else as_range(indices)
    return indices if progression is None else progression.as_slice()
