"""Comparison of coordinates of two arrays.

Coordinates are compared after conforming names, dimension order, directions, units and calendar, within a tolerance that
scales with their spacing plus the rounding of the coarser dtype.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from aggarray.aggregate.candidate import EPSILON, AxisCoordinate, Candidate
from aggarray.aggregate.identity import EAST, NORTH, is_mapping
from aggarray.aggregate.orientation import oriented, unmatched_names
from aggarray.aggregate.positions import tolerance_of
from aggarray.arrays.master import MasterArray
from aggarray.cf.attributes import text_attribute
from aggarray.cf.units import is_reference_time
from aggarray.cf.units.compatibility import conversion, conversion_between
from aggarray.errors import AggarrayError

Units = tuple[str | None, str | None]


def reference_units(axes: Iterable[AxisCoordinate]) -> Units:
    """Return units and calendar of the first axis that has a coordinate."""
    for axis in axes:
        if axis.coordinate is not None:
            return axis.coordinate.units, axis.coordinate.calendar
    return None, None


def roundings(axes: Sequence[AxisCoordinate], units: Units) -> list[float]:
    """Return the rounding error of each axis in ``units``, a power of two."""
    largest: dict[tuple[str | None, str | None, Any] | None, float] = {None: 0.0}
    keys = []
    for axis in axes:
        key = None
        if axis.coordinate is not None and np.isfinite(axis.largest):
            key = (axis.coordinate.units, axis.coordinate.calendar, axis.coordinate.dtype)
            largest[key] = max(largest.get(key, 0.0), axis.largest)
        keys.append(key)
    errors = {k: 0.0 if k is None else _rounding(most, k[2], k[:2], units) for k, most in largest.items()}
    level = {k: float(2.0 ** np.ceil(np.log2(r))) if r > 0 else 0.0 for k, r in errors.items()}
    return [level[key] for key in keys]


def _rounding(largest: float, dtype: Any, units: Units, target: Units) -> float:
    own = float(np.finfo(dtype).eps) * largest if dtype.kind == "f" else 0.0
    if units == target:
        return own
    converter = conversion(*units, *target)
    slope = abs(float(converter.slope))
    if converter.identity or (dtype.kind in "iu" and converter.integer_exact):
        return own * slope
    # The conversion adds the rounding error of float64.
    return own * slope + EPSILON * (largest * slope + abs(float(converter.offset)))


#: Horizontal coordinates (CF section 4 and appendix F); they differ between grids.
HORIZONTAL = ("latitude", "longitude", "grid_latitude", "grid_longitude", "projection_x_coordinate", "projection_y_coordinate")


def is_longitude(coordinate: MasterArray) -> bool:
    """Return whether a coordinate is a longitude in degrees (CF section 4.2)."""
    if coordinate.dtype.kind not in "iuf":
        return False
    named = text_attribute(coordinate.attrs.get("standard_name")) in ("longitude", "grid_longitude")
    return coordinate.units in EAST or (named and coordinate.units in ("degrees", "degree"))


def is_horizontal(coordinate: MasterArray) -> bool:
    """Return whether a coordinate is horizontal: latitude, longitude, x or y."""
    name, axis = (text_attribute(coordinate.attrs.get(attribute)) for attribute in ("standard_name", "axis"))
    return name in HORIZONTAL or axis in ("X", "Y") or coordinate.units in EAST or coordinate.units in NORTH


def difference(one: Candidate, other: Candidate, names: tuple[str, str], fraction: float) -> str | None:
    """Return a text on how a coordinate of two arrays differs, None if equal.

    ``names``: its name in each array. ``fraction``: of the smallest spacing, within which values are equal.
    """
    a, b = one.array.coords.get(names[0]), other.array.coords.get(names[1])
    if a is b:
        return None
    if a is None or b is None:
        return f"{names[a is None]} is absent"
    if _equal_as_scanned(a, b) or is_mapping(a):  # a mapping has no value; its attributes are in the signature
        return None
    try:
        x, y = _comparable(one, other, a, b)
    except AggarrayError as error:
        return f"{names[0]} cannot be compared: {error}"
    if x.shape != y.shape:
        return f"{names[0]} has shape {x.shape} and {y.shape}"
    if is_longitude(a) or any(bounds == names[0] and is_longitude(one.array.coords[n]) for n, bounds in one.bounds.items()):
        y = x + (np.mod(y - x + 180.0, 360.0) - 180.0)
    if np.array_equal(x, y, equal_nan=x.dtype.kind == "f" and y.dtype.kind == "f"):
        return None
    spacing = allowed = 0.0
    if x.dtype.kind in "iuf" and y.dtype.kind in "iuf":
        # Bounds have the spacing of their coordinate.
        parent = next((n for n, bounds in one.bounds.items() if bounds == names[0]), None)
        sources = [x, y] if parent is None else [one.array.coords[parent]._values_and_mask()[0]]
        spacing = min((s for s in map(_spacing, sources) if s > 0), default=0.0)
        eps = max((float(np.finfo(c.dtype).eps) for c in (a, b) if c.dtype.kind == "f"), default=0.0)
        eps = eps or (0.0 if (a.units, a.calendar) == (b.units, b.calendar) else EPSILON)
        finite = np.abs(x[np.isfinite(x)])
        allowed = tolerance_of(spacing, fraction, eps * float(finite.max(initial=0.0)))
    return _first_difference(names[0], x, y, (spacing, allowed))


def _equal_as_scanned(a: MasterArray, b: MasterArray) -> bool:
    if a._known is None or b._known is None or a._known[1] is not None or b._known[1] is not None:
        return False
    x, y = a._known[0], b._known[0]
    if a.units != b.units or a.calendar != b.calendar or a.dimensions != b.dimensions or a.directions != b.directions:
        return False
    return x is y or (x.dtype == y.dtype and x.shape == y.shape and bool((x == y).all()))


def _comparable(one: Candidate, other: Candidate, a: MasterArray, b: MasterArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of both in the dimensions and units of the first."""
    aligned = a.dimensions == b.dimensions and a.directions == b.directions and a.shape == b.shape
    if not aligned:
        keys = {p.name: key for key, p in one.axes.items()}
        increasing = {d: not one.axes[keys[d]].flipped for d in a.dimensions if d in keys}
        renamed = {p.name: one.axes[key].name for key, p in other.axes.items() if key in one.axes}
        # One file's scalar time is another's time dimension.
        leading = [renamed[d] for d in b.dimensions if d in renamed and renamed[d] not in a.dimensions]
        order = [*leading, *a.dimensions]
        a = oriented(one, {}, order, {}, a)
        b = oriented(other, {**unmatched_names(other, b, order), **renamed}, order, increasing, b)
        for d in order:
            if d not in keys and b.directions[order.index(d)] != a.directions[order.index(d)]:
                b = b.flip(d)
    (x, x_mask), (y, y_mask) = a._values_and_mask(), b._values_and_mask()
    converter = conversion_between(b._step, a._step)
    y = y if converter.identity else converter(y, y_mask)
    return _blanked(x, x_mask), _blanked(y, y_mask)


def _blanked(values: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Replace missing values by NaN, so that they are comparable."""
    if mask is None or not mask.any() or values.dtype.kind not in "iuf":
        return values
    return np.where(mask, np.nan, values)


def _spacing(values: np.ndarray) -> float:
    """Return the smallest distance between different neighbours, else 0."""
    spacings = []
    for axis in range(values.ndim):
        steps = np.abs(np.diff(values.astype(np.float64), axis=axis))
        steps = steps[steps > 0]
        spacings += [float(steps.min())] if steps.size else []
    return min(spacings, default=0.0)


def _first_difference(name: str, x: np.ndarray, y: np.ndarray, tolerances: tuple[float, float]) -> str | None:
    spacing, allowed = tolerances
    if x.dtype.kind in "iuf" and y.dtype.kind in "iuf":
        distances = np.abs(x.astype(np.float64) - y.astype(np.float64))
        differs = ~((distances <= allowed) | (np.isnan(x) & np.isnan(y)))
    else:
        distances, differs = np.zeros(x.shape), np.asarray(x != y)
    if not differs.any():
        return None
    index = np.unravel_index(int(differs.argmax()), x.shape) if x.ndim else ()
    where = f" at index {', '.join(map(str, index))}" if x.ndim else ""
    scale = ""
    if x.dtype.kind in "iuf" and x.ndim and np.isfinite(distances[index]):
        scale = f", a difference of {distances[index]:.3g}"
        scale += f", more than {allowed / spacing:.3g} of its spacing {spacing:.6g}" if spacing else ""
    return f"{name} differs{where}: {shown_pair(x[index], y[index])}{scale}"


def shown(value: Any) -> str:
    """Return a value as messages show it."""
    item = value.item() if hasattr(value, "item") else value
    return f"{item:.10g}" if isinstance(item, float) else repr(item)


def shown_in(value: Any, units: Units) -> str:
    """Return a value as messages show it, a reference time as its date.

    >>> shown_in(np.float64(59.5), ("days since 2000-01-01", "noleap")), shown_in(2, ("m", None))
    ('2000-03-01T12:00:00', '2')
    """
    name, calendar = units
    if name is None or not is_reference_time(name):
        return shown(value)
    from aggarray.cf.units.calendars import date, datetime_kind, datetimes

    try:
        kind = datetime_kind(name, calendar, value, value)
        return date(datetimes(np.atleast_1d(value), name, calendar, kind)[0])
    except (AggarrayError, AttributeError, TypeError, ValueError):  # text, or a value that is no time
        return shown(value)


def shown_pair(one: Any, other: Any) -> str:
    """Return two values as messages show them, with enough digits to differ.

    >>> shown_pair(1.0, 2.0), shown_pair(1.0, 1.0000000000000002)
    ('1 and 2', '1.0 and 1.0000000000000002')
    """
    texts = shown(one), shown(other)
    if texts[0] == texts[1]:
        texts = repr(np.asarray(one).item()), repr(np.asarray(other).item())
    return " and ".join(texts)


def describe_axis_difference(key: str, members: Sequence[Candidate], fraction: float) -> str:
    """Return a text on how the coordinates of two arrays differ along an axis."""
    one, other = members
    units = reference_units([one.axes[key], other.axes[key]])
    x, y = one.axes[key].values(*units), other.axes[key].values(*units)
    name = one.axes[key].name
    numeric = x.dtype.kind in "iuf" and y.dtype.kind in "iuf"
    if len(x) == len(y) and numeric and len(x) > 1:
        spacing = min(_spacing(x), _spacing(y))
        text = _first_difference(name, x, y, (spacing, fraction * spacing))
        if text is not None and _between(x, y) is not None and np.abs(x - y).max() < spacing / 2:
            return text
    if not len(x) or not len(y):
        return f"{name} has {len(x)} and {len(y)} values"
    if not numeric:
        return f"{name} differs: {_extent(x, units)} and {_extent(y, units)}"
    text = f"{name} has {_extent(x, units)} and {_extent(y, units)}"
    between = _between(x, y)
    return text if between is None else f"{text}; {shown_in(between, units)} is between values of the other"


def _extent(values: np.ndarray, units: Units) -> str:
    if len(values) == 1:
        return f"the value {shown_in(values[0], units)}"
    return f"{len(values)} values from {shown_in(values[0], units)} to {shown_in(values[-1], units)}"


def _between(x: np.ndarray, y: np.ndarray) -> Any:
    """Return a value of one coordinate between values of the other, or None."""
    for one, other in ((x, y), (y, x)):
        inside = other[(other > one[0]) & (other < one[-1]) & ~np.isin(other, one)]
        if inside.size:
            return inside[0]
    return None
