"""Cells of times: their bounds, else lengths by the step of the times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.aggregate.candidate import coordinate_along
from aggarray.aggregate.rules import facet
from aggarray.arrays.lazy import bounds_names
from aggarray.cf.frequency import Frequency, stated_frequency
from aggarray.cf.units import is_reference_time
from aggarray.cf.units.calendars import epoch
from aggarray.cf.units.date_fields import DAY, DateFields, date_fields, day_numbers
from aggarray.errors import SelectionError, UnitsError

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

#: Deviation of a step from a whole multiple of the usual one, and the fraction of steps that are multiples.
_SLACK, _NEARLY_ALL = 0.01, 0.9
_SHORTEST_MONTH = 27 * DAY
#: Distance of a time from the end of its cell, as a part of its length, that is due to rounding.
_AT_END = 1e-4


def time_along(array: MasterArray, dimension: str) -> MasterArray | None:
    """Return the 1-d time coordinate of a dimension, None without.

    That of times without coordinates is the array itself.
    """
    coordinate = coordinate_along(dimension, array)
    if coordinate is None and array.dimensions == (dimension,):
        coordinate = array
    return coordinate if coordinate is not None and is_reference_time(coordinate.units) else None


def time_dimension(array: MasterArray) -> str:
    """Return the dimension with 1-d times; SelectionError unless it is one."""
    names = [d for d in array.dimensions if time_along(array, d) is not None]
    if len(names) != 1:
        what = f"{'no dimension' if not names else 'several dimensions'} with 1-d times: {', '.join(names or array.dimensions)}"
        raise SelectionError(what, variable=array.name, hint="name the dimension: a.mean(dimension, by=...)")
    return names[0]


def values_of(coordinate: MasterArray) -> np.ndarray:
    """Return the values of a coordinate; missing numbers are NaN."""
    values, mask = coordinate._values_and_mask()
    if mask is None or not mask.any() or values.dtype.kind not in "iuf":
        return values
    return np.where(mask, np.nan, values)


def bounds_of(array: MasterArray, coordinate: MasterArray) -> np.ndarray | None:
    """Return the bounds of a 1-d coordinate in its units, None without.

    The result is float64 of shape (n, 2).
    """
    bounds: Any = next((array.coords[name] for name in bounds_names(coordinate) if name in array.coords), None)
    if bounds is None or bounds.shape != (*coordinate.shape, 2) or bounds.dtype.kind not in "iuf":
        return None
    if coordinate.units is not None and bounds.units not in (None, coordinate.units):
        try:
            bounds = bounds.to_units(coordinate.units, coordinate.calendar)
        except UnitsError:  # they bound something else
            return None
    return values_of(bounds).astype(np.float64)


def time_fields(coordinate: MasterArray) -> DateFields:
    """Return the dates of a time coordinate."""
    return date_fields(values_of(coordinate), str(coordinate.units), coordinate.calendar)


def middle_fields(array: MasterArray, coordinate: MasterArray) -> DateFields:
    """Return the dates of times, or of the middle of cells that end there.

    Such a time, as of some models, is the start of the next month.
    """
    bounds = bounds_of(array, coordinate)
    if bounds is None or "climatology" in coordinate.attrs or coordinate.dtype.kind not in "iuf":
        return time_fields(coordinate)
    values = values_of(coordinate).astype(np.float64)
    low, high = bounds.min(axis=1), bounds.max(axis=1)
    at_end = (high > low) & (np.abs(values - high) <= _AT_END * (high - low))
    if not at_end.any():
        return time_fields(coordinate)
    return date_fields(np.where(at_end, low + (high - low) / 2, values), str(coordinate.units), coordinate.calendar)


def cell_lengths(array: MasterArray, coordinate: MasterArray, dates: DateFields) -> np.ndarray | None:
    """Return the length of the cell of each time in microseconds.

    Bounds decide, else the step of the times, else the frequency that the attributes state. Cells of months and years have
    those of the calendar. None if the length is unknown. ``dates``: of the times.
    """
    bounds = bounds_of(array, coordinate)
    is_cell = bounds is not None and bool((bounds[:, 0] != bounds[:, 1]).any())  # instants may have bounds without length
    if bounds is not None and is_cell and "climatology" not in coordinate.attrs:
        return np.asarray(np.abs(bounds[:, 1] - bounds[:, 0]) * float(epoch(str(coordinate.units), coordinate.calendar).step))
    step = step_of(array, dates)
    if step is None or (step.months and step.months not in (1, 12)):
        return None
    if step.months == 1:
        days = day_numbers(dates.year, dates.month + 1, dates.calendar) - day_numbers(dates.year, dates.month, dates.calendar)
    elif step.months:
        days = day_numbers(dates.year + 1, 1, dates.calendar) - day_numbers(dates.year, 1, dates.calendar)
    else:
        return np.full(dates.year.shape, step.seconds * 1e6)
    return np.asarray(days.astype(np.float64) * DAY)


def step_of(array: MasterArray, dates: DateFields) -> Frequency | None:
    """Return the usual step of times, else the stated frequency, or None."""
    present = ~dates.missing
    moments = np.sort((dates.day_number * DAY + dates.microsecond)[present])
    steps = np.diff(moments)
    steps = steps[steps > 0]
    if not steps.size:
        attributes = {**array.attrs, **array.file_attrs}
        stated = stated_frequency(attributes, facet(attributes, "table_id"))
        return stated if stated is not None and not stated.fixed and not stated.climatology else None
    if steps.min() >= _SHORTEST_MONTH:
        months = np.diff(np.sort((dates.year * 12 + dates.month)[present]))
        usual = int(months.min()) if months.size else 0
        return Frequency(months=usual) if usual and (months % usual == 0).mean() >= _NEARLY_ALL else None
    step = float(np.median(steps))
    multiples = steps / step
    regular = (np.rint(multiples) >= 1) & (np.abs(multiples - np.rint(multiples)) <= _SLACK)
    return Frequency(seconds=step / 1e6) if regular.mean() >= _NEARLY_ALL else None


def hull(low: np.ndarray, high: np.ndarray, numbers: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the greatest value of each group; NaN without.

    ``numbers``: the group of each value, -1 for none.
    """
    used = (numbers >= 0) & ~np.isnan(low) & ~np.isnan(high)
    first, last = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(first, numbers[used], low[used])
    np.maximum.at(last, numbers[used], high[used])
    empty = first > last
    return np.where(empty, np.nan, first), np.where(empty, np.nan, last)
