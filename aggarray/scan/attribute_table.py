"""Attributes of many files: templates, and what differs from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from aggarray.cf.frozen import FrozenDict, frozen
from aggarray.formats.base import Attributes

#: A mapping differs from its template in at most this many values, or in this fraction of them.
_FEW_OWN, _MOST_OWN = 2, 0.34
#: Templates of the same names with which a mapping is compared.
_RECENT = 8
#: Most mappings that are recognised by their id.
_KNOWN = 512

#: Names and values in which a mapping differs from its template, one after the other.
Own = tuple[Any, ...]


class AttributeTable:
    """Attributes as numbers of templates, and the values that differ.

    >>> table = AttributeTable()
    >>> table.add({"title": "a", "id": "1"}), table.add({"title": "a", "id": "2"})
    ((0, ()), (0, ('id', '2')))
    >>> table.mapping(0, ("id", "2"))
    {'title': 'a', 'id': '2'}
    """

    def __init__(self) -> None:
        self.templates: list[FrozenDict[Any]] = []
        self._keys: list[list[Any]] = []
        self._recent: dict[tuple[str, ...], list[int]] = {}
        self._by_id: dict[int, tuple[Attributes, int]] = {}

    def add(self, attrs: Attributes, owner: str = "") -> tuple[int, Own]:
        """Return the number of a template, and the names and values that differ.

        ``owner``: the name of what the attributes describe, whose templates are compared.
        """
        known = self._by_id.get(id(attrs))
        if known is not None:
            return known[1], ()
        number, own = self._nearest(attrs, owner)
        if not own:
            if len(self._by_id) >= _KNOWN:
                self._by_id.clear()
            self._by_id[id(attrs)] = attrs, number  # holding the mapping keeps its id unique
        return number, own

    def _nearest(self, attrs: Attributes, owner: str) -> tuple[int, Own]:
        names, keys = tuple(attrs), [v if type(v) is str else _key(v) for v in attrs.values()]
        recent = self._recent.setdefault((owner, *names), [])
        nearest, differing, most = -1, list[int](), max(_FEW_OWN, int(_MOST_OWN * len(names))) + 1
        for number in recent:
            own = [n for n, (a, b) in enumerate(zip(keys, self._keys[number], strict=True)) if a != b]
            if len(own) < most:
                nearest, differing, most = number, own, len(own)
            if not own:
                break
        if nearest < 0:
            nearest = len(self.templates)
            self.templates.append(frozen(attrs))
            self._keys.append(keys)
            recent.insert(0, nearest)
            del recent[_RECENT:]
        shared = tuple(self.templates[nearest])
        return nearest, tuple([item for n in differing for item in (shared[n], attrs[names[n]])])

    def mapping(self, number: int, own: Own) -> FrozenDict[Any]:
        """Return the attributes that were added."""
        template = self.templates[number]
        return template if not own else FrozenDict({**template, **dict(zip(own[::2], own[1::2], strict=True))})


def _key(value: Any) -> Any:
    """Return a key, equal for bitwise equal values, unique for other types."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "iufcb":
        return type(value), value.shape, value.dtype.str, value.tobytes()
    if type(value) in (int, float, bool, type(None)):
        return type(value), repr(value)
    if type(value) in (list, tuple):
        return type(value), tuple([v if type(v) is str else _key(v) for v in value])
    return object()
