"""Enumerated types as flags of CF (section 3.5)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from aggarray.cf.frozen import FrozenDict

#: Attributes of flags. A variable that has one describes its values itself.
_FLAGS = ("flag_values", "flag_masks", "flag_meanings")
#: Name and value of each member, in the order of values.
Members = tuple[tuple[str, int], ...]


def with_flags(attrs: Mapping[str, Any], members: Members, dtype: np.dtype[Any]) -> Mapping[str, Any]:
    """Return attributes with the members of an enumeration as flags.

    ``dtype``: of the values. White space in names becomes "_". Attributes with flags of their own are unchanged.

    >>> dict(with_flags({}, members_of({"rain": 2, "clear sky": 0}), np.dtype("i1")))
    {'flag_values': array([0, 2], dtype=int8), 'flag_meanings': 'clear_sky rain'}
    """
    if not members or not attrs.keys().isdisjoint(_FLAGS):
        return attrs
    values = np.array([value for _, value in members], dtype.newbyteorder("="))
    values.flags.writeable = False
    meanings = " ".join("_".join(name.split()) or "_" for name, _ in members)
    return FrozenDict({**attrs, "flag_values": values if len(values) > 1 else values[0], "flag_meanings": meanings})


def members_of(values: Mapping[str, int]) -> Members:
    """Return the members of an enumeration in the order of their values."""
    return tuple(sorted(((name, int(value)) for name, value in values.items()), key=lambda member: (member[1], member[0])))
