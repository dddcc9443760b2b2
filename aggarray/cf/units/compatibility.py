"""Do two pairs of units and calendar mean the same kind of quantity, and what converts one into the other (CF 3.1, 4.4)?

Each pair is compared once, and the answer, a conversion or the reason why there is none, is cached.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

import numpy as np

from aggarray.cf.units.calendars import CUTOVER, MIXABLE, calendar_name, epoch, is_reference_time, plain_text, same_calendar
from aggarray.cf.units.linear import Conversion
from aggarray.cf.units.temperature import DIFFERENCE, MIXED, ON_SCALE, combined, has_temperature, is_pure
from aggarray.cf.units.udunits import signature, through_udunits
from aggarray.errors import UnitsError

_WORD = re.compile(r"[^\W\d]+")


class Quantity(Protocol):
    """What values mean: units, calendar, and the kind of a temperature."""

    @property
    def units(self) -> str | None:
        """Units, None for none."""

    @property
    def calendar(self) -> str | None:
        """Calendar of reference times."""

    @property
    def temperature(self) -> str | None:
        """Kind of a temperature, one of `temperature.KINDS`, None where it is not stated."""


def _compare_plain(a: str, b: str) -> Conversion | str:
    signatures = signature(a), signature(b)
    for text, found in zip((a, b), signatures, strict=True):
        if found is None:
            return f"{text!r} is not a unit that UDUNITS knows"
    if signatures[0] != signatures[1]:
        return f"they measure different quantities ({signatures[0]} and {signatures[1]})"
    points = np.array([0.0, 2.0**200, -7.0, 1.0, 3.5, 1000.0])  # the second is so large that an offset is lost in it
    images = through_udunits(points, (a, b))
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


def _compare_times(a: str, calendar_a: str | None, b: str, calendar_b: str | None) -> Conversion | str:
    names = calendar_name(calendar_a), calendar_name(calendar_b)
    mixed = names[0] != names[1]
    if mixed and not set(names) <= set(MIXABLE):
        return f"the calendars {names[0]} and {names[1]} are not the same"
    try:
        first, second = epoch(a, calendar_a), epoch(b, calendar_b)
        if first == second:
            return Conversion()
        slope, offset = first.step / second.step, (first.microseconds - second.microseconds) / second.step
        limit = float((CUTOVER - first.microseconds) / first.step) if mixed else None
    except UnitsError as error:
        return str(error)
    return Conversion(slope, offset, limit)


def _compare_temperatures(a: str, b: str, kind: str | None) -> Conversion | str:
    """Return the conversion of temperatures of one kind: only those on their scale have an offset (CF 3.1.2)."""
    found = _compare_plain(a, b)
    if isinstance(found, str) or kind is None or not has_temperature(a) or (kind == ON_SCALE and is_pure(a)):
        return found
    if kind == MIXED:
        return "one is a temperature difference, the other a temperature on its scale"
    # promise: temperature-difference
    if found.through is None and (kind == DIFFERENCE or zeros(a) == zeros(b)):
        return Conversion(found.slope)
    if kind == DIFFERENCE:
        return "a temperature difference has no logarithm"
    if kind == ON_SCALE:
        return "a temperature on its scale, multiplied by another quantity, keeps the zero of its scale (CF 3.1.2)"
    return "whether the temperature is on its scale or a difference is not known; units_metadata has to state it (CF 3.1.2)"


@lru_cache(maxsize=4096)
def zeros(units: str) -> tuple[float, ...]:
    """Return where the units of temperature among units have their zeros, in kelvin.

    >>> zeros("degC"), zeros("mK"), zeros("W m-2 degC-1")
    ((273.15,), (0.0,), (273.15,))
    """
    words = [units] if is_pure(units) else [word for word in _WORD.findall(units) if signature(word) == "K"]
    found = (_compare_plain(word, "K") for word in words)
    return tuple(sorted(float(one.offset) for one in found if isinstance(one, Conversion)))


@lru_cache(maxsize=4096)
def _compare(
    units_a: str | None, calendar_a: str | None, units_b: str | None, calendar_b: str | None, temperature: str | None = None
) -> Conversion | str:
    """Return the conversion, or the reason why there is none."""
    a, b = plain_text(units_a), plain_text(units_b)
    times = is_reference_time(a), is_reference_time(b)
    if a == b and not (times[0] and not same_calendar(calendar_a, calendar_b)):
        return Conversion()
    if a is None or b is None:
        return "one has units, the other has none"
    if times[0] != times[1]:
        return "one is a reference time, the other is not"
    return _compare_times(a, calendar_a, b, calendar_b) if times[0] else _compare_temperatures(a, b, temperature)


def incompatibility(units_a: str | None, cal_a: str | None, units_b: str | None, cal_b: str | None) -> str | None:
    """Return why the first units do not convert into the second, None if they do.

    >>> why_not("m", None, "s", None)
    'they measure different quantities (m and s)'
    """
    found = _compare(units_a, cal_a, units_b, cal_b)
    return found if isinstance(found, str) else None


def equivalent(units_a: str | None, cal_a: str | None, units_b: str | None, cal_b: str | None) -> bool:
    """Tell whether values convert between two units."""
    return incompatibility(units_a, cal_a, units_b, cal_b) is None


def same(units_a: str | None, cal_a: str | None, units_b: str | None, cal_b: str | None) -> bool:
    """Tell whether values mean the same in both units as they stand.

    >>> same("kg m-2 s-1", None, "kg/m2/s", None)
    True
    """
    return _compare(units_a, cal_a, units_b, cal_b) == Conversion()


def conversion(
    units_from: str | None, cal_from: str | None, units_to: str | None, cal_to: str | None, temperature: str | None = None
) -> Conversion:
    """Return the conversion from units to others; UnitsError, with the reason, where there is none.

    ``temperature``: the kind of temperatures (`temperature_of`); None takes those in a unit of temperature alone as on scale.

    >>> conversion("days since 2000-01-01", None, "hours since 1999-12-31", None)(np.array([1, 2]))
    array([48, 72])
    >>> conversion("degC", None, "K", None, "difference")(np.array([1.0]))
    array([1.])
    """
    found = _compare(units_from, cal_from, units_to, cal_to, temperature)
    if isinstance(found, str):
        raise UnitsError(f"units {units_from!r} do not convert to {units_to!r}: {found}")
    return found


def conversion_between(source: Quantity, target: Quantity) -> Conversion:
    """Return the conversion from one quantity to another; UnitsError, with the reason, where there is none."""
    kind = combined(source.temperature, target.temperature)
    return conversion(source.units, source.calendar, target.units, target.calendar, kind)


def canonical_units(units: str | None, calendar: str | None = None) -> str:
    """Return a text that is equal for all units that convert into each other; "" for none.

    Reference times of the standard and the proleptic Gregorian calendar share one; units that do not parse are their own.

    >>> canonical("hPa") == canonical("N m-2"), canonical("days since 2000-01-01", "365_day")
    (True, 'reference time, noleap')
    """
    text = plain_text(units)
    if text is None or not is_reference_time(text):
        return (signature(text) or text) if text else ""
    name = calendar_name(calendar)
    try:
        epoch(text, calendar)
    except UnitsError:
        return f"{text}, {name}"
    return f"reference time, {'standard' if name in MIXABLE else name}"


def comparable_units(units: str | None, calendar: str | None, temperature: str | None) -> str:
    """Return a text that is equal for all quantities that convert into each other and are of one kind.

    >>> comparable("degC", None, "difference"), comparable("degC", None, None), comparable("degC", None, "unknown")
    ('K, difference', 'K', 'K, unknown, zero at 273.15 K')
    """
    text = canonical_units(units, calendar)
    if units is None or not has_temperature(units) or temperature in (None, ON_SCALE if is_pure(units) else DIFFERENCE):
        return text
    if temperature == DIFFERENCE:
        return f"{text}, {temperature}"
    return f"{text}, {temperature}, zero at {' and '.join(f'{zero:g}' for zero in zeros(units.strip()))} K"
