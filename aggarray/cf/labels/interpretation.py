"""Interpretation of labels on a coordinate.

`Axis` is a coordinate prepared for search. `label_values` converts labels to values that compare with its keys. `period`
converts text to the two ends of a period. Dates of different calendars compare only where the calendars are equal.
"""

from __future__ import annotations

import datetime
import re
from typing import Any

import cftime
import numpy as np

from aggarray.dataclass import dataclass
from aggarray.errors import NotFoundError, SelectionError

_DATE = re.compile(
    r"([+-]?\d{4,5})(?:-(\d{1,2})(?:-(\d{1,2})(?:[T ](\d{1,2})(?::(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?)?)?)?)?"
    r"|(\d{4})(\d{2})(?:(\d{2})(?:T(\d{2})(?:(\d{2})(\d{2})?)?)?)?"
)
_UNITS = ("Y", "M", "D", "h", "m", "s")
_PIECES = ("days", "hours", "minutes", "seconds")
_REFORM = (1582, 10, 15)  # from then on the standard and the proleptic Gregorian calendar are equal
_GREGORIAN = ("standard", "proleptic_gregorian")


@dataclass(frozen=True, slots=True)
class Axis:
    """A coordinate prepared for search.

    ``keys``: numbers, StringDType, datetime64 or cftime objects; ``order``: 1 ascending (repeats allowed), -1 descending,
    0 neither; ``value_type``: "numbers", "text", "times" or "dates" (cftime); ``dimension``, ``variable``: for errors.
    """

    keys: np.ndarray
    order: int
    value_type: str
    dimension: str
    variable: str | None = None

    @property
    def ascending(self) -> np.ndarray:
        """The keys in ascending order: a view unless ``order`` is 0."""
        return self.keys[::-1] if self.order < 0 else self.keys if self.order else np.sort(self.keys)

    def invalid(self, what: str, hint: str) -> SelectionError:
        """Return the error of a label or option that does not apply."""
        return SelectionError(f"dimension {self.dimension!r}: {what}", variable=self.variable, hint=hint)

    def not_found(self, what: str, hint: str | None) -> NotFoundError:
        """Return the error of an absent label."""
        return NotFoundError(f"dimension {self.dimension!r}: {what}", variable=self.variable, hint=hint)


def make_axis(values: np.ndarray, dimension: str, variable: str | None) -> Axis:
    """Return searchable keys; raise SelectionError for unordered values."""
    keys = np.asarray(values)
    hint = "select by position"
    if keys.ndim != 1:
        what = f"dimension {dimension!r}: a coordinate of {keys.ndim} dimensions has no labels"
        raise SelectionError(what, variable=variable, hint=hint)
    if keys.dtype.kind in "OU":
        dates = keys.dtype.kind == "O" and (keys.size == 0 or isinstance(keys[0], cftime.datetime))
        keys = keys if dates else keys.astype(np.dtypes.StringDType())
    if keys.dtype.kind == "M" and np.datetime_data(keys.dtype)[0] in "YMWDhm":
        keys = keys.astype("M8[s]")
    value_types = {"i": "numbers", "u": "numbers", "f": "numbers", "T": "text", "M": "times", "O": "dates"}
    if keys.dtype.kind not in value_types:
        what = f"dimension {dimension!r}: a coordinate of dtype {keys.dtype} has no labels"
        raise SelectionError(what, variable=variable, hint=hint)
    order = 1 if bool((keys[1:] >= keys[:-1]).all()) else -1 if bool((keys[1:] <= keys[:-1]).all()) else 0
    return Axis(keys, order, value_types[keys.dtype.kind], dimension, variable)


def unwrap(label: Any, axis: Axis) -> tuple[Any, bool]:
    """Return a label, and whether it is several; 0-d arrays are single values."""
    if isinstance(label, tuple):
        raise axis.invalid(f"{label!r} is ambiguous", "give a list of values, or slice(first, last)")
    if isinstance(label, list | range) or (hasattr(label, "__array__") and not isinstance(label, np.generic)):
        array = np.asarray(label, dtype=object if isinstance(label, list) else None)
        if array.ndim > 1:
            raise axis.invalid(f"labels of {array.ndim} dimensions", "give a value, a 1-d list or a slice")
        return (label if isinstance(label, list) else array, True) if array.ndim else (array[()], False)
    return label, False


def show(label: Any) -> str:
    """Return a label for a message, on one line of at most 60 characters."""
    text = " ".join((repr(label) if isinstance(label, str) else str(label)).split())
    return text if len(text) <= 60 else text[:57] + "..."


def _wrong_type(axis: Axis, label: Any) -> SelectionError:
    year = f"text, {str(label)!r}, or other " if isinstance(label, int) and 1000 <= label <= 9999 else ""
    dates = f"{year}dates (text as 2000-01-15, datetime64, datetime, cftime)"
    accepted = {"numbers": "numbers", "text": "text"}.get(axis.value_type, dates)
    return axis.invalid(f"{show(label)} ({type(label).__name__}) is not a label of this coordinate", f"give {accepted}")


def label_values(labels: Any, axis: Axis) -> np.ndarray:
    """Return labels as an array comparable with the keys, precision unchanged."""
    if axis.value_type == "numbers":
        return _numbers(labels, axis)
    if axis.value_type == "text":
        for label in labels:
            if not isinstance(label, str):
                raise _wrong_type(axis, label)
        return np.array(labels, dtype=np.dtypes.StringDType())
    times = axis.value_type == "times"
    if times and isinstance(labels, np.ndarray) and labels.dtype.kind == "M" and not np.isnat(labels).any():
        return labels
    moments = [period(label, axis)[0] if isinstance(label, str) else _moment(label, axis) for label in labels]
    return np.array(moments, dtype="M8" if times else object)


def _numbers(labels: Any, axis: Axis) -> np.ndarray:
    """Return numbers as they are or, if objects, as int64 or float64."""
    array = labels if isinstance(labels, np.ndarray) else np.asarray(labels, dtype=object)
    if array.dtype.kind == "b":
        raise axis.invalid("a boolean array is not a label", "select by position with it")
    if array.dtype.kind == "O":
        for label in array:
            if isinstance(label, bool | np.bool_) or not isinstance(label, int | float | np.integer | np.floating):
                raise _wrong_type(axis, label)
        integers = all(isinstance(label, int | np.integer) and -(2**63) <= label < 2**63 for label in array)
        array = array.astype(np.int64 if integers else np.float64)
    if array.dtype.kind not in "iuf":
        raise _wrong_type(axis, labels)
    return array


def _moment(label: Any, axis: Axis) -> Any:
    """Return a date that is not text as a datetime64 or a cftime object."""
    if isinstance(label, datetime.datetime) and label.tzinfo is not None:
        raise axis.invalid(f"{label} has a time zone", "give it in the coordinate's time, without a time zone")
    if not isinstance(label, datetime.date | np.datetime64 | cftime.datetime):
        raise _wrong_type(axis, label)
    if isinstance(label, np.datetime64) and np.isnat(label):
        raise axis.not_found("NaT is not a date", "give a date")
    if axis.value_type == "times" and not isinstance(label, cftime.datetime):
        return np.datetime64(label)
    if axis.keys.size == 0:
        return label  # there are no keys to compare with
    calendar, own = _calendar(axis), label.calendar if isinstance(label, cftime.datetime) else "proleptic_gregorian"
    date = label.astype("M8[us]").item() if isinstance(label, np.datetime64) else label
    if isinstance(date, int):
        raise axis.not_found(f"{label} is outside the years 1 to 9999", f"give a cftime date of calendar {calendar}")
    fields = [getattr(date, name, 0) for name in ("year", "month", "day", "hour", "minute", "second", "microsecond")]
    after_reform = calendar in _GREGORIAN and own in _GREGORIAN and tuple(fields[:3]) >= _REFORM
    if own != calendar and not after_reform:
        what = f"{label} is of calendar {own}, the coordinate of {calendar}"
        raise axis.not_found(what, f"give text or a {calendar} date")
    text = "{:04d}-{:02d}-{:02d}T{:02d}:{:02d}:{:02d}.{:06d}".format(*fields)
    return np.datetime64(text) if axis.value_type == "times" else _date(fields, axis)


def _calendar(axis: Axis) -> str:
    return str(axis.keys[0].calendar) if axis.value_type == "dates" and axis.keys.size else "proleptic_gregorian"


def _date(fields: list[int], axis: Axis) -> Any:
    """Return a date in the coordinate's calendar; raise ValueError if invalid."""
    names = ("year", "month", "day", "hour", "minute", "second", "microsecond")
    defaults = [1, 1, 1, 0, 0, 0, 0]
    filled = dict(zip(names, [*fields, *defaults[len(fields) :]], strict=True))
    return axis.keys[0].replace(**filled) if axis.keys.size else cftime.datetime(**filled, calendar="proleptic_gregorian")


def period(text: str, axis: Axis) -> tuple[Any, Any]:
    """Return the start of the period of a text, and of the next period.

    Both are datetime64, or cftime objects. The text is a year, month, day, hour, minute, second or fraction of a second in ISO
    8601. Raises NotFoundError for other text, and for a day that is not in the calendar.
    """
    match = _DATE.fullmatch(text.strip())
    if match is None:
        raise axis.not_found(f"{text!r} is not a date", "write it as 2000, 2000-01, 2000-01-15 or 2000-01-15T06:00")
    groups = [group for group in match.groups() if group is not None]
    fields, fraction = [int(group) for group in groups[:6]], "".join(groups[6:])
    try:
        return _cftime_period(fields, fraction, axis) if axis.value_type == "dates" else _numpy_period(fields, fraction)
    except ValueError as error:
        raise axis.not_found(f"calendar {_calendar(axis)} has no {text!r}", "give a date of this calendar") from error


def _numpy_period(fields: list[int], fraction: str) -> tuple[np.datetime64, np.datetime64]:
    year = f"{fields[0]:0{5 if fields[0] < 0 else 4}d}"
    parts = [mark + f"{value:02d}" for mark, value in zip("--T::", fields[1:], strict=False)]
    if len(fields) == 4:
        parts.append(":00")  # NumPy does not accept hours without minutes for every year
    start = np.datetime64(year + "".join(parts) + ("." + fraction if fraction else ""))
    if not fraction:
        start = start.astype(f"M8[{_UNITS[len(fields) - 1]}]")
    return start, (start.astype("i8") + 1).astype(start.dtype)


def _cftime_period(fields: list[int], fraction: str, axis: Axis) -> tuple[Any, Any]:
    if fields[0] == 0 and axis.keys.size and not axis.keys[0].has_year_zero:
        raise ValueError("no year zero")  # cftime only issues a warning
    start = _date([*fields, int(f"{fraction:0<6}"[:6])] if fraction else fields, axis)
    if len(fields) == 1:
        return start, start.replace(year=fields[0] + 1)
    if len(fields) == 2:
        year, month = divmod(fields[0] * 12 + fields[1], 12)
        return start, start.replace(year=year, month=month + 1)
    if fraction:
        return start, start + datetime.timedelta(microseconds=10 ** (3 if len(fraction) <= 3 else 0))
    return start, start + datetime.timedelta(**{_PIECES[len(fields) - 3]: 1})
