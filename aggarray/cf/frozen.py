"""Immutable mappings for shared attributes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Generic, NoReturn, TypeVar

_T = TypeVar("_T")
_V = TypeVar("_V")


class FrozenDict(dict[str, _V]):
    """Dict that raises TypeError on changes, because arrays share attributes.

    ``dict(attrs)`` returns a copy that may be changed. A FrozenDict is hashable if its values are.

    >>> FrozenDict(a=1) == {"a": 1}, len({FrozenDict(a=1), FrozenDict(a=1)})
    (True, 1)
    >>> FrozenDict(a=1)["b"] = 2
    Traceback (most recent call last):
    TypeError: this mapping is shared and immutable; make a copy with dict(...)
    """

    __slots__ = ()

    def _refuse(self, *arguments: Any, **named: Any) -> NoReturn:
        raise TypeError("this mapping is shared and immutable; make a copy with dict(...)")

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)

    def __repr__(self) -> str:
        """Return the items, a line for each if some, such as arrays, have several.

        Of these the first line is shown.
        """
        texts = {key: repr(value).split("\n") for key, value in self.items()}
        if all(len(lines) == 1 for lines in texts.values()):
            return super().__repr__()
        items = (f"{key!r}: {lines[0]}{' ...' if len(lines) > 1 else ''}" for key, lines in texts.items())
        return "{" + ",\n ".join(items) + "}"


def frozen(mapping: Mapping[str, _V]) -> FrozenDict[_V]:
    """Return a mapping as a FrozenDict, unchanged if it is one."""
    return mapping if type(mapping) is FrozenDict else FrozenDict(mapping)


def intern_value(mapping: Mapping[str, Any]) -> FrozenDict[Any]:
    """Return a mapping as a FrozenDict, the same object for equal text.

    >>> intern_value({"units": "K"}) is intern_value({"units": "K"})
    True
    """
    if all(type(value) is str for value in mapping.values()):
        return _interned(tuple(mapping.items()))
    return frozen(mapping)


class Immutable(Generic[_T]):
    """Key that is equal only for the same object, for caches of results.

    The value must be immutable, such as a FrozenDict.

    >>> attrs = FrozenDict(a=1)
    >>> Immutable(attrs) == Immutable(attrs), Immutable(attrs) == Immutable(FrozenDict(a=1))
    (True, False)
    """

    __slots__ = ("item",)

    def __init__(self, item: _T) -> None:
        self.item = item

    def __hash__(self) -> int:
        return id(self.item)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Immutable) and other.item is self.item


@lru_cache(maxsize=4096)
def _interned(items: tuple[tuple[str, str], ...]) -> FrozenDict[Any]:
    return FrozenDict(items)
