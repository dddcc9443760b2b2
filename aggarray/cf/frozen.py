"""How does a mapping stay as it is, while it is still a dict to everybody who reads it?"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Generic, NoReturn, TypeVar

_T = TypeVar("_T")
_V = TypeVar("_V")


class FrozenDict(dict[str, _V]):
    """A dict that refuses changes: arrays share their attributes, so a change to one would be a change to all.

    ``dict(attrs)`` gives a copy that may be changed. It hashes if its values do.

    >>> FrozenDict(a=1) == {"a": 1}, len({FrozenDict(a=1), FrozenDict(a=1)})
    (True, 1)
    >>> FrozenDict(a=1)["b"] = 2
    Traceback (most recent call last):
    TypeError: this mapping is shared and does not change: make a copy with dict(...)
    """

    __slots__ = ()

    def _refuse(self, *arguments: Any, **named: Any) -> NoReturn:
        raise TypeError("this mapping is shared and does not change: make a copy with dict(...)")

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


def frozen(mapping: Mapping[str, _V]) -> FrozenDict[_V]:
    """Return a mapping as a FrozenDict, itself if it is one."""
    return mapping if type(mapping) is FrozenDict else FrozenDict(mapping)


def intern_value(mapping: Mapping[str, Any]) -> FrozenDict[Any]:
    """Return a mapping as a FrozenDict: of text alone, the same object for equal ones, as most of thousands of files have.

    >>> interned({"units": "K"}) is interned({"units": "K"})
    True
    """
    if all(type(value) is str for value in mapping.values()):
        return _interned(tuple(mapping.items()))
    return frozen(mapping)


class Immutable(Generic[_T]):
    """A value as a key that is equal to nothing but the same object: what follows from it is worked out once.

    The value must not change, as no FrozenDict does.

    >>> given = FrozenDict(a=1)
    >>> Itself(given) == Itself(given), Itself(given) == Itself(FrozenDict(a=1))
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
