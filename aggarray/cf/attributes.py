"""Texts in attributes: names of variables and lists of words."""

from typing import Any


def basename(name: str) -> str:
    """Return the last part of a variable's path."""
    return name.rpartition("/")[2]


def words(attribute: Any) -> list[str]:
    """Return the words of a blank-separated text, none of another type."""
    return attribute.split() if isinstance(attribute, str) else []
