"""Reading a selection of an array: as a fresh array or a view, with or without the mask."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.cf.units import datetime_kind, datetimes, is_reference_time
from aggarray.errors import AggregationError, SelectionError, UnitsError
from aggarray.memory import Array
from aggarray.memory.creation import array_of
from aggarray.memory.selection import Range, Selector, result_shape
from aggarray.partition.matrix import Matrix
from aggarray.read import Target, output, read, view

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

COPY_HINT = "give True, None (a view where possible) or False (a view or an error)"
#: The values of an array that scanning has read, and their mask (None: none is missing).
KnownValues = tuple[np.ndarray, np.ndarray | None]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a read: with the mask, into an array, as a view, number of threads.

    Raises AggregationError or SelectionError for invalid values.
    """

    masked: bool = False
    out: np.ndarray | None = None
    copy: bool | None = True
    threads: int | None = None

    def __post_init__(self) -> None:
        if not (self.copy is None or self.copy is True or self.copy is False):
            raise AggregationError(f"invalid copy={self.copy!r}", hint=COPY_HINT)
        is_integer = isinstance(self.threads, int | np.integer) and not isinstance(self.threads, bool)
        if self.threads is not None and not (is_integer and self.threads >= 1):
            hint = "give an integer of at least 1, or None to use the option"
            raise SelectionError(f"invalid threads={self.threads!r}", hint=hint)


def read_or_view(matrix: Matrix, target: Target, selectors: Sequence[Any], options: ReadOptions) -> np.ndarray:
    """Read a selection; a masked array has the mask of the files. Raises AggregationError if there is no view."""
    if options.copy is not True and options.out is None:
        viewed = view(matrix, target, selectors, options.masked)
        if isinstance(viewed, np.ndarray):
            return np.ma.MaskedArray(viewed, mask=False) if options.masked else viewed
        if options.copy is False:
            raise AggregationError(f"no view without a copy: {viewed}", hint="read with copy=None or copy=True")
    elif options.copy is False:
        raise AggregationError("copy=False and out= contradict each other", hint="leave one out")
    values, mask = read(matrix, target, selectors, options.out, options.masked, options.threads)
    if mask is None:
        return values
    return np.ma.MaskedArray(values, mask=mask, fill_value=_mask_fill(values.dtype, target.fill_value))


class Viewable:
    """Object whose values may be in memory or in a mapped file, for `aggarray.memory.debug_repr`."""

    __slots__ = ()

    @abstractmethod
    def read(self, *, copy: bool | None) -> np.ndarray:
        """Return the values; ``copy`` False: as a view, or raises AggregationError."""

    def __memory__(self) -> Array | str:
        try:
            return array_of(self.read(copy=False))
        except AggregationError as error:
            return str(error)


def _mask_fill(dtype: np.dtype[Any], fill: Any) -> Any:
    return fill if dtype.kind in "iufcbmM" else None


def read_known(known: KnownValues, target: Target, selectors: Sequence[Selector], options: ReadOptions) -> np.ndarray:
    """Copy a selection of values in memory, as `read_or_view` reads those of files."""
    values, mask = (None if k is None else _select(k, selectors) for k in known)
    result = output(options.out, result_shape(selectors), target.step.dtype)
    result[...] = values
    if mask is not None:
        result[mask] = target.fill_value
    if not options.masked:
        return result
    mask = np.zeros(result.shape, bool) if mask is None else mask
    return np.ma.MaskedArray(result, mask=mask, fill_value=_mask_fill(result.dtype, target.fill_value))


def _select(values: np.ndarray, selectors: Sequence[Selector]) -> np.ndarray:
    """Apply one selector per dimension."""
    for axis in reversed(range(values.ndim)):
        selector = selectors[axis]
        index = selector.as_slice() if isinstance(selector, Range) else selector
        values = np.asarray(values[(*(slice(None),) * axis, index)])
    return values


def read_datetimes(array: "MasterArray", key: Any) -> np.ndarray:
    """Read a selection of reference times as datetime64 or cftime objects; errors as `MasterArray.datetimes`."""
    if array.units is None or not is_reference_time(array.units):
        what = f"{array.name or 'array'}: units {array.units!r} are not a reference time ('days since ...')"
        raise UnitsError(what)
    times = _with_nan(*array._values_and_mask())
    valid = times[np.isfinite(times)]
    ends = (float(valid.min()), float(valid.max())) if valid.size else (None, None)
    time_type = datetime_kind(array.units, array.calendar, *ends)
    values = array.read(key, masked=True)
    return datetimes(_with_nan(np.ma.getdata(values), np.ma.getmaskarray(values)), array.units, array.calendar, time_type)


def _with_nan(values: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    return values if mask is None or not mask.any() else np.where(mask, np.nan, values)
