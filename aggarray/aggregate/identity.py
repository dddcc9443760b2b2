"""Identities of arrays and coordinates; the lowest URI of an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aggarray.cf.attributes import basename, normal_name
from aggarray.cf.units import is_reference_time

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

#: Units that identify longitude and latitude (CF sections 4.1 and 4.2).
EAST = ("degrees_east", "degree_east", "degree_E", "degrees_E", "degreeE", "degreesE")
NORTH = ("degrees_north", "degree_north", "degree_N", "degrees_N", "degreeN", "degreesN")

#: Attributes of grid mappings; each grid mapping has at least one.
MAPPING = frozenset(("grid_mapping_name", "crs_wkt", "spatial_ref", "epsg_code"))


def identity_of(array: MasterArray) -> str:
    """Return the standard_name, long_name or name, the first meaningful one."""
    attrs = array.attrs
    return _text(attrs.get("standard_name")) or _text(attrs.get("long_name")) or basename(array.name or "")


def _text(attribute: Any) -> str | None:
    """Return an attribute that names something, None for any other."""
    return normal_name(attribute) if isinstance(attribute, str) else None


def coordinate_identity(coordinate: MasterArray) -> str:
    """Return the identity of a coordinate.

    This is its grid_mapping_name or standard_name, else "latitude" or "longitude" by its units (CF section 4), else its name. A
    coordinate variable that is a reference time has the identity "time".
    """
    attrs = coordinate.attrs
    standard_name = _text(attrs.get("grid_mapping_name")) or _text(attrs.get("standard_name"))
    if standard_name:
        return standard_name
    if coordinate.units in NORTH or coordinate.units in EAST:
        return "latitude" if coordinate.units in NORTH else "longitude"
    name = basename(coordinate.name or "")
    return "time" if coordinate.dimensions == (name,) and is_reference_time(coordinate.units) else name


def is_mapping(coordinate: MasterArray) -> bool:
    """Return whether a variable is a grid mapping (CF section 5.6)."""
    return not MAPPING.isdisjoint(coordinate.attrs)


def uri_of(array: MasterArray) -> str:
    """Return the lowest URI that an array refers to, "" in memory."""
    uris = array._matrix.references.uris
    least = getattr(uris, "least", None)  # of an index, in columns
    return str(least() if least is not None else min(uris)) if len(uris) else ""
