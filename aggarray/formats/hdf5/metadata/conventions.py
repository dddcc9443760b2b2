"""Attributes of objects by the conventions of netCDF-4 and of dimension scales."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from aggarray.cf.frozen import FrozenDict
from aggarray.formats.hdf5.metadata.attributes import Attribute, Element, decoded, with_type
from aggarray.formats.hdf5.metadata.data import Data, UnsupportedError, require
from aggarray.formats.hdf5.metadata.groups import attributes_of
from aggarray.formats.hdf5.metadata.headers import Header, header_at
from aggarray.formats.hdf5.metadata.heaps import GlobalHeap
from aggarray.formats.hdf5.metadata.types import CHARACTERS, OBJECTS, PLAIN, REFERENCES, TEXTS, USERS
from aggarray.formats.hdf5.metadata.values import text_at

#: Attributes that netCDF-4 and dimension scales use internally.
INTERNAL = frozenset(
    (
        *("_NCProperties", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict"),
        *("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"),
    )
)
#: Attributes of these types are returned, or ignored: references have no meaning outside the file.
_SHOWN, _SILENT = (PLAIN, CHARACTERS, TEXTS), (OBJECTS, REFERENCES, USERS)

_SCALE = b"DIMENSION_SCALE\0"
_PURE = b"This is a netCDF dimension but not a netCDF variable"


@dataclass(frozen=True, slots=True, eq=False)
class ObjectAttributes:
    """Attributes of an object, and the properties of dimensions that they define.

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


def attributes_at(data: Data, header: Header) -> ObjectAttributes:
    """Return the attributes of an object."""
    attributes = attributes_of(data, header)
    result = object_attributes(attributes)
    return object_attributes(tuple([_typed(data, a) for a in attributes])) if result.untyped else result


def _typed(data: Data, attribute: Attribute) -> Attribute:
    """Return an attribute with its committed datatype."""
    if attribute.committed is None:
        return attribute
    datatype = header_at(data, attribute.committed, lenient=True).datatype
    if datatype is None:
        raise UnsupportedError("missing datatype")
    return with_type(attribute, datatype)


@lru_cache(maxsize=4096)
def object_attributes(attributes: tuple[Attribute, ...]) -> ObjectAttributes:
    """Return the properties that attributes define; equal arguments share the result."""
    by_name = {a.name: a for a in attributes}
    others = [a for a in attributes if a.name not in INTERNAL]
    shown = [a for a in others if a.category in _SHOWN]
    left = tuple((a.name, a.type_name) for a in others if a.category not in _SHOWN and a.category not in _SILENT)
    scale = _is_scale(by_name.get("CLASS"))
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
        scale and _is_pure(by_name.get("NAME")),
        None if dimid is None else dimid[0],
        _integers(by_name.get("_Netcdf4Coordinates")),
        None if listed is None or listed.category != REFERENCES else listed.elements,
        () if users is None else users.users,
        stamp is not None and stamp.raw is not None and b",netcdf=" in stamp.raw,
        left,
        None if listed is None or listed.category != OBJECTS else listed.objects,
        any(a.committed is not None for a in attributes),
    )


def _is_scale(attribute: Attribute | None) -> bool:
    """Return whether the attribute CLASS marks a dimension scale; HDF5 requires exactly this text."""
    return attribute is not None and attribute.raw == _SCALE and attribute.terminated


def _is_pure(attribute: Attribute | None) -> bool:
    return attribute is not None and (attribute.raw or b"").startswith(_PURE)


def _integers(attribute: Attribute | None) -> tuple[int, ...] | None:
    """Return the numbers of an internal attribute of netCDF-4, None if it has another type."""
    if attribute is None or attribute.category != PLAIN or attribute.value.dtype.kind != "i":
        return None
    return tuple(int(n) for n in np.ravel(attribute.value))


def shown_attributes(attributes: ObjectAttributes, heap: GlobalHeap) -> Mapping[str, Any]:
    """Return the attributes that netCDF4 shows, in order; equal ones are the same object unless they hold lists."""
    if attributes.late:
        late = {a.name: _texts(a, heap) for a in attributes.late}
        return {name: late[name] if name in late else _copy_list(attributes.shown[name]) for name in attributes.order}
    if attributes.lists:
        return {name: _copy_list(value) for name, value in attributes.shown.items()}
    return attributes.shown


def _copy_list(value: Any) -> Any:
    """Return a copy of a list, and any other value itself."""
    return list(value) if type(value) is list else value


def _texts(attribute: Attribute, heap: GlobalHeap) -> Any:
    texts = [decoded(text_at(heap, *element)) for element in attribute.elements]
    return texts[0] if len(texts) == 1 else texts
