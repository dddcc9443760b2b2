"""Years, months and days of reference times, in columns.

Day numbers are those of cftime on the axis of each calendar. Years are astronomical: 0 is the year before 1 in every calendar;
`named_years` returns the years of calendars that have no year 0.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from aggarray.cf.units.calendars import CUTOVER, _classes, _microseconds, epoch
from aggarray.dataclass import dataclass

DAY = 86_400_000_000
#: Calendars whose years have equal lengths.
_LENGTHS = {"noleap": 365, "all_leap": 366, "360_day": 360}
#: Calendars without a year 0.
_NO_YEAR_0 = ("standard", "julian")
#: Day number of 1970-01-01 in the Gregorian calendar, and the first one of it in the standard calendar.
_UNIX, _FIRST = 2_440_588, CUTOVER // DAY
_MONTHS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


@dataclass(frozen=True, slots=True)
class DateFields:
    """Dates of times of one calendar, as int64 columns.

    ``day_number``: on the axis of the calendar; ``microsecond``: of the day; ``missing``: True where a time is missing, whose
    other fields are undefined.
    """

    calendar: str
    year: np.ndarray
    month: np.ndarray
    day: np.ndarray
    dayofyear: np.ndarray
    day_number: np.ndarray
    microsecond: np.ndarray
    missing: np.ndarray


def date_fields(values: np.ndarray, units: str, calendar: str | None) -> DateFields:
    """Return the dates of reference times; NaN is missing.

    Raises UnitsError for units that are not a reference time, and for values out of range.

    >>> dates = date_fields(np.array([59.0, 60.0]), "days since 2000-01-01", "noleap")
    >>> dates.month.tolist(), dates.day.tolist()
    ([3, 3], [1, 2])
    """
    values = np.asarray(values)
    base = epoch(units, calendar)
    moments = _microseconds(values, base, 0, units)
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
    if missing.any():
        moments = np.where(missing, np.int64(base.microseconds), moments)
    number, microsecond = np.divmod(moments, DAY)
    # Consecutive times often share a day: each day is computed once.
    days, inverse = _distinct(number)
    year, month, day, dayofyear = (column[inverse] for column in civil(days, base.calendar))
    return DateFields(base.calendar, year, month, day, dayofyear, number, microsecond, missing)


def _distinct(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return runs of equal numbers: the number and the run of each element."""
    if numbers.size < 2:
        return numbers, np.arange(numbers.size)
    starts = np.concatenate(([True], numbers[1:] != numbers[:-1]))
    return numbers[starts], np.cumsum(starts) - 1


def named_years(year: np.ndarray, calendar: str) -> np.ndarray:
    """Return years as a calendar writes them, from astronomical ones."""
    return np.where(year <= 0, year - 1, year) if calendar in _NO_YEAR_0 else year


def day_numbers(year: Any, month: Any, calendar: str) -> np.ndarray:
    """Return the day number of the first day of each month.

    ``year``: astronomical; ``month``: any integers, 13 is January of the next year.

    >>> int(day_numbers(2000, 13, "standard") - day_numbers(2000, 1, "standard"))
    366
    """
    months = np.asarray(year, np.int64) * 12 + np.asarray(month, np.int64) - 1
    year, month = np.divmod(months, 12)
    if calendar in _LENGTHS:
        length = _LENGTHS[calendar]
        return np.asarray(_origin(calendar) + (year - 2000) * length + _month_starts(length)[month])
    if calendar == "julian":
        return np.asarray(_julian_years(year) + np.where(year % 4 == 0, _month_starts(366)[month], _month_starts(365)[month]))
    gregorian: np.ndarray = (months - 1970 * 12).astype("M8[M]").astype("M8[D]").astype(np.int64) + _UNIX
    if calendar == "standard":
        return np.where(months < 1582 * 12 + 10, day_numbers(year, month + 1, "julian"), gregorian)
    return gregorian


def to_reference_time(day_number: np.ndarray, units: str, calendar: str | None, microsecond: Any = 0) -> np.ndarray:
    """Return day numbers of a calendar as values of reference time units."""
    base = epoch(units, calendar)
    moments = np.asarray(day_number, np.int64) * DAY + microsecond - base.microseconds
    numerator, denominator = base.step.numerator, base.step.denominator
    whole, rest = np.divmod(moments, numerator)
    return np.asarray(whole * float(denominator) + rest * float(denominator) / numerator)


@cache
def _origin(calendar: str) -> int:
    """Return the day number of 2000-01-01."""
    return int(_classes()[calendar](2000, 1, 1).toordinal())


@cache
def _month_starts(length: int) -> np.ndarray:
    """Return the days before each month of a year of a number of days."""
    months = np.full(12, 30) if length == 360 else _MONTHS + (np.arange(12) == 1) * (length - 365)
    return np.concatenate(([0], np.cumsum(months)))[:12].astype(np.int64)


def _julian_years(year: np.ndarray) -> np.ndarray:
    """Return the day number of the first day of Julian years."""
    days: np.ndarray = 365 * year + (year + 3) // 4
    return days + (_origin("julian") - 730_500)


def civil(number: np.ndarray, calendar: str) -> tuple[np.ndarray, ...]:
    """Return year, month, day and day of the year of day numbers."""
    if calendar in _LENGTHS:
        length = _LENGTHS[calendar]
        years, day = np.divmod(number - _origin(calendar), length)
        return _split(years + 2000, day, np.full(number.shape, length == 366), length)
    if calendar == "julian":
        cycle, day = np.divmod(number - (_origin("julian") - 730_500), 1461)
        within = np.where(day < 366, 0, (day - 1) // 365)
        return _split(4 * cycle + within, day - np.where(within == 0, 0, 365 * within + 1), within == 0, 365)
    days = (number - _UNIX).astype("M8[D]")
    years = days.astype("M8[Y]")
    year = years.astype(np.int64) + 1970
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    gregorian = _split(year, (days - years.astype("M8[D]")).astype(np.int64), leap, 365)
    if calendar != "standard" or not (early := number < _FIRST).any():
        return gregorian
    return tuple(np.where(early, a, b) for a, b in zip(civil(number, "julian"), gregorian, strict=True))


def _split(year: np.ndarray, day: np.ndarray, leap: np.ndarray, length: int) -> tuple[np.ndarray, ...]:
    """Return the fields of days of a year, which count from 0."""
    month, first = np.empty_like(day), np.empty_like(day)
    for is_leap in (False, True):
        starts = _month_starts(366 if is_leap and length != 360 else length)
        own = leap == is_leap
        month[own] = np.searchsorted(starts, day[own], "right")
        first[own] = starts[month[own] - 1]
    return year, month, day - first + 1, day + 1
