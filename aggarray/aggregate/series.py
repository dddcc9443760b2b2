"""Series: files that differ only along one dimension, joined as columns.

Most archives are split along one coordinate. The files of a series share variables, attributes and all other coordinates, and
each follows the one before. Their joined arrays are made of columns, without arrays for each file. They equal the join of the
arrays of the files, which `stages.Entry.members` returns where other arrays might join, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from aggarray.aggregate.candidate import AxisCoordinate, Candidate, CandidateCache, coordinate_along, describe
from aggarray.aggregate.equality import is_longitude, roundings
from aggarray.aggregate.file_series import FileSeries, find_file_series
from aggarray.aggregate.identity import is_mapping
from aggarray.aggregate.positions import tolerance_of
from aggarray.aggregate.rules import Rules, parse_dimension
from aggarray.aggregate.variables import arrays_of
from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray
from aggarray.dataclass import dataclass, replace
from aggarray.formats.base import Structure, Variable
from aggarray.partition.matrix import MAX_CELLS, Matrix, References, Template
from aggarray.partition.tiling import expand
from aggarray.storage.access import Access

if TYPE_CHECKING:
    from aggarray.partition.stored_sizes import ChunkIndexes
    from aggarray.scan.structure_table import StructureTable


@dataclass(frozen=True, slots=True, eq=False)
class JoinedSeries:
    """Joined arrays of a series of files, by their number in each file.

    ``rows`` of the ``table``: the files along the dimension; ``count``: of the arrays of each file; ``skipped``: of each;
    ``values``: of the files along a new dimension that a rule states, as text.
    """

    table: StructureTable
    rows: Sequence[int]
    count: int
    joined: Mapping[int, MasterArray]
    skipped: Sequence[tuple[str, str]]
    values: Sequence[str] = ()

    def uri(self, row: int) -> str:
        """Return the file of a row."""
        return self.table.uris[row]


def find_series(
    table: StructureTable,
    rules: Rules,
    access: Access,
    tables: ChunkIndexes | None = None,
    left_out: Collection[str] = (),
) -> Iterator[JoinedSeries]:
    """Yield the series among the files of a table, except those ``left_out``."""
    if rules.order or rules.versions is not None or rules.forecast_cubes:
        return  # these rules change the join of single arrays
    rows = [row for row, uri in enumerate(table.uris) if uri not in left_out]
    for files in _find_files(table, rules, rows):
        is_directed = files.is_scalar and bool(rules.directions)
        is_converted_once = files.units is None or not rules.units
        if is_converted_once and not is_directed and (rules.along is None or files.dimension in rules.along):
            builder = _Builder(files, access, tables)
            joined = builder.joined(rules)
            if joined:
                skipped = list(dict.fromkeys(table.variants[table.variant[files.rows[0]]].model.skipped))
                yield JoinedSeries(table, files.rows, len(builder.first), joined, skipped, files.members)


def _find_files(table: StructureTable, rules: Rules, rows: Sequence[int]) -> Iterator[FileSeries]:
    """Yield series along coordinates, then those along a new dimension."""
    identifying = (*rules.facets, "featureType", "coordinates")
    if rules.new_dimension is None:
        yield from find_file_series(table, identifying, rows)
        return
    from aggarray.aggregate.member_files import find_member_files

    name, pattern = parse_dimension(rules.new_dimension)
    stated, taken = [] if pattern is not None else [name], set[int]()
    for files in find_file_series(table, (*identifying, *stated), rows, pattern):
        taken.update(files.rows)
        yield files
    yield from find_member_files(table, (name, pattern), identifying, [row for row in rows if row not in taken])


class _Builder:
    """Joined arrays of one series of files.

    ``first``: the arrays of the first file; ``merged``: those of a file with the values of all files.
    """

    def __init__(self, files: FileSeries, access: Access, tables: ChunkIndexes | None) -> None:
        self.files, self._tables, self._access = files, tables, access
        structures = files.table[files.rows[0]], files.merge_structures()
        self.first, self.merged = (self._arrays(structure) for structure in structures)
        self._counted = {v.name for v in files.counted.values()}
        ragged = any(isinstance(array, RaggedMasterArray) for array in self.first)
        self.is_plain = bool(self.first) and not ragged and not any(map(_may_fall, structures[1].variables))
        self._examples = {n: self._arrays(files.table[row]) for n, row in files.examples.items()}
        forms = [[_form(array, self._counted) for array in arrays] for arrays in (self.merged, *self._examples.values())]
        self.is_plain = self.is_plain and all(form == forms[0] for form in forms)

    def _arrays(self, structure: Structure) -> list[MasterArray]:
        """Return the arrays of a structure, none if one is unusable."""
        arrays, odd = arrays_of(structure, self._access)
        return arrays if list(odd) == list(structure.skipped) else []

    def joined(self, rules: Rules) -> dict[int, MasterArray]:
        """Return the joined arrays that certainly equal the join of the files."""
        if not self.is_plain:
            return {}
        spanned = {n: self._spanned(n) for n in range(len(self.merged))}
        return {n: self._array(n, names) for n, names in spanned.items() if names and self._is_joinable(n, names, rules)}

    def _spanned(self, number: int) -> Collection[str]:
        """Return the coordinates of an array along the dimension, with it."""
        merged, d = self.merged[number], self.files.dimension
        if not self.files.is_scalar:
            axis = merged.coords.get(d) if d in merged.dimensions else None
            if axis is None or coordinate_along(d, merged) is not axis:
                return ()
            is_forward = all(a._matrix.directions[a.dimensions.index(d)] for a in (merged, axis))
            return {n for n, c in merged.coords.items() if d in c.dimensions} if is_forward else ()
        if self.files.members:
            return () if merged._known is not None or d in (*merged.dimensions, *merged.coords) else {d}
        one = Candidate(self.first[number], "", 0)
        describe(one, (), CandidateCache())
        if merged._known is not None or not any(axis.scalar and axis.name == d for axis in one.axes.values()):
            return ()
        spanned = {d, *(bounds for name, bounds in one.bounds.items() if name == d)}
        is_stacked = all(_is_stacked(merged.coords[name], self.files.stacked) for name in spanned)
        return spanned if is_stacked else ()

    def _is_joinable(self, number: int, spanned: Collection[str], rules: Rules) -> bool:
        merged, first, d = self.merged[number], self.first[number], self.files.dimension
        # Other coordinates that are not known would be read and compared.
        shared = [c for name, c in first.coords.items() if name not in spanned]
        if any(c._known is None and not is_mapping(c) for c in shared) or len(self.files.rows) > MAX_CELLS:
            return False
        is_increasing = bool(self.files.members) or self._is_increasing(self._with_values(merged.coords[d]), rules)
        return bool(prod(merged.shape)) and is_increasing

    def _with_values(self, merged: MasterArray) -> MasterArray:
        """Return a coordinate with the values of all files, where known."""
        values = self.files.stacked.get(str(merged.name))
        if values is None:
            return merged
        (template,) = merged._matrix.references.templates
        values, mask = template.encoding.decode(values)
        if mask is not None:
            values = np.where(mask, np.asarray(merged.fill_value, values.dtype), values)
        values.flags.writeable = False
        return replace(merged, _known=(values, mask if mask is not None and mask.any() else None))

    def _is_increasing(self, axis: MasterArray, rules: Rules) -> bool:
        """Return whether the coordinate increases, by more than the tolerance."""
        if axis._known is None or axis.dtype.kind not in "iuf" or is_longitude(axis):
            return False
        values, mask = axis._known
        if (mask is not None and mask.any()) or not np.isfinite(values).all():
            return False
        values = values.astype(np.float64 if values.dtype.kind in "uf" else np.int64, copy=False)
        steps = np.diff(values).astype(np.float64)
        within = np.ones(len(steps), bool)
        within[self.files.edges[1:-1] - 1] = False
        spacing = float(steps[within].min(initial=np.inf))
        largest = max(abs(float(values[0])), abs(float(values[-1])))
        one = AxisCoordinate(str(axis.name), False, len(values), axis, False, True, largest)
        (rounding,) = roundings([one], (axis.units, axis.calendar))
        rounding += 0.0 if self.files.units is None else self.files.units.rounding(largest)
        tolerance = tolerance_of(spacing if spacing < np.inf else 0.0, rules.tolerance, rounding)
        return bool((steps > max(tolerance, 0)).all())

    def _array(self, number: int, spanned: Collection[str]) -> MasterArray:
        merged, first = self.merged[number], self.first[number]
        coords = {
            name: self._columns(number, name, self._with_values(c)) if name in spanned else first.coords[name]
            for name, c in merged.coords.items()
        }
        return replace(self._columns(number, None, merged), coords=coords)

    def _columns(self, number: int, coordinate: str | None, merged: MasterArray) -> MasterArray:
        """Return an array of the series as an array over its files."""
        files, one = self.files, merged._matrix
        column, kinds = files.kinds
        templates: dict[Template, int] = {}
        numbers = []
        for variant, units in kinds:
            item = self._examples[variant][number]
            (template,) = (item if coordinate is None else item.coords[coordinate])._matrix.references.templates
            if files.units is not None and merged.name in self._counted:
                template = files.units.of(units, template)
            numbers.append(templates.setdefault(template, len(templates)))
        count = len(files.rows)
        order, names = np.arange(count, dtype=np.int32), one.references.variables
        columns = order, np.zeros(count, np.int32), np.array(numbers, np.int32)[column]
        references = References(files.uris, names, tuple(templates), (), *columns, files.stamps, self._tables, files.seen)
        if files.is_scalar:
            one = expand(one, files.dimension)
        axis = one.dimensions.index(files.dimension)
        edges = (*one.edges[:axis], files.edges, *one.edges[axis + 1 :])
        return replace(merged, _matrix=Matrix(one.dimensions, one.directions, edges, references, order))


def _is_stacked(coordinate: MasterArray, stacked: Collection[str]) -> bool:
    """Return whether the values of all files are known, as they are stored."""
    return coordinate.name in stacked and not any(t.steps for t in coordinate._matrix.references.templates)


def _may_fall(variable: Variable) -> bool:
    """Return whether pairs of bounds may be decreasing in one of the files."""
    pairs = variable.values
    return pairs is not None and pairs.shape[1:] == (2,) and bool((pairs[:, 1] < pairs[:, 0]).any())


def _form(array: MasterArray, counted: Collection[str]) -> object:
    """Return what the arrays of all files of a series have in common.

    ``counted``: names of coordinates in units of each file.
    """
    parts = [
        (a.name, *((None, None) if a.name in counted else (a.dtype, a.units)), a.calendar, a._matrix.dimensions, a.directions)
        for a in (array, *array.coords.values())
    ]
    return tuple(array.coords), parts
