"""Attributes of HDF5 objects, by netCDF-4 and dimension scales.

Values have the types that netCDF4 returns: one text is a str, several are a list, one number is a NumPy scalar, several are a
read-only array. `Attribute.elements` refers to values elsewhere in the file.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from aggarray.cf.encoding import decode_text
from aggarray.cf.frozen import FrozenDict
from aggarray.dataclass import dataclass
from aggarray.formats.hdf5.metadata.data import KEPT_BYTES, Data, UnsupportedError, require, require_supported
from aggarray.formats.hdf5.metadata.heaps import text_at
from aggarray.formats.hdf5.metadata.messages import committed_at
from aggarray.formats.hdf5.metadata.types import (
    CHARACTERS,
    ELEMENT,
    OBJECTS,
    OTHER,
    OTHER_ROWS,
    PLAIN,
    REFERENCES,
    ROWS,
    TEXTS,
    USERS,
    Dataspace,
    Datatype,
    dataspace_of,
    datatype_of,
)
from aggarray.formats.hdf5.refusals import MISNAMED

_ELEMENT = struct.Struct("<IQI")
_OBJECT = struct.Struct("<Q")
_USER = struct.Struct("<Qi4x")
#: Types whose elements lie in the global heap.
HEAPED = (TEXTS, REFERENCES, ROWS, OTHER_ROWS)
#: Heap reference of a variable-length element: (count, address, number).
Element = tuple[int, int, int]

#: Attributes that netCDF-4 and dimension scales use internally.
INTERNAL = frozenset(
    (
        *("_NCProperties", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict"),
        *("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"),
    )
)
#: Attributes of these types are returned, or ignored: references have no meaning outside the file.
_SHOWN, _SILENT = (PLAIN, CHARACTERS, TEXTS), (OBJECTS, REFERENCES, USERS)

#: Value of the attribute CLASS of a dimension scale.
SCALE = b"DIMENSION_SCALE\0"
#: Beginning of the attribute NAME of a netCDF-4 dimension without a variable.
PURE_DIMENSION = b"This is a netCDF dimension but not a netCDF variable"


@dataclass(frozen=True, slots=True, eq=False)
class Attribute:
    """Attribute: name, category of its datatype, value.

    ``value`` is None if the elements lie in the global heap (`HEAPED`) or have no dtype (``type_name`` then names their type).
    ``raw``: bytes of a fixed-length text in a scalar dataspace; ``terminated``: whether its type is NUL-terminated. ``users``:
    (address, dimension) of the datasets along a scale (USERS). ``objects``: addresses of the referenced objects, one per
    element (OBJECTS). ``committed``: address of its committed datatype, with which ``message`` must still be parsed.
    """

    name: str
    category: str
    value: Any = None
    raw: bytes | None = None
    elements: tuple[Element, ...] = ()
    users: tuple[tuple[int, int], ...] = ()
    terminated: bool = False
    objects: tuple[int, ...] = ()
    type_name: str = ""
    committed: int | None = None
    message: bytes = b""


def attribute_of(message: bytes, datatype: Datatype | None = None) -> Attribute:
    """Return the attribute in a message (type 0x000C), perhaps padded.

    ``datatype``: the committed datatype, if it was looked up.
    """
    return (_attribute_cached if len(message) <= KEPT_BYTES else _attribute)(message, datatype)


def _attribute(message: bytes, datatype: Datatype | None) -> Attribute:
    require(len(message) >= 9, "truncated attribute")
    version, flags = message[0], message[1]
    # Flags: the datatype (1) or the dataspace (2) is shared.
    if version not in (1, 2, 3) or flags > (version > 1):
        raise UnsupportedError(f"an attribute of version {version} with flags {flags}")
    lengths = struct.unpack_from("<HHH", message, 2)
    at = 9 if version == 3 else 8
    require(version != 3 or message[8] <= 1, "unknown character set")
    parts = []
    for length in lengths:
        parts.append(message[at : at + length])
        at += -(-length // 8) * 8 if version == 1 else length
    require(at <= len(message) and lengths[0] > 1 and parts[0].index(0) == lengths[0] - 1, "malformed attribute")
    try:
        name = parts[0][:-1].decode("utf-8")
    except UnicodeDecodeError:
        return Attribute(parts[0][:-1].decode("utf-8", "backslashreplace"), OTHER, type_name=MISNAMED)
    if flags and datatype is None:
        return Attribute(name, OTHER, committed=committed_at(parts[1]), message=message)
    datatype, space = datatype or datatype_of(parts[1]), dataspace_of(parts[2])
    size = datatype.size * space.count
    require(at + size <= len(message) < at + size + 8, "malformed attribute")
    return _with_value(name, datatype, space, message[at : at + size])


_attribute_cached = lru_cache(maxsize=8192)(_attribute)


def _with_value(name: str, datatype: Datatype, space: Dataspace, data: bytes) -> Attribute:
    if datatype.category == USERS:
        require(len(data) % _USER.size == 0, "malformed attribute")
        return Attribute(name, USERS, users=tuple(_USER.iter_unpack(data)), type_name=datatype.type_name)
    if datatype.category == OBJECTS:
        return Attribute(
            name, OBJECTS, objects=tuple(address for (address,) in _OBJECT.iter_unpack(data)), type_name=datatype.type_name
        )
    if datatype.category in HEAPED:
        require(len(data) % ELEMENT == 0, "malformed attribute")
        return Attribute(name, datatype.category, elements=tuple(_ELEMENT.iter_unpack(data)), type_name=datatype.type_name)
    if datatype.category == CHARACTERS:
        if not space.shape:
            # A fill value is a single character.
            text = data if name == "_FillValue" else decoded(data)
            return Attribute(name, CHARACTERS, text, data, terminated=datatype.terminated)
        texts = [decoded(data[at : at + datatype.size].partition(b"\0")[0]) for at in range(0, len(data), datatype.size)]
        return Attribute(name, CHARACTERS, texts[0] if len(texts) == 1 else texts, terminated=datatype.terminated)
    if datatype.dtype is None or datatype.dtype.kind in "mM":
        return Attribute(name, OTHER, type_name=datatype.type_name)
    require_supported(datatype.category == PLAIN or datatype.dtype == bool, "numbers that need conversion by the library")
    values = np.frombuffer(data, "u1") != 0 if datatype.dtype == bool else np.frombuffer(data, datatype.dtype)
    values = values.astype(datatype.dtype.newbyteorder("="))
    if len(space.shape) > 1:
        values = values.reshape(space.shape)
    values.flags.writeable = False
    return Attribute(name, PLAIN, values.reshape(-1)[0] if values.size == 1 else values)


def decoded(text: bytes) -> str:
    """Return a text as netCDF4 decodes it: Latin-1 if it is not UTF-8."""
    return decode_text(text).replace("\0", "")


@dataclass(frozen=True, slots=True, eq=False)
class ObjectAttributes:
    """Attributes of an object, and the dimensions that they define.

    ``shown``: the attributes that netCDF4 shows except those in ``late``, whose texts lie in the global heap of each file;
    ``lists``: whether a value is a list; ``order``: the names of all; ``left``: (name, type) of skipped attributes; ``scale``:
    whether the object is a dimension scale, ``pure``: one without a variable; ``number``: netCDF-4's number of its dimension;
    ``numbers``: those of the dimensions of a variable; ``listed``: heap references to the scales of each dimension; ``scales``:
    one scale address per dimension in files that store them so; ``users``: (address, dimension) of the datasets with this
    scale; ``stamped``: whether netCDF-C wrote the file; ``untyped``: whether committed datatypes must still be looked up.
    """

    shown: FrozenDict[Any]
    late: tuple[Attribute, ...]
    lists: bool
    order: tuple[str, ...]
    scale: bool
    pure: bool
    number: int | None
    numbers: tuple[int, ...] | None
    listed: tuple[Element, ...] | None
    users: tuple[tuple[int, int], ...]
    stamped: bool
    left: tuple[tuple[str, str], ...] = ()
    scales: tuple[int, ...] | None = None
    untyped: bool = False

    @property
    def shareable(self) -> bool:
        """Whether ``shown`` is complete and immutable, so that files can share it."""
        return not self.late and not self.lists


@lru_cache(maxsize=4096)
def object_attributes(attributes: tuple[Attribute, ...]) -> ObjectAttributes:
    """Return the properties of attributes; equal arguments share them."""
    by_name = {a.name: a for a in attributes}
    others = [a for a in attributes if a.name not in INTERNAL]
    shown = [a for a in others if a.category in _SHOWN]
    left = tuple((a.name, a.type_name) for a in others if a.category not in _SHOWN and a.category not in _SILENT)
    # HDF5 requires exactly this text.
    scale = any(a.name == "CLASS" and a.raw == SCALE and a.terminated for a in attributes)
    listed = by_name.get("DIMENSION_LIST")
    dimid = _integers(by_name.get("_Netcdf4Dimid"))
    require(dimid is None or len(dimid) == 1, "invalid dimension number")
    stamp, users = by_name.get("_NCProperties"), by_name.get("REFERENCE_LIST")
    return ObjectAttributes(
        FrozenDict({a.name: a.value for a in shown if a.category != TEXTS}),
        tuple(a for a in shown if a.category == TEXTS),
        any(type(a.value) is list for a in shown),
        tuple(a.name for a in shown),
        scale,
        scale and any(a.name == "NAME" and (a.raw or b"").startswith(PURE_DIMENSION) for a in attributes),
        None if dimid is None else dimid[0],
        _integers(by_name.get("_Netcdf4Coordinates")),
        None if listed is None or listed.category != REFERENCES else listed.elements,
        () if users is None else users.users,
        stamp is not None and stamp.raw is not None and b",netcdf=" in stamp.raw,
        left,
        None if listed is None or listed.category != OBJECTS else listed.objects,
        any(a.committed is not None for a in attributes),
    )


def _integers(attribute: Attribute | None) -> tuple[int, ...] | None:
    if attribute is None or attribute.category != PLAIN or attribute.value.dtype.kind != "i":
        return None
    return tuple(int(n) for n in np.ravel(attribute.value))


def shown_attributes(attributes: ObjectAttributes, data: Data) -> Mapping[str, Any]:
    """Return the attributes that netCDF4 shows, in order, shared if equal."""
    if attributes.shareable:
        return attributes.shown
    values = dict(attributes.shown)
    for a in attributes.late:
        texts = [decoded(text_at(data, *element)) for element in a.elements]
        values[a.name] = texts[0] if len(texts) == 1 else texts
    return {name: list(values[name]) if type(values[name]) is list else values[name] for name in attributes.order}
