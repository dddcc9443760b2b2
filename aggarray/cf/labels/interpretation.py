"""What does a label mean on a coordinate?

`Axis` is a coordinate as it is searched. Labels become values that compare with its keys: `wanted_values`; text that names
dates becomes the two ends of a `period`. Calendars meet only where they agree on what a day is.
"""

import datetime
import re
from dataclasses import dataclass
from typing import Any

import cftime
import numpy as np

from aggarray.errors import NotFoundError, SelectionError

_DATE = re.compile(
    r"([+-]?\d{4,5})(?:-(\d{1,2})(?:-(\d{1,2})(?:[T ](\d{1,2})(?::(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?)?)?)?)?"
    r"|(\d{4})(\d{2})(?:(\d{2})(?:T(\d{2})(?:(\d{2})(\d{2})?)?)?)?"
)
_UNITS = ("Y", "M", "D", "h", "m", "s")
_PIECES = ("days", "hours", "minutes", "seconds")
_REFORM = (1582, 10, 15)  # from here on the standard calendar is the proleptic Gregorian one
_GREGORIAN = ("standard", "proleptic_gregorian")


@dataclass(frozen=True, slots=True)
class Axis:
    """A coordinate made ready for searching.

    ``keys``: numbers, StringDType, datetime64 or cftime objects; ``order``: 1 ascending (repeats allowed), -1 descending,
    0 neither; ``kind``: "numbers", "text", "times" or "dates" (cftime); ``place``: where, for messages.
    """

    keys: np.ndarray
    order: int
    kind: str
    place: str

    @property
    def ascending(self) -> np.ndarray:
        """The keys as they are searched: a view unless they are in no order."""
        return self.keys[::-1] if self.order < 0 else self.keys if self.order else np.sort(self.keys)


def make_axis(values: np.ndarray, place: str) -> Axis:
    """Return the coordinate as searchable keys; refuse what has no order."""
    keys = np.asarray(values)
    if keys.ndim != 1:
        raise SelectionError(f"{place}: a coordinate of {keys.ndim} dimensions has no labels: select by position")
    if keys.dtype.kind in "OU":
        dates = keys.dtype.kind == "O" and (keys.size == 0 or isinstance(keys[0], cftime.datetime))
        keys = keys if dates else keys.astype(np.dtypes.StringDType())
    if keys.dtype.kind == "M" and np.datetime_data(keys.dtype)[0] in "YMWDhm":
        keys = keys.astype("M8[s]")
    kinds = {"i": "numbers", "u": "numbers", "f": "numbers", "T": "text", "M": "times", "O": "dates"}
    if keys.dtype.kind not in kinds:
        raise SelectionError(f"{place}: a coordinate of dtype {keys.dtype} has no labels: select by position")
    order = 1 if bool((keys[1:] >= keys[:-1]).all()) else -1 if bool((keys[1:] <= keys[:-1]).all()) else 0
    return Axis(keys, order, kinds[keys.dtype.kind], place)


def unwrap(label: Any, axis: Axis) -> tuple[Any, bool]:
    """Return a label and whether it is several; arrays of no dimension are single values."""
    if isinstance(label, tuple):
        raise SelectionError(f"{axis.place}: {label!r} is ambiguous: give a list of values, or slice(first, last)")
    if isinstance(label, list | range) or (hasattr(label, "__array__") and not isinstance(label, np.generic)):
        array = np.asarray(label, dtype=object if isinstance(label, list) else None)
        if array.ndim > 1:
            raise SelectionError(f"{axis.place}: labels of {array.ndim} dimensions: give a value, a 1-d list or a slice")
        return (label if isinstance(label, list) else array, True) if array.ndim else (array[()], False)
    return label, False


def show(label: Any) -> str:
    """Return a label for a message, on one line."""
    text = " ".join((repr(label) if isinstance(label, str) else str(label)).split())
    return text if len(text) <= 60 else text[:57] + "..."


def _wrong(axis: Axis, label: Any) -> SelectionError:
    accepted = {"numbers": "numbers", "text": "text"}.get(axis.kind, "dates (text as 2000-01-15, datetime64, datetime, cftime)")
    return SelectionError(f"{axis.place}: {show(label)} ({type(label).__name__}) names nothing: its labels are {accepted}")


def wanted_values(labels: Any, axis: Axis) -> np.ndarray:
    """Return labels as an array that compares with the keys, of its own precision."""
    if axis.kind == "numbers":
        return _numbers(labels, axis)
    if axis.kind == "text":
        for label in labels:
            if not isinstance(label, str):
                raise _wrong(axis, label)
        return np.array(labels, dtype=np.dtypes.StringDType())
    if axis.kind == "times" and isinstance(labels, np.ndarray) and labels.dtype.kind == "M" and not np.isnat(labels).any():
        return labels
    moments = [period(label, axis)[0] if isinstance(label, str) else _moment(label, axis) for label in labels]
    return np.array(moments, dtype=object if axis.kind == "dates" else "M8")


def _numbers(labels: Any, axis: Axis) -> np.ndarray:
    """Return numbers as int64 where all are whole and fit, else as they came or as float64; refuse anything else."""
    array = labels if isinstance(labels, np.ndarray) else np.asarray(labels, dtype=object)
    if array.dtype.kind == "b":
        raise SelectionError(f"{axis.place}: a boolean array is not a label: select by position with it")
    if array.dtype.kind == "O":
        for label in array:
            if isinstance(label, bool | np.bool_) or not isinstance(label, int | float | np.integer | np.floating):
                raise _wrong(axis, label)
        whole = all(isinstance(label, int | np.integer) and -(2**63) <= label < 2**63 for label in array)
        array = array.astype(np.int64 if whole else np.float64)
    if array.dtype.kind not in "iuf":
        raise _wrong(axis, labels)
    return array


def _moment(label: Any, axis: Axis) -> Any:
    """Return a date that is not text as a datetime64, or as a cftime object for coordinates of these."""
    if isinstance(label, datetime.datetime) and label.tzinfo is not None:
        raise SelectionError(f"{axis.place}: {label} has a time zone: give it in the coordinate's time, without one")
    if not isinstance(label, datetime.date | np.datetime64 | cftime.datetime):
        raise _wrong(axis, label)
    if isinstance(label, np.datetime64) and np.isnat(label):
        raise NotFoundError(f"{axis.place}: NaT is no date: give one")
    if axis.kind == "times" and not isinstance(label, cftime.datetime):
        return np.datetime64(label)
    if axis.keys.size == 0:
        return label  # compared with nothing
    own, given = _calendar(axis), label.calendar if isinstance(label, cftime.datetime) else "proleptic_gregorian"
    whole = label.astype("M8[us]").item() if isinstance(label, np.datetime64) else label
    if isinstance(whole, int):
        raise NotFoundError(f"{axis.place}: {label} lies outside the years 1 to 9999: give a cftime date of calendar {own}")
    fields = [getattr(whole, name, 0) for name in ("year", "month", "day", "hour", "minute", "second", "microsecond")]
    after_reform = own in _GREGORIAN and given in _GREGORIAN and tuple(fields[:3]) >= _REFORM
    if given != own and not after_reform:
        raise NotFoundError(f"{axis.place}: {label} is of calendar {given}, the coordinate of {own}: give text or a {own} date")
    text = "{:04d}-{:02d}-{:02d}T{:02d}:{:02d}:{:02d}.{:06d}".format(*fields)
    return np.datetime64(text) if axis.kind == "times" else _date(fields, axis)


def _calendar(axis: Axis) -> str:
    return str(axis.keys[0].calendar) if axis.kind == "dates" and axis.keys.size else "proleptic_gregorian"


def _date(fields: list[int], axis: Axis) -> Any:
    """Return a date of the coordinate's own class and calendar; ValueError where the calendar has no such day."""
    names = ("year", "month", "day", "hour", "minute", "second", "microsecond")
    defaults = [1, 1, 1, 0, 0, 0, 0]
    filled = dict(zip(names, [*fields, *defaults[len(fields) :]], strict=True))
    return axis.keys[0].replace(**filled) if axis.keys.size else cftime.datetime(**filled, calendar="proleptic_gregorian")


def period(text: str, axis: Axis) -> tuple[Any, Any]:
    """Return the start of the period that a text names, and of the one after: two datetime64 or two cftime objects.

    A year, month, day, hour, minute, second or fraction of one, as ISO 8601 writes it. NotFoundError where it is none, or
    a day that the calendar lacks.
    """
    match = _DATE.fullmatch(text.strip())
    if match is None:
        raise NotFoundError(f"{axis.place}: {text!r} is no date: write it as 2000, 2000-01, 2000-01-15 or 2000-01-15T06:00")
    groups = [group for group in match.groups() if group is not None]
    fields, fraction = [int(group) for group in groups[:6]], "".join(groups[6:])
    try:
        return _cftime_period(fields, fraction, axis) if axis.kind == "dates" else _numpy_period(fields, fraction)
    except ValueError as error:
        raise NotFoundError(f"{axis.place}: calendar {_calendar(axis)} has no {text!r}: give a date that it has") from error


def _numpy_period(fields: list[int], fraction: str) -> tuple[np.datetime64, np.datetime64]:
    year = f"{fields[0]:0{5 if fields[0] < 0 else 4}d}"
    parts = [mark + f"{value:02d}" for mark, value in zip("--T::", fields[1:], strict=False)]
    if len(fields) == 4:
        parts.append(":00")  # NumPy takes hours alone, but not for every year
    start = np.datetime64(year + "".join(parts) + ("." + fraction if fraction else ""))
    if not fraction:
        start = start.astype(f"M8[{_UNITS[len(fields) - 1]}]")
    return start, start + 1


def _cftime_period(fields: list[int], fraction: str, axis: Axis) -> tuple[Any, Any]:
    if fields[0] == 0 and axis.keys.size and not axis.keys[0].has_year_zero:
        raise ValueError("no year zero")  # cftime only warns
    start = _date([*fields, int(f"{fraction:0<6}"[:6])] if fraction else fields, axis)
    if len(fields) == 1:
        return start, start.replace(year=fields[0] + 1)
    if len(fields) == 2:
        year, month = divmod(fields[0] * 12 + fields[1], 12)
        return start, start.replace(year=year, month=month + 1)
    if fraction:
        return start, start + datetime.timedelta(microseconds=10 ** (3 if len(fraction) <= 3 else 0))
    return start, start + datetime.timedelta(**{_PIECES[len(fields) - 3]: 1})
