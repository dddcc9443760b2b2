"""Which samples of files belong to which row of a ragged array? What the files say of it, read and checked when it is needed.

The discrete sampling geometries of CF chapter 9: a `Part` has the row sizes and indices of files as arrays, and where each file
begins, so that what a file counts from 0 is shifted on, and no sample is touched.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from aggarray.errors import FormatError
from aggarray.memory.rows import (
    Rows,
    check_counts,
    check_index,
    concatenate_rows,
    contiguous,
    incomplete,
    indexed,
    indexed_contiguous,
)
from aggarray.memory.selection import Range, compose, length
from aggarray.storage.access import Access

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The rows of files of one representation.

    ``cuts``: int64 (files + 1, 3), how many instances, runs of samples and samples come before each file; ``counts``: the size
    of each run (contiguous: of each instance), None where samples are indexed one by one; ``index``: the instance of each run,
    or sample, counted within its file, None where each run is one; ``present``: coordinates of the samples of rows that are
    all as long as the longest of their file, missing where there is no sample (incomplete multidimensional).
    """

    cuts: np.ndarray
    counts: "MasterArray | None" = None
    index: "MasterArray | None" = None
    present: tuple["MasterArray", ...] = ()

    @property
    def known(self) -> bool:
        """Whether nothing has to be read for it."""
        return all(a is None or a._known is not None for a in (self.counts, self.index, *self.present))

    def of_runs(self) -> "Part":
        """Return the rows that the runs of samples make."""
        return Part(self.cuts[:, [0, 1, 1]], None, self.index)

    def rows(self, access: Access) -> Rows:
        """Return where the rows lie. FormatError names file and variable of what does not fit."""
        if self.present:
            return incomplete(self._there(access), *np.diff(self.cuts[:, [0, 2]], axis=0).T)
        counts = None if self.counts is None else whole_numbers(replace(self.counts, _access=access))
        index = None if self.index is None else whole_numbers(replace(self.index, _access=access))
        for before, after in zip(self.cuts[:-1].tolist(), self.cuts[1:].tolist(), strict=True):
            if counts is not None and self.counts is not None:
                own = counts[before[1] : after[1]]
                check_counts(own, after[2] - before[2], _where(self.counts, before[1]))
            if index is not None and self.index is not None:
                at = 2 if counts is None else 1
                own = index[before[at] : after[at]]
                check_index(own, after[0] - before[0], _where(self.index, before[at]))
                own += before[0]
        size = int(self.cuts[-1, 0])
        if counts is None:
            return contiguous(np.zeros(size, np.int64)) if index is None else indexed(index, size)
        return contiguous(counts) if index is None else indexed_contiguous(counts, index, size)

    def _there(self, access: Access) -> np.ndarray:
        """Return whether there is a sample at each place of the rows: one that any of the coordinates has."""
        there = np.zeros(int(self.cuts[-1, 2]), bool)
        for coordinate in self.present:
            values, mask = replace(coordinate, _access=access)._values_and_mask()
            own = np.ones(len(there), bool) if mask is None else ~mask
            there |= own & ~np.isnan(values) if values.dtype.kind == "f" else own
        return there


@dataclass(frozen=True, slots=True, eq=False)
class Geometry:
    """The rows of a ragged array.

    ``dimension``: of the instances; ``parts``: one after the other; ``chosen``: the instances that are left, None = all.
    """

    dimension: str
    parts: tuple[Part, ...]
    chosen: Range | np.ndarray | None = None
    _found: list[Rows] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many instances the files have."""
        return sum(int(part.cuts[-1, 0]) for part in self.parts)

    @property
    def size(self) -> int:
        """How many rows there are."""
        return self.total if self.chosen is None else length(self.chosen)

    @property
    def stored(self) -> bool:
        """Whether the samples, as they are stored, are those of all rows and no others."""
        return self.chosen is None and not any(part.present for part in self.parts)

    def rows(self, access: Access) -> Rows:
        """Return where the rows lie, found once. FormatError names file and variable of what does not fit."""
        if not self._found:
            rows = concatenate_rows([(part.rows(access), int(part.cuts[-1, 2])) for part in self.parts])
            self._found.append(rows if self.chosen is None else rows.take(self.chosen))
        return self._found[0]

    def take(self, chosen: Range | np.ndarray) -> "Geometry":
        """Return the geometry of some of the rows."""
        left = chosen if self.chosen is None else compose(self.chosen, chosen, self.total)
        return replace(self, chosen=None if isinstance(left, int) else left, _found=[])

    def __reduce__(self) -> tuple[object, ...]:
        return Geometry, (self.dimension, self.parts, self.chosen)


def whole_numbers(array: "MasterArray") -> np.ndarray:
    """Return row sizes or indices as a new int64 array, floats that are whole too; missing ones are 0 samples.

    FormatError for other values, and for a missing index.
    """
    values, mask = array._values_and_mask()
    if values.dtype.kind not in "iuf":
        raise FormatError(f"{_where(array, 0)}: row sizes and indices are whole numbers, not {values.dtype}: correct the file")
    missing = np.zeros(values.shape, bool) if mask is None else mask
    if missing.any():
        values = np.where(missing, 0, values)
    fits = (values < 2**63) & (values == np.trunc(values)) if values.dtype.kind in "uf" else np.ones(values.shape, bool)
    if values.dtype.kind == "f":
        fits &= values >= -(2**63)
    _check_all(array, fits, "row sizes and indices are whole numbers, not {}")
    if "sample_dimension" not in array.attrs:
        _check_all(array, ~missing, "the index is missing")
    return values.astype(np.int64)


def _check_all(array: "MasterArray", fits: np.ndarray, fault: str) -> None:
    """Raise FormatError for the first element that does not fit; ``fault`` names its value by {}."""
    if fits.all():
        return
    position = int(np.argmin(fits))
    edges = array._matrix.edges[0]
    start = int(edges[np.searchsorted(edges, position, side="right") - 1])
    said = fault.replace("{}", str(array.read(position)))
    raise FormatError(f"{_where(array, position)}: {said}, in element {position - start}: correct the file")


def _where(array: "MasterArray", position: int) -> str:
    """Name the file and the variable of an element of a 1-d array."""
    matrix, references = array._matrix, array._matrix.references
    edges = matrix.edges[0]
    cell = min(int(np.searchsorted(edges, position, side="right")) - 1, len(edges) - 2)
    row = int(matrix.refs[cell])
    return f"{references.uri_of(row) or 'in memory'}, variable {array.name!r}"
