"""Durations: text such as "12h", timedelta64 and timedelta objects as timedelta64."""

import datetime
import re
from fractions import Fraction
from typing import Any

import numpy as np

from aggarray.cf.labels.comparison import rescale, tick
from aggarray.errors import SelectionError

_SECOND = 10**9
#: Nanoseconds of a unit, and its names: those of pandas.
_UNITS = (
    (7 * 86400 * _SECOND, "w"),
    (86400 * _SECOND, "d day days"),
    (3600 * _SECOND, "h hr hour hours"),
    (60 * _SECOND, "m min minute minutes"),
    (_SECOND, "s sec second seconds"),
    (10**6, "ms milli millis millisecond milliseconds"),
    (10**3, "us µs micro micros microsecond microseconds"),
    (1, "ns nano nanos nanosecond nanoseconds"),
)
_NANOSECONDS = {name: size for size, names in _UNITS for name in names.split()}
_NUMBER = r"[0-9]+(?:\.[0-9]*)?"
_PART = re.compile(rf"({_NUMBER})[\s,]*([A-Za-zµ]+)[\s,]*")
_TEXT = re.compile(rf"\+?(?P<parts>(?:{_PART.pattern})*)(?P<clock>[0-9]+:[0-9]+:{_NUMBER})?")
_ISO = re.compile(r"P(?=.)(?:(\d+)W)?(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII)
_ISO_UNITS = ("w", "d", "h", "m", "s")
_LARGEST = np.iinfo(np.int64).max


def parse_duration(text: str) -> np.timedelta64:
    """Return the duration that a text states, in the words of pandas or of ISO 8601, in seconds or nanoseconds.

    SelectionError for any other text, for months and years, whose length is not fixed, and for numbers without a unit.

    >>> parse_duration("12h"), parse_duration("1 day 06:30:00") == parse_duration("P1DT6H30M")
    (np.timedelta64(43200,'s'), np.True_)
    """
    total = _nanoseconds(text.strip())
    if total is None:
        raise SelectionError(f"{text.strip()!r:.60} is no duration: write it as 12h, 1D or 30min")
    whole = total % _SECOND == 0
    count = int(total // (_SECOND if whole else 1))
    if count > _LARGEST:
        raise SelectionError(f"{text.strip()!r:.60} is longer than 64 bits hold: give a shorter duration")
    return np.timedelta64(count, "s") if whole else np.timedelta64(count, "ns")


def _nanoseconds(text: str) -> Fraction | None:
    """Return the nanoseconds that a text states, None where it states none."""
    iso = _ISO.fullmatch(text)
    if iso is not None:
        stated = zip(_ISO_UNITS, iso.groups(), strict=True)
        return sum((Fraction(n) * _NANOSECONDS[unit] for unit, n in stated if n is not None), Fraction(0))
    found = _TEXT.fullmatch(text)
    if found is None or not (found["parts"] or found["clock"]):
        return None
    total = Fraction(0)
    for number, name in _PART.findall(found["parts"]):
        # 'M' and 'Y' are months and years, 'm' is a minute.
        size = None if name == "M" else _NANOSECONDS.get(name.lower())
        if size is None:
            return None
        total += Fraction(number.removesuffix(".")) * size
    if found["clock"]:
        for size, number in zip((3600, 60, 1), found["clock"].split(":"), strict=True):
            total += Fraction(number.removesuffix(".")) * size * _SECOND
    return total


def as_timedeltas(values: Any) -> np.ndarray:
    """Return durations as an array: timedelta64 where all of them are some; anything else as NumPy takes it.

    ``values``: one or several of text, timedelta64, ``datetime.timedelta`` and ``pandas.Timedelta``, whose nanoseconds are
    kept. SelectionError for text that states no duration.
    """
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.asarray(values, object)
    if array.dtype.kind not in "OUT":
        return array
    flat = [_timedelta(item) for item in array.ravel().tolist()]
    if not flat or not all(isinstance(item, np.timedelta64) and has_length(item.dtype) for item in flat):
        return array
    finest = min((item.dtype for item in flat), key=tick)
    return np.array([rescale(np.asarray(item), finest) for item in flat]).reshape(array.shape)


def has_length(dtype: np.dtype[Any]) -> bool:
    """Return whether the unit of a timedelta64 has a fixed length in seconds."""
    return np.datetime_data(dtype)[0] not in ("Y", "M", "generic")


def _timedelta(item: Any) -> Any:
    if isinstance(item, str):
        return parse_duration(item)
    if isinstance(item, datetime.timedelta):
        # pandas.Timedelta, a subclass, may count nanoseconds.
        exact = getattr(item, "to_timedelta64", None)
        return np.timedelta64(item, "us") if exact is None else exact()
    return item
