"""What is one array out of many? `MasterArray`: its parameters, reading, and the lazy operations that touch no file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from math import prod
from typing import Any

import numpy as np

from aggarray.arrays.build import MasterParameters, declared_fill, from_subarrays
from aggarray.arrays.label_lookup import locate_labels
from aggarray.arrays.lazy import Lazy, bounds_named, bounds_turned, is_unchanged_units, names_of, select_known, select_matrix
from aggarray.arrays.local import LocalArray
from aggarray.arrays.origin import Origin, restore_array
from aggarray.arrays.partitions import PartitionMatrix
from aggarray.arrays.sections import sections
from aggarray.arrays.subarray import SubArray
from aggarray.arrays.values import KnownValues, ReadOptions, Viewable, read_known, read_or_view, with_nan
from aggarray.cf.frozen import frozen
from aggarray.cf.units import datetime_kind, datetimes, is_reference_time, normal_calendar, temperature_of
from aggarray.errors import AggregationError, SelectionError, UnitsError, printable
from aggarray.maps import Distribution
from aggarray.memory import Type
from aggarray.memory.selection import Range, Selector, normalise
from aggarray.partition.conform import cast, convert, fill_for, plain_dtype
from aggarray.partition.matrix import Matrix, Step
from aggarray.partition.tiling import reverse, transpose
from aggarray.read import Target
from aggarray.storage.access import ANYWHERE, Access


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MasterArray(Viewable):
    """One array out of many files: parameters as the aggregation specification names them (section 1).

    ``fill_value``: what missing elements read as (NaN in floating arrays); ``attrs``: attributes equal in all pieces
    (units, packing and missing values are parameters, not attributes); ``file_attrs``: global attributes equal in all
    files; ``coords``: coordinates, bounds, cell measures and grid mappings by name.

    >>> pieces = [([(0, 2)], SubArray.from_array([1.0, 2.0])), ([(3, 4)], SubArray.from_array([4.0]))]
    >>> a = MasterArray.from_subarrays(pieces, dimensions=("x",))
    >>> a.shape, a.pmshape, a[::-1].tolist()
    ((4,), (3,), [4.0, nan, 2.0, 1.0])
    """

    name: str | None
    dtype: np.dtype[Any]
    units: str | None
    calendar: str | None
    fill_value: Any
    _matrix: Matrix
    attrs: Mapping[str, Any] = field(default_factory=dict)
    file_attrs: Mapping[str, Any] = field(default_factory=dict)
    coords: "Mapping[str, MasterArray]" = field(default_factory=dict)
    _known: KnownValues | None = None
    _access: Access = ANYWHERE
    _origin: Origin | None = None

    def __post_init__(self) -> None:
        for name in ("attrs", "file_attrs", "coords"):
            object.__setattr__(self, name, frozen(getattr(self, name)))

    def __reduce__(self) -> tuple[Any, ...]:
        """An array of an index travels as its place there and what was done to it, others as they are."""
        origin = self._origin
        if origin is not None and origin.describes(self._witness):
            return restore_array, (origin.find, origin.place, origin.steps)
        return type(self), tuple(None if f.name == "_origin" else getattr(self, f.name) for f in fields(self))

    @property
    def _witness(self) -> tuple[object, ...]:
        parameters = self.name, self.dtype, self.units, self.calendar, self.fill_value, self._access
        return *parameters, self._matrix, self.attrs, self.file_attrs, self.coords

    def _with_origin(self, find: Callable[..., Any], *place: Any) -> "MasterArray":
        """Return the array with a way to find it again in another process."""
        return replace(self, _origin=Origin(find, place, (), self._witness))

    def _after(self, name: str, arguments: Any, result: "MasterArray") -> "MasterArray":
        """Note in a result what it was made of, and how."""
        origin = self._origin
        if origin is None or not origin.describes(self._witness):
            return result if result._origin is None else replace(result, _origin=None)
        # Index arrays in a key are their owner's, who may change them.
        return replace(result, _origin=origin.then(name, deepcopy(arguments), result._witness))

    @classmethod
    def from_subarrays(
        cls,
        pieces: Sequence[tuple[Sequence[tuple[int, int]], SubArray]],
        *,
        dimensions: Sequence[str],
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        units: str | None = None,
        calendar: str | None = None,
        directions: Sequence[bool] | None = None,
        fill_value: Any = None,
        name: str | None = None,
    ) -> "MasterArray":
        """Put sub-arrays together by hand; edges need not align, places that no piece covers are missing.

        ``pieces``: (location, sub-array), location = one (start, stop) per dimension. ``shape`` None: as far as the pieces
        reach. ``dtype`` None: the common type; ``units`` None: the first piece's; ``directions`` None: all increasing.
        Raises AggregationError for pieces that overlap, do not fit their location or cut the array into more than 10
        million partitions; UnitsError for units that do not convert.
        """
        wanted = MasterParameters(units, calendar, None if dtype is None else plain_dtype(dtype))
        names = (dimensions,) if isinstance(dimensions, str) else tuple(dimensions)
        matrix, step = from_subarrays(list(pieces), names, shape, directions, wanted)
        declared = fill_value if fill_value is not None else declared_fill(matrix)
        attrs = {} if step.temperature is None else {"units_metadata": f"temperature: {step.temperature}"}
        return cls(name, step.dtype, step.units, step.calendar, fill_for(step.dtype, declared), matrix, attrs)

    @classmethod
    def from_locals(
        cls, exports: Sequence[Any], *, dimensions: Sequence[str] | None = None, name: str | None = None
    ) -> "MasterArray":
        """Put the sections of all processes, by rank, together again, whatever their distribution; nothing is copied.

        ``exports``: LocalArrays, or anything that exports by ``__distarray__``. What several processes have is the lowest
        rank's. ProtocolError where they do not fit together.
        """
        found = sections(exports, dimensions)
        shape, forward = found.shape, found.directions
        made = cls.from_subarrays(found.pieces, dimensions=found.names, shape=shape, directions=forward, name=name)
        return made.lazy[found.key]

    # Parameters

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Names of the dimensions."""
        return self._matrix.dimensions

    @property
    def shape(self) -> tuple[int, ...]:
        """Size per dimension."""
        return self._matrix.shape

    @property
    def directions(self) -> tuple[bool, ...]:
        """Sense of each dimension, True = increasing."""
        return self._matrix.directions

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._matrix.dimensions)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that the whole array takes when read."""
        return self.size * self.dtype.itemsize

    @property
    def partitions(self) -> PartitionMatrix:
        """The partition matrix."""
        return PartitionMatrix(self._matrix, self.units, self.calendar, self._access)

    @property
    def pmdimensions(self) -> tuple[str, ...]:
        """The dimensions along which the array is partitioned."""
        return self.partitions.dimensions

    @property
    def pmshape(self) -> tuple[int, ...]:
        """The number of partitions along each of these."""
        return self.partitions.shape

    # Reading

    def __getitem__(self, key: Any) -> np.ndarray:
        """Read a selection: a fresh, native, writable array; index arrays and masks apply per dimension, orthogonally."""
        return self.read(key)

    def read(
        self,
        key: Any = ...,
        masked: bool = False,
        out: np.ndarray | None = None,
        copy: bool | None = True,
        threads: int | None = None,
    ) -> np.ndarray:
        """Read a selection.

        ``masked``: a masked array whose mask is that of the files. ``out``: an array of the right shape and dtype to fill.
        ``copy``: None gives a read-only view (in the file's byte order) where one piece serves the key as it is, False that
        view or an AggregationError. ``threads``: None = the option. Raises SelectionError for keys that do not fit,
        FormatError, MissingFileError and UnitsError naming file and variable.
        """
        selectors = normalise(key, self.shape, self.dimensions)
        wish = ReadOptions(masked, out, copy, threads)
        if self._known is not None and copy is True:
            return read_known(self._known, self._target, selectors, wish)
        return read_or_view(self._matrix, self._target, selectors, wish)

    @property
    def _target(self) -> Target:
        return Target(self._step, self.fill_value, self._access)

    @property
    def _step(self) -> Step:
        """What the values are: units, calendar, dtype, and the kind of a temperature."""
        return Step(self.units, self.calendar, self.dtype, temperature=temperature_of(self.units, self.attrs))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a master array is read from its pieces: it cannot become a NumPy array without a copy")
        values = self.read()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __datashape__(self) -> Type:
        return Type(self.shape, self.dtype, self._matrix.may_miss)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield the elements along the first dimension; a few megabytes are read at a time."""
        block = max(1, (8 << 20) // max(1, self.nbytes // max(1, len(self))))
        for start in range(0, len(self), block):
            values = self.read(slice(start, start + block))
            for number in range(len(values)):
                yield values[number, ...].copy()

    def datetimes(self, key: Any = ...) -> np.ndarray:
        """Return reference times as datetime64, or as cftime objects where the calendar needs them.

        The type depends on the whole array, never on the key. Missing times are NaT or None. UnitsError for other units.
        """
        if self.units is None or not is_reference_time(self.units):
            raise UnitsError(f"{self.name or 'array'}: units {self.units!r} are no reference time ('days since ...')")
        times = with_nan(*self._values_and_mask())
        valid = times[np.isfinite(times)]
        ends = (float(valid.min()), float(valid.max())) if valid.size else (None, None)
        kind = datetime_kind(self.units, self.calendar, *ends)
        values = self.read(key, masked=True)
        return datetimes(with_nan(np.ma.getdata(values), np.ma.getmaskarray(values)), self.units, self.calendar, kind)

    def _values_and_mask(self) -> KnownValues:
        """The whole array: what is known of it from scanning, else read."""
        if self._known is not None:
            return self._known
        values = self.read(masked=True)
        return np.ma.getdata(values), np.ma.getmaskarray(values)

    def local(self, distribution: Distribution, rank: int, copy: bool | None = True) -> LocalArray:
        """Return the section of one process, to be exported by the Distributed Array Protocol; nothing is read yet.

        ``copy``: True gives a native, aligned, writable buffer in C order; None and False as in `read`. ProtocolError where the
        distribution does not fit the array, or has no such rank.
        """
        return LocalArray(self, distribution, rank, copy)

    # Lazy operations

    @property
    def lazy(self) -> Lazy:
        """``a.lazy[key]``: the master array of a selection; no file is touched."""
        return Lazy(self)

    def _selected(self, selectors: Mapping[str, Selector]) -> "MasterArray":
        """Select per dimension; dimensions that this array lacks are none of its business."""
        matrix, known = self._matrix, self._known
        for dimension, selector in selectors.items():
            if dimension in matrix.dimensions:
                axis = matrix.axis(dimension)
                if not (isinstance(selector, Range) and selector.is_full(matrix.shape[axis])):
                    matrix, known = select_matrix(matrix, axis, selector), select_known(known, axis, selector)
        return replace(self, _matrix=matrix, _known=known)

    def _chosen(self, selectors: Mapping[str, Selector]) -> "MasterArray":
        """Select from the array and its coordinates."""
        return self._with_coords(lambda a: a._selected(selectors))

    def _with_coords(self, change: "Callable[[MasterArray], MasterArray]") -> "MasterArray":
        """Apply the same change to the array and to its coordinates."""
        changed, coords = change(self), {name: change(c) for name, c in self.coords.items()}
        return replace(changed, coords=bounds_turned(self.coords, coords, self, changed))

    def transpose(self, *dimensions: str) -> "MasterArray":
        """Return the array with its dimensions in another order; without arguments reversed. Coordinates keep theirs."""
        wanted = names_of(dimensions) or self.dimensions[::-1]
        if sorted(wanted) != sorted(self.dimensions):
            raise SelectionError(f"transpose to {wanted}: name each of {self.dimensions} once")
        order = [self.dimensions.index(d) for d in wanted]
        values, mask = self._known or (None, None)
        known = None if values is None else (values.transpose(order), None if mask is None else mask.transpose(order))
        turned = replace(self, _matrix=transpose(self._matrix, order), _known=known)
        return self._after("transpose", tuple(wanted), turned)

    def flip(self, *dimensions: str) -> "MasterArray":
        """Return the array with dimensions (all, without arguments) turned round; `directions` tells so."""
        wanted = names_of(dimensions) or self.dimensions
        for d in wanted:
            self._matrix.axis(d)
        sizes = zip(self.dimensions, self.shape, strict=True)
        selectors = {d: Range(n - 1, n, -1) for d, n in sizes if d in wanted}
        return self._after("flip", tuple(wanted), self._with_coords(lambda a: a._turned(selectors)))

    def _turned(self, selectors: Mapping[str, Range]) -> "MasterArray":
        """Turn dimensions round, single elements too: their direction changes all the same."""
        turned = self
        for d, whole in selectors.items():
            if d in self.dimensions:
                axis = self._matrix.axis(d)
                known = select_known(turned._known, axis, whole)
                turned = replace(turned, _matrix=reverse(turned._matrix, axis), _known=known)
        return turned

    def to_units(self, units: str, calendar: str | None = None) -> "MasterArray":
        """Return the array in other units: floating arrays keep their dtype, integers become float64.

        A temperature difference has no offset (CF 3.1.2); bounds of the array itself follow it (CF 7.1). Raises
        UnitsError where the units or calendars do not convert, or the values are no numbers.
        """
        calendar = normal_calendar(units, calendar if calendar is not None else self.calendar)
        now = self._step
        step = replace(now, units=units, calendar=calendar, dtype=np.dtype("f8") if self.dtype.kind in "iu" else self.dtype)
        # Without any values: whether units and dtype go together is known before a file is read.
        convert(np.empty(0, self.dtype), None, now, step)
        own = {n: self.coords[n].to_units(units, calendar) for n in bounds_named(self) if n in self.coords}
        changed = replace(self._stepped(step), coords={**self.coords, **own} if own else self.coords)
        return self._after("to_units", (units, calendar), changed)

    def astype(self, dtype: Any) -> "MasterArray":
        """Return the array in another data type, cast as NumPy does; missing values stay missing.

        AggregationError where there is no such cast.
        """
        wanted = plain_dtype(dtype)
        cast(np.empty(0, self.dtype), None, wanted)
        return self._after("astype", (wanted,), self._stepped(replace(self._step, dtype=wanted)))

    def _stepped(self, step: Step) -> "MasterArray":
        """Take values through one more step: what they are now is noted in the templates, so that chains stay exact."""
        now = self._step
        references = self._matrix.references
        templates = [t if is_unchanged_units(t, now, step) else replace(t, steps=(*t.steps, now)) for t in references.templates]
        matrix = replace(self._matrix, references=references.with_templates(templates))
        known = self._known and convert(*self._known, now, step)
        fill = fill_for(step.dtype, self.fill_value if self.dtype.kind in "iu" else None)
        changed = replace(self, units=step.units, calendar=step.calendar, dtype=step.dtype, fill_value=fill)
        return replace(changed, _matrix=matrix, _known=known)

    def sel(
        self, given: Mapping[str, Any] | str | None = None, /, method: str | None = None, tolerance: Any = None, **labels: Any
    ) -> "MasterArray":
        """Select lazily by coordinate values, meaning as xarray's ``sel``: slices include both ends.

        Labels may also come as one mapping, in the first place as in xarray: ``a.sel({"lat": 0.0})``.
        Dimensions without a coordinate are selected by position. Times may be text ("2000-01"), datetime, datetime64 or cftime
        objects, their tolerance text ("12h"), timedelta64, timedelta or pandas.Timedelta. Raises NotFoundError for labels or
        dimensions that are not there, SelectionError for labels or a tolerance of a wrong kind.

        >>> latitudes = SubArray.from_array([-45.0, 0.0, 45.0], dimensions=("lat",))
        >>> lat = MasterArray.from_subarrays([([(0, 3)], latitudes)], dimensions=("lat",))
        >>> lat.sel(lat=slice(1, 2))[:].tolist()
        [0.0]
        """
        wanted, method = ({**given, **labels}, method) if isinstance(given, Mapping) else (labels, given or method)
        selectors = {d: locate_labels(self, d, label, method=method, tolerance=tolerance) for d, label in wanted.items()}
        return self.lazy[tuple(selectors.get(d, slice(None)) for d in self.dimensions)]

    # Elsewhere

    def to_dask(self, chunks: Any = None) -> Any:
        """Return the array as a dask array of one layer; nothing is read yet (dask: the extra ``xarray``).

        ``chunks``: None = along the partitions; else as dask takes them, or by names of dimensions. SelectionError for others.
        """
        from aggarray.interop.optional import to_dask

        return to_dask(self, chunks)

    def to_xarray(self, chunks: Any = None) -> Any:
        """Return the array as a lazy ``xarray.DataArray`` with its coordinates, decoded as xarray decodes a file.

        ``chunks``: None = without dask, {} = along the partitions; else as ``xarray.open_dataset`` takes them.
        """
        from aggarray.interop.optional import to_dataarray

        return to_dataarray(self, chunks)

    # For people

    def plot_coverage(self, ax: Any = None) -> Any:
        """Draw the partition matrix, one colour per file, hatched where missing; return matplotlib's axes.

        A time dimension runs along x, to scale, as dates; otherwise the last partitioned dimension does. Up to 40 files along
        one dimension have a row each; otherwise the next dimension runs along y, and further ones are shown at their first
        partition. No file is read. AggregationError without matplotlib (the extra ``plot``).
        """
        from aggarray.display.coverage import plot_coverage

        return plot_coverage(self, ax)

    def _repr_html_(self) -> str:
        from aggarray.display.html import array_html

        return array_html(self)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{d}: {n}" for d, n in zip(self.dimensions, self.shape, strict=True))
        words = ("aggarray.MasterArray", self.name, f"({sizes})", self.dtype, self.units)
        lines = [f"<{' '.join(str(w) for w in words if w)}>"]
        missing = int((self._matrix.refs < 0).sum())
        matrix = " x ".join(f"{n} {d}" for d, n in zip(self.pmdimensions, self.pmshape, strict=True)) or "1"
        lines.append(f"partitions: {matrix}" + (f", {missing} missing" if missing else ""))
        lines += [f"coords: {', '.join(self.coords)}"] if self.coords else []
        # promise: escape-array-repr
        return "\n  ".join(map(printable, lines))


def require_array(item: Any) -> MasterArray:
    """Return the item if it is a MasterArray, else raise AggregationError."""
    if isinstance(item, MasterArray):
        return item
    raise AggregationError(
        f"{type(item).__name__} is no MasterArray: give arrays of an aggregation or of MasterArray.from_subarrays"
    )
