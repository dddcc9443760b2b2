"""What is an array, seen as something to be joined? Its places, its coordinates, its signature.

A *place* is a dimension or a scalar coordinate: one file's scalar time is another file's time dimension. Places of
different arrays are matched by identity (standard_name, else name), so that dimension names and order may differ. The
*signature* lists what must be equal for arrays to be joined at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from aggarray.aggregate.rules import facet
from aggarray.formats.base import basename
from aggarray.master import MasterArray
from aggarray.scan import is_decreasing
from aggarray.table import Matrix
from aggarray.tiling import expand, relabel, rename, reverse, transpose
from aggarray.units import canonical, conversion, is_reference_time

Signature = dict[str, Any]


def identity_of(array: MasterArray) -> str:
    """Return what an array is: its standard_name, else its long_name, else its name."""
    for key in ("standard_name", "long_name"):
        found = array.attrs.get(key)
        if isinstance(found, str) and found.strip():
            return " ".join(found.split())
    return basename(array.name or "")


@dataclass(slots=True)
class Place:
    """A dimension or scalar coordinate of an array: ``name`` as the array has it, ``scalar`` or not, its ``size``."""

    name: str
    scalar: bool
    size: int
    coordinate: MasterArray | None
    flipped: bool = False
    monotonic: bool = True

    def values(self, units: str | None, calendar: str | None) -> np.ndarray:
        """Return the coordinate values, ascending where they are monotonic, in the units given."""
        if self.coordinate is None:
            return np.arange(self.size)
        values, mask = self.coordinate._values_and_mask()
        values = np.atleast_1d(values)
        change = conversion(self.coordinate.units, self.coordinate.calendar, units, calendar)
        values = values if change.identity else change(values, None if mask is None else np.atleast_1d(mask))
        return values[::-1] if self.flipped else values


def _place(name: str, size: int, coordinate: MasterArray | None) -> Place:
    scalar = coordinate is not None and coordinate.ndim == 0
    if coordinate is None:
        return Place(name, False, size, None)
    values, mask = coordinate._values_and_mask()
    values = np.atleast_1d(values)
    if (mask is not None and mask.any()) or (values.dtype.kind == "f" and bool(np.isnan(values).any())):
        return Place(name, scalar, size, coordinate, False, False)
    flipped = is_decreasing(values)
    ordered = values[::-1] if flipped else values
    return Place(name, scalar, size, coordinate, flipped, bool((ordered[1:] > ordered[:-1]).all()))


@dataclass(slots=True)
class Candidate:
    """One array on its way into a join."""

    array: MasterArray
    uri: str
    number: int
    places: dict[str, Place] = field(default_factory=dict)
    signature: Signature = field(default_factory=dict)

    def place_names(self) -> dict[str, str]:
        """Return the identity of each dimension by its name in this array."""
        return {p.name: key for key, p in self.places.items() if not p.scalar}


def candidate(array: MasterArray, number: int, separate_by: Sequence[str]) -> Candidate:
    """Describe an array; ``number``: its place in the input."""
    uris = array._matrix.references.uris
    found = Candidate(array, str(min(uris)) if len(uris) else "", number)
    for name, size in zip(array.dimensions, array.shape, strict=True):
        coordinate = _coordinate_along(name, array)
        key = identity_of(coordinate) if coordinate is not None else name
        found.places[key if key not in found.places else name] = _place(name, size, coordinate)
    for name, coordinate in array.coords.items():
        if coordinate.ndim == 0 and "grid_mapping_name" not in coordinate.attrs and name not in _measures(array):
            key = identity_of(coordinate)
            found.places.setdefault(key, _place(name, 1, coordinate))
    found.signature = _signature(found, separate_by)
    return found


def _coordinate_along(dimension: str, array: MasterArray) -> MasterArray | None:
    """Return the coordinate that says where a dimension lies.

    That is its coordinate variable; one without units or standard_name says nothing, so that a time among the auxiliary
    coordinates of the dimension goes before it (NEMO's ``time_counter`` is a mere 0 in every file).
    """
    own = array.coords.get(dimension)
    if own is not None and own.dimensions == (dimension,) and (own.units or "standard_name" in own.attrs):
        return own
    times = [c for c in array.coords.values() if c.dimensions == (dimension,) and is_reference_time(c.units)]
    named = [c for c in times if c.attrs.get("standard_name") == "time"] or times
    if named:
        return named[0]
    return own if own is not None and own.dimensions == (dimension,) else None


def _measures(array: MasterArray) -> set[str]:
    """Names of coordinates that are cell measures or grid mappings."""
    stated = f"{array.attrs.get('cell_measures', '')} {array.attrs.get('grid_mapping', '')}".split()
    return {basename(word.rstrip(":")) for word in stated}


def _signature(found: Candidate, separate_by: Sequence[str]) -> Signature:
    array = found.array
    names = found.place_names()
    bounds = bounds_of(array)
    signature: Signature = {name: facet(array.file_attrs, name) for name in separate_by}
    signature["kind of data"] = "number" if array.dtype.kind in "iufcb" else array.dtype.kind
    signature["units"] = canonical(array.units, array.calendar)
    signature["cell_methods"] = " ".join(str(array.attrs.get("cell_methods", "")).split())
    signature["dimensions"] = tuple(sorted(found.places))
    held = {n: c for n, c in array.coords.items() if n not in bounds.values()}
    signature["coordinates"] = tuple(sorted(identity_of(c) for c in held.values()))
    for name, coordinate in held.items():
        # Scalar and 1-d coordinates are alike: one file's scalar time is another's time dimension.
        spans = sorted(names.get(d, d) for d in coordinate.dimensions) if coordinate.ndim > 1 else []
        described = (canonical(coordinate.units, coordinate.calendar), tuple(spans), "bounds" if name in bounds else "no bounds")
        signature[f"coordinate {identity_of(coordinate)}"] = described
        if "grid_mapping_name" in coordinate.attrs:
            for parameter, value in coordinate.attrs.items():
                if parameter not in ("long_name", "comment", "history"):
                    signature[f"grid mapping {parameter}"] = repr(np.asarray(value).tolist())
    return signature


def bounds_of(array: MasterArray) -> dict[str, str]:
    """Return the name of the bounds of each coordinate that has them here."""
    stated = {n: c.attrs.get("bounds", c.attrs.get("climatology")) for n, c in array.coords.items()}
    return {n: basename(b) for n, b in stated.items() if isinstance(b, str) and basename(b) in array.coords}


def describe_difference(one: Candidate, other: Candidate) -> tuple[str, str]:
    """Return (rule, reason) for the first difference of two signatures, both values in the words of the files."""
    for key in dict.fromkeys([*one.signature, *other.signature]):
        a, b = one.signature.get(key), other.signature.get(key)
        if a == b:
            continue
        if key in ("dimensions", "coordinates"):
            return key, f"{key} differ: {_only(a, b)} and {_only(b, a)}"
        if key == "units":
            return key, f"units differ: {one.array.units!r} and {other.array.units!r} do not convert"
        rule = key if " " not in key else key.rpartition(" ")[0] if key.startswith("coordinate ") else "grid_mapping"
        return rule.replace(" ", "_"), f"{key} differs: {_shown(a)} and {_shown(b)}"
    return "name", f"names differ: {one.array.name!r} and {other.array.name!r}, of which one file has both"


def _only(these: Any, those: Any) -> str:
    extra = [t for t in these or () if t not in (those or ())]
    return f"{', '.join(map(repr, extra)) or 'nothing more'}"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return repr(" ".join(" ".join(v) if isinstance(v, tuple) else v for v in value if v))
    return repr(value)


def oriented(found: Candidate, names: Mapping[str, str], order: Sequence[str], turned: Mapping[str, bool], array: MasterArray | None = None) -> MasterArray:
    """Return an array (or a coordinate of it) under the names, order and directions of a master.

    ``names``: {own dimension: master's}; ``order``: the master's dimensions, of which those that the array lacks are
    inserted; ``turned``: {master dimension: wanted to run upwards}, others stay as they are.
    """
    item = found.array if array is None else array
    matrix, known = rename(item._matrix, names), item._known
    by_name = {names.get(p.name, p.name): p for p in found.places.values()}
    for name in order:
        place = by_name.get(name)
        if place is not None and name in turned and name in matrix.dimensions:
            matrix, known = _turn(matrix, known, name, turned[name], place)
    for name in reversed(order):
        if name not in matrix.dimensions:
            matrix = expand(matrix, name)
            known = known and tuple(None if k is None else k[np.newaxis] for k in known)  # type: ignore[assignment]
    wanted = [matrix.axis(d) for d in order]
    known = known and tuple(None if k is None else k.transpose(wanted) for k in known)  # type: ignore[assignment]
    return replace(item, _matrix=transpose(matrix, wanted), _known=known)


def unplaced_names(found: Candidate, coordinate: MasterArray, wanted: Sequence[str]) -> dict[str, str]:
    """Match dimensions that only a coordinate has, such as the vertices of bounds, to the last ones ``wanted``."""
    places = {p.name for p in found.places.values()}
    extra = [d for d in coordinate.dimensions if d not in places]
    return dict(zip(extra, wanted[max(0, len(wanted) - len(extra)) :], strict=False))


def _turn(matrix: Matrix, known: Any, name: str, upwards: bool, place: Place) -> tuple[Matrix, Any]:
    """Make a dimension run as wanted; the label of its direction is put right where the coordinate says otherwise."""
    axis = matrix.axis(name)
    if upwards == place.flipped and place.size > 1:
        matrix = reverse(matrix, axis)
        index = (*(slice(None),) * axis, slice(None, None, -1))
        known = known and tuple(None if k is None else k[index] for k in known)
    return (matrix if matrix.directions[axis] == upwards else relabel(matrix, axis)), known
