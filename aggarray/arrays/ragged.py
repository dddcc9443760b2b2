"""Ragged master array: rows of different lengths out of many files.

The samples are an ordinary array in the order of the files; a geometry assigns them to instances, such as stations, profiles
or trajectories.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.arrays.row_geometry import Geometry
from aggarray.dataclass import dataclass, fields, replace
from aggarray.errors import AggregationError, SelectionError, counted, printable
from aggarray.memory.rows import Rows, contiguous, positions_of
from aggarray.memory.selection import Range, Selector, as_range, normalise

if TYPE_CHECKING:
    from aggarray.arrays.sources import Sources
    from aggarray.maps.distribution import Distribution
    from aggarray.memory.arrays import Array
    from aggarray.memory.ragged import Ragged
    from aggarray.memory.types import Type


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RaggedMasterArray(MasterArray):
    """Array of instances with different numbers of samples (CF chapter 9).

    ``shape`` is ``(instances,)``, ``dtype`` that of the samples: ``a[i]`` is a 1-d array, any other key returns a
    `memory.Ragged`; only the selected samples are read. ``flat``: all samples in the order of the files, an ordinary array with
    these partitions; ``offsets``: the offsets of rows in ``a[:].flat``. Coordinates are of the instances, or ragged too.
    """

    _geometry: Geometry | None = None

    @property
    def _rows(self) -> Rows:
        return self._instances.rows(self._access)

    @property
    def _instances(self) -> Geometry:
        if self._geometry is None:
            hint = "open it, or make it by aggarray.memory.Ragged"
            raise AggregationError("a ragged array without geometry", variable=self.name, hint=hint)
        return self._geometry

    @property
    def flat(self) -> MasterArray:
        """All samples in the order of the files, with their coordinates."""
        own = self._matrix.dimensions
        ragged = {n: c for n, c in self.coords.items() if isinstance(c, RaggedMasterArray)}
        beside = self._beside if self._instances.chosen is None else {}
        return self._samples({**{n: c._samples({}) for n, c in ragged.items() if c._matrix.dimensions == own}, **beside})

    def _samples(self, coords: Mapping[str, MasterArray]) -> MasterArray:
        values = {f.name: getattr(self, f.name) for f in fields(MasterArray) if f.init}
        return MasterArray(**{**values, "coords": coords, "_origin": None})

    @property
    def _beside(self) -> dict[str, MasterArray]:
        """Bounds along the samples, in the order of rows once rows are selected."""
        own = self._matrix.dimensions
        plain = {n: c for n, c in self.coords.items() if not isinstance(c, RaggedMasterArray)}
        return {n: c for n, c in plain.items() if c.ndim > 1 and c.dimensions[:1] == own}

    @property
    def offsets(self) -> np.ndarray:
        """Offsets of the rows in ``a[:].flat``: int64, one more than instances."""
        return self._rows.offsets

    @property
    def counts(self) -> np.ndarray:
        """Number of samples of each instance, int64."""
        return self._rows.counts.copy()

    # Parameters

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The dimension of the instances."""
        return (self._instances.dimension,)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of instances."""
        return (self._instances.size,)

    @property
    def directions(self) -> tuple[bool, ...]:
        """Always increasing."""
        return (True,)

    @property
    def ndim(self) -> int:
        """Number of dimensions: 1."""
        return 1

    @property
    def size(self) -> int:
        """Number of samples."""
        return int(self._matrix.edges[0][-1]) if self._instances.stored else int(self._rows.counts.sum())

    def __datashape__(self) -> Type:
        from aggarray.memory.types import VAR, Type

        return Type((*self.shape, VAR), self.dtype, self._matrix.may_miss)

    def __memory__(self) -> Array | str:
        return "rows of different lengths; .flat returns the samples"

    # Reading

    def read(
        self,
        key: Any = ...,
        masked: bool = False,
        out: np.ndarray | None = None,
        copy: bool | None = True,
        threads: int | None = None,
    ) -> Any:
        """Read rows: a 1-d array for an integer, else a `memory.Ragged`.

        The arguments are those of `MasterArray.read`. ``copy=None``: views of a mapped file if the samples are consecutive
        there. Raises FormatError, with file and variable, for row sizes or indices that do not fit the samples.
        """
        (chosen,) = normalise(key, self.shape, self.dimensions)
        rows = self._rows.take(Range(chosen, 1) if isinstance(chosen, int) else chosen)
        values = _read(self._samples({}), rows.positions(), {"masked": masked, "out": out, "copy": copy, "threads": threads})
        return values if isinstance(chosen, int) else _rows_of(values, rows.offsets)

    def sources(self, key: Any = ...) -> Sources:
        """Return where the samples of rows come from.

        As `MasterArray.sources`, with locations in ``flat``. The row sizes are read to find the samples.
        """
        (chosen,) = normalise(key, self.shape, self.dimensions)
        return self._samples({}).sources(positions_of(self._rows, chosen))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        hint = "read a[i], a[:].flat, or a[:].to_awkward()"
        raise SelectionError("rows of different lengths cannot form a NumPy array", variable=self.name, hint=hint)

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield the samples of each instance, read in blocks of a few megabytes."""
        offsets, start = self.offsets, 0
        while start < len(self):
            most = int(offsets[start]) + (8 << 20) // self.dtype.itemsize
            stop = max(start + 1, int(np.searchsorted(offsets, most, side="right")) - 1)
            yield from (row.copy() for row in self.read(slice(start, stop)))
            start = stop

    def _time_extent(self) -> np.ndarray:
        return np.asarray(self.datetimes().flat).ravel()

    def datetimes(self, key: Any = ...) -> Any:
        """Return reference times of rows, as `MasterArray.datetimes` does."""
        (chosen,) = normalise(key, self.shape, self.dimensions)
        rows = self._rows.take(Range(chosen, 1) if isinstance(chosen, int) else chosen)
        values = self._samples({}).datetimes(rows.positions())
        return values if isinstance(chosen, int) else _rows_of(values, rows.offsets)

    def to_awkward(self) -> Any:
        """Read all rows as an Awkward array (the extra ``ragged``)."""
        return self.read().to_awkward()

    def local(self, distribution: Distribution, rank: int, copy: bool | None = True) -> Any:
        """Return the rows of one process as a `LocalRagged`, read lazily.

        It exports samples and counts. ``distribution``: of the instances, in blocks; `Distribution.from_partitions` balances
        them by samples.
        """
        from aggarray.arrays.ragged_local import LocalRagged

        return LocalRagged(self, distribution, rank, copy)

    # Lazy operations

    def _selected(self, selectors: Mapping[str, Selector]) -> MasterArray:
        (dimension,) = self.dimensions
        chosen = selectors.get(dimension)
        if chosen is None:
            return self
        if not isinstance(chosen, int):
            return replace(self, _geometry=self._instances.take(chosen))
        return self._samples({})._selected({self._matrix.dimensions[0]: selector_of(positions_of(self._rows, chosen))})

    def _chosen(self, selectors: Mapping[str, Selector]) -> MasterArray:
        selection, chosen = MasterArray._chosen(self, selectors), selectors.get(self.dimensions[0])
        beside = self._beside
        if chosen is None or not beside:
            return selection
        rows = self._rows if self._instances.chosen is None else contiguous(self._rows.counts)
        key = {self._matrix.dimensions[0]: selector_of(positions_of(rows, chosen))}
        return replace(selection, coords={**selection.coords, **{n: c._selected(key) for n, c in beside.items()}})

    def transpose(self, *dimensions: str) -> MasterArray:
        """Return the array itself (1-d); raise SelectionError for other names."""
        MasterArray.transpose(self, *dimensions)
        return self

    def flip(self, *dimensions: str) -> MasterArray:
        """Return the instances in the opposite order; samples keep their order."""
        MasterArray.transpose(self, *dimensions)  # raises the error of other names
        return self.lazy[::-1]

    def _turned(self, selectors: Mapping[str, Range]) -> MasterArray:
        return self._selected(selectors)

    # Conversion

    def to_dask(self, chunks: Any = None) -> NoReturn:
        """Raise AggregationError: dask has no ragged arrays, but accepts ``flat``."""
        hint = "use a.flat.to_dask() and a.offsets"
        raise AggregationError("rows of different lengths cannot form a dask array", variable=self.name, hint=hint)

    def to_xarray(self, chunks: Any = None) -> NoReturn:
        """Raise AggregationError: xarray has no ragged arrays, but takes ``flat``."""
        hint = "use a.flat.to_xarray() and a.offsets"
        raise AggregationError("rows of different lengths cannot form a DataArray", variable=self.name, hint=hint)

    def plot_coverage(self, ax: Any = None) -> Any:
        """Draw the samples of each file; return the axes of matplotlib."""
        return self.flat.plot_coverage(ax)

    def __repr__(self) -> str:
        lines = MasterArray.__repr__(self).split("\n  ")
        samples = printable(self._matrix.dimensions[0])
        return "\n  ".join([*lines[:1], f"ragged: {counted(self.size, 'sample')} along {samples}", *lines[1:]])


def _rows_of(values: np.ndarray, offsets: np.ndarray) -> Ragged:
    from aggarray.memory.ragged import Ragged

    return Ragged(values, offsets)


def _read(flat: MasterArray, positions: slice | np.ndarray, options: dict[str, Any]) -> np.ndarray:
    if isinstance(positions, np.ndarray) and options["out"] is None and options["copy"] is not False:
        first, last = int(positions.min()), int(positions.max())
        if last - first < len(positions):
            run: np.ndarray = flat.read(slice(first, last + 1), **options)
            ordered: np.ndarray = run[positions - first]
            return ordered
    samples: np.ndarray = flat.read(positions, **options)
    return samples


def selector_of(positions: slice | np.ndarray) -> Selector:
    """Return the selector of positions of samples."""
    if isinstance(positions, slice):
        return Range(positions.start, positions.stop - positions.start)
    return as_range(positions) or positions


def flat_of(array: MasterArray) -> MasterArray:
    """Return the samples of a ragged array, any other array unchanged."""
    return array.flat if isinstance(array, RaggedMasterArray) else array


def ragged(samples: MasterArray, geometry: Geometry, coords: Mapping[str, MasterArray]) -> RaggedMasterArray:
    """Return the ragged array of samples with a geometry and coordinates."""
    values = {f.name: getattr(samples, f.name) for f in fields(MasterArray) if f.init}
    return RaggedMasterArray(**{**values, "coords": coords, "_origin": None}, _geometry=geometry)
