"""Is a temperature on its scale, or a difference of two temperatures (CF 3.1.2)?

Only a temperature on its scale has an offset when its units change. `units_metadata` states the kind; where it is absent,
cell methods (appendix E), standard names and their modifiers (appendix C) may imply a difference. Without any of these the
reader takes a unit of temperature alone to be on its scale, and one multiplied by other units to be a difference, as
UDUNITS does.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from aggarray.cf.units.udunits import signature

ON_SCALE, DIFFERENCE, UNKNOWN = KINDS = ("on_scale", "difference", "unknown")
#: Two kinds that exclude each other.
MIXED = "mixed"

#: Methods whose result is a difference whatever they are applied to (CF appendix E).
_DIFFERENCES = frozenset(("standard_deviation", "range", "variance", "anomaly_wrt"))
#: Methods whose result depends on where the scale has its zero: no offset converts it.
_ABSOLUTE = frozenset(
    (
        *("sum", "sum_of_squares", "root_mean_square", "mean_absolute_value"),
        *("maximum_absolute_value", "minimum_absolute_value"),
    )
)
_DIFFERENT = re.compile(
    r"(?:^|_)(?:anomaly|difference|depression|bias|increment|uncertainty|error|excess|deficit)(?:_|$)"
    r"|^change_(?:over_time_)?in_|^tendency_of_"
)
_MODIFIERS = frozenset(("standard_error",))
_STATED = re.compile(r"(?:^|\s)temperature:\s*(\S+)")


@lru_cache(maxsize=4096)
def has_temperature(units: str | None) -> bool:
    """Tell whether units involve a unit of temperature, to any power.

    >>> has_temperature("degC/day"), has_temperature("W m-2")
    (True, False)
    """
    found = signature(str(units).strip()) if units else None
    return found is not None and any(word.rstrip("-0123456789") == "K" for word in found.split("."))


@lru_cache(maxsize=4096)
def is_pure(units: str) -> bool:
    """Tell whether units are of temperature alone."""
    return signature(units.strip()) == "K"


def temperature_of(units: str | None, attrs: Mapping[str, Any]) -> str | None:
    """Return the kind that attributes give values of some units: one of `KINDS`; None where they state none.

    >>> temperature_of("K", {"cell_methods": "time: standard_deviation"}), temperature_of("K", {}), temperature_of("m", {})
    ('difference', None, None)
    """
    return _kind(units, *_texts(attrs))[0] if has_temperature(units) else None


def temperature_difference(units: str | None, attrs: Mapping[str, Any]) -> str:
    """Return the kind of a temperature in words, with the attribute that decides."""
    kind, reason = _kind(units, *_texts(attrs))
    text = {DIFFERENCE: "a temperature difference", UNKNOWN: "on its scale or a difference"}.get(kind or "", "on its scale")
    return f"{text}: {reason}"


def combined(one: str | None, other: str | None) -> str | None:
    """Return the kind of values that two descriptions share; `MIXED` where these exclude each other."""
    if one is None or other is None or one == other:
        return other if one is None else one
    return UNKNOWN if UNKNOWN in (one, other) else MIXED


def _texts(attrs: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
    metadata, name, methods = attrs.get("units_metadata"), attrs.get("standard_name"), attrs.get("cell_methods")
    return (
        metadata if isinstance(metadata, str) else None,
        name if isinstance(name, str) else None,
        methods if isinstance(methods, str) else None,
    )


@lru_cache(maxsize=4096)
def _kind(units: str | None, metadata: str | None, name: str | None, methods: str | None) -> tuple[str | None, str]:
    """Return the kind of a temperature, and the reason."""
    # In any case: a difference that is spelled "Difference" is not to be shifted.
    stated = _STATED.search((metadata or "").lower())
    implied = _implied(name, methods)
    said = f"units_metadata {metadata!r}"
    if stated is not None and stated[1] == ON_SCALE and implied:
        return UNKNOWN, f"{said} contradicts {implied}"
    if stated is not None and stated[1] in KINDS:
        absolute = _absolute(units, methods) if stated[1] == ON_SCALE else None
        return (UNKNOWN, absolute) if absolute else (stated[1], said)
    if stated is not None:
        return UNKNOWN, f"{said} is none of {', '.join(KINDS)}"
    if implied:
        return DIFFERENCE, implied
    absolute = _absolute(units, methods)
    return (UNKNOWN, absolute) if absolute else (None, "no attribute says otherwise")


def _implied(name: str | None, methods: str | None) -> str | None:
    """Return the attribute that implies a difference, None without one."""
    if not _DIFFERENCES.isdisjoint(_methods(methods)):
        return f"cell_methods {methods!r}"
    first, *modifiers = (name or "").split() or [""]
    if _DIFFERENT.search(first) or not _MODIFIERS.isdisjoint(modifiers):
        return f"standard_name {name!r}"
    return None


def _absolute(units: str | None, methods: str | None) -> str | None:
    if units is None or not is_pure(units) or _ABSOLUTE.isdisjoint(_methods(methods)):
        return None
    return f"cell_methods {methods!r}, whose result depends on the zero of the scale"


def _methods(text: str | None) -> list[str]:
    """Return the methods of an attribute ``cell_methods``, without dimensions, comments and climatological words.

    >>> _methods("range: mean time: standard_deviation within days (comment: range)")
    ['mean', 'standard_deviation']
    """
    found, named = [], False
    plain = re.sub(r"\([^()]*\)", " ", (text or "").lower()).replace(":", ": ")
    for word in plain.split():
        if named and not word.endswith(":"):
            found.append(word)
        named = word.endswith(":")
    return found
