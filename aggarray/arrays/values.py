"""Values in memory: those that scanning has read, views, reference times."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.cf.units.recognition import is_reference_time
from aggarray.errors import AggregationError, UnitsError
from aggarray.memory.selection import Range, Selector, result_shape
from aggarray.read import ReadOptions, Target, masked_array, output

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray
    from aggarray.memory.arrays import Array

#: The values of an array that scanning has read, and their mask (None: none is missing).
KnownValues = tuple[np.ndarray, np.ndarray | None]


class Viewable:
    """Object whose values may be in memory or in a mapped file."""

    __slots__ = ()

    @abstractmethod
    def read(self, *, copy: bool | None) -> np.ndarray:
        """Return the values; ``copy`` False: a view, or raise AggregationError."""

    def __memory__(self) -> "Array | str":
        from aggarray.memory.creation import array_of

        try:
            return array_of(self.read(copy=False))
        except AggregationError as error:
            return str(error)


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
        hint = "select an array with units such as 'days since 2000-01-01'"
        raise UnitsError(f"units {array.units!r} are not a reference time", variable=array.name, hint=hint)
    times = _with_nan(*array._values_and_mask())
    valid = times[np.isfinite(times)]
    ends = (float(valid.min()), float(valid.max())) if valid.size else (None, None)
    time_type = datetime_kind(array.units, array.calendar, *ends)
    values = array.read(key, masked=True)
    return datetimes(_with_nan(np.ma.getdata(values), np.ma.getmaskarray(values)), array.units, array.calendar, time_type)


def _with_nan(values: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    return values if mask is None or not mask.any() else np.where(mask, np.nan, values)
