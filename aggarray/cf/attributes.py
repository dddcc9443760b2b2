"""Texts in attributes: names, lists of words, numbers as text."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

#: Standard names of the dimensions of forecasts, reference time and lead; the valid time, a coordinate of both.
REFERENCE, LEAD, TIME = "forecast_reference_time", "forecast_period", "time"


def basename(name: str) -> str:
    """Return the last part of a variable's path."""
    return name.rpartition("/")[2]


def words(attribute: Any) -> list[str]:
    """Return the words of a blank-separated text, none of another type."""
    return attribute.split() if isinstance(attribute, str) else []


def text_attribute(value: Any) -> str | None:
    """Return an attribute as text, also of a number; None if absent."""
    if value is None or isinstance(value, str):
        return value.strip() if value else value
    return str(value.item()) if getattr(value, "size", 2) == 1 else str(value)


#: Values of name attributes that stand for "no name".
_NO_NAMES = ("", "unknown", "undefined", "none", "missing", "n/a", "-", "no standard name", "not specified")


@lru_cache(maxsize=4096)
def normal_name(text: str) -> str | None:
    """Return a name with normalised blanks, None if it means no name.

    >>> normal_name("air  temperature"), normal_name("unknown")
    ('air temperature', None)
    """
    text = " ".join(text.split())
    return None if text.lower() in _NO_NAMES else text
