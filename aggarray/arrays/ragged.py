"""What is an array of rows of different lengths out of many files? `RaggedMasterArray`: samples as they lie in the files,
and above them which belong to which instance: station, profile, trajectory.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged_local import LocalRagged
from aggarray.arrays.row_geometry import Geometry
from aggarray.errors import AggregationError, SelectionError, printable
from aggarray.maps import Distribution
from aggarray.memory import Array
from aggarray.memory.ragged import Ragged
from aggarray.memory.rows import Rows, contiguous, positions_of
from aggarray.memory.selection import Range, Selector, as_range, normalise
from aggarray.memory.types import VAR, Type


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RaggedMasterArray(MasterArray):
    """An array of instances, each of which has samples of its own number (CF chapter 9).

    ``shape`` is ``(instances,)``, ``dtype`` that of the samples: ``a[i]`` is a 1-d array, any other key gives a
    `memory.Ragged`; only the samples wanted are read. ``flat``: all samples, as the files hold them, an ordinary array, which
    the partitions are those of; ``offsets``: where rows begin in ``a[:].flat``. Coordinates are of the instances, or ragged
    likewise.
    """

    _geometry: Geometry | None = None

    @property
    def _rows(self) -> Rows:
        return self._instances.rows(self._access)

    @property
    def _instances(self) -> Geometry:
        if self._geometry is None:
            raise AggregationError(f"{self.name!r}: a ragged array without rows: open it, or make it by aggarray.memory.Ragged")
        return self._geometry

    @property
    def flat(self) -> MasterArray:
        """All samples as the files hold them, along their own dimension, with the coordinates along it."""
        own = self._matrix.dimensions
        ragged = {n: c for n, c in self.coords.items() if isinstance(c, RaggedMasterArray)}
        beside = self._beside if self._instances.chosen is None else {}
        return self._samples({**{n: c._samples({}) for n, c in ragged.items() if c._matrix.dimensions == own}, **beside})

    def _samples(self, coords: Mapping[str, MasterArray]) -> MasterArray:
        values = {f.name: getattr(self, f.name) for f in fields(MasterArray)}
        return MasterArray(**{**values, "coords": coords, "_origin": None})

    @property
    def _beside(self) -> dict[str, MasterArray]:
        """What has more dimensions than that of the samples: bounds. As they are stored, in the order of rows once chosen."""
        own = self._matrix.dimensions
        found = {n: c for n, c in self.coords.items() if not isinstance(c, RaggedMasterArray)}
        return {n: c for n, c in found.items() if c.ndim > 1 and c.dimensions[:1] == own}

    @property
    def offsets(self) -> np.ndarray:
        """Where the samples of each row begin in ``a[:].flat``: int64, one more than instances, from 0."""
        return self._rows.offsets

    @property
    def counts(self) -> np.ndarray:
        """How many samples each instance has, int64."""
        return self._rows.counts.copy()

    # Parameters

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The dimension of the instances."""
        return (self._instances.dimension,)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many instances there are."""
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
        return Type((*self.shape, VAR), self.dtype, self._matrix.may_miss)

    def __memory__(self) -> Array | str:
        return "rows of different lengths; its samples are those of .flat"

    # Reading

    def read(
        self,
        key: Any = ...,
        masked: bool = False,
        out: np.ndarray | None = None,
        copy: bool | None = True,
        threads: int | None = None,
    ) -> Any:
        """Read rows: a 1-d array for an integer, else a `memory.Ragged`; arguments as those of `MasterArray.read`.

        ``copy=None``: views of a mapped file where samples lie there one after the other. Raises FormatError for row sizes or
        indices that do not fit the samples, naming file and variable.
        """
        (chosen,) = normalise(key, self.shape, self.dimensions)
        rows = self._rows.take(Range(chosen, 1) if isinstance(chosen, int) else chosen)
        values = _read(self._samples({}), rows.positions(), {"masked": masked, "out": out, "copy": copy, "threads": threads})
        return values if isinstance(chosen, int) else Ragged(values, rows.offsets)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise SelectionError(
            f"{self.name!r}: rows of different lengths are no NumPy array: read a[i], a[:].flat, or a[:].to_awkward()"
        )

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield the samples of each instance; a few megabytes are read at a time."""
        offsets, start = self.offsets, 0
        while start < len(self):
            most = int(offsets[start]) + (8 << 20) // self.dtype.itemsize
            stop = max(start + 1, int(np.searchsorted(offsets, most, side="right")) - 1)
            yield from (row.copy() for row in self.read(slice(start, stop)))
            start = stop

    def datetimes(self, key: Any = ...) -> Any:
        """Return reference times of rows as datetime64, or as cftime objects; as `MasterArray.datetimes`."""
        (chosen,) = normalise(key, self.shape, self.dimensions)
        rows = self._rows.take(Range(chosen, 1) if isinstance(chosen, int) else chosen)
        values = self._samples({}).datetimes(rows.positions())
        return values if isinstance(chosen, int) else Ragged(values, rows.offsets)

    def to_awkward(self) -> Any:
        """Read all rows, as an array of awkward (the extra ``ragged``)."""
        return self.read().to_awkward()

    def local(self, distribution: Distribution, rank: int, copy: bool | None = True) -> Any:
        """Return the rows of one process, a `LocalRagged`: its samples are exported by the protocol, offsets beside them.

        ``distribution``: of the instances, blocks; `Distribution.from_partitions` balances them by samples. Nothing is read
        yet.
        """
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
        found, chosen = MasterArray._chosen(self, selectors), selectors.get(self.dimensions[0])
        beside = self._beside
        if chosen is None or not beside:
            return found
        rows = self._rows if self._instances.chosen is None else contiguous(self._rows.counts)
        key = {self._matrix.dimensions[0]: selector_of(positions_of(rows, chosen))}
        return replace(found, coords={**found.coords, **{n: c._selected(key) for n, c in beside.items()}})

    def transpose(self, *dimensions: str) -> MasterArray:
        """Return the array itself: it has one dimension. SelectionError for names of others."""
        MasterArray.transpose(self, *dimensions)
        return self

    def flip(self, *dimensions: str) -> MasterArray:
        """Return the instances in the opposite order; samples keep theirs."""
        MasterArray.transpose(self, *dimensions)  # for the error of other names
        return self.lazy[::-1]

    def _turned(self, selectors: Mapping[str, Range]) -> MasterArray:
        return self._selected(selectors)

    # Elsewhere

    def to_dask(self, chunks: Any = None) -> NoReturn:
        """Refuse: dask has no ragged arrays; AggregationError names ``flat``, which it takes."""
        raise AggregationError(f"{self.name!r}: rows of different lengths: take a.flat.to_dask() and a.offsets")

    def to_xarray(self, chunks: Any = None) -> NoReturn:
        """Refuse: a DataArray is not ragged; AggregationError names what takes the samples."""
        raise AggregationError(f"{self.name!r}: rows of different lengths: take a.flat.to_xarray() and a.offsets")

    def plot_coverage(self, ax: Any = None) -> Any:
        """Draw which file has which samples (matplotlib, an optional extra); returns the axes."""
        return self.flat.plot_coverage(ax)

    def __repr__(self) -> str:
        lines = MasterArray.__repr__(self).split("\n  ")
        samples = printable(self._matrix.dimensions[0])
        return "\n  ".join([*lines[:1], f"ragged: {self.size} samples along {samples}", *lines[1:]])


def _read(flat: MasterArray, places: slice | np.ndarray, how: dict[str, Any]) -> np.ndarray:
    """Read samples, no others; of places that are all of a stretch, in whatever order, the stretch, and put them into order."""
    if isinstance(places, np.ndarray) and how["out"] is None and how["copy"] is not False:
        first, last = int(places.min()), int(places.max())
        if last - first < len(places):
            stretch: np.ndarray = flat.read(slice(first, last + 1), **how)
            ordered: np.ndarray = stretch[places - first]
            return ordered
    found: np.ndarray = flat.read(places, **how)
    return found


def selector_of(places: slice | np.ndarray) -> Selector:
    """Return places of samples as what selects them."""
    return Range(places.start, places.stop - places.start) if isinstance(places, slice) else as_range(places) or places


def flat_of(array: MasterArray) -> MasterArray:
    """Return the samples of a ragged array, any other as it is: what its matrix of partitions is of."""
    return array.flat if isinstance(array, RaggedMasterArray) else array


def ragged(samples: MasterArray, geometry: Geometry, coords: Mapping[str, MasterArray]) -> RaggedMasterArray:
    """Return the ragged array of samples."""
    values = {f.name: getattr(samples, f.name) for f in fields(MasterArray)}
    return RaggedMasterArray(**{**values, "coords": coords, "_origin": None}, _geometry=geometry)
