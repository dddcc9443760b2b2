"""Access to UDUNITS, which is not thread-safe, under one lock."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np

#: A factor of zero, as in "(0 - 1)": UDUNITS writes a message to standard error.
_ZERO = re.compile(r"(?<![\w.^*@+-])(?<!@ )0+(?:\.0*)?(?![\w.])")
_BASE = re.compile(r"(?:m|kg|s|A|K|mol|cd)(?:-?\d+)?")
#: Powers of base units in units that most files have: products of these need no UDUNITS, whose import takes long.
_COMMON: dict[str, dict[str, int]] = {
    **{base: {base: 1} for base in ("m", "kg", "s", "A", "K", "mol", "cd")},
    **{"Pa": {"kg": 1, "m": -1, "s": -2}, "N": {"kg": 1, "m": 1, "s": -2}},
    **{"J": {"kg": 1, "m": 2, "s": -2}, "W": {"kg": 1, "m": 2, "s": -3}},
}
#: Other units, alone.
_ALONE = {"degC": "K", "hPa": "kg.m-1.s-2", "km": "m", "day": "s", "days": "s", **dict.fromkeys(("1", "%"), "1")}
_ALONE |= dict.fromkeys(("degree", "degrees", "degrees_north", "degrees_east", "degree_north", "degree_east"), "1")
_POWER = re.compile(r"([A-Za-z]+)(-?[1-9])?")
_lock = threading.RLock()
# promise: udunits-fork
if hasattr(os, "register_at_fork"):
    # A child that is forked while another thread holds the lock would deadlock.
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@lru_cache(maxsize=4096)
def _unit(units: str) -> Any:
    """Return parsed units, None if unknown; the caller holds the lock."""
    if _ZERO.search(units):
        return None
    import cf_units

    try:
        unit = cf_units.Unit(units)
    except ValueError:
        return None
    return None if unit.is_unknown() or unit.is_no_unit() else unit


@lru_cache(maxsize=4096)
def signature(units: str) -> str | None:
    """Return the base units, unscaled, of units; None if they do not parse.

    >>> signature("W m-2"), signature("Pa s"), signature("%"), signature("mm/day"), signature("level")
    ('kg.s-3', 'kg.m-1.s-1', '1', 'm.s-1', None)
    """
    if (common := _ALONE.get(units) or _product(units)) is not None:
        return common
    with _lock:
        unit = _unit(units)
        definition = None if unit is None else str(unit.definition)
    if definition is None:
        return None
    return ".".join(sorted(word for word in re.split(r"[ .()]", definition) if _BASE.fullmatch(word))) or "1"


def _product(units: str) -> str | None:
    """Return the base units of a product of common units, or None."""
    powers = Counter[str]()
    for word in units.split(" "):
        factor = _POWER.fullmatch(word)
        if factor is None or factor[1] not in _COMMON:
            return None
        for base, power in _COMMON[factor[1]].items():
            powers[base] += power * int(factor[2] or 1)
    return ".".join(sorted(f"{base}{power if power != 1 else ''}" for base, power in powers.items() if power)) or "1"


@lru_cache(maxsize=1024)
def seconds_of(units: str) -> float | None:
    """Return a time unit in seconds; None if other, shifted or not positive.

    >>> seconds_of("common_year"), seconds_of("m"), seconds_of("(0 - 1) s"), seconds_of("days since 2000-01-01")
    (31536000.0, None, None, None)
    """
    if signature(units) != "s":
        return None
    try:
        start, seconds = through_udunits(np.array([0.0, 1.0]), (units, "s")).tolist()
    except ValueError:  # a reference time
        return None
    return seconds if start == 0.0 and 0.0 < seconds < float("inf") else None


def through_udunits(values: np.ndarray, units: tuple[str, str]) -> np.ndarray:
    """Convert values by UDUNITS, from the first to the second of ``units``."""
    with _lock:
        converted = _unit(units[0]).convert(np.array(values, dtype=np.float64).reshape(-1), _unit(units[1]))
    return np.asarray(converted).reshape(values.shape).astype(np.result_type(values.dtype, np.float64))
