"""Reference times and their dates (CF 4.4).

Reference times ("days since 2000-01-01") use exact integer arithmetic on day numbers from cftime. `Epoch` holds parsed units:
microseconds on one axis per calendar. The standard and the proleptic Gregorian calendar share one axis.
"""

from __future__ import annotations

import datetime
import math
import re
import warnings
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import numpy as np

from aggarray.cf.units import ALIASES, CALENDARS, MIXABLE, calendar_name, stripped_text
from aggarray.cf.units.udunits import seconds_of
from aggarray.dataclass import dataclass
from aggarray.errors import UnitsError

# The look-behind tries each run of blanks once: matching takes linear time.
# promise: reference-time-linear
SINCE = re.compile(r"(?<!\s)\s+[Ss][Ii][Nn][Cc][Ee]\s+")
_DATE = re.compile(
    r"(?P<year>[+-]?\d{1,7}|\d{8}(?=$|[\sT]))(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?)?"
    r"(?:(?:T|\s+)(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2}(?:\.\d{0,40})?))?)?)?"
    r"(?:\s*(?P<zone>Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?)|\s+(?P<plain>\d{1,2}:\d{2}))?",
    re.IGNORECASE,
)
_DAY = 86_400_000_000
_YEAR = Fraction("365.242198781") * _DAY
#: Day 2299161, 1582-10-15: from then on the standard and the proleptic Gregorian calendar are equal.
CUTOVER = 2_299_161 * _DAY
_UNIX = 2_440_588 * _DAY
#: Day number of the day before 0001-01-01 in the Gregorian calendar.
_DAY_0 = 1_721_425
_STEPS: dict[str, Fraction] = {
    name: Fraction(size)
    for size, names in (
        (Fraction(1, 1000), "nanosecond nanoseconds nanosec nanosecs nsec nsecs ns"),
        (1, "microsecond microseconds microsec microsecs usec usecs us"),
        (1000, "millisecond milliseconds millisec millisecs msec msecs ms"),
        (1_000_000, "second seconds sec secs s"),
        (60_000_000, "minute minutes min mins"),
        (3_600_000_000, "hour hours hr hrs h"),
        (_DAY, "day days d"),
        (7 * _DAY, "week weeks"),
        # The tropical year and its twelfth in every calendar (CF 4.4, UDUNITS), not calendar years and months.
        (_YEAR, "year years yr yrs a tropical_year tropical_years"),
        (_YEAR / 12, "month months mon mons"),
    )
    for name in names.split()
}
_LEAST = (("year", 0), ("month", 1), ("day", 1), ("hour", 0), ("minute", 0))
_TOP = 2**63
#: Limit of numerator and denominator of a unit in microseconds, for exact products in float64.
_LONGEST = 2**53
#: Number of values converted at once: their columns fit into the cache of a processor.
_BLOCK = 1 << 15


@cache
def _classes() -> dict[str, Any]:
    """Return cftime's class of dates of each calendar."""
    import cftime

    return {
        "standard": cftime.DatetimeGregorian,
        "proleptic_gregorian": cftime.DatetimeProlepticGregorian,
        "noleap": cftime.DatetimeNoLeap,
        "all_leap": cftime.DatetimeAllLeap,
        "360_day": cftime.Datetime360Day,
        "julian": cftime.DatetimeJulian,
        "tai": cftime.DatetimeTAI,
    }


@dataclass(frozen=True, slots=True)
class Epoch:
    """Parsed reference time units.

    ``calendar``: preferred name; ``microseconds``: the reference on the axis of the calendar (day number * 86400e6; one axis
    for standard and proleptic_gregorian); ``step``: microseconds per unit.
    """

    calendar: str
    microseconds: int
    step: Fraction


@lru_cache(maxsize=4096)
def epoch(units: str, calendar: str | None = None) -> Epoch:
    """Parse reference time units (CF 4.4), or raise UnitsError.

    >>> epoch("hours since 1970-01-01T01:00+01:00").microseconds // 86_400_000_000
    2440588
    """
    name = calendar_name(calendar)
    unit, *rest = SINCE.split(stripped_text(units) or "", maxsplit=1)
    if not rest:
        raise UnitsError(f"units {units!r} are not a reference time", hint="write them as 'days since 2000-01-01'")
    if name not in CALENDARS:
        hint = f"use {', '.join((*CALENDARS, *ALIASES))}"
        raise UnitsError(f"units {units!r}: unknown calendar {calendar!r}", hint=hint)
    return Epoch(name, _instant(rest[0], name, units), _step(unit, units))


def decodable(units: str) -> str:
    """Return reference time units that all readers decode equally.

    Units longer than a day become days. cftime and xarray do not decode years and weeks, and a month of the 360_day calendar
    has 30 days in them.

    >>> decodable("months since 2000-01-01"), decodable("hours since 2000-01-01")
    ('days since 2000-01-01', 'hours since 2000-01-01')
    """
    unit, since = SINCE.split(units.strip(), maxsplit=1)
    return units if _STEPS.get(unit.lower(), _YEAR) <= _DAY else f"days since {since}"


def _step(unit: str, units: str) -> Fraction:
    """Return the microseconds of a unit of time, equal in all calendars."""
    plain = "s" if unit == "S" else unit.lower()
    step = _STEPS.get(plain)
    seconds = seconds_of(unit) if step is None else None
    if seconds is not None:
        # The decimal number of UDUNITS (86164.09 s), not the nearest binary one.
        step = Fraction(repr(seconds)) * 1_000_000
    if step is None or max(step.as_integer_ratio()) >= _LONGEST:
        hint = "use days, hours, minutes or seconds"
        raise UnitsError(f"units {units!r}: {unit!r} is not a unit of time", hint=hint)
    return step


def _instant(text: str, calendar: str, units: str) -> int:
    """Return a date in text as microseconds on the axis of the calendar."""
    match = _DATE.fullmatch(text.strip())
    if match is None:
        raise UnitsError(f"units {units!r}: {text!r} is not a date", hint="write it as 2000-01-31 12:00:00")
    year, month, day, hour, minute = (int(match[part] or least) for part, least in _LEAST)
    if len(match["year"]) == 8 and match["year"].isdigit():  # packed, as in UDUNITS: 20000131
        year, month, day = year // 10000, year // 100 % 100, year % 100
    second = Fraction((match["second"] or "0").rstrip("."))
    if hour > 23 or minute > 59 or second >= 60:
        raise UnitsError(f"units {units!r}: the time of day of {text!r} is out of range")
    zone = re.fullmatch(r"([+-]?)(\d{1,2}?):?(\d{2})?", match["zone"] or match["plain"] or "0")
    shift = 0 if zone is None else int(zone[1] + "1") * (int(zone[2]) * 60 + int(zone[3] or 0))
    cycles = 0
    try:
        if year < 1 and calendar in ("standard", "julian"):
            if year == 0:
                raise ValueError("there is no year 0")
            # cftime warns about these years. Four Julian years are 1461 days, and the year before 1 is -1.
            cycles, calendar = 1 - year // 4, "julian"
            year += 1 + 4 * cycles
        if calendar in MIXABLE and 1582 < year <= datetime.MAXYEAR and 0 < month <= 12 and 0 < day <= 28:  # without cftime
            days = datetime.date(year, month, day).toordinal() + _DAY_0
        else:
            days = _classes()[calendar](year, month, day).toordinal() - 1461 * cycles
    except (ValueError, OverflowError) as error:
        hint = "correct the date or the calendar"
        raise UnitsError(f"units {units!r}: {error} ({calendar} calendar)", hint=hint) from error
    return int(days) * _DAY + (hour * 60 + minute - shift) * 60_000_000 + round(second * 1_000_000)


def datetime_kind(units: str, calendar: str | None, low: float | None, high: float | None) -> str:
    """Return which dates, "numpy" or "cftime", hold all values of a range.

    "numpy" is datetime64[us]. ``low``, ``high``: None if there are no values.

    >>> datetime_kind("days since 2000-01-01", None, 0, 9), datetime_kind("days since 2000-01-01", "noleap", 0, 9)
    ('numpy', 'cftime')
    """
    base = epoch(units, calendar)
    if base.calendar not in MIXABLE:
        return "cftime"
    for value in (low, high):
        if value is not None and math.isfinite(value):
            moment = _exact(value) * base.step + base.microseconds
            if abs(moment - _UNIX) >= _TOP or (base.calendar == "standard" and moment < CUTOVER):
                return "cftime"
    return "numpy"


def datetimes(values: np.ndarray, units: str, calendar: str | None, kind: str) -> np.ndarray:
    """Convert values of reference time units to dates, to the microsecond.

    ``values``: any shape; ``kind``: "numpy" gives datetime64[us], NaN as NaT; "cftime" gives an object array of cftime dates,
    NaN as None. Raises UnitsError for values that the dates cannot hold.

    >>> datetimes(np.array([0.1]), "days since 2000-01-01", None, "numpy")
    array(['2000-01-01T02:24:00.000000'], dtype='datetime64[us]')
    """
    values = np.asarray(values)
    base = epoch(units, calendar)
    if kind == "cftime":
        return _cftimes(values, base, units)
    moments = _microseconds(values, base, _UNIX, units)
    earliest = _microseconds(np.asarray(_extent(values)[:1]), base, _UNIX, units)
    if base.calendar not in MIXABLE or (base.calendar == "standard" and (earliest < CUTOVER - _UNIX).any()):
        what = f"units {units!r}: datetime64 cannot hold these dates of the {base.calendar} calendar"
        raise UnitsError(what, hint="use cftime dates")
    return moments.view("datetime64[us]")


def moments(values: np.ndarray, units: str, calendar: str | None = None) -> np.ndarray:
    """Return reference times as int64 microseconds.

    They are on the axis of the calendar. NaN gives the least int64. Raises UnitsError for times out of range.

    >>> moments(np.array([1.5]), "days since 1970-01-01") - epoch("days since 1970-01-01").microseconds
    array([129600000000])
    """
    return _microseconds(np.asarray(values), epoch(units, calendar), 0, units)


def _cftimes(values: np.ndarray, base: Epoch, units: str) -> np.ndarray:
    moment = _classes()[base.calendar](2000, 1, 1)
    origin = moment.toordinal() * _DAY
    dates = np.full(values.size, None, dtype=object)
    try:
        last = 0
        for i, microseconds in enumerate(_microseconds(values, base, origin, units).ravel().tolist()):
            if microseconds > -_TOP:  # from date to date: cftime's addition takes time in proportion to the difference
                moment, last = moment + datetime.timedelta(microseconds=microseconds - last), microseconds
                dates[i] = moment
    except (ValueError, OverflowError) as error:
        raise UnitsError(f"units {units!r}: {error} ({base.calendar} calendar)") from error
    return dates.reshape(values.shape)


def _microseconds(values: np.ndarray, base: Epoch, origin: int, units: str) -> np.ndarray:
    """Return int64 microseconds since an origin, rounded; NaN gives NaT."""
    shift = base.microseconds - origin
    for end in _extent(values):
        if not math.isfinite(end) or max(abs(_exact(end)), abs(_exact(end) * base.step + shift)) >= _TOP:
            raise UnitsError(f"value {end} of units {units!r} is out of range for microseconds in 64 bits")
    flat, moments = values.reshape(-1), np.empty(values.size, np.int64)
    for at in range(0, values.size, _BLOCK):
        moments[at : at + _BLOCK] = _moments(flat[at : at + _BLOCK], base.step, shift)
    return moments.reshape(values.shape)


def _extent(values: np.ndarray) -> tuple[Any, ...]:
    """Return the least and the greatest value, () if all are NaN.

    >>> [float(end) for end in _extent(np.array([2.0, np.nan, 1.0]))], _extent(np.array([np.nan]))
    ([1.0, 2.0], ())
    """
    ends = (np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)) if values.size else ()
    return tuple(end for end in ends if end == end)


def _moments(values: np.ndarray, step: Fraction, shift: int) -> np.ndarray:
    """Return a block of `_microseconds`; ``shift``: that of the value 0."""
    missing = None
    if values.dtype.kind == "f":
        missing = np.isnan(values)
        values = np.where(missing, values.dtype.type(0), values)
    floor = np.floor(values) if missing is not None else values
    integers, fraction = floor.astype(np.int64), (values - floor).astype(np.float64)
    # The fraction of a unit is exact, and its microseconds fit into float64.
    turns = integers // step.denominator
    fraction = np.rint((integers - turns * step.denominator + fraction) * float(step)).astype(np.int64)
    moments = turns * step.numerator + fraction + shift
    return moments if missing is None else np.where(missing, np.int64(-_TOP), moments)


def _exact(value: Any) -> Fraction:
    return Fraction(int(value)) if isinstance(value, int | np.integer) else Fraction(float(value))


@lru_cache(maxsize=4096)
def shifted_epoch(units: str, calendar: str | None, number: float, step: str) -> str:
    """Return units of a reference time whose date is later by a duration.

    ``step``: weeks, days or a shorter unit. Values then mean times that are later by the duration, to the microsecond. Raises
    UnitsError for other units, and for a date that the calendar lacks.

    >>> shifted_epoch("days since 2000-02-28", "noleap", 36, "hours")
    'days since 2000-03-01 12:00:00'
    """
    duration = _step(step, step)
    if duration > _STEPS["week"]:
        hint = "months and years differ in length: give days"
        raise UnitsError(f"{step!r} is not a unit of a fixed duration of at most a week", hint=hint)
    base, (unit, since) = epoch(units, calendar), SINCE.split(units.strip(), maxsplit=1)
    by = round(Fraction(str(number)) * duration)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cftime's, about dates before the year 1
        (moved,) = datetimes(np.array([by]), f"microseconds since {since}", calendar, "cftime")
    text = f"{unit} since {moved.isoformat(sep=' ')}"
    if epoch(text, calendar).microseconds != base.microseconds + by:
        raise UnitsError(f"units {units!r} cannot be shifted by {number} {step}", hint="set the units instead")
    return text


def date(time: Any) -> str:
    """Return a time as ISO text, without the time of day at midnight."""
    text = str(time.astype("M8[s]")) if isinstance(time, np.datetime64) else str(time.isoformat())
    return text.removesuffix("T00:00:00")


def dates(times: Any) -> list[str]:
    """Return times as ISO texts, as `date` does; "?" for missing ones.

    >>> dates(np.array(["2000-01-02", "NaT"], "M8[s]"))
    ['2000-01-02', '?']
    """
    times = np.asarray(times)
    if times.dtype.kind != "M":
        return ["?" if time is None or time != time else date(time) for time in times]
    texts = times.astype("M8[s]").astype(str).tolist()
    return ["?" if text == "NaT" else text.removesuffix("T00:00:00") for text in texts]


def from_datetime(value: Any, units: str, calendar: str | None = None) -> float:
    """Return a date as a number of reference time units, rounded once.

    ``value``: datetime.datetime (UTC unless it has a time zone), datetime.date, numpy.datetime64, a cftime date, or text
    such as "2000-02-30 12:00" in the calendar of the units. NaT gives NaN. Raises UnitsError for another calendar.

    >>> from_datetime(np.datetime64("2000-01-02T12"), "days since 2000-01-01")
    1.5
    """
    if value != value:
        return math.nan
    base = epoch(units, calendar)
    if isinstance(value, str):
        moment, name = Fraction(_instant(value, base.calendar, value)), base.calendar
    else:
        moment, name = _moment(value)
    if name != base.calendar and not ({name, base.calendar} <= set(MIXABLE) and moment >= CUTOVER):
        what = f"{value!r} is a date of the {name or 'unknown'} calendar, units {units!r} use the {base.calendar} calendar"
        raise UnitsError(what)
    return float((moment - base.microseconds) / base.step)


def _moment(value: Any) -> tuple[Fraction, str]:
    """Return a date as microseconds on its calendar's axis, and the calendar."""
    if isinstance(value, np.datetime64):
        unit, count = np.datetime_data(value.dtype)
        finer = ("us", "ns", "ps", "fs", "as").index(unit) if unit in ("ns", "ps", "fs", "as") else 0
        number = int((value if finer else value.astype("datetime64[us]")).astype(np.int64))
        return _UNIX + Fraction(number * (count if finer else 1), 1000**finer), "proleptic_gregorian"
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC)
    import cftime

    if not isinstance(value, datetime.date | cftime.datetime):
        raise UnitsError(f"{value!r} is not a date", hint="give a datetime, datetime64 or cftime date")
    name = str(value.calendar) if isinstance(value, cftime.datetime) else "proleptic_gregorian"
    if not name:
        return Fraction(0), name
    days = value.toordinal() + (_DAY_0 if isinstance(value, datetime.date) else 0)
    clock = [getattr(value, part, 0) for part in ("hour", "minute", "second", "microsecond", "nanosecond")]
    seconds = clock[0] * 3600 + clock[1] * 60 + clock[2]
    return Fraction(days * _DAY + seconds * 1_000_000 + clock[3]) + Fraction(clock[4], 1000), name
