"""What all arrays have in common; values in memory; reference times."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from aggarray.cf.frozen import FrozenDict
from aggarray.cf.units.recognition import is_reference_time
from aggarray.errors import AggregationError, UnitsError
from aggarray.memory.selection import Range, Selector, result_shape
from aggarray.read import ReadOptions, Target, masked_array, output

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray
    from aggarray.memory.arrays import Array

    # Type checkers see no operators.
    _Operators = object
else:
    from numpy.lib.mixins import NDArrayOperatorsMixin as _Operators

#: The values of an array that scanning has read, and their mask (None: none is missing).
KnownValues = tuple[np.ndarray, np.ndarray | None]


class AttributeHints:
    """Base class whose AttributeErrors name an alternative."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if hasattr(type(self), name):
                return object.__getattribute__(self, name)  # raises the error of the property again
            if name.startswith("_"):  # probes of other libraries
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            from aggarray.arrays.hints import missing_attribute

            raise missing_attribute(self, name)


class NamedArray(AttributeHints, _Operators):
    """Array with named dimensions, which is read on request.

    It does not compute: operators and NumPy's ufuncs raise TypeError, and methods of NumPy and xarray that it lacks raise
    AttributeError, which names the way to compute. `numpy.asarray` reads all values. ``==`` compares identity.
    """

    __slots__ = ()
    __eq__, __ne__, __hash__ = object.__eq__, object.__ne__, object.__hash__

    if TYPE_CHECKING:

        @property
        def dimensions(self) -> tuple[str, ...]:
            """Names of the dimensions."""

        @property
        def shape(self) -> tuple[int, ...]:
            """Size along each dimension."""

        @property
        def dtype(self) -> np.dtype[Any]:
            """Data type of the values."""

    @abstractmethod
    def read(self, *, copy: bool | None = True) -> Any:
        """Return the values; ``copy`` False: a view, or raise AggregationError."""

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions; the name that xarray uses."""
        return self.dimensions

    @property
    def sizes(self) -> FrozenDict[int]:
        """Size of each dimension by name, immutable.

        >>> from aggarray import SubArray
        >>> SubArray.from_array([[1, 2, 3]], dimensions=("lat", "lon")).sizes
        {'lat': 1, 'lon': 3}
        """
        return FrozenDict(zip(self.dimensions, self.shape, strict=True))

    @property
    def values(self) -> Any:
        """All values, of the shape of the array, read anew on each access.

        Raises FormatError, MissingFileError and UnitsError as `MasterArray.read` does.

        >>> from aggarray import SubArray
        >>> SubArray.from_array([[1, 2, 3]]).values
        array([[1, 2, 3]])
        """
        return self.read()

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.dimensions)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the array in memory, in bytes."""
        return self.size * self.dtype.itemsize

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> NoReturn:
        """Raise TypeError: these arrays do not compute."""
        from aggarray.arrays.hints import no_arithmetic

        raise no_arithmetic(self, ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}")

    def __memory__(self) -> "Array | str":
        from aggarray.memory.creation import array_of

        try:
            return array_of(self.read(copy=False))
        except AggregationError as error:
            return str(error)


class Convertible:
    """Array that other libraries can take, in chunks."""

    __slots__ = ()

    def chunks_for(self, nbytes: int, regular: bool = False) -> tuple[tuple[int, ...], ...]:
        """Return chunk sizes per dimension, as dask has them.

        A chunk never spans two partitions and never ends inside a stored chunk. It has at most ``nbytes`` bytes, unless one
        stored chunk has more. Chunks are merged along the partitioned dimensions first. Opens a few files if no index knows
        how they are stored. Raises SelectionError unless ``nbytes`` is a positive integer.

        ``regular``: equal sizes, of which the last may be smaller, for cubed and Zarr. They span partitions, and end at stored
        chunks where regular ones can; otherwise they cut the fewest.

        >>> from aggarray import MasterArray, SubArray
        >>> pieces = [([(n, n + 4)], SubArray.from_array([1.0] * 4, dimensions=("x",))) for n in (0, 4)]
        >>> a = MasterArray.from_subarrays(pieces, dimensions=("x",))
        >>> a.chunks_for(100), a.chunks_for(16)
        (((4, 4),), ((2, 2, 2, 2),))
        >>> a.chunks_for(40, regular=True)
        ((4, 4),)
        """
        from aggarray.arrays.chunk_sizes import chunks_for

        return chunks_for(self, nbytes, regular)

    def files_for(self, chunks: Sequence[Sequence[int]]) -> np.ndarray:
        """Return the files that each chunk reads, as an array of tuples.

        The result has one element per chunk: a tuple of paths and URLs, that with most values of the chunk first. It is empty
        where all values are missing or in memory. ``chunks``: sizes per dimension, such as `chunks_for` and dask's ``.chunks``.
        No file is opened. Raises SelectionError for sizes that do not add up to the shape.

        >>> from aggarray import MasterArray, SubArray
        >>> a = MasterArray.from_subarrays([([(0, 3)], SubArray.from_array([1.0, 2.0, 3.0]))], dimensions=("x",))
        >>> a.files_for(((2, 1),)).tolist()
        [(), ()]
        """
        from aggarray.arrays.chunk_files import files_for

        return files_for(self, chunks)

    def to_dask(self, chunks: Any = None) -> Any:
        """Return the array as a dask array of one layer, read lazily.

        ``chunks``: None or {} = stored chunks, merged up to 100 MB as by `chunks_for`, and across files if they are more than
        10,000; "auto" = merged across files, up to dask's size; else as in dask, or by names of dimensions. Raises
        SelectionError for other values.
        """
        from aggarray.interop.dask import to_dask

        return to_dask(self, chunks)

    def to_xarray(self, chunks: Any = None) -> Any:
        """Return the array as a lazy ``xarray.DataArray`` with its coordinates.

        ``chunks``: None = without dask, {} = stored chunks, merged up to 100 MB; else as in ``xarray.open_dataset``.
        """
        from aggarray.interop.xarray_store import to_dataarray

        return to_dataarray(self, chunks)

    def plot_coverage(self, ax: Any = None) -> Any:
        """Draw the partition matrix; return the axes of matplotlib.

        White lines mark virtual partitions, crossed red frames missing ones. The x axis is a time dimension, drawn to scale as
        dates, or the last partitioned one. Up to 40 files along one dimension have a row each; otherwise the y axis is the next
        dimension, and further ones are at their first partition. No file is read. AggregationError without the extra ``plot``.
        """
        from aggarray.display.coverage import plot_coverage

        return plot_coverage(self, ax)

    def _repr_html_(self) -> str:
        from aggarray.display.notebook import array_html

        return array_html(self)


def select_known(known: KnownValues, axis: int, selector: Selector) -> KnownValues:
    """Select along a dimension of the known values of an array."""
    key: Any = selector.as_slice() if isinstance(selector, Range) else selector
    index = (*(slice(None),) * axis, key)
    return np.asarray(known[0][index]), None if known[1] is None else np.asarray(known[1][index])


def read_known(known: KnownValues, target: Target, selectors: Sequence[Selector], options: ReadOptions) -> np.ndarray:
    """Copy a selection of values in memory, as `read` reads those of files."""
    for axis in reversed(range(len(selectors))):
        known = select_known(known, axis, selectors[axis])
    values, mask = known
    result = output(options.out, result_shape(selectors), target.step.dtype)
    result[...] = values
    if mask is not None:
        result[mask] = target.fill_value
    if not options.masked:
        return result
    mask = np.zeros(result.shape, bool) if mask is None else mask
    return masked_array(result, mask, target.fill_value)


def read_datetimes(array: "MasterArray", key: Any) -> np.ndarray:
    """Read a selection of reference times, as `MasterArray.datetimes` does."""
    from aggarray.cf.units.calendars import datetime_kind, datetimes

    if array.units is None or not is_reference_time(array.units):
        named = next((n for n, c in array.coords.items() if c.units and c.ndim == 1 and is_reference_time(c.units)), None)
        hint = "select an array with units such as 'days since 2000-01-01'"
        hint = hint if named is None else f"the times are .coords[{named!r}].datetimes()"
        raise UnitsError(f"units {array.units!r} are not a reference time", variable=array.name, hint=hint)
    times = _with_nan(*array._values_and_mask())
    time_type = datetime_kind(array.units, array.calendar, *_finite_extent(times))
    if key is not ...:
        values = array.read(key, masked=True)
        times = _with_nan(np.ma.getdata(values), np.ma.getmaskarray(values))
    return datetimes(times, array.units, array.calendar, time_type)


def _finite_extent(values: np.ndarray) -> tuple[float | None, float | None]:
    """Return the least and the greatest finite value, None without any."""
    ends = (float(np.fmin.reduce(values, axis=None)), float(np.fmax.reduce(values, axis=None))) if values.size else ()
    if not all(map(math.isfinite, ends)):  # infinite, or NaN alone
        values = values[np.isfinite(values)]
        ends = (float(values.min()), float(values.max())) if values.size else ()
    return ends or (None, None)


def _with_nan(values: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    return values if mask is None or not mask.any() else np.where(mask, np.nan, values)


def time_extent(array: "MasterArray") -> np.ndarray:
    """Return the first and the last of reference times, as `read_datetimes`.

    The result is empty if all are missing.
    """
    from aggarray.cf.units.calendars import datetime_kind, datetimes

    times = _with_nan(*array._values_and_mask())
    ends = [np.fmin.reduce(times, axis=None), np.fmax.reduce(times, axis=None)] if times.size else []
    time_type = datetime_kind(str(array.units), array.calendar, *_finite_extent(times))
    return datetimes(np.array([end for end in ends if end == end], times.dtype), str(array.units), array.calendar, time_type)
