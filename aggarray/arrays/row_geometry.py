"""Geometry of a ragged array: the samples of each row.

It is read and checked when it is used. These are the discrete sampling geometries of CF chapter 9. A `Part` has the row sizes
and indices of files as arrays, and the positions where each file begins, which shift the indices of a file. No sample is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from aggarray.dataclass import dataclass, field, replace
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
    """The rows of files in one representation.

    ``cuts``: int64 (files + 1, 3), the number of instances, runs of samples and samples before each file; ``counts``: the size
    of each run (contiguous: of each instance), None if each sample is indexed; ``index``: the instance of each run or sample,
    counted within its file, None if each run is an instance; ``present``: coordinates of the samples in an incomplete
    multidimensional representation, missing where there is no sample.
    """

    cuts: np.ndarray
    counts: MasterArray | None = None
    index: MasterArray | None = None
    present: tuple[MasterArray, ...] = ()

    @property
    def known(self) -> bool:
        """Whether the rows are known without reading."""
        return all(a is None or a._known is not None for a in (self.counts, self.index, *self.present))

    def of_runs(self) -> Part:
        """Return the runs of samples as rows."""
        return Part(self.cuts[:, [0, 1, 1]], None, self.index)

    def rows(self, access: Access) -> Rows:
        """Return the rows; raise FormatError for invalid sizes or indices."""
        if self.present:
            # An element is a sample if any of the coordinates has it.
            valid = np.zeros(int(self.cuts[-1, 2]), bool)
            for coordinate in self.present:
                values, mask = replace(coordinate, _access=access)._values_and_mask()
                present = np.ones(len(valid), bool) if mask is None else ~mask
                valid |= present & ~np.isnan(values) if values.dtype.kind == "f" else present
            return incomplete(valid, *np.diff(self.cuts[:, [0, 2]], axis=0).T)
        counts = None if self.counts is None else read_integers(replace(self.counts, _access=access))
        index = None if self.index is None else read_integers(replace(self.index, _access=access))
        for before, after in zip(self.cuts[:-1].tolist(), self.cuts[1:].tolist(), strict=True):
            if counts is not None and self.counts is not None:
                with _located(self.counts, before[1]):
                    check_counts(counts[before[1] : after[1]], after[2] - before[2])
            if index is not None and self.index is not None:
                column = 2 if counts is None else 1
                of_file = index[before[column] : after[column]]
                with _located(self.index, before[column]):
                    check_index(of_file, after[0] - before[0])
                of_file += before[0]
        size = int(self.cuts[-1, 0])
        if counts is None:
            return contiguous(np.zeros(size, np.int64)) if index is None else indexed(index, size)
        return contiguous(counts) if index is None else indexed_contiguous(counts, index, size)


@dataclass(frozen=True, slots=True, eq=False)
class Geometry:
    """The rows of a ragged array.

    ``dimension``: of the instances; ``parts``: in their order; ``chosen``: the selected instances, None = all.
    """

    dimension: str
    parts: tuple[Part, ...]
    chosen: Range | np.ndarray | None = None
    _found: list[Rows] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Number of instances in the files."""
        return sum(int(part.cuts[-1, 0]) for part in self.parts)

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.total if self.chosen is None else length(self.chosen)

    @property
    def stored(self) -> bool:
        """Whether the stored samples are exactly those of the rows."""
        return self.chosen is None and not any(part.present for part in self.parts)

    def rows(self, access: Access) -> Rows:
        """Return the rows, computed once; raise FormatError for invalid ones."""
        if not self._found:
            rows = concatenate_rows([(part.rows(access), int(part.cuts[-1, 2])) for part in self.parts])
            self._found.append(rows if self.chosen is None else rows.take(self.chosen))
        return self._found[0]

    def take(self, chosen: Range | np.ndarray) -> Geometry:
        """Return the geometry of selected rows."""
        rows = chosen if self.chosen is None else compose(self.chosen, chosen, self.total)
        return replace(self, chosen=None if isinstance(rows, int) else rows, _found=[])

    def __reduce__(self) -> tuple[object, ...]:
        return Geometry, (self.dimension, self.parts, self.chosen)


def read_integers(array: MasterArray) -> np.ndarray:
    """Return row sizes or indices as a new int64 array.

    Integral floats are converted; missing sizes are 0. Raises FormatError for other values, and for a missing index.
    """
    values, mask = array._values_and_mask()
    if values.dtype.kind not in "iuf":
        what = f"row sizes and indices have dtype {values.dtype}, not integers"
        path, variable = _source(array, 0)
        raise FormatError(what, path=path, variable=variable, hint="correct the file")
    missing = np.zeros(values.shape, bool) if mask is None else mask
    if missing.any():
        values = np.where(missing, 0, values)
    fits = (values < 2**63) & (values == np.trunc(values)) if values.dtype.kind in "uf" else np.ones(values.shape, bool)
    if values.dtype.kind == "f":
        fits &= values >= -(2**63)
    _check_all(array, fits, "{} is not an integer, as row sizes and indices are")
    if "sample_dimension" not in array.attrs:
        _check_all(array, ~missing, "the index is missing")
    return values.astype(np.int64)


def _check_all(array: MasterArray, fits: np.ndarray, fault: str) -> None:
    if fits.all():
        return
    position = int(np.argmin(fits))
    edges = array._matrix.edges[0]
    start = int(edges[np.searchsorted(edges, position, side="right") - 1])
    with _located(array, position):
        what = f"element {position - start}: {fault.replace('{}', str(array.read(position)))}"
        raise FormatError(what, hint="correct the file")


@contextmanager
def _located(array: MasterArray, position: int) -> Iterator[None]:
    try:
        yield
    except FormatError as error:
        error.path, error.variable = _source(array, position)
        raise


def _source(array: MasterArray, position: int) -> tuple[str, str | None]:
    matrix, references = array._matrix, array._matrix.references
    edges = matrix.edges[0]
    cell = min(int(np.searchsorted(edges, position, side="right")) - 1, len(edges) - 2)
    return references.uri_of(int(matrix.refs[cell])) or "in memory", array.name
