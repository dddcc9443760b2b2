"""Conversions between units and calendars, and reasons why there is none.

They follow CF 3.1 and 4.4. The result of each comparison is cached.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

import numpy as np

from aggarray.cf.units import MIXABLE, calendar_name, is_reference_time, same_calendar, stripped_text
from aggarray.cf.units.calendars import CUTOVER, epoch
from aggarray.cf.units.linear import Conversion
from aggarray.cf.units.temperature import DIFFERENCE, MIXED, ON_SCALE, combined, has_temperature, is_pure
from aggarray.cf.units.udunits import signature, through_udunits
from aggarray.errors import UnitsError

_WORD = re.compile(r"[^\W\d]+")
_IDENTITY = Conversion()


class Quantity(Protocol):
    """Units, calendar and kind of temperature of values."""

    @property
    def units(self) -> str | None:
        """Units, or None."""

    @property
    def calendar(self) -> str | None:
        """Calendar of reference times, or None."""

    @property
    def temperature(self) -> str | None:
        """Kind of temperature, one of `temperature.KINDS`, None if not stated."""


def _compare_plain(a: str, b: str) -> Conversion | str:
    signatures = signature(a), signature(b)
    for text, base in zip((a, b), signatures, strict=True):
        if base is None:
            return f"{text!r} is not a unit of UDUNITS"
    if signatures[0] != signatures[1]:
        return f"they measure different quantities ({signatures[0]} and {signatures[1]})"
    points = np.array([0.0, 2.0**200, -7.0, 1.0, 3.5, 1000.0])  # an offset is lost in 2**200: it gives the slope
    images = through_udunits(points, (a, b))
    offset, slope = float(images[0]), float(images[1]) / 2.0**200
    scale = max(abs(offset), 512 * abs(slope))
    if not np.isfinite(images).all() or not np.allclose(images[2:], slope * points[2:] + offset, rtol=1e-9, atol=1e-12 * scale):
        return Conversion(through=(a, b))
    exact = _simple(slope, 2 * float(np.spacing(abs(slope))))
    shift = _simple(offset, 4e-15 * scale)
    return Conversion(exact, Fraction(float(shift)) if exact == 1 else shift)


def _simple(number: float, slack: float) -> Fraction:
    """Return a simple ratio near a rounded number, else its exact value."""
    exact = Fraction(number)
    if abs(number) <= slack:
        return Fraction(0)
    inverse = (1 / exact).limit_denominator(10_000)
    for ratio in (exact.limit_denominator(10_000), 1 / inverse if inverse else exact):
        plain = 1 in (ratio.denominator, abs(ratio.numerator)) or abs(ratio.numerator) * ratio.denominator < 10**10
        if plain and abs(ratio - exact) <= slack:
            return ratio
    return exact


def _compare_times(a: str, calendar_a: str | None, b: str, calendar_b: str | None) -> Conversion | str:
    names = calendar_name(calendar_a), calendar_name(calendar_b)
    mixed = names[0] != names[1]
    if mixed and not set(names) <= set(MIXABLE):
        return f"the calendars {names[0]} and {names[1]} are not the same"
    try:
        first, second = epoch(a, calendar_a), epoch(b, calendar_b)
        if first == second:
            return _IDENTITY
        slope, offset = first.step / second.step, (first.microseconds - second.microseconds) / second.step
        limit = float((CUTOVER - first.microseconds) / first.step) if mixed else None
    except UnitsError as error:
        return str(error)
    return Conversion(slope, offset, limit)


def _compare_temperatures(a: str, b: str, kind: str | None) -> Conversion | str:
    """Return the conversion of temperatures, with an offset on a scale only."""
    result = _compare_plain(a, b)
    if isinstance(result, str) or kind is None or not has_temperature(a) or (kind == ON_SCALE and is_pure(a)):
        return result
    if kind == MIXED:
        return "one is a temperature difference, the other a temperature on its scale"
    # promise: temperature-difference
    if result.through is None and (kind == DIFFERENCE or zeros(a) == zeros(b)):
        return Conversion(result.slope)
    if kind == DIFFERENCE:
        return "a temperature difference has no logarithm"
    if kind == ON_SCALE:
        return "a temperature on its scale, multiplied by another quantity, keeps the zero of its scale (CF 3.1.2)"
    return "the temperature may be on its scale or a difference; state it in units_metadata (CF 3.1.2)"


@lru_cache(maxsize=4096)
def zeros(units: str) -> tuple[float, ...]:
    """Return the zero points, in kelvin, of units of temperature in units.

    >>> zeros("degC"), zeros("mK"), zeros("W m-2 degC-1")
    ((273.15,), (0.0,), (273.15,))
    """
    words = [units] if is_pure(units) else [word for word in _WORD.findall(units) if signature(word) == "K"]
    results = (_compare_plain(word, "K") for word in words)
    return tuple(sorted(float(result.offset) for result in results if isinstance(result, Conversion)))


@lru_cache(maxsize=4096)
def _compare(
    units_a: str | None, calendar_a: str | None, units_b: str | None, calendar_b: str | None, temperature: str | None = None
) -> Conversion | str:
    a, b = stripped_text(units_a), stripped_text(units_b)
    times = is_reference_time(a), is_reference_time(b)
    if a == b and not (times[0] and not same_calendar(calendar_a, calendar_b)):
        return _IDENTITY
    if a is None or b is None:
        return "one has units, the other has none"
    if times[0] != times[1]:
        return "one is a reference time, the other is not"
    return _compare_times(a, calendar_a, b, calendar_b) if times[0] else _compare_temperatures(a, b, temperature)


def incompatibility(units_a: str | None, cal_a: str | None, units_b: str | None, cal_b: str | None) -> str | None:
    """Return why the first units do not convert into the second, else None.

    >>> incompatibility("m", None, "s", None)
    'they measure different quantities (m and s)'
    """
    result = _compare(units_a, cal_a, units_b, cal_b)
    return result if isinstance(result, str) else None


def equivalent(units_a: str | None, cal_a: str | None, units_b: str | None, cal_b: str | None) -> bool:
    """Return whether values convert between two units."""
    return incompatibility(units_a, cal_a, units_b, cal_b) is None


def same(units_a: str | None, cal_a: str | None, units_b: str | None, cal_b: str | None) -> bool:
    """Return whether values are equal in both units without a conversion.

    >>> same("kg m-2 s-1", None, "kg/m2/s", None)
    True
    """
    return _compare(units_a, cal_a, units_b, cal_b) == _IDENTITY


def conversion(
    units_from: str | None, cal_from: str | None, units_to: str | None, cal_to: str | None, temperature: str | None = None
) -> Conversion:
    """Return the conversion between units, or raise UnitsError with a reason.

    ``temperature``: kind of temperature (`temperature_of`). None: values in a pure unit of temperature are on its scale.

    >>> conversion("days since 2000-01-01", None, "hours since 1999-12-31", None)(np.array([1, 2]))
    array([48, 72])
    >>> conversion("degC", None, "K", None, "difference")(np.array([1.0]))
    array([1.])
    """
    result = _compare(units_from, cal_from, units_to, cal_to, temperature)
    if isinstance(result, str):
        raise UnitsError(f"units {units_from!r} do not convert to {units_to!r}: {result}", hint="give units that convert")
    return result


def conversion_between(source: Quantity, target: Quantity) -> Conversion:
    """Return the conversion of quantities, or raise UnitsError with a reason."""
    if source.units == target.units and source.calendar == target.calendar:
        return _IDENTITY
    kind = combined(source.temperature, target.temperature)
    return conversion(source.units, source.calendar, target.units, target.calendar, kind)


def canonical_units(units: str | None, calendar: str | None = None) -> str:
    """Return a text equal for all units that convert into each other.

    It is "" for None. Reference times of the standard and the proleptic Gregorian calendar share one text. Units that do not
    parse are returned.

    >>> canonical_units("hPa") == canonical_units("N m-2"), canonical_units("days since 2000-01-01", "365_day")
    (True, 'reference time, noleap')
    """
    text = stripped_text(units)
    if text is None or not is_reference_time(text):
        return (signature(text) or text) if text else ""
    name = calendar_name(calendar)
    try:
        epoch(text, calendar)
    except UnitsError:
        return f"{text}, {name}"
    return f"reference time, {'standard' if name in MIXABLE else name}"


def comparable_units(units: str | None, calendar: str | None, temperature: str | None) -> str:
    """Return a text equal for convertible quantities of one temperature kind.

    >>> comparable_units("degC", None, "difference"), comparable_units("degC", None, None)
    ('K, difference', 'K')
    >>> comparable_units("degC", None, "unknown")
    'K, unknown, zero at 273.15 K'
    """
    text = canonical_units(units, calendar)
    if units is None or temperature is None or not has_temperature(units):
        return text
    if temperature == (ON_SCALE if is_pure(units) else DIFFERENCE):
        return text
    if temperature == DIFFERENCE:
        return f"{text}, {temperature}"
    return f"{text}, {temperature}, zero at {' and '.join(f'{zero:g}' for zero in zeros(units.strip()))} K"
