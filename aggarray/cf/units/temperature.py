"""Temperatures on their scale and temperature differences (CF 3.1.2).

Only a temperature on its scale has an offset in a conversion. `units_metadata` states the kind. Without it, cell methods
(appendix E), standard names and their modifiers (appendix C) may imply a difference. Without any of these, a pure unit of
temperature is on its scale, and one multiplied by other units is a difference, as in UDUNITS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from aggarray.cf.units import is_reference_time

ON_SCALE, DIFFERENCE, UNKNOWN = KINDS = ("on_scale", "difference", "unknown")
#: Result of combining a temperature on its scale with a difference.
MIXED = "mixed"

#: Methods whose result is always a difference (CF appendix E).
_DIFFERENCES = frozenset(("standard_deviation", "range", "variance", "anomaly_wrt"))
#: Methods whose result depends on the zero of the scale and does not convert by an offset.
_ABSOLUTE = {
    "sum",
    "sum_of_squares",
    "root_mean_square",
    "mean_absolute_value",
    "maximum_absolute_value",
    "minimum_absolute_value",
}
#: Frequent units without temperature, for which nothing is looked up.
_NO_TEMPERATURES = frozenset(("1", "%", "m", "s", "Pa", "m s-1", "kg m-2 s-1", "degrees_north", "degrees_east", "degree"))
_DIFFERENT_WORDS = frozenset(
    ("anomaly", "difference", "depression", "bias", "increment", "uncertainty", "error", "excess", "deficit")
)
_DIFFERENT_STARTS = ("change_in_", "change_over_time_in_", "tendency_of_")
_MODIFIERS = frozenset(("standard_error",))
_STATED = r"(?:^|\s)temperature:\s*(\S+)"


@lru_cache(maxsize=4096)
def has_temperature(units: str | None) -> bool:
    """Return whether units contain a unit of temperature, to any power.

    >>> has_temperature("degC/day"), has_temperature("W m-2")
    (True, False)
    """
    from aggarray.cf.units.udunits import signature

    base = signature(str(units).strip()) if units else None
    return base is not None and any(word.rstrip("-0123456789") == "K" for word in base.split("."))


@lru_cache(maxsize=4096)
def is_pure(units: str) -> bool:
    """Return whether units are a pure unit of temperature."""
    from aggarray.cf.units.udunits import signature

    return signature(units.strip()) == "K"


def temperature_of(units: str | None, attrs: Mapping[str, Any]) -> str | None:
    """Return the stated or implied kind of temperature (`KINDS`), or None.

    >>> temperature_of("K", {"cell_methods": "time: standard_deviation"}), temperature_of("K", {}), temperature_of("m", {})
    ('difference', None, None)
    """
    if not units or units in _NO_TEMPERATURES or is_reference_time(units):
        return None
    # The attributes are looked at first: few state a kind, and UDUNITS is not imported for the others.
    kind = _kind(units, *_texts(attrs))[0]
    return kind if kind is not None and has_temperature(units) else None


def temperature_difference(units: str | None, attrs: Mapping[str, Any]) -> str:
    """Return the kind of a temperature and the attribute that determines it."""
    kind, reason = _kind(units, *_texts(attrs))
    text = {DIFFERENCE: "a temperature difference", UNKNOWN: "on its scale or a difference"}.get(kind or "", "on its scale")
    return f"{text}: {reason}"


def combined(first: str | None, second: str | None) -> str | None:
    """Return the kind two descriptions share, `MIXED` if they contradict."""
    if first is None or second is None or first == second:
        return second if first is None else first
    return UNKNOWN if UNKNOWN in (first, second) else MIXED


def _texts(attrs: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
    values = (attrs.get(name) for name in ("units_metadata", "standard_name", "cell_methods"))
    metadata, name, methods = (value if isinstance(value, str) else None for value in values)
    return metadata, name, methods


@lru_cache(maxsize=4096)
def _kind(units: str | None, metadata: str | None, name: str | None, methods: str | None) -> tuple[str | None, str]:
    # Case-insensitive: "Difference" must not get an offset.
    stated = re.search(_STATED, metadata.lower()) if metadata else None
    implied = _implied(name, methods)
    attribute = f"units_metadata {metadata!r}"
    if stated is not None and stated[1] == ON_SCALE and implied:
        return UNKNOWN, f"{attribute} contradicts {implied}"
    if stated is not None and stated[1] in KINDS:
        absolute = _absolute(units, methods) if stated[1] == ON_SCALE else None
        return (UNKNOWN, absolute) if absolute else (stated[1], attribute)
    if stated is not None:
        return UNKNOWN, f"{attribute} is not one of {', '.join(KINDS)}"
    if implied:
        return DIFFERENCE, implied
    absolute = _absolute(units, methods)
    return (UNKNOWN, absolute) if absolute else (None, "no attribute states a difference")


def _implied(name: str | None, methods: str | None) -> str | None:
    """Return the attribute that implies a difference, None if there is none."""
    if not _DIFFERENCES.isdisjoint(_methods(methods)):
        return f"cell_methods {methods!r}"
    first, *modifiers = (name or "").split() or [""]
    different = first.startswith(_DIFFERENT_STARTS) or not _DIFFERENT_WORDS.isdisjoint(first.split("_"))
    if different or not _MODIFIERS.isdisjoint(modifiers):
        return f"standard_name {name!r}"
    return None


def _absolute(units: str | None, methods: str | None) -> str | None:
    if units is None or _ABSOLUTE.isdisjoint(_methods(methods)) or not is_pure(units):
        return None
    return f"cell_methods {methods!r}, whose result depends on the zero of the scale"


def _methods(text: str | None) -> list[str]:
    """Return the methods in ``cell_methods``, without dimensions and comments.

    >>> _methods("range: mean time: standard_deviation within days (comment: range)")
    ['mean', 'standard_deviation']
    """
    methods, after_name = [], False
    plain = (text or "").lower()
    plain = (re.sub(r"\([^()]*\)", " ", plain) if "(" in plain else plain).replace(":", ": ")
    for word in plain.split():
        if after_name and not word.endswith(":"):
            methods.append(word)
        after_name = word.endswith(":")
    return methods
