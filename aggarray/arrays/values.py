"""What all arrays have in common: names, conversions, reductions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from aggarray.cf.frozen import FrozenDict
from aggarray.errors import AggregationError

if TYPE_CHECKING:
    from dask.array import Array as DaskArray
    from xarray import DataArray

    from aggarray.arrays.master import MasterArray
    from aggarray.memory.arrays import Array

    # Type checkers see no operators.
    _Operators = object
else:
    from numpy.lib.mixins import NDArrayOperatorsMixin as _Operators

#: The values of an array that scanning has read, and their mask (None: none is missing).
KnownValues = tuple[np.ndarray, np.ndarray | None]
#: Dimensions to reduce: a name, several, or all.
Dimensions = str | Sequence[str] | None


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
    def read(self, *, copy: bool | None = True) -> np.ndarray:
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
    def values(self) -> np.ndarray:
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

    def __memory__(self) -> Array | str:
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

    def to_dask(self, chunks: Any = None) -> DaskArray:
        """Return the array as a dask array of one layer, read lazily.

        ``chunks``: None or {} = stored chunks, merged up to 100 MB as by `chunks_for`, and across files if they are more than
        10,000; "auto" = merged across files, up to dask's size; else as in dask, or by names of dimensions. Raises
        SelectionError for other values.
        """
        from aggarray.interop.dask import to_dask

        return to_dask(self, chunks)

    def to_xarray(self, chunks: Any = None) -> DataArray:
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


class Reducible:
    """Array whose reductions read its files once, in bounded memory."""

    __slots__ = ()

    def reduce(
        self,
        operation: str,
        dims: Dimensions = None,
        *,
        by: Any = None,
        weights: Any = None,
        skipna: bool = True,
        min_count: int = 1,
    ) -> MasterArray:
        """Reduce dimensions while the files are read; return values in memory.

        Each stored chunk is decoded once, or once for some groups if their result is large. Beside the result this needs at
        most 64 MB if chunks have at most a million values. The bits are the same for any number of threads.
        ``operation``: "mean", "sum", "min", "max", "std", "var" (both of the population), "count", "any", "all", "first",
        "last", "argmin" or "argmax". Means, sums, std and var are computed in double precision. They are float64, except that
        sums of integers are int64 (of uint64 the same), as are counts and positions. "any" and "all", of values that are not 0,
        are bool; the others keep the dtype. ``dims``: a name, names, or None for all dimensions. "first", "last", "argmin" and
        "argmax" take one: the last two return the position along it where the extreme occurs first. ``by``: how the one
        dimension of ``dims`` is grouped, instead of vanishing: "month", "season", "dayofyear", "hour" make a dimension of that
        name; "year", "year-season", "year-month", "day", and bins such as "10-year", keep the dimension; the name of a 1-d
        coordinate makes a dimension of that name, an array of labels, one for each position, a dimension ``group``.
        ``weights``: "area", "time", an array over ``dims``, or {dimension: 1-d array}; only mean, sum, std and var use them.
        ``skipna``: False makes the result missing where any value is ("first", "last": where that value is). ``min_count``:
        with fewer values, and mostly with none, the result is missing: NaN in floating arrays, the fill value in others, -1 for
        positions. "any" of no values is False and "all" True; with ``min_count`` above 1, or without ``skipna``, they are int8.
        Raises NotFoundError for unknown dimensions, AggregationError for other unfit arguments, before anything is read.

        >>> from aggarray import MasterArray, SubArray
        >>> pieces = [([(n, n + 1), (0, 2)], SubArray.from_array([[n, 5.0]], fill_value=2.0)) for n in (0, 1, 2)]
        >>> a = MasterArray.from_subarrays(pieces, dimensions=("time", "x"))
        >>> a.reduce("mean", "time")[:].tolist(), a.reduce("count")[...].item(), a.reduce("argmax", "time")[:].tolist()
        ([0.5, 5.0], 5, [1, 0])
        """
        from aggarray.reduce import reduce_array

        array: Any = self
        return reduce_array(array, [operation], dims, by=by, weights=weights, skipna=skipna, min_count=min_count)[operation]

    def mean(self, dims: Dimensions = None, **options: Any) -> MasterArray:
        """Return means over dimensions: float64, in the units of the array.

        ``dims`` and ``options``: as in `reduce`.
        """
        return self._reduced("mean", dims, options)

    def sum(self, dims: Dimensions = None, **options: Any) -> MasterArray:
        """Return sums over dimensions: (u)int64 for integers, else float64.

        ``dims`` and ``options``: as in `reduce`. The sum of no values is missing, unless ``min_count`` is 0.
        """
        return self._reduced("sum", dims, options)

    def min(self, dims: Dimensions = None, **options: Any) -> MasterArray:
        """Return the smallest values over dimensions, of the same dtype.

        ``dims`` and ``options``: as in `reduce`.
        """
        return self._reduced("min", dims, options)

    def max(self, dims: Dimensions = None, **options: Any) -> MasterArray:
        """Return the greatest values over dimensions, of the same dtype.

        ``dims`` and ``options``: as in `reduce`.
        """
        return self._reduced("max", dims, options)

    def std(self, dims: Dimensions = None, **options: Any) -> MasterArray:
        """Return standard deviations of the population over dimensions.

        They are float64, in the units of the array, or of differences. ``dims`` and ``options``: as in `reduce`.
        """
        return self._reduced("std", dims, options)

    def var(self, dims: Dimensions = None, **options: Any) -> MasterArray:
        """Return variances of the population over dimensions: float64.

        Their units are squared. ``dims`` and ``options``: as in `reduce`.
        """
        return self._reduced("var", dims, options)

    def count(self, dims: Dimensions = None, **options: Any) -> MasterArray:
        """Return the numbers of values that are not missing: int64, units "1".

        ``dims`` and ``options``: as in `reduce`.
        """
        return self._reduced("count", dims, options)

    def any(self, dims: Dimensions = None, **options: Any) -> MasterArray:
        """Return whether any value over dimensions differs from 0: bool.

        Missing values are ignored; without others the result is False. ``dims`` and ``options``: as in `reduce`.
        """
        return self._reduced("any", dims, options)

    def all(self, dims: Dimensions = None, **options: Any) -> MasterArray:
        """Return whether all values over dimensions differ from 0: bool.

        Without any, the result is True. ``dims`` and ``options``: as in `reduce`.
        """
        return self._reduced("all", dims, options)

    def first(self, dims: Dimensions = None, **options: Any) -> MasterArray:
        """Return the first values along one dimension, of the same dtype.

        Missing values are passed over. ``dims`` and ``options``: as in `reduce`.
        """
        return self._reduced("first", dims, options)

    def last(self, dims: Dimensions = None, **options: Any) -> MasterArray:
        """Return the last values along one dimension, of the same dtype.

        Missing values are passed over. ``dims`` and ``options``: as in `reduce`.
        """
        return self._reduced("last", dims, options)

    def argmin(self, dims: Dimensions = None, **options: Any) -> MasterArray:
        """Return the positions of the smallest values along one dimension.

        They are int64, that of the first of equal values, -1 where all are missing. ``dims`` and ``options``: as in `reduce`.
        """
        return self._reduced("argmin", dims, options)

    def argmax(self, dims: Dimensions = None, **options: Any) -> MasterArray:
        """Return the positions of the greatest values, otherwise as `argmin`."""
        return self._reduced("argmax", dims, options)

    def median(self, dims: Dimensions = None, **options: Any) -> MasterArray:
        """Return medians over dimensions: float64, in the units of the array.

        ``dims`` and ``options``: as in `quantile`, which says what memory and time it needs.
        """
        from aggarray.reduce.quantiles import quantile_of

        return quantile_of(self, 0.5, dims, options, "median")  # type: ignore[arg-type]

    def quantile(self, q: Any, dims: Dimensions = None, **options: Any) -> MasterArray:
        """Return exact quantiles over dimensions: float64, interpolated linearly.

        All values of a result are sorted in memory, up to 34 MB at a time; AggregationError if they are more. A stored chunk is
        decoded once if the column of chunks over ``dims`` has fewer bytes, else once for every 34 MB of it. ``q``: numbers from
        0 to 1; several become the first dimension, ``quantile``. ``dims`` and ``options``: as in `reduce`, without ``weights``.
        """
        from aggarray.reduce.quantiles import quantile_of

        return quantile_of(self, q, dims, options)  # type: ignore[arg-type]

    def climatology(self, by: Any = "month", **options: Any) -> MasterArray:
        """Return means over years (of "hour": over days) along the times.

        ``by``: "month", "season", "dayofyear" or "hour", or labels as in `reduce`. ``options``: as in `reduce`.
        """
        from aggarray.reduce.anomaly import climatology_of

        return climatology_of(self, by, options)  # type: ignore[arg-type]

    def anomaly(self, by: Any = "month", climatology: Any = None, **options: Any) -> MasterArray:
        """Return the array less its climatology, in memory.

        Floating arrays keep their dtype, others become float64. ``climatology``: another, such as that of a base period, as a
        master array, DataArray or values; without it, files are read twice. ``by``, ``options``: as in `climatology`.
        """
        from aggarray.reduce.anomaly import anomaly_from

        return anomaly_from(self, by, climatology, options)  # type: ignore[arg-type]

    def running_mean(self, steps: int, dims: Dimensions = None, **options: Any) -> MasterArray:
        """Return means of windows of ``steps`` positions along a dimension.

        Windows with missing values have none, unless ``min_count`` is less than ``steps``. ``dims``: one dimension, None for
        that of times. ``options``: as in `reduce`, without ``by``.
        """
        from aggarray.reduce.running import running_mean_of

        return running_mean_of(self, steps, dims, options)  # type: ignore[arg-type]

    def _reduced(self, operation: str, dims: Dimensions, options: dict[str, Any]) -> MasterArray:
        if options.keys() <= {"by", "weights", "skipna", "min_count"}:
            return self.reduce(operation, dims, **options)
        from aggarray.arrays.hints import reduce_by_numpy

        return reduce_by_numpy(self, operation, dims, options)  # type: ignore[no-any-return]
