"""What is an array, seen as something to be joined? Its places, its coordinates, its signature.

A *place* is a dimension or a scalar coordinate: one file's scalar time is another file's time dimension. Places of
different arrays are matched by identity (standard_name, else name), so that dimension names and order may differ. The
*signature* lists what must be equal for arrays to be joined at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from aggarray.aggregate.rules import facet
from aggarray.arrays import MasterArray
from aggarray.arrays.lazy import bounds_names
from aggarray.cf.encoding import items_of
from aggarray.cf.units import canonical_units, comparable_units, conversion, is_reference_time, temperature_difference
from aggarray.formats.base import basename
from aggarray.formats.templates import is_decreasing, naming, text_attribute

Signature = dict[str, Any]
#: How the values of coordinates run, by their identity: (flipped, monotonic, largest) as in a `AxisCoordinate`.
Runs = dict[int, tuple[bool, bool, float]]

#: Rounding of float64, relative.
EPSILON = float(np.finfo(np.float64).eps)

#: Units that say what a coordinate is (CF sections 4.1 and 4.2).
EAST = ("degrees_east", "degree_east", "degree_E", "degrees_E", "degreeE", "degreesE")
NORTH = ("degrees_north", "degree_north", "degree_N", "degrees_N", "degreeN", "degreesN")

#: Attributes of which a grid mapping has at least one.
MAPPING = frozenset(("grid_mapping_name", "crs_wkt", "spatial_ref", "epsg_code"))

#: Attributes without which values mean something else (CF section 3.5).
FLAGS = ("flag_values", "flag_masks", "flag_meanings")


def identity_of(array: MasterArray) -> str:
    """Return what an array is: its standard_name, else its long_name, else its name; what names nothing is passed over."""
    attrs = array.attrs
    return _text(attrs.get("standard_name")) or _text(attrs.get("long_name")) or basename(array.name or "")


def _text(attribute: Any) -> str | None:
    """Return an attribute that names something, None where there is none or it says it does not know."""
    return naming(attribute) if isinstance(attribute, str) else None


def coordinate_identity(coordinate: MasterArray) -> str:
    """Return what a coordinate is: by standard_name, by units as CF identifies latitude and longitude (section 4), or by name.

    A coordinate variable that is a reference time is the time.
    """
    attrs = coordinate.attrs
    found = _text(attrs.get("grid_mapping_name")) or _text(attrs.get("standard_name"))
    if found:
        return found
    if coordinate.units in NORTH or coordinate.units in EAST:
        return "latitude" if coordinate.units in NORTH else "longitude"
    name = basename(coordinate.name or "")
    return "time" if coordinate.dimensions == (name,) and is_reference_time(coordinate.units) else name


def is_mapping(coordinate: MasterArray) -> bool:
    """Tell whether a variable is a grid mapping (CF section 5.6): its attributes count, not its value."""
    return not MAPPING.isdisjoint(coordinate.attrs)


@dataclass(slots=True)
class AxisCoordinate:
    """A dimension or scalar coordinate of an array: ``name`` as the array has it, ``scalar`` or not, its ``size``.

    ``flipped``: its values run downwards; ``monotonic``: they run one way; ``largest``: absolute, of its ends.
    """

    name: str
    scalar: bool
    size: int
    coordinate: MasterArray | None
    flipped: bool = False
    monotonic: bool = True
    largest: float = 0.0

    def values(self, units: str | None, calendar: str | None) -> np.ndarray:
        """Return the coordinate values, ascending where they are monotonic, in the units given."""
        if self.coordinate is None:
            return np.arange(self.size)
        values, mask = self.coordinate._values_and_mask()
        values = np.atleast_1d(values)
        if (self.coordinate.units, self.coordinate.calendar) != (units, calendar):
            own = self.coordinate._step
            change = conversion(own.units, own.calendar, units, calendar, own.temperature)
            values = values if change.identity else change(values, None if mask is None else np.atleast_1d(mask))
        return values[::-1] if self.flipped else values


def _place(name: str, size: int, coordinate: MasterArray | None, runs: Runs) -> AxisCoordinate:
    if coordinate is None:
        return AxisCoordinate(name, False, size, None)
    values, mask = coordinate._values_and_mask()
    scalar = not coordinate._matrix.dimensions
    if mask is not None and mask.any():
        return AxisCoordinate(name, scalar, size, coordinate, False, False)
    known = runs.get(id(values))
    if known is None:
        known = _run(values.reshape(1) if scalar else values)
        if coordinate._known is not None:  # values just read are soon gone, and their identity with them
            runs[id(values)] = known
    return AxisCoordinate(name, scalar, size, coordinate, *known)


def _run(values: np.ndarray) -> tuple[bool, bool, float]:
    """Return (flipped, monotonic, largest) of a Place."""
    largest = 0.0
    if len(values) and values.dtype.kind in "iuf":
        largest = max(abs(float(values[0])), abs(float(values[-1])))
    if len(values) < 2:
        return False, largest == largest, largest
    # What is not a number is neither above nor below its neighbour: such values do not run one way.
    if (values[1:] > values[:-1]).all():
        return False, True, largest
    flipped = is_decreasing(values)
    return flipped, flipped, largest


@dataclass(slots=True)
class Candidate:
    """One array on its way into a join.

    ``identities`` of its coordinates and ``bounds`` of those that have them, by name; ``places`` by identity; ``rank``: among
    versions of the same, the lowest serves; ``whole``: what a run was cut from.
    """

    array: MasterArray
    uri: str
    number: int
    identities: dict[str, str] = field(default_factory=dict)
    bounds: dict[str, str] = field(default_factory=dict)
    places: dict[str, AxisCoordinate] = field(default_factory=dict)
    signature: Signature = field(default_factory=dict)
    rank: int = 0
    whole: "Candidate | None" = None

    def place_names(self) -> dict[str, str]:
        """Return the identity of each dimension by its name in this array."""
        return {p.name: key for key, p in self.places.items() if not p.scalar}


def uri_of(array: MasterArray) -> str:
    """Return the lowest URI that an array refers to, "" in memory."""
    uris = array._matrix.references.uris
    return str(min(uris)) if len(uris) else ""


@dataclass(frozen=True, slots=True)
class Description:
    """What arrays alike have in common: identities and bounds of coordinates by name, the signature but for facets."""

    identities: dict[str, str]
    bounds: dict[str, str]
    signature: Signature


@dataclass(frozen=True, slots=True)
class CandidateCache:
    """What is known of arrays seen before, by the identity of what they share; valid as long as they are alive."""

    descriptions: dict[tuple[Any, ...], Description] = field(default_factory=dict)
    runs: Runs = field(default_factory=dict)


def candidate(array: MasterArray, number: int, separate_by: Sequence[str], seen: CandidateCache) -> Candidate:
    """Describe an array; ``number``: its place in the input; ``seen``: what is known so far, for many arrays alike.

    Raises FormatError for a coordinate that cannot be read.
    """
    kind = _kind(array)
    description = seen.descriptions.get(kind)
    if description is None:
        bounds = bounds_of(array)
        hung = set(bounds.values())
        identities = {n: basename(n) if n in hung else coordinate_identity(c) for n, c in array.coords.items()}
    else:
        identities, bounds = description.identities, description.bounds
    found = Candidate(array, uri_of(array), number, identities, bounds)
    _find_places(found, seen.runs)
    if description is None:
        description = seen.descriptions[kind] = Description(identities, bounds, _signature(found))
    found.signature = {**facets_in(array, separate_by), **description.signature}
    return found


def _kind(array: MasterArray) -> tuple[Any, ...]:
    """Return what decides about identities, bounds and signature; attributes by the object, which files alike share."""
    coords = [(n, id(c.attrs), c.units, c.calendar, c.dtype.kind, c._matrix.dimensions) for n, c in array.coords.items()]
    own = (array.name, array.dtype.kind, array.units, array.calendar, id(array.attrs), array._matrix.dimensions)
    return *own, *coords


def _find_places(found: Candidate, runs: Runs) -> None:
    array, hung = found.array, found.bounds.values()
    measures = _measures(array)
    along = [_coordinate_along(name, array) for name in array.dimensions]
    keys = [name if c is None else coordinate_identity(c) for name, c in zip(array.dimensions, along, strict=True)]
    for name, size, coordinate, key in zip(array.dimensions, array.shape, along, keys, strict=True):
        # Of several with one identity, whatever their order, each is known by its name.
        own = key if keys.count(key) == 1 else name
        found.places[own if own not in found.places else f"dimension {name}"] = _place(name, size, coordinate, runs)
    for name, coordinate in array.coords.items():
        if not coordinate._matrix.dimensions and not is_mapping(coordinate) and name not in measures and name not in hung:
            found.places.setdefault(found.identities[name], _place(name, 1, coordinate, runs))


def _coordinate_along(dimension: str, array: MasterArray) -> MasterArray | None:
    """Return the coordinate that says where a dimension lies.

    That is its coordinate variable; one without units or standard_name says nothing, so that a time among the auxiliary
    coordinates of the dimension goes before it (NEMO's ``time_counter`` is a mere 0 in every file).
    """
    own = array.coords.get(dimension)
    if own is not None and own.dimensions == (dimension,) and (own.units or "standard_name" in own.attrs):
        return own
    times = [c for c in array.coords.values() if c.dimensions == (dimension,) and is_reference_time(c.units)]
    named = [c for c in times if text_attribute(c.attrs.get("standard_name")) == "time"] or times
    if named:
        return named[0]
    return own if own is not None and own.dimensions == (dimension,) else None


def _measures(array: MasterArray) -> set[str]:
    """Names of coordinates that are cell measures or grid mappings."""
    stated = f"{array.attrs.get('cell_measures', '')} {array.attrs.get('grid_mapping', '')}".split()
    return {basename(word.rstrip(":")) for word in stated}


def _signature(found: Candidate) -> Signature:
    """Return what must be equal for arrays to be joined, but for the facets."""
    array = found.array
    names = found.place_names()
    signature: Signature = {"group": (array.name or "").rpartition("/")[0]}
    signature["kind of data"] = "number" if array.dtype.kind in "iufcb" else array.dtype.kind
    signature["units"] = quantity_of(array)
    signature["cell_methods"] = _cell_methods(array, names)
    signature.update({f"attribute {k}": plain_attribute(array.attrs[k]) for k in FLAGS if k in array.attrs})
    signature["dimensions"] = tuple(sorted(found.places))
    hung = set(found.bounds.values())
    held = [n for n in array.coords if n not in hung]
    signature["coordinates"] = tuple(sorted(found.identities[n] for n in held))
    for name in held:
        coordinate = array.coords[name]
        if is_mapping(coordinate):
            signature.update(
                {
                    f"grid mapping {k}": plain_attribute(v)
                    for k, v in coordinate.attrs.items()
                    if k not in ("long_name", "comment", "history")
                }
            )
            continue
        # Scalar and 1-d coordinates are alike: one file's scalar time is another's time dimension.
        dimensions = coordinate.dimensions
        spans = sorted(names.get(d, d) for d in dimensions) if len(dimensions) > 1 else []
        kind = "numbers" if coordinate.dtype.kind in "iufcb" else "text"
        bounded = "bounds" if name in found.bounds else "no bounds"
        described = (kind, quantity_of(coordinate), tuple(spans), bounded)
        signature[f"coordinate {found.identities[name]}"] = described
    return signature


def facets_in(array: MasterArray, separate_by: Sequence[str]) -> Signature:
    """Return the facets that an array has, from its file's attributes or else its own."""
    own, file = array.attrs, array.file_attrs
    return {name: facet(file if name in file else own, name) for name in separate_by if name in file or name in own}


def quantity_of(array: MasterArray) -> str:
    """Return a text that is equal for arrays whose values convert into each other."""
    return _quantity(array.units, array.calendar, array._step.temperature)


@lru_cache(maxsize=4096)
def _quantity(units: str | None, calendar: str | None, temperature: str | None) -> str:
    """Return how `units.comparable` spells a quantity; few are met, each in many files."""
    return comparable_units(units, calendar, temperature)


def _cell_methods(array: MasterArray, names: Mapping[str, str]) -> str:
    """Return the cell methods (CF section 7.3), dimensions by identity: their names may differ from file to file."""
    found = str(array.attrs.get("cell_methods", "")).split()
    return " ".join(f"{names.get(w[:-1], w[:-1])}:" if w.endswith(":") else w for w in found)


def plain_attribute(value: Any) -> str:
    """Return an attribute as text that is equal where the attribute is."""
    return " ".join(value.split()) if isinstance(value, str) else repr(items_of(value).tolist())


def bounds_of(array: MasterArray) -> dict[str, str]:
    """Return the name of the bounds of each coordinate that has them here."""
    return {name: bounds for name, one in array.coords.items() for bounds in bounds_names(one) if bounds in array.coords}


def describe_difference(one: Candidate, other: Candidate) -> tuple[str, str]:
    """Return (rule, reason) for the first difference of two signatures, both values in the words of the files."""
    for key in dict.fromkeys([*one.signature, *other.signature]):
        a, b = one.signature.get(key), other.signature.get(key)
        if a == b:
            continue
        if key in ("dimensions", "coordinates"):
            return key, f"{key} differ: {_only(a, b)} and {_only(b, a)}"
        if key == "units":
            return key, f"units differ: {units_apart(one.array, other.array)}"
        if key.startswith("coordinate "):
            return "coordinate", f"{key} differs: {_coordinate_difference(key, one, other)}"
        coordinate, _, part = key.rpartition(": ")
        if part == "units":
            return "coordinate", f"{key} differ: {units_apart(one.array.coords[coordinate], other.array.coords[coordinate])}"
        if coordinate:
            return "coordinate", f"{key} {'differ' if part.endswith('s') else 'differs'}: {_shown(a)} and {_shown(b)}"
        rule = "grid_mapping" if key.startswith("grid mapping ") else key.removeprefix("attribute ").replace(" ", "_")
        return rule, f"{key} differs: {_shown(a)} and {_shown(b)}"
    return "name", f"names differ: {one.array.name!r} and {other.array.name!r}, of which one file has both"


def _coordinate_difference(key: str, one: Candidate, other: Candidate) -> str:
    """Say in which part of its description a coordinate of two arrays differs."""
    parts = zip(one.signature[key], other.signature[key], strict=True)
    number, (a, b) = next((n, pair) for n, pair in enumerate(parts) if pair[0] != pair[1])
    if number != 1:
        return f"{_shown(a)} and {_shown(b)}"
    identity = key.removeprefix("coordinate ")
    found = [next(x.array.coords[n] for n, i in x.identities.items() if i == identity) for x in (one, other)]
    return units_apart(*found)


def units_apart(*arrays: MasterArray) -> str:
    """Say that units do not convert, with the calendars that they have; of temperatures, which kind each is (CF 3.1.2)."""
    if len({canonical_units(a.units, a.calendar) for a in arrays}) == 1:
        told = " and ".join(f"{a.units!r} ({temperature_difference(a.units, a.attrs)})" for a in arrays)
        return f"{told}, which do not convert (CF 3.1.2); state units_metadata in both"
    texts = [f"{a.units!r}" + (f" of calendar {a.calendar!r}" if a.calendar else "") for a in arrays]
    return f"{' and '.join(texts)} do not convert"


def _only(these: Any, those: Any) -> str:
    extra = [t for t in these or () if t not in (those or ())]
    return f"{', '.join(map(repr, extra)) or 'nothing more'}"


def _shown(value: Any) -> str:
    return repr(" ".join(value)) if isinstance(value, tuple) else repr(value)
