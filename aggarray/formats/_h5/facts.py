"""What do the attributes of an object say: to everybody, and in the conventions of netCDF-4?"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from aggarray.formats._h5.attributes import Attribute, Element, decoded
from aggarray.formats._h5.data import UnmodelledError, modelled, require
from aggarray.formats._h5.heaps import GlobalHeap
from aggarray.formats._h5.types import CHARACTERS, PLAIN, REFERENCES, TEXTS, USERS
from aggarray.formats._h5.values import text_at
from aggarray.frozen import FrozenDict

#: What netCDF-4 and dimension scales note for themselves, and of what type.
_KINDS = {
    **{"CLASS": CHARACTERS, "NAME": CHARACTERS, "DIMENSION_LIST": REFERENCES, "REFERENCE_LIST": USERS},
    **{"_Netcdf4Dimid": PLAIN, "_Netcdf4Coordinates": PLAIN, "_NCProperties": CHARACTERS, "_nc3_strict": PLAIN},
}
#: Which of these are hidden depends on the version of netCDF-C.
_DOUBTFUL = {"_Format", "_IsNetcdf4", "_SuperblockVersion", "_ARRAY_DIMENSIONS", "_Codecs"}

_SCALE = b"DIMENSION_SCALE\0"
_PURE = b"This is a netCDF dimension but not a netCDF variable"


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What is known of an object by its attributes.

    ``shown``: the attributes that netCDF4 shows, those in ``late`` left out: their texts lie in the global heap of each file;
    ``lists``: there are lists in it; ``order``: the names of all.
    ``scale``: it is a dimension scale, ``pure`` one without a variable; ``number``: of its dimension; ``numbers``: of the
    dimensions of a variable; ``listed``: a list of scales per dimension; ``users``: (address, dimension) of the datasets that
    have this scale; ``stamped``: netCDF-C wrote the file.
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

    @property
    def shareable(self) -> bool:
        """Whether ``shown`` is all there is, and may be handed out to everybody: nothing in it changes."""
        return not self.late and not self.lists


@lru_cache(maxsize=4096)
def facts_of(attributes: tuple[Attribute, ...]) -> Facts:
    """Return what these very attributes say; UnmodelledError where netCDF4 might see them otherwise."""
    by_name = {a.name: a for a in attributes}
    shown = [a for a in attributes if a.name not in _KINDS]
    for attribute in shown:
        doubtful = attribute.name in _DOUBTFUL or attribute.name.lower().startswith("_nczarr")
        modelled(attribute.kind in (PLAIN, CHARACTERS, TEXTS) and not doubtful, f"attribute {attribute.name!r}")
    for name, kind in _KINDS.items():
        modelled(name not in by_name or by_name[name].kind == kind, f"attribute {name!r}")
    scale = _is_scale(by_name.get("CLASS"))
    listed = by_name.get("DIMENSION_LIST")
    coordinates = _integers(by_name.get("_Netcdf4Coordinates"))
    dimid = _integers(by_name.get("_Netcdf4Dimid"))
    require(dimid is None or len(dimid) == 1, "an odd number of a dimension")
    stamp = by_name.get("_NCProperties")
    return Facts(
        FrozenDict({a.name: a.value for a in shown if a.kind != TEXTS}),
        tuple(a for a in shown if a.kind == TEXTS),
        any(type(a.value) is list for a in shown),
        tuple(a.name for a in shown),
        scale,
        scale and _is_pure(by_name.get("NAME")),
        None if dimid is None else dimid[0],
        coordinates,
        None if listed is None else listed.elements,
        by_name["REFERENCE_LIST"].users if "REFERENCE_LIST" in by_name else (),
        stamp is not None and stamp.raw is not None and b",netcdf=" in stamp.raw,
    )


def _is_scale(attribute: Attribute | None) -> bool:
    if attribute is None:
        return False
    # Other classes (images, tables) are other conventions; HDF5 wants this very text.
    require(attribute.raw == _SCALE and attribute.terminated, "an odd class")
    return True


def _is_pure(attribute: Attribute | None) -> bool:
    if attribute is None:
        return False
    require(attribute.raw is not None, "an odd name of a scale")
    return (attribute.raw or b"").startswith(_PURE)


def _integers(attribute: Attribute | None) -> tuple[int, ...] | None:
    if attribute is None:
        return None
    value = attribute.value
    if attribute.kind != PLAIN or value.dtype.kind != "i":
        raise UnmodelledError("an odd number of a dimension")
    return tuple(int(n) for n in np.ravel(value))


def shown_attributes(facts: Facts, heap: GlobalHeap) -> Mapping[str, Any]:
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
