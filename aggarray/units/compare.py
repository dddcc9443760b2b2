"""Do two pairs of units and calendar mean the same kind of quantity, and what converts one into the other (CF 3.1, 4.4)?

Each pair is compared once, and the answer, a conversion or the reason why there is none, is cached.
"""

from fractions import Fraction
from functools import lru_cache

import numpy as np

from aggarray.errors import UnitsError
from aggarray.units.calendars import CUTOVER, MIXABLE, calendar_name, epoch, is_reference_time, plain_text, same_calendar
from aggarray.units.convert import Conversion
from aggarray.units.udunits import signature, through_udunits


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
        step = second.length()
        slope, offset = first.length() / step, (first.microseconds - second.microseconds) / step
        limit = float((CUTOVER - first.microseconds) / first.length()) if mixed else None
    except UnitsError as error:
        return str(error)
    return Conversion(slope, offset, limit)


@lru_cache(maxsize=4096)
def _compare(units_a: str | None, calendar_a: str | None, units_b: str | None, calendar_b: str | None) -> Conversion | str:
    """Return the conversion, or the reason why there is none."""
    a, b = plain_text(units_a), plain_text(units_b)
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
    text = plain_text(units)
    if text is None or not is_reference_time(text):
        return (signature(text) or text) if text else ""
    name = calendar_name(calendar)
    try:
        base = epoch(text, calendar)
    except UnitsError:
        return f"{text}, {name}"
    if isinstance(base.step, str):
        return f"reference time, {name}, {base.step}s since {base.microseconds}"
    return f"reference time, {'standard' if name in MIXABLE else name}"
