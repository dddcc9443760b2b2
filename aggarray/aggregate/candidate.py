"""Candidates: arrays with their axes, coordinates and signatures.

An *axis* is a dimension or a scalar coordinate: one file's scalar time is another file's time dimension. Axes of
different arrays are matched by identity (standard_name, else name), so that dimension names and order may differ. The
*signature* lists the properties that must be equal in arrays that are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.aggregate.identity import coordinate_identity, is_mapping
from aggarray.aggregate.rules import FACETS, IMPLIED_BY, facets_in
from aggarray.arrays.lazy import bounds_names
from aggarray.cf.attributes import basename, text_attribute
from aggarray.cf.encoding import items_of
from aggarray.cf.units import is_reference_time
from aggarray.cf.units.temperature import temperature_difference
from aggarray.dataclass import dataclass, field
from aggarray.formats.templates import is_decreasing

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

Signature = dict[str, Any]
#: (flipped, monotonic, largest) of coordinate values, as in an `AxisCoordinate`, by their id.
Runs = dict[int, tuple[bool, bool, float]]

#: Relative rounding error of float64.
EPSILON = float(np.finfo(np.float64).eps)

#: Attributes that change the meaning of values (CF section 3.5).
FLAGS = ("flag_values", "flag_masks", "flag_meanings")


@lru_cache(maxsize=4096)
def _quantity(units: str | None, calendar: str | None, temperature: str | None) -> str:
    from aggarray.cf.units.compatibility import comparable_units

    return comparable_units(units, calendar, temperature)


@dataclass(slots=True)
class AxisCoordinate:
    """A dimension or scalar coordinate of an array, with its coordinate.

    ``name``: in the array; ``flipped``: the values decrease; ``monotonic``: they increase or decrease throughout;
    ``largest``: the larger absolute value of both ends.
    """

    name: str
    scalar: bool
    size: int
    coordinate: MasterArray | None
    flipped: bool = False
    monotonic: bool = True
    largest: float = 0.0

    def values(self, units: str | None, calendar: str | None) -> np.ndarray:
        """Return values, ascending if monotonic; positions without a coordinate."""
        if self.coordinate is None:
            return np.arange(self.size)
        values, mask = self.coordinate._values_and_mask()
        values = np.atleast_1d(values)
        if (self.coordinate.units, self.coordinate.calendar) != (units, calendar):
            own = self.coordinate._step
            from aggarray.cf.units.compatibility import conversion

            converter = conversion(own.units, own.calendar, units, calendar, own.temperature)
            values = values if converter.identity else converter(values, None if mask is None else np.atleast_1d(mask))
        return values[::-1] if self.flipped else values


def _make_axis(name: str, size: int, coordinate: MasterArray | None, runs: Runs) -> AxisCoordinate:
    if coordinate is None:
        return AxisCoordinate(name, False, size, None)
    values, mask = coordinate._values_and_mask()
    scalar = not coordinate._matrix.dimensions
    if mask is not None and mask.any():
        return AxisCoordinate(name, scalar, size, coordinate, False, False)
    monotonicity = runs.get(id(values))
    if monotonicity is None:
        monotonicity = _monotonicity(values.reshape(1) if scalar else values)
        if coordinate._known is not None:  # values just read are not kept, so that their id is reused
            runs[id(values)] = monotonicity
    return AxisCoordinate(name, scalar, size, coordinate, *monotonicity)


def _monotonicity(values: np.ndarray) -> tuple[bool, bool, float]:
    """Return (flipped, monotonic, largest) of an `AxisCoordinate`."""
    largest = 0.0
    if len(values) and values.dtype.kind in "iuf":
        largest = max(abs(float(values[0])), abs(float(values[-1])))
    if len(values) < 2:
        return False, largest == largest, largest
    # NaN is neither above nor below its neighbour: such values are not monotonic.
    if (values[1:] > values[:-1]).all():
        return False, True, largest
    flipped = is_decreasing(values)
    return flipped, flipped, largest


@dataclass(slots=True)
class Candidate:
    """An array that may be joined with others.

    ``identities`` of its coordinates and ``bounds`` of those that have them, by name; ``axes``: its axes by identity;
    ``rank``: among versions of the same data, the lowest serves; ``cut_from``: the candidate that a run was cut from;
    ``members``: returns the candidates of the files of a series, which `array` joins.
    """

    array: MasterArray
    uri: str
    number: int
    identities: dict[str, str] = field(default_factory=dict)
    bounds: dict[str, str] = field(default_factory=dict)
    axes: dict[str, AxisCoordinate] = field(default_factory=dict)
    signature: Signature = field(default_factory=dict)
    rank: int = 0
    cut_from: Candidate | None = None
    members: Callable[[], list[Candidate]] | None = None

    @property
    def order(self) -> tuple[str, int]:
        """First file and position in the input, by which results are ordered."""
        return self.uri, self.number

    def dimension_keys(self) -> dict[str, str]:
        """Return the identity of each dimension by its name in this array."""
        return {p.name: key for key, p in self.axes.items() if not p.scalar}


@dataclass(frozen=True, slots=True)
class Description:
    """Identities, bounds and facetless signature that equal arrays share."""

    identities: dict[str, str]
    bounds: dict[str, str]
    signature: Signature


@dataclass(frozen=True, slots=True)
class CandidateCache:
    """Descriptions by the ids of shared objects, valid while these exist."""

    descriptions: dict[tuple[Any, ...], Description] = field(default_factory=dict)
    runs: Runs = field(default_factory=dict)


def describe(candidate: Candidate, separate_by: Sequence[str], cache: CandidateCache) -> None:
    """Describe a candidate; raise FormatError for an unreadable coordinate."""
    array = candidate.array
    # Attributes count by object, which equal files share.
    coords = [(n, id(c.attrs), c.units, c.calendar, c.dtype.kind, c._matrix.dimensions) for n, c in array.coords.items()]
    key = (array.name, array.dtype.kind, array.units, array.calendar, id(array.attrs), array._matrix.dimensions, *coords)
    description = cache.descriptions.get(key)
    if description is None:
        bounds = {name: own for name, one in array.coords.items() for own in bounds_names(one) if own in array.coords}
        names = set(bounds.values())
        identities = {n: basename(n) if n in names else coordinate_identity(c) for n, c in array.coords.items()}
    else:
        identities, bounds = description.identities, description.bounds
    candidate.identities, candidate.bounds = identities, bounds
    _find_axes(candidate, cache.runs)
    if description is None:
        description = cache.descriptions[key] = Description(identities, bounds, _signature(candidate))
    candidate.signature = {**facets_in(array, separate_by), **description.signature}


def _find_axes(candidate: Candidate, runs: Runs) -> None:
    array = candidate.array
    words = f"{array.attrs.get('cell_measures', '')} {array.attrs.get('grid_mapping', '')}".split()
    no_axes = {basename(word.rstrip(":")) for word in words}.union(candidate.bounds.values())
    along = [coordinate_along(name, array) for name in array.dimensions]
    keys = [name if c is None else coordinate_identity(c) for name, c in zip(array.dimensions, along, strict=True)]
    for name, size, coordinate, key in zip(array.dimensions, array.shape, along, keys, strict=True):
        # Several dimensions of one identity are distinguished by name, independent of their order.
        own = key if keys.count(key) == 1 else name
        candidate.axes[own if own not in candidate.axes else f"dimension {name}"] = _make_axis(name, size, coordinate, runs)
    for name, coordinate in array.coords.items():
        if not coordinate._matrix.dimensions and not is_mapping(coordinate) and name not in no_axes:
            candidate.axes.setdefault(candidate.identities[name], _make_axis(name, 1, coordinate, runs))


def coordinate_along(dimension: str, array: MasterArray) -> MasterArray | None:
    """Return the coordinate that gives the positions along a dimension.

    This is its coordinate variable, unless that has neither units nor standard_name and the dimension has an auxiliary time
    coordinate (NEMO's ``time_counter`` is 0 in every file).
    """
    own = array.coords.get(dimension)
    if own is not None and own.dimensions != (dimension,):
        own = None
    if own is not None and (own.units or "standard_name" in own.attrs):
        return own
    times = [c for c in array.coords.values() if c.dimensions == (dimension,) and is_reference_time(c.units)]
    named = [c for c in times if text_attribute(c.attrs.get("standard_name")) == "time"] or times
    return named[0] if named else own


def _signature(candidate: Candidate) -> Signature:
    """Return the properties that joined arrays share, without the facets."""
    array = candidate.array
    names = candidate.dimension_keys()
    signature: Signature = {"group": (array.name or "").rpartition("/")[0], **describe_values(array)}
    # Dimensions by identity: their names may differ between files.
    methods = str(array.attrs.get("cell_methods", "")).split()
    methods = [f"{names.get(w[:-1], w[:-1])}:" if w.endswith(":") else w for w in methods]
    signature["cell_methods"] = " ".join(methods)
    signature["dimensions"] = tuple(sorted(candidate.axes))
    bounds_names = set(candidate.bounds.values())
    names_without_bounds = [n for n in array.coords if n not in bounds_names]
    signature["coordinates"] = tuple(sorted(candidate.identities[n] for n in names_without_bounds))
    coordinates: dict[str, list[tuple[Any, ...]]] = {}
    for name in names_without_bounds:
        coordinate = array.coords[name]
        if is_mapping(coordinate):
            parameters = {k: v for k, v in coordinate.attrs.items() if k not in ("long_name", "comment", "history")}
            signature |= {f"grid mapping {k}": plain_attribute(v) for k, v in parameters.items()}
            continue
        # Scalar and 1-d coordinates are equivalent: one file's scalar time is another's time dimension.
        dimensions = coordinate.dimensions
        spans = sorted(names.get(d, d) for d in dimensions) if len(dimensions) > 1 else []
        data_kind = "numbers" if coordinate.dtype.kind in "iufcb" else "text"
        bounded = "bounds" if name in candidate.bounds else "no bounds"
        described = (data_kind, quantity_of(coordinate), tuple(spans), bounded)
        coordinates.setdefault(candidate.identities[name], []).append(described)
    # Several coordinates of one identity are described together.
    for identity, each in coordinates.items():
        signature[f"coordinate {identity}"] = each[0] if len(each) == 1 else tuple(zip(*sorted(each), strict=True))
    return signature


def describe_values(array: MasterArray, prefix: str = "") -> Signature:
    """Return the signature entries of values: kind, units, flags."""
    return {
        f"{prefix}kind of data": "number" if array.dtype.kind in "iufcb" else array.dtype.kind,
        f"{prefix}units": quantity_of(array),
        **{f"{prefix}attribute {k}": plain_attribute(array.attrs[k]) for k in FLAGS if k in array.attrs},
    }


def quantity_of(array: MasterArray) -> str:
    """Return a text that is equal for arrays whose values are convertible."""
    return _quantity(array.units, array.calendar, array._step.temperature)


def plain_attribute(value: Any) -> str:
    """Return an attribute as text; equal attributes give equal texts."""
    return " ".join(value.split()) if isinstance(value, str) else repr(items_of(value).tolist())


def describe_difference(one: Candidate, other: Candidate) -> tuple[str, str]:
    """Return (rule, reason) for the first difference of two signatures."""
    keys = dict.fromkeys([*one.signature, *other.signature])
    # Among facets, those that others imply are last: the model differs rather than the institution.
    for key in sorted(keys, key=lambda key: 2 if key not in FACETS else key in IMPLIED_BY):
        a, b = one.signature.get(key), other.signature.get(key)
        if a == b:
            continue
        if key in ("dimensions", "coordinates"):
            return key, f"{key} differ: {_unshared(a, b)} and {_unshared(b, a)}"
        if key == "units":
            return key, f"units differ: {describe_units(one.array, other.array)}"
        if key.startswith("coordinate "):
            number, (x, y) = next((n, pair) for n, pair in enumerate(zip(a or (), b or (), strict=True)) if pair[0] != pair[1])
            text = f"{_shown(x)} and {_shown(y)}"
            if number == 1 and isinstance(x, str):
                own = (next(n for n, i in c.identities.items() if f"coordinate {i}" == key) for c in (one, other))
                text = describe_units(*(c.array.coords[n] for c, n in zip((one, other), own, strict=True)))
            return "coordinate", f"{key} differs: {text}"
        coordinate, _, part = key.rpartition(": ")
        if part == "units":
            return "coordinate", f"{key} differ: {describe_units(*(c.array.coords[coordinate] for c in (one, other)))}"
        if coordinate:
            return "coordinate", f"{key} {'differ' if part.endswith('s') else 'differs'}: {_shown(a)} and {_shown(b)}"
        rule = "grid_mapping" if key.startswith("grid mapping ") else key.removeprefix("attribute ").replace(" ", "_")
        return rule, f"{key} differs: {_shown(a)} and {_shown(b)}"
    return "name", f"names differ: {one.array.name!r} and {other.array.name!r}, and one file has both"


def describe_units(*arrays: MasterArray) -> str:
    """Describe units that do not convert: calendars, temperatures (CF 3.1.2)."""
    from aggarray.cf.units.compatibility import canonical_units

    if len({canonical_units(a.units, a.calendar) for a in arrays}) == 1:
        kinds = " and ".join(f"{a.units!r} ({temperature_difference(a.units, a.attrs)})" for a in arrays)
        return f"{kinds}, which do not convert (CF 3.1.2); state units_metadata in both"
    texts = [f"{a.units!r}" + (f" of calendar {a.calendar!r}" if a.calendar else "") for a in arrays]
    return f"{' and '.join(texts)} do not convert"


def _unshared(these: Any, those: Any) -> str:
    return ", ".join(repr(t) for t in these or () if t not in (those or ())) or "no others"


def _shown(value: Any) -> str:
    return repr(" ".join([_shown(v)[1:-1] for v in value])) if isinstance(value, tuple) else repr(value)
