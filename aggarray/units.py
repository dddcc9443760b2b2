"""Do two pairs of units and calendar mean the same kind of quantity, and how are values converted (CF 3.1, 4.4)?

Plain units are UDUNITS' business, through cf_units; reference times ("days since 2000-01-01") are exact integer arithmetic
on day numbers from cftime. Either way a conversion is y = slope * x + offset with rational slope and offset, found once and
cached, and carried out by NumPy with a single rounding wherever that matters. Blank units count as None.
"""

import datetime
import math
import re
import threading
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import cf_units
import cftime
import numpy as np

from aggarray.errors import UnitsError

_SINCE = re.compile(r"\s+since\s+", re.IGNORECASE)
_DATE = re.compile(
    r"(?P<year>[+-]?\d{1,7}|\d{8}(?=$|[\sT]))(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?)?"
    r"(?:(?:T|\s+)(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2}(?:\.\d*)?))?)?)?"
    r"(?:\s*(?P<zone>Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?)|\s+(?P<plain>\d{1,2}:\d{2}))?",
    re.IGNORECASE,
)
_DAY = 86_400_000_000
#: Day 2299161, 1582-10-15: from here on the standard calendar is the proleptic Gregorian one.
_CUTOVER = 2_299_161 * _DAY
_UNIX = 2_440_588 * _DAY
_ALIASES = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}
_CLASSES = {
    "standard": cftime.DatetimeGregorian,
    "proleptic_gregorian": cftime.DatetimeProlepticGregorian,
    "noleap": cftime.DatetimeNoLeap,
    "all_leap": cftime.DatetimeAllLeap,
    "360_day": cftime.Datetime360Day,
    "julian": cftime.DatetimeJulian,
    "tai": cftime.DatetimeTAI,
}
_MIXABLE = ("standard", "proleptic_gregorian")
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
        (365 * _DAY, "common_year common_years"),
    )
    for name in names.split()
}
_MONTHS, _YEARS = ("month", "months", "mon", "mons"), ("year", "years", "yr", "yrs", "a")
_YEAR_DAYS = {"360_day": 360, "noleap": 365, "all_leap": 366}
_LEAST = (("year", 0), ("month", 1), ("day", 1), ("hour", 0), ("minute", 0))
_TOP = 2**63


def _text(units: Any) -> str | None:
    return None if units is None else str(units).strip() or None


@lru_cache(maxsize=4096)
def is_reference_time(units: str | None) -> bool:
    """Tell whether units are a time since a reference, by the word alone.

    >>> is_reference_time("days since 2000-01-01"), is_reference_time("days")
    (True, False)
    """
    return units is not None and _SINCE.search(str(units)) is not None


def normal_calendar(units: str | None, calendar: str | None) -> str | None:
    """Return the calendar of reference time units, lower-cased, "standard" where none is given; None for other units.

    >>> normal_calendar("days since 2000-01-01", None), normal_calendar("K", "noleap")
    ('standard', None)
    """
    return (_text(calendar) or "standard").lower() if is_reference_time(units) else None


def same_calendar(a: str | None, b: str | None) -> bool:
    """Tell whether two names mean one calendar (CF 4.4.1); None is the standard calendar.

    >>> same_calendar("Gregorian", None), same_calendar("noleap", "360_day")
    (True, False)
    """
    return _calendar(a) == _calendar(b)


def _calendar(name: str | None) -> str:
    plain = (_text(name) or "standard").lower()
    return _ALIASES.get(plain, plain)


@dataclass(frozen=True, slots=True)
class Epoch:
    """Reference time units taken apart.

    ``calendar``: its first name; ``microseconds``: the reference on the calendar's own axis (day number * 86400e6; one axis
    for standard and proleptic_gregorian); ``step``: microseconds per unit, or the unit's name where its length varies.
    """

    calendar: str
    microseconds: int
    step: Fraction | str

    def length(self) -> Fraction:
        """Return the microseconds per unit; UnitsError where they vary."""
        if isinstance(self.step, str):
            raise UnitsError(f"a {self.step} has no fixed length in the {self.calendar} calendar: use units of days")
        return self.step


@lru_cache(maxsize=4096)
def epoch(units: str, calendar: str | None = None) -> Epoch:
    """Take reference time units apart (CF 4.4); UnitsError where they or the calendar are not understood.

    >>> epoch("hours since 1970-01-01T01:00+01:00").microseconds // 86_400_000_000
    2440588
    """
    name = _calendar(calendar)
    unit, *rest = _SINCE.split(_text(units) or "", maxsplit=1)
    if not rest:
        raise UnitsError(f"units {units!r} are not a reference time: write them as 'days since 2000-01-01'")
    if name not in _CLASSES:
        raise UnitsError(f"units {units!r}: calendar {calendar!r} is not known; known are {', '.join((*_CLASSES, *_ALIASES))}")
    return Epoch(name, _instant(rest[0], name, units), _step(unit, name, units))


def _step(unit: str, calendar: str, units: str) -> Fraction | str:
    plain = "s" if unit == "S" else unit.lower()
    days = _YEAR_DAYS.get(calendar)
    if plain in _MONTHS:
        return Fraction(30 * _DAY) if calendar == "360_day" else "month"
    if plain in _YEARS:
        return Fraction(days * _DAY) if days else "year"
    if plain not in _STEPS:
        raise UnitsError(f"units {units!r}: {unit!r} is not a unit of time; use days, hours, minutes or seconds")
    return _STEPS[plain]


def _instant(text: str, calendar: str, units: str) -> int:
    """Return a written date as microseconds on the calendar's axis."""
    found = _DATE.fullmatch(text.strip())
    if found is None:
        raise UnitsError(f"units {units!r}: {text!r} is not a date; write it as 2000-01-31 12:00:00")
    year, month, day, hour, minute = (int(found[part] or least) for part, least in _LEAST)
    if len(found["year"]) == 8 and found["year"].isdigit():  # packed, as UDUNITS has it: 20000131
        year, month, day = year // 10000, year // 100 % 100, year % 100
    second = Fraction((found["second"] or "0").rstrip("."))
    if hour > 23 or minute > 59 or second >= 60:
        raise UnitsError(f"units {units!r}: {text!r} has no such time of day")
    zone = re.fullmatch(r"([+-]?)(\d{1,2}?):?(\d{2})?", found["zone"] or found["plain"] or "0")
    shift = 0 if zone is None else int(zone[1] + "1") * (int(zone[2]) * 60 + int(zone[3] or 0))
    days = _day_number((year, month, day), calendar, units)
    return days * _DAY + (hour * 60 + minute - shift) * 60_000_000 + round(second * 1_000_000)


def _day_number(date: tuple[int, int, int], calendar: str, units: str) -> int:
    year, month, day = date
    cycles = 0
    try:
        if year < 1 and calendar in ("standard", "julian"):
            if year == 0:
                raise ValueError("there is no year 0")
            # cftime warns of these years: four Julian years are 1461 days, and -1 is the year before 1.
            cycles, calendar = 1 - year // 4, "julian"
            year += 1 + 4 * cycles
        number: int = _CLASSES[calendar](year, month, day).toordinal()
    except (ValueError, OverflowError) as error:
        raise UnitsError(f"units {units!r}: {error} ({calendar} calendar); correct the date or the calendar") from error
    return number - 1461 * cycles


def datetime_kind(units: str, calendar: str | None, low: float | None, high: float | None) -> str:
    """Tell which dates hold all values from ``low`` to ``high`` (None: there are none): "numpy" (datetime64[us]) or "cftime".

    >>> datetime_kind("days since 2000-01-01", None, 0, 9), datetime_kind("days since 2000-01-01", "noleap", 0, 9)
    ('numpy', 'cftime')
    """
    base = epoch(units, calendar)
    if base.calendar not in _MIXABLE:
        return "cftime"
    for value in (low, high):
        if value is not None and math.isfinite(value):
            moment = _exact(value) * base.length() + base.microseconds
            if abs(moment - _UNIX) >= _TOP or (base.calendar == "standard" and moment < _CUTOVER):
                return "cftime"
    return "numpy"


def datetimes(values: np.ndarray, units: str, calendar: str | None, kind: str) -> np.ndarray:
    """Turn values of reference time units into dates, exact to the microsecond.

    ``kind``: "numpy" gives datetime64[us], NaN as NaT; "cftime" an object array of cftime dates, NaN as None. Any shape.
    Raises UnitsError for values that the dates of that kind cannot hold, and for months and years of varying length.

    >>> datetimes(np.array([0.1]), "days since 2000-01-01", None, "numpy")
    array(['2000-01-01T02:24:00.000000'], dtype='datetime64[us]')
    """
    values = np.asarray(values)
    base = epoch(units, calendar)
    if kind == "cftime":
        return _cftimes(values, base, units)
    moments = _microseconds(values, base, _UNIX, units)
    if base.calendar not in _MIXABLE or (base.calendar == "standard" and (moments[moments > -_TOP] < _CUTOVER - _UNIX).any()):
        raise UnitsError(f"units {units!r}: datetime64 cannot hold dates of the {base.calendar} calendar: ask for cftime")
    return moments.view("datetime64[us]")


def _cftimes(values: np.ndarray, base: Epoch, units: str) -> np.ndarray:
    moment = _CLASSES[base.calendar](2000, 1, 1)
    at = moment.toordinal() * _DAY
    found = np.full(values.size, None, dtype=object)
    try:
        last = 0
        for place, microseconds in enumerate(_microseconds(values, base, at, units).ravel().tolist()):
            if microseconds > -_TOP:  # steps from date to date are short, and cftime's time goes by their length
                moment, last = moment + datetime.timedelta(microseconds=microseconds - last), microseconds
                found[place] = moment
    except (ValueError, OverflowError) as error:
        raise UnitsError(f"units {units!r}: {error} ({base.calendar} calendar)") from error
    return found.reshape(values.shape)


def _microseconds(values: np.ndarray, base: Epoch, origin: int, units: str) -> np.ndarray:
    """Return whole microseconds since an origin as int64, NaN as the least (NaT)."""
    step = base.length()
    gone = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
    used = values[~gone]
    for end in (used.min(), used.max()) if used.size else ():
        if not math.isfinite(end) or max(abs(_exact(end)), abs(_exact(end) * step + base.microseconds - origin)) >= _TOP:
            raise UnitsError(f"value {end} of units {units!r} is not a date that microseconds in 64 bits can hold")
    values = np.where(gone, values.dtype.type(0), values)
    floor = np.floor(values) if values.dtype.kind == "f" else values
    whole, fraction = floor.astype(np.int64), (values - floor).astype(np.float64)
    # The fraction is exact, and less than a unit: its microseconds have bits to spare.
    turns = whole // step.denominator
    fraction = np.rint((whole - turns * step.denominator + fraction) * float(step)).astype(np.int64)
    moments = turns * step.numerator + fraction + (base.microseconds - origin)
    return np.where(gone, np.int64(-_TOP), moments)


def _exact(value: Any) -> Fraction:
    return Fraction(int(value)) if isinstance(value, int | np.integer) else Fraction(float(value))


def from_datetime(value: Any, units: str, calendar: str | None = None) -> float:
    """Return the number of a date in reference time units, rounded once.

    ``value``: datetime.datetime (UTC unless it has a time zone), datetime.date, numpy.datetime64, a cftime date, or text
    such as "2000-02-30 12:00", read in the calendar of the units. NaT gives NaN. Raises UnitsError where calendars differ.

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
    if name != base.calendar and not ({name, base.calendar} <= set(_MIXABLE) and moment >= _CUTOVER):
        raise UnitsError(f"{value!r} is a date of the {name or 'unknown'} calendar, units {units!r} are of the {base.calendar}")
    return float((moment - base.microseconds) / base.length())


def _moment(value: Any) -> tuple[Fraction, str]:
    """Return a date as microseconds on the axis of its calendar, and that calendar."""
    if isinstance(value, np.datetime64):
        unit, count = np.datetime_data(value.dtype)
        finer = ("us", "ns", "ps", "fs", "as").index(unit) if unit in ("ns", "ps", "fs", "as") else 0
        number = int((value if finer else value.astype("datetime64[us]")).astype(np.int64))
        return _UNIX + Fraction(number * (count if finer else 1), 1000**finer), "proleptic_gregorian"
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC)
    if not isinstance(value, datetime.date | cftime.datetime):
        raise UnitsError(f"{value!r} is not a date: give a datetime, datetime64 or cftime date")
    name = str(value.calendar) if isinstance(value, cftime.datetime) else "proleptic_gregorian"
    if not name:
        return Fraction(0), name
    days = value.toordinal() + (1_721_425 if isinstance(value, datetime.date) else 0)
    clock = [getattr(value, part, 0) for part in ("hour", "minute", "second", "microsecond", "nanosecond")]
    seconds = clock[0] * 3600 + clock[1] * 60 + clock[2]
    return Fraction(days * _DAY + seconds * 1_000_000 + clock[3]) + Fraction(clock[4], 1000), name


#: UDUNITS complains on standard error about a factor of zero, as in "(0 - 1)".
_ZERO = re.compile(r"(?<![\w.^*@+-])(?<!@ )0+(?:\.0*)?(?![\w.])")
_BASE = re.compile(r"(?:m|kg|s|A|K|mol|cd)(?:-?\d+)?")
_lock = threading.RLock()
_BLOCK = 1 << 14


@dataclass(frozen=True, slots=True)
class Conversion:
    """A conversion of values: y = ``slope`` * x + ``offset``.

    ``limit``: smallest source value allowed (calendars that agree from 1582-10-15 on), or None. ``through``: two units whose
    conversion is not of this form (logarithms), which UDUNITS carries out itself.
    """

    slope: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)
    limit: float | None = None
    through: tuple[str, str] | None = None

    @property
    def identity(self) -> bool:
        """Whether values stay as they are; never so with a `limit`, which has to be checked."""
        return self == Conversion()

    @property
    def integer_exact(self) -> bool:
        """Whether whole numbers stay whole."""
        return self.through is None and self.slope.denominator == 1 and self.offset.denominator == 1

    def __call__(self, values: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Convert values of any shape into a new array.

        Integers give int64 where `integer_exact`, else float64; floats float64, within an ulp of exact arithmetic (unless
        slope * x and offset cancel to their last bit); longdouble and complex keep their width. ``mask`` (bool, same
        shape) excuses elements from the checks. Raises UnitsError for a value below `limit` or beyond 64 bits, and for a
        dtype that has no units.
        """
        values = np.asarray(values)
        kind = values.dtype.kind
        if kind not in "iuf" and not (kind == "c" and self.through is None and self.limit is None and self.offset == 0):
            if self.identity:
                return values.copy()
            raise UnitsError(f"values of dtype {values.dtype} do not convert: give real numbers")
        used = values if mask is None else values[~mask]
        if self.limit is not None and (used < self.limit).any():
            raise UnitsError(
                f"value {used[used < self.limit][0]} lies before 1582-10-15 (value {self.limit}), where the standard and "
                "proleptic_gregorian calendars part: use one calendar"
            )
        if kind in "iu" and self.integer_exact:
            return self._integers(values, used)
        if self.through is not None:
            return _through_udunits(values, self.through)
        with np.errstate(all="ignore"):
            return np.asarray(self._floats(values))

    def _integers(self, values: np.ndarray, used: np.ndarray) -> np.ndarray:
        slope, offset = int(self.slope), int(self.offset)
        for end in (used.min(), used.max()) if used.size else ():
            if not -_TOP <= slope * int(end) + offset < _TOP:
                raise UnitsError(f"value {end} converts to {slope * int(end) + offset}, beyond 64 bits: convert it as float64")
        # Sums and products wrap around, and a result that fits is right whatever happened on the way.
        scaled = np.multiply(values.astype(np.int64), np.int64((slope + _TOP) % (2 * _TOP) - _TOP))
        return np.asarray(np.add(scaled, np.int64((offset + _TOP) % (2 * _TOP) - _TOP)))

    def _floats(self, values: np.ndarray) -> Any:
        slope, offset, kind = self.slope, self.offset, values.dtype.kind
        if kind == "c" or values.dtype.itemsize > 8:
            dtype = np.result_type(values.dtype, np.float64)
            wide = np.longdouble if dtype.itemsize > 8 * (1 + (kind == "c")) else np.float64
            ratio = [wide(str(n)) for n in (*slope.as_integer_ratio(), *offset.as_integer_ratio())]
            return values.astype(dtype) * ratio[0] / ratio[1] + ratio[2] / ratio[3]
        if not (kind in "iu" and values.dtype.itemsize == 8):  # those may need more bits than float64 has
            if slope == 1 and offset == float(offset):
                return np.add(values, float(offset), dtype=np.float64)
            if offset == 0 and slope == float(slope):
                return np.multiply(values, float(slope), dtype=np.float64)
            small = 2**21 if values.dtype.itemsize <= 4 else 1
            if offset == 0 and abs(slope.numerator) <= small and slope.denominator < 2**53:
                product = np.multiply(values, float(slope.numerator), dtype=np.float64)  # exact
                return np.divide(product, float(slope.denominator))
        return _affine(values, slope, offset)


def _affine(values: np.ndarray, slope: Fraction, offset: Fraction) -> np.ndarray:
    """Compute slope * values + offset in twice the precision of float64 (Dekker), rounded once, block by block."""
    source = values.reshape(-1)
    result = np.empty(source.shape)
    for start in range(0, source.size, _BLOCK):
        result[start : start + _BLOCK] = _affine_block(source[start : start + _BLOCK], slope, offset)
    return result.reshape(values.shape)


def _affine_block(values: np.ndarray, slope: Fraction, offset: Fraction) -> np.ndarray:
    divisor = math.lcm(slope.denominator, offset.denominator)
    if float(divisor) != divisor:
        divisor = 1
    (s, s_rest), (o, o_rest) = ((float(f), float(f - Fraction(float(f)))) for f in (slope * divisor, offset * divisor))
    x = values.astype(np.float64)
    rest: Any = 0.0
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        high, low = (values >> 32).astype(np.float64) * 2.0**32, (values & 0xFFFFFFFF).astype(np.float64)
        x = high + low
        rest = low - (x - high)
    product, error = _product(x, s)
    total = product + o
    back = total - product
    error = error + ((product - (total - back)) + (o - back)) + (o_rest + x * s_rest + rest * s)
    if divisor == 1:
        exact = total + error
    else:  # divide last, so that what cancels is whole numbers
        exact = total / divisor
        again, lost = _product(exact, float(divisor))
        exact = exact + ((total - again) - lost + error) / divisor
    # Infinite and huge values do not split.
    return np.where(np.isfinite(exact), exact, x * float(slope) + float(offset))


def _product(x: np.ndarray, y: float) -> tuple[np.ndarray, np.ndarray]:
    """Multiply into a rounded product and what the rounding lost."""
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    product = x * y
    return product, ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low


def _halves(x: Any) -> tuple[Any, Any]:
    """Split floats into a high and a low part of 26 bits each."""
    spread = 134217729.0 * x
    high = spread - (spread - x)
    return high, x - high


@lru_cache(maxsize=4096)
def _unit(units: str) -> Any:
    """Return the parsed units, or None if UDUNITS does not know them. Call it under the lock."""
    if _ZERO.search(units):
        return None
    try:
        unit = cf_units.Unit(units)
    except ValueError:
        return None
    return None if unit.is_unknown() or unit.is_no_unit() else unit


@lru_cache(maxsize=4096)
def _signature(units: str) -> str | None:
    """Return the product of base units that units measure, scales, offsets and logarithms apart; None if not parsed."""
    with _lock:
        unit = _unit(units)
        definition = None if unit is None else str(unit.definition)
    if definition is None:
        return None
    return ".".join(sorted(word for word in re.split(r"[ .()]", definition) if _BASE.fullmatch(word))) or "1"


def _through_udunits(values: np.ndarray, units: tuple[str, str]) -> np.ndarray:
    with _lock:
        converted = _unit(units[0]).convert(np.array(values, dtype=np.float64).reshape(-1), _unit(units[1]))
    return np.asarray(converted).reshape(values.shape).astype(np.result_type(values.dtype, np.float64))


def _compare_plain(a: str, b: str) -> "Conversion | str":
    signatures = _signature(a), _signature(b)
    for text, signature in zip((a, b), signatures, strict=True):
        if signature is None:
            return f"{text!r} is not a unit that UDUNITS knows"
    if signatures[0] != signatures[1]:
        return f"they measure different quantities ({signatures[0]} and {signatures[1]})"
    points = np.array([0.0, 2.0**200, -7.0, 1.0, 3.5, 1000.0])  # the second is so large that an offset is lost in it
    images = _through_udunits(points, (a, b))
    offset, slope = float(images[0]), float(images[1]) / 2.0**200
    scale = max(abs(offset), 512 * abs(slope))
    if not np.isfinite(images).all() or not np.allclose(images[2:], slope * points[2:] + offset, rtol=1e-9, atol=1e-12 * scale):
        return Conversion(through=(a, b))
    exact = _simple(slope, 2 * float(np.spacing(abs(slope))))
    shift = _simple(offset, 4e-15 * scale)
    return Conversion(exact, Fraction(float(shift)) if exact == 1 else shift)


def _simple(number: float, slack: float) -> Fraction:
    """Return the plain ratio that a rounded number stands for (5/9, 1/86400), or its exact value."""
    exact = Fraction(number)
    if abs(number) <= slack:
        return Fraction(0)
    inverse = (1 / exact).limit_denominator(10_000)
    for ratio in (exact.limit_denominator(10_000), 1 / inverse if inverse else exact):
        plain = 1 in (ratio.denominator, abs(ratio.numerator)) or abs(ratio.numerator) * ratio.denominator < 10**10
        if plain and abs(ratio - exact) <= slack:
            return ratio
    return exact


def _compare_times(a: str, calendar_a: str | None, b: str, calendar_b: str | None) -> "Conversion | str":
    names = _calendar(calendar_a), _calendar(calendar_b)
    mixed = names[0] != names[1]
    if mixed and not set(names) <= set(_MIXABLE):
        return f"the calendars {names[0]} and {names[1]} are not the same"
    try:
        first, second = epoch(a, calendar_a), epoch(b, calendar_b)
        if first == second:
            return Conversion()
        step = second.length()
        slope, offset = first.length() / step, (first.microseconds - second.microseconds) / step
        limit = float((_CUTOVER - first.microseconds) / first.length()) if mixed else None
    except UnitsError as error:
        return str(error)
    return Conversion(slope, offset, limit)


@lru_cache(maxsize=4096)
def _compare(units_a: str | None, calendar_a: str | None, units_b: str | None, calendar_b: str | None) -> "Conversion | str":
    """Return the conversion, or the reason why there is none."""
    a, b = _text(units_a), _text(units_b)
    times = is_reference_time(a), is_reference_time(b)
    if a == b and not (times[0] and not same_calendar(calendar_a, calendar_b)):
        return Conversion()
    if a is None or b is None:
        return "one has units, the other has none"
    if times[0] != times[1]:
        return "one is a reference time, the other is not"
    return _compare_times(a, calendar_a, b, calendar_b) if times[0] else _compare_plain(a, b)


def why_not(units_a: str | None, cal_a: str | None, units_b: str | None, cal_b: str | None) -> str | None:
    """Return why the first units do not convert into the second, None if they do.

    >>> why_not("m", None, "s", None)
    'they measure different quantities (m and s)'
    """
    found = _compare(units_a, cal_a, units_b, cal_b)
    return found if isinstance(found, str) else None


def equivalent(units_a: str | None, cal_a: str | None, units_b: str | None, cal_b: str | None) -> bool:
    """Tell whether values convert between two units."""
    return why_not(units_a, cal_a, units_b, cal_b) is None


def same(units_a: str | None, cal_a: str | None, units_b: str | None, cal_b: str | None) -> bool:
    """Tell whether values mean the same in both units as they stand.

    >>> same("kg m-2 s-1", None, "kg/m2/s", None)
    True
    """
    return _compare(units_a, cal_a, units_b, cal_b) == Conversion()


def conversion(units_from: str | None, cal_from: str | None, units_to: str | None, cal_to: str | None) -> Conversion:
    """Return the conversion from units to others; UnitsError, with the reason, where there is none.

    >>> conversion("days since 2000-01-01", None, "hours since 1999-12-31", None)(np.array([1, 2]))
    array([48, 72])
    """
    found = _compare(units_from, cal_from, units_to, cal_to)
    if isinstance(found, str):
        raise UnitsError(f"units {units_from!r} do not convert to {units_to!r}: {found}")
    return found


def canonical(units: str | None, calendar: str | None = None) -> str:
    """Return a text that is equal for all units that convert into each other; "" for none.

    Reference times of the standard and the proleptic Gregorian calendar share one; units that do not parse are their own.

    >>> canonical("hPa") == canonical("N m-2"), canonical("days since 2000-01-01", "365_day")
    (True, 'reference time, noleap')
    """
    text = _text(units)
    if text is None or not is_reference_time(text):
        return (_signature(text) or text) if text else ""
    name = _calendar(calendar)
    try:
        base = epoch(text, calendar)
    except UnitsError:
        return f"{text}, {name}"
    if isinstance(base.step, str):
        return f"reference time, {name}, {base.step}s since {base.microseconds}"
    return f"reference time, {'standard' if name in _MIXABLE else name}"
