"""What does an attribute hold?

Text and numbers are given as netCDF4 gives them: text as str, several texts as a list, one number as a NumPy scalar, several
as a read-only array. What lies elsewhere in the file is told by `Attribute.elements`.
"""

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from aggarray.encoding import decode_text
from aggarray.formats._h5.data import KEPT_BYTES, UnmodelledError, modelled, require
from aggarray.formats._h5.types import (
    CHARACTERS,
    ELEMENT,
    OTHER,
    OTHER_ROWS,
    PLAIN,
    REFERENCES,
    ROWS,
    TEXTS,
    USERS,
    Kind,
    Space,
    kind_of,
    space_of,
)

_ELEMENT = struct.Struct("<IQI")
_USER = struct.Struct("<Qi4x")
#: Types whose elements lie in the global heap.
HEAPED = (TEXTS, REFERENCES, ROWS, OTHER_ROWS)
#: (count, address, number) of variable-length elements.
Element = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Attribute:
    """An attribute: name, what its datatype is, value.

    ``name`` is as stored. ``value`` is None where the elements lie in the global heap (`HEAPED`) and where they
    are not modelled (OTHER). ``raw``: bytes of a fixed-length text in a scalar dataspace; ``terminated``: its type says that
    a NUL ends it. ``users``: (address, dimension) of the datasets that have a scale (USERS).
    """

    name: str
    kind: str
    value: Any = None
    raw: bytes | None = None
    elements: tuple[Element, ...] = ()
    users: tuple[tuple[int, int], ...] = ()
    terminated: bool = False


def attribute_of(message: bytes) -> Attribute:
    """Return the attribute of a message (type 0x000C), which may be padded to a multiple of eight bytes."""
    return _kept(message) if len(message) <= KEPT_BYTES else _attribute(message)


@lru_cache(maxsize=8192)
def _kept(message: bytes) -> Attribute:
    return _attribute(message)


def _attribute(message: bytes) -> Attribute:
    require(len(message) >= 9, "an attribute that is cut short")
    version, flags = message[0], message[1]
    # Flags say that datatype or dataspace are shared with others.
    modelled(version in (1, 2, 3) and flags == 0, f"an attribute of version {version} with flags {flags}")
    lengths = struct.unpack_from("<HHH", message, 2)
    at = 9 if version == 3 else 8
    require(version != 3 or message[8] <= 1, "an odd character set")
    parts = []
    for length in lengths:
        parts.append(message[at : at + length])
        at += -(-length // 8) * 8 if version == 1 else length
    require(at <= len(message) and lengths[0] > 1 and parts[0].index(0) == lengths[0] - 1, "an odd attribute")
    kind, space = kind_of(parts[1]), space_of(parts[2])
    size = kind.size * space.count
    require(at + size <= len(message) < at + size + 8, "an odd attribute")
    if len(space.shape) > 1:
        # netCDF-4 knows none of several dimensions.
        found = _with_value(parts[0][:-1].decode("utf-8"), kind, space, message[at : at + size])
        return Attribute(found.name, OTHER, elements=found.elements)
    return _with_value(parts[0][:-1].decode("utf-8"), kind, space, message[at : at + size])


def _with_value(name: str, kind: Kind, space: Space, data: bytes) -> Attribute:
    scalar = not space.shape
    if kind.name == OTHER:
        return Attribute(name, OTHER)
    if kind.name == USERS:
        require(len(data) % _USER.size == 0, "an odd attribute")
        return Attribute(name, USERS, users=tuple(_USER.iter_unpack(data)))
    if kind.name in HEAPED:
        require(len(data) % ELEMENT == 0, "an odd attribute")
        return Attribute(name, kind.name, elements=tuple(_ELEMENT.iter_unpack(data)))
    if kind.name == CHARACTERS:
        raw = data if scalar else None
        return Attribute(name, CHARACTERS, _text(name, kind, data, scalar), raw, terminated=kind.terminated)
    if kind.dtype is None:
        raise UnmodelledError("a type without a dtype")
    values = np.frombuffer(data, kind.dtype).astype(kind.dtype.newbyteorder("="))
    values.flags.writeable = False
    return Attribute(name, PLAIN, values[0] if len(values) == 1 else values)


def _text(name: str, kind: Kind, data: bytes, scalar: bool) -> Any:
    if scalar:
        # A fill value is a character, not a text.
        return data if name == "_FillValue" else decoded(data)
    texts = [decoded(data[at : at + kind.size].partition(b"\0")[0]) for at in range(0, len(data), kind.size)]
    return texts[0] if len(texts) == 1 else texts


def decoded(text: bytes) -> str:
    """Return text as netCDF4 reads it in attributes, what is not UTF-8 as Latin-1."""
    return decode_text(text).replace("\0", "")
