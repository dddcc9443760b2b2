"""Master array: one array out of many, read and selected lazily."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from aggarray.arrays.lazy import (
    Lazy,
    Origin,
    convert_units,
    dimension_names,
    labels_key,
    positions_key,
    read_datetimes,
    read_known,
    restore_array,
    reverse_bounds,
    reverse_dimensions,
    select_dimensions,
    time_extent,
    transpose_dimensions,
    with_step,
)
from aggarray.arrays.values import Convertible, KnownValues, NamedArray, Reducible
from aggarray.cf.frozen import frozen
from aggarray.cf.units import normal_calendar
from aggarray.cf.units.temperature import temperature_of
from aggarray.dataclass import dataclass, field, fields, replace
from aggarray.memory.selection import Range, Selector, normalise
from aggarray.partition.conform import cast, fill_for, plain_dtype
from aggarray.partition.matrix import Matrix, Step
from aggarray.read import ReadOptions, Target, read
from aggarray.storage.access import ANYWHERE, Access

if TYPE_CHECKING:
    from aggarray.arrays.local import LocalArray
    from aggarray.arrays.partitions import PartitionMatrix
    from aggarray.arrays.sources import Sources
    from aggarray.arrays.subarray import SubArray
    from aggarray.maps.distribution import Distribution
    from aggarray.memory.types import Type


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MasterArray(NamedArray, Convertible, Reducible):
    """One array made out of many files.

    ``fill_value``: the value of missing elements (NaN in floating arrays); ``attrs``: attributes equal in all pieces (units,
    packing and missing values are parameters of the specification, section 1); ``file_attrs``: global attributes equal in all
    files; ``coords``: coordinates, bounds, cell measures and grid mappings by name.

    >>> from aggarray import SubArray
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
    coords: Mapping[str, MasterArray] = field(default_factory=dict)
    _known: KnownValues | None = None
    _access: Access = ANYWHERE
    _origin: Origin | None = None
    _cached_target: Target | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        for name in ("attrs", "file_attrs", "coords"):
            object.__setattr__(self, name, frozen(getattr(self, name)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the position in an index and the operations, or the matrix."""
        if (origin := self._origin) is not None and origin.describes(self._witness):
            return restore_array, (origin.find, origin.place, origin.steps)
        return type(self), tuple(None if f.name == "_origin" else getattr(self, f.name) for f in fields(self) if f.init)

    @property
    def _witness(self) -> tuple[object, ...]:
        parameters = self.name, self.dtype, self.units, self.calendar, self.fill_value, self._access
        return *parameters, self._matrix, self.attrs, self.file_attrs, self.coords

    def _with_origin(self, find: Callable[..., Any], *place: Any) -> MasterArray:
        return replace(self, _origin=Origin(find, place, (), self._witness))

    def _after(self, name: str, arguments: Any, result: MasterArray) -> MasterArray:
        """Return the result of an operation with the origin of this array."""
        origin = self._origin
        if origin is None or not origin.describes(self._witness):
            return result if result._origin is None else replace(result, _origin=None)
        from copy import deepcopy

        # The caller may change index arrays of a key later.
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
    ) -> MasterArray:
        """Make an array from sub-arrays at given locations.

        Edges need not align; uncovered regions are missing. ``pieces``: (location, sub-array), location = one (start, stop)
        per dimension. ``shape`` None: the extent of the pieces. ``dtype`` None: the common type; ``units`` None: those of the
        first piece; ``directions`` None: all increasing. Raises AggregationError for pieces that overlap, do not fit their
        location or cut the array into more than 10 million partitions; UnitsError for units that do not convert.
        """
        from aggarray.arrays.build import MasterParameters, declared_fill, from_subarrays

        parameters = MasterParameters(units, calendar, None if dtype is None else plain_dtype(dtype))
        names = (dimensions,) if isinstance(dimensions, str) else tuple(dimensions)
        matrix, step = from_subarrays(list(pieces), names, shape, directions, parameters)
        declared = fill_value if fill_value is not None else declared_fill(matrix)
        attrs = {} if step.temperature is None else {"units_metadata": f"temperature: {step.temperature}"}
        return cls(name, step.dtype, step.units, step.calendar, fill_for(step.dtype, declared), matrix, attrs)

    @classmethod
    def from_locals(
        cls, exports: Sequence[Any], *, dimensions: Sequence[str] | None = None, name: str | None = None
    ) -> MasterArray:
        """Make an array from the sections of all processes, in order of rank.

        Any distribution is possible; nothing is copied. ``exports``: LocalArrays, or objects with ``__distarray__``. Elements
        that several processes have are taken from the lowest rank. Raises ProtocolError if the sections do not fit together.
        """
        from aggarray.arrays.sections import sections

        grid = sections(exports, dimensions)
        array = cls.from_subarrays(grid.pieces, dimensions=grid.names, shape=grid.shape, directions=grid.directions, name=name)
        return array.lazy[grid.key]

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Names of the dimensions."""
        return self._matrix.dimensions

    @property
    def shape(self) -> tuple[int, ...]:
        """Size along each dimension."""
        return self._matrix.shape

    @property
    def directions(self) -> tuple[bool, ...]:
        """Direction of each dimension; True means increasing."""
        return self._matrix.directions

    @property
    def partitions(self) -> PartitionMatrix:
        """The partition matrix."""
        from aggarray.arrays.partitions import PartitionMatrix

        return PartitionMatrix(self._matrix, self.units, self.calendar, self._access)

    @property
    def pmdimensions(self) -> tuple[str, ...]:
        """The partitioned dimensions."""
        return self.partitions.dimensions

    @property
    def pmshape(self) -> tuple[int, ...]:
        """The number of partitions along each partitioned dimension."""
        return self.partitions.shape

    def __getitem__(self, key: Any) -> np.ndarray:
        """Read a selection as a fresh, native, writable array.

        Index arrays and masks apply per dimension, orthogonally.
        """
        if isinstance(key, str):
            from aggarray.arrays.hints import text_key

            raise text_key(self, key)
        return self.read(key)

    @overload
    def read(
        self, key: Any = ..., *, masked: Literal[True], out: None = None, copy: bool | None = True, threads: int | None = None
    ) -> np.ma.MaskedArray[Any, Any]: ...
    @overload
    def read(
        self, key: Any = ..., masked: bool = False, out: Any = None, copy: bool | None = True, threads: int | None = None
    ) -> np.ndarray: ...
    def read(
        self, key: Any = ..., masked: bool = False, out: Any = None, copy: bool | None = True, threads: int | None = None
    ) -> np.ndarray:
        """Read a selection of the array.

        ``masked``: return a masked array with the mask of the files. ``out``: an array of the right shape and dtype to fill.
        ``copy``: None returns a read-only view (in the byte order of the file) if one piece holds the selection unconverted,
        False that view or an AggregationError. ``threads``: None = the option. Raises SelectionError for keys that do not fit,
        FormatError, MissingFileError and UnitsError with file and variable.
        """
        selectors = normalise(key, self._matrix.shape, self._matrix.dimensions)
        options = ReadOptions(masked, out, copy, threads)
        if self._known is not None and copy is True:
            return read_known(self._known, self._target, selectors, options)
        return read(self._matrix, self._target, selectors, options)

    def sources(self, key: Any = ...) -> Sources:
        """Return where the values of a selection come from; read no values.

        One `Source` per partition that the selection touches, in C order, none for missing ones. ``key``: as in ``a[key]``.
        Locations are in this array; ``a.lazy[key].sources()`` has those in the selection. Files that an index or
        ``trust="assume"`` leaves unread are opened. Reductions in memory list the pieces that they were computed from, until
        they are saved or pickled. Raises SelectionError for keys that do not fit, and errors of such files.
        """
        from aggarray.arrays.sources import sources_of

        return sources_of(self, normalise(key, self._matrix.shape, self._matrix.dimensions))

    @property
    def _target(self) -> Target:
        target = self._cached_target
        if target is None:
            object.__setattr__(self, "_cached_target", target := Target(self._step, self.fill_value, self._access))
        return target

    @property
    def _step(self) -> Step:
        if self._cached_target is not None:
            return self._cached_target.step
        return Step(self.units, self.calendar, self.dtype, temperature=temperature_of(self.units, self.attrs))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a master array cannot be converted to a NumPy array without a copy: it is read from files")
        return self.read().astype(self.dtype if dtype is None else dtype, copy=False)

    def __datashape__(self) -> Type:
        from aggarray.memory.types import Type

        return Type(self.shape, self.dtype, self._matrix.may_miss)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield the elements along the first dimension, read in large blocks."""
        block = max(1, (8 << 20) // max(1, self.nbytes // max(1, len(self))))
        for start in range(0, len(self), block):
            values = self.read(slice(start, start + block))
            for number in range(len(values)):
                yield values[number, ...].copy()

    def datetimes(self, key: Any = ...) -> np.ndarray:
        """Return reference times as datetime64 or cftime objects.

        They are cftime objects if the calendar needs them. The type depends on the array, not on the key. Missing times are
        NaT or None. Raises UnitsError for other units.
        """
        return read_datetimes(self, key)

    def _time_extent(self) -> np.ndarray:
        return time_extent(self)

    @property
    def _is_known(self) -> bool:
        """Whether the values are known without reading a file."""
        return self._known is not None or not len(self._matrix.references.uris)

    def _values_and_mask(self) -> KnownValues:
        if self._known is not None:
            return self._known
        in_memory = not len(self._matrix.references.uris)
        values = self.read(masked=True, copy=None if in_memory else True)
        return np.ma.getdata(values), np.ma.getmaskarray(values)

    def local(self, distribution: Distribution, rank: int, copy: bool | None = True) -> LocalArray:
        """Return the section of one process, which is read lazily.

        It exports the Distributed Array Protocol. ``copy``: True gives a native, aligned, writable buffer in C order; None and
        False as in `read`. Raises ProtocolError if the distribution does not fit the array or the rank is out of range.
        """
        from aggarray.arrays.local import LocalArray

        return LocalArray(self, distribution, rank, copy)

    @property
    def lazy(self) -> Lazy:
        """``a.lazy[key]``: the master array of a selection; no file is opened."""
        return Lazy(self)

    def _selected(self, selectors: Mapping[str, Selector]) -> MasterArray:
        return select_dimensions(self, selectors)

    def _chosen(self, selectors: Mapping[str, Selector]) -> MasterArray:
        return self._with_coords(lambda a: a._selected(selectors))

    def _with_coords(self, change: Callable[[MasterArray], MasterArray]) -> MasterArray:
        changed, coords = change(self), {name: change(c) for name, c in self.coords.items()}
        return replace(changed, coords=reverse_bounds(self.coords, coords, self, changed))

    def transpose(self, *dimensions: str) -> MasterArray:
        """Return the array with its dimensions reordered, by default reversed."""
        names = dimension_names(dimensions) or self.dimensions[::-1]
        return self._after("transpose", names, transpose_dimensions(self, names))

    def flip(self, *dimensions: str) -> MasterArray:
        """Reverse dimensions, by default all, and their `directions`."""
        names = dimension_names(dimensions) or self.dimensions
        sizes = {d: self.shape[self._matrix.axis(d)] for d in names}
        selectors = {d: Range(n - 1, n, -1) for d, n in sizes.items()}
        return self._after("flip", names, self._with_coords(lambda a: a._turned(selectors)))

    def _turned(self, selectors: Mapping[str, Range]) -> MasterArray:
        return reverse_dimensions(self, selectors)

    def to_units(self, units: str, calendar: str | None = None) -> MasterArray:
        """Return the array in other units.

        Floating arrays keep their dtype, integers become float64. A temperature difference has no offset (CF 3.1.2); bounds of
        the array itself are converted with it (CF 7.1). Raises UnitsError if the units or calendars do not convert, or the
        values are not numbers.
        """
        calendar = normal_calendar(units, calendar if calendar is not None else self.calendar)
        return self._after("to_units", (units, calendar), convert_units(self, units, calendar))

    def astype(self, dtype: Any) -> MasterArray:
        """Return the array in another data type, cast as NumPy does.

        Missing values stay missing. Raises AggregationError if there is no such cast.
        """
        dtype = plain_dtype(dtype)
        cast(np.empty(0, self.dtype), None, dtype)
        return self._after("astype", (dtype,), with_step(self, replace(self._step, dtype=dtype)))

    def sel(
        self, given: Mapping[str, Any] | str | None = None, /, method: str | None = None, tolerance: Any = None, **labels: Any
    ) -> MasterArray:
        """Select lazily by coordinate values, as ``sel`` of xarray does.

        Slices include both ends. The first argument may be a mapping of labels, as in xarray: ``a.sel({"lat": 0.0})``.
        Dimensions without a coordinate are selected by position. Times may be text ("2000-01"), datetime, datetime64 or cftime
        objects, their tolerance text ("12h"), timedelta64, timedelta or pandas.Timedelta. Raises NotFoundError for missing
        labels or dimensions, SelectionError for labels or a tolerance of a wrong type.

        >>> from aggarray import SubArray
        >>> latitudes = SubArray.from_array([-45.0, 0.0, 45.0], dimensions=("lat",))
        >>> lat = MasterArray.from_subarrays([([(0, 3)], latitudes)], dimensions=("lat",))
        >>> lat.sel(lat=slice(1, 2))[:].tolist()
        [0.0]
        """
        return self.lazy[labels_key(self, given, method, tolerance, labels)]

    def isel(self, given: Mapping[str, Any] | None = None, /, **indexers: Any) -> MasterArray:
        """Select lazily by position, as ``isel`` of xarray does.

        An integer drops its dimension; slices, 1-d index arrays, lists and masks keep it. Each selects along its dimension
        alone. The first argument may be a mapping: ``a.isel({"lat": 0})``. Raises SelectionError for dimensions that the array
        lacks and for positions out of range.

        >>> from aggarray import SubArray
        >>> rows = SubArray.from_array([[1, 2, 3], [4, 5, 6]], dimensions=("y", "x"))
        >>> a = MasterArray.from_subarrays([([(0, 2), (0, 3)], rows)], dimensions=("y", "x"))
        >>> a.isel(y=-1, x=[2, 0]).values.tolist()
        [6, 4]
        """
        return self.lazy[positions_key(self, {**(given or {}), **indexers})]

    def forecast(self, view: str | None = None, period: Any = None, run: Any = None) -> MasterArray:
        """Return a view of a forecast along its valid time, dimension ``time``.

        Give one argument. ``view``: "best", the latest run with a file for each valid time. ``period``: a lead, one value per
        run: a number in units of the coordinate, text such as "6 hours", or timedelta64. ``run``: a reference time, one value
        per lead: text such as "2024-01-01T12", datetime, datetime64 or a cftime object. The coordinates
        ``forecast_reference_time`` and ``forecast_period`` tell the run and the lead of each time. No file is opened. Raises
        NotFoundError for an array without these dimensions and for an absent run or lead, SelectionError for other arguments.

        >>> from aggarray import SubArray
        >>> MasterArray.from_subarrays([([(0, 1)], SubArray.from_array([1.0]))], dimensions=("x",)).forecast("best")
        Traceback (most recent call last):
        aggarray.errors.NotFoundError: no dimension 'forecast_reference_time' ...
        """
        from aggarray.arrays.forecast import forecast_view

        return self._after("forecast", (view, period, run), forecast_view(self, view, period, run))

    def __repr__(self) -> str:
        from aggarray.display.array_repr import array_text

        return array_text(self)
