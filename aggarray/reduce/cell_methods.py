"""Cell methods, units and attributes of results (CF 7.3, 7.4, appendix E)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from aggarray.cf.frequency import Frequency
from aggarray.cf.units import is_reference_time
from aggarray.cf.units.calendars import SINCE
from aggarray.cf.units.temperature import DIFFERENCE, has_temperature, is_pure

#: Method of appendix E of each operation whose result is of the kind of its values.
METHODS = {
    "sum": "sum",
    "mean": "mean",
    "min": "minimum",
    "max": "maximum",
    "std": "standard_deviation",
    "var": "variance",
    "median": "median",
    "quantile": "point",
    "first": "point",
    "last": "point",
}
#: What the values of the other operations are.
_NUMBERS = {
    "count": "number of values",
    "argmin": "position of the minimum",
    "argmax": "position of the maximum",
    "any": "whether any value is not 0",
    "all": "whether all values are not 0",
}
#: Operations whose results are values of the array.
_SELECTING = ("min", "max", "first", "last")
#: Operations on the values of all cycles that are not those of each cycle, combined.
_OF_ALL = ("std", "var", "median")
#: Attributes of values that no longer apply to any result.
DROPPED = ("valid_min", "valid_max", "valid_range", "actual_range", "ancillary_variables", "_ChunkSizes")
FLAGS = ("flag_values", "flag_masks", "flag_meanings")
_KIND = ("standard_name", "cell_methods", "units_metadata", *FLAGS)
#: Words of a climatology (CF 7.4): the periods within a cycle, and the cycles.
CYCLE_WORDS = {"month": "years", "season": "years", "dayofyear": "years", "hour": "days"}
_POWER = re.compile(r"([A-Za-z_]+)\^?(-?\d+)?")


def cell_method(
    names: Sequence[str],
    operation: str,
    *,
    time: str | None = None,
    cycle: str | None = None,
    step: Frequency | None = None,
    comment: str | None = None,
) -> str | None:
    """Return the cell method of a reduction, None if CF has none for it.

    ``names``: of the reduced dimensions, or "area". ``cycle``: the grouping of a climatology over ``time``; ``step``: the
    interval of the values along ``time``; ``comment``: more words about how values were combined.

    >>> cell_method(["time"], "mean", time="time", step=Frequency(seconds=86400))
    'time: mean (interval: 1 day)'
    >>> cell_method(["time", "area"], "mean", time="time", cycle="month")
    'area: mean time: mean within years time: mean over years'
    """
    method = METHODS.get(operation)
    if method is None or not names:
        return None
    comments = [f"interval: {interval_text(step)}"] if step is not None and (cycle or list(names) == [time]) else []
    comment = operation if method == "point" else comment
    comments += [f"comment: {comment}"] if comment else []
    extra = f" ({' '.join(comments)})" if comments else ""
    if cycle is None or time is None:
        return f"{' '.join(f'{name}:' for name in names)} {method}{extra}"
    others = " ".join(f"{name}:" for name in names if name != time)
    word = CYCLE_WORDS[cycle]
    together = " (comment: of all values together)" if operation in _OF_ALL else ""
    climatology = f"{time}: {method} within {word}{extra} {time}: {method} over {word}{together}"
    return f"{others} {method} {climatology}" if others else climatology


def interval_text(step: Frequency) -> str:
    """Return a time step as CF writes it.

    >>> interval_text(Frequency(seconds=21600)), interval_text(Frequency(months=1))
    ('6 hours', '1 month')
    """
    sizes: tuple[tuple[float, float, str], ...] = (
        (step.months, 12, "year"),
        (step.months, 1, "month"),
        (step.seconds, 86_400, "day"),
        (step.seconds, 3600, "hour"),
        (step.seconds, 60, "minute"),
        (step.seconds, 1, "second"),
    )
    for total, size, name in sizes:
        if total and total % size == 0:
            return f"{total / size:g} {name}{'' if total == size else 's'}"
    return f"{step.seconds:g} seconds"


def result_attributes(
    attrs: Mapping[str, Any], name: str | None, units: str | None, operation: str, method: str | None
) -> dict[str, Any]:
    """Return the attributes of a result.

    ``name``, ``units``: of the array; ``method``: the cell method to append, None if nothing was reduced.
    """
    kept = {k: v for k, v in attrs.items() if k not in DROPPED}
    if operation in _NUMBERS:
        kept = {k: v for k, v in kept.items() if k not in _KIND}
        kept["long_name"] = f"{_NUMBERS[operation]}: {attrs.get('long_name') or attrs.get('standard_name') or name or 'array'}"
        return kept
    if operation not in _SELECTING:
        kept = {k: v for k, v in kept.items() if k not in FLAGS}
    if method:
        kept["cell_methods"] = f"{attrs.get('cell_methods', '')} {method}".strip()
        if operation in ("std", "var") and has_temperature(units):
            kept["units_metadata"] = f"temperature: {DIFFERENCE}"
    return kept


def result_units(
    units: str | None, calendar: str | None, operation: str, weight_units: str | None = None
) -> tuple[str | None, str | None]:
    """Return units and calendar of a result.

    ``weight_units``: of the weights, by which a sum is multiplied.

    >>> result_units("m s-1", None, "var"), result_units("days since 2000-01-01", "noleap", "std")
    (('m2 s-2', None), ('days', None))
    >>> result_units("kg m-2 s-1", None, "sum", "s")
    ('kg m-2', None)
    """
    if operation in _NUMBERS:
        return "1", None
    if units is None:
        return None, None
    if operation in ("std", "var") and is_reference_time(units):
        units, calendar = SINCE.split(units.strip(), maxsplit=1)[0], None
    if operation == "var":
        return squared(units), None
    if operation == "sum" and weight_units:
        return multiplied(units, weight_units), None
    return units, calendar


def squared(units: str) -> str:
    """Return the square of units; that of a temperature is of differences.

    >>> squared("K"), squared("degC"), squared("1"), squared("kg m-2 s-1"), squared("m/s")
    ('K2', 'K2', '1', 'kg2 m-4 s-2', '(m/s)2')
    """
    text = units.strip()
    if text in ("", "1"):
        return text
    if text != "K" and has_temperature(text) and is_pure(text):
        from aggarray.cf.units.compatibility import conversion

        return "K2" if conversion(text, None, "K", None, DIFFERENCE).slope == 1 else f"({text})2"
    powers = _powers(text)
    return f"({text})2" if powers is None else _written({name: 2 * power for name, power in powers.items()})


def multiplied(units: str, factor: str) -> str:
    """Return the product of units, with powers of one unit joined.

    >>> multiplied("kg m-2", "m2"), multiplied("m/s", "s"), multiplied("1", "m2")
    ('kg', 'm/s s', 'm2')
    """
    powers, others = _powers(units.strip()), _powers(factor)
    if powers is None or others is None:
        return f"{units.strip()} {factor}"
    for name, power in others.items():
        powers[name] = powers.get(name, 0) + power
    return _written(powers)


def _powers(units: str) -> dict[str, int] | None:
    """Return the powers of units that are a plain product, None for others."""
    powers: dict[str, int] = {}
    for word in re.split(r"[\s.*]+", units) if units not in ("", "1") else []:
        match = _POWER.fullmatch(word)
        if match is None:
            return None
        powers[match[1]] = powers.get(match[1], 0) + int(match[2] or 1)
    return powers


def _written(powers: Mapping[str, int]) -> str:
    return " ".join(f"{name}{'' if power == 1 else power}" for name, power in powers.items() if power) or "1"
