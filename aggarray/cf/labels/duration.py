"""Durations, such as the text "12h" or timedelta objects, as timedelta64."""

from __future__ import annotations

import datetime
import re
from fractions import Fraction
from typing import Any

import numpy as np

from aggarray.cf.encoding import items_of
from aggarray.cf.labels.comparison import rescale, tick
from aggarray.errors import SelectionError

_SECOND = 10**9
#: Nanoseconds of each unit, and its names in pandas.
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
    """Return the duration of a text in the form of pandas or ISO 8601.

    It is in seconds or nanoseconds. Raises SelectionError for other text, for numbers without a unit, and for months and years,
    whose length varies.

    >>> parse_duration("12h"), parse_duration("1 day 06:30:00") == parse_duration("P1DT6H30M")
    (np.timedelta64(43200,'s'), np.True_)
    """
    total = _nanoseconds(text.strip())
    if total is None:
        raise SelectionError(f"{text.strip()!r:.60} is not a duration", hint="write it as 12h, 1D or 30min")
    seconds = total % _SECOND == 0
    count = int(total // (_SECOND if seconds else 1))
    if count > _LARGEST:
        raise SelectionError(f"{text.strip()!r:.60} is out of range for 64 bits", hint="give a shorter duration")
    return np.timedelta64(count, "s") if seconds else np.timedelta64(count, "ns")


def _nanoseconds(text: str) -> Fraction | None:
    """Return the nanoseconds of a text, None if it is not a duration."""
    iso = _ISO.fullmatch(text)
    if iso is not None:
        stated = zip(_ISO_UNITS, iso.groups(), strict=True)
        return sum((Fraction(n) * _NANOSECONDS[unit] for unit, n in stated if n is not None), Fraction(0))
    match = _TEXT.fullmatch(text)
    if match is None or not (match["parts"] or match["clock"]):
        return None
    total = Fraction(0)
    for number, name in _PART.findall(match["parts"]):
        # 'M' is a month, 'm' is a minute.
        size = None if name == "M" else _NANOSECONDS.get(name.lower())
        if size is None:
            return None
        total += Fraction(number.removesuffix(".")) * size
    if match["clock"]:
        for size, number in zip((3600, 60, 1), match["clock"].split(":"), strict=True):
            total += Fraction(number.removesuffix(".")) * size * _SECOND
    return total


def as_timedeltas(values: Any) -> np.ndarray:
    """Return durations as a timedelta64 array.

    Other values are as NumPy converts them. ``values``: one or several of text, timedelta64, ``datetime.timedelta`` and
    ``pandas.Timedelta``, with its nanoseconds. Raises SelectionError for text that is not a duration.
    """
    array = items_of(values)
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
        # pandas.Timedelta, a subclass, may have nanoseconds.
        exact = getattr(item, "to_timedelta64", None)
        return np.timedelta64(item, "us") if exact is None else exact()
    return item
