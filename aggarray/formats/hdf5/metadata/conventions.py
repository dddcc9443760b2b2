"""What do the attributes of an object say: to everybody, and in the conventions of netCDF-4?"""

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

#: What netCDF-4 and dimension scales note for themselves.
INTERNAL = frozenset(
    (
        *("_NCProperties", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict"),
        *("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"),
    )
)
#: Attributes of these types are shown. References lead to objects of the same file, and say nothing outside of it.
_SHOWN, _SILENT = (PLAIN, CHARACTERS, TEXTS), (OBJECTS, REFERENCES, USERS)

_SCALE = b"DIMENSION_SCALE\0"
_PURE = b"This is a netCDF dimension but not a netCDF variable"


@dataclass(frozen=True, slots=True, eq=False)
class ObjectAttributes:
    """What is known of an object by its attributes.

    ``shown``: the attributes that netCDF4 shows, those in ``late`` left out: their texts lie in the global heap of each file;
    ``lists``: there are lists in it; ``order``: the names of all.
    ``left``: (name, type) of those that are not shown; ``scale``: it is a dimension scale, ``pure`` one without a variable;
    ``number``: of its dimension; ``numbers``: of the dimensions of a variable; ``listed``: a list of scales per dimension,
    ``scales`` in files that name one address per dimension; ``users``: (address, dimension) of the datasets that have this
    scale; ``stamped``: netCDF-C wrote the file; ``untyped``: datatypes of attributes are yet to be looked up.
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
        """Whether ``shown`` is all there is, and may be handed out to everybody: nothing in it changes."""
        return not self.late and not self.lists


def attributes_at(data: Data, header: Header) -> ObjectAttributes:
    """Return what the attributes of an object say."""
    attributes = attributes_of(data, header)
    found = object_attributes(attributes)
    return object_attributes(tuple([_typed(data, a) for a in attributes])) if found.untyped else found


def _typed(data: Data, attribute: Attribute) -> Attribute:
    """Return an attribute with the datatype that is an object of its own."""
    if attribute.committed is None:
        return attribute
    datatype = header_at(data, attribute.committed, lenient=True).datatype
    if datatype is None:
        raise UnsupportedError("missing datatype")
    return with_type(attribute, datatype)


@lru_cache(maxsize=4096)
def object_attributes(attributes: tuple[Attribute, ...]) -> ObjectAttributes:
    """Return what these very attributes say."""
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
    """Tell whether an attribute says that its dataset is a dimension scale; HDF5 wants this very text."""
    return attribute is not None and attribute.raw == _SCALE and attribute.terminated


def _is_pure(attribute: Attribute | None) -> bool:
    return attribute is not None and (attribute.raw or b"").startswith(_PURE)


def _integers(attribute: Attribute | None) -> tuple[int, ...] | None:
    """Return the numbers of an attribute that netCDF-4 keeps for itself, None where it is another's."""
    if attribute is None or attribute.category != PLAIN or attribute.value.dtype.kind != "i":
        return None
    return tuple(int(n) for n in np.ravel(attribute.value))


def shown_attributes(facts: ObjectAttributes, heap: GlobalHeap) -> Mapping[str, Any]:
    """Return the attributes that netCDF4 shows, in order; equal ones are one object unless they hold lists."""
    if facts.late:
        late = {a.name: _texts(a, heap) for a in facts.late}
        return {name: late[name] if name in late else _own(facts.shown[name]) for name in facts.order}
    if facts.lists:
        return {name: _own(value) for name, value in facts.shown.items()}
    return facts.shown


def _own(value: Any) -> Any:
    """Return a value that may be changed without a change to others."""
    return list(value) if type(value) is list else value


def _texts(attribute: Attribute, heap: GlobalHeap) -> Any:
    texts = [decoded(text_at(heap, *element)) for element in attribute.elements]
    return texts[0] if len(texts) == 1 else texts
