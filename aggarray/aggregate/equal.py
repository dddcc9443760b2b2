"""Do two arrays have the same coordinate, and if not, where do they differ?

Coordinates are compared after conforming names, dimension order, directions, units and calendar, within a tolerance that
scales with their spacing plus the rounding of the coarser dtype.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from aggarray.aggregate.candidate import Candidate, Place, oriented, unplaced_names
from aggarray.errors import AggarrayError
from aggarray.master import MasterArray
from aggarray.units import conversion

Units = tuple[str | None, str | None]


def reference_units(places: Iterable[Place]) -> Units:
    """Return units and calendar of the first of places that has a coordinate."""
    for place in places:
        if place.coordinate is not None:
            return place.coordinate.units, place.coordinate.calendar
    return None, None


def difference(one: Candidate, other: Candidate, names: tuple[str, str], fraction: float) -> str | None:
    """Return where a coordinate of two arrays differs, in words; None where it does not.

    ``names``: what it is called in each. ``fraction``: of the smallest spacing, within which values are equal.
    """
    a, b = one.array.coords[names[0]], other.array.coords.get(names[1])
    if b is None:
        return f"{names[0]} is absent"
    if a is b:
        return None
    if "grid_mapping_name" in a.attrs:  # its value means nothing, its attributes are in the signature
        return None
    try:
        x, y = _comparable(one, other, a, b)
    except AggarrayError as error:
        return f"{names[0]} cannot be compared: {error}"
    if x.shape != y.shape:
        return f"{names[0]} has shape {x.shape} and {y.shape}"
    return _first_difference(names[0], x, y, _tolerances(one, names[0], (a, x), (b, y), fraction))


def _comparable(one: Candidate, other: Candidate, a: MasterArray, b: MasterArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of both in the dimension order, directions and units of the first."""
    alike = a.dimensions == b.dimensions and a.directions == b.directions and a.shape == b.shape
    if not alike:
        keys = {p.name: key for key, p in one.places.items()}
        upwards = {d: not one.places[keys[d]].flipped for d in a.dimensions if d in keys}
        renamed = {p.name: one.places[key].name for key, p in other.places.items() if key in one.places}
        order = list(a.dimensions)
        b = oriented(other, {**unplaced_names(other, b, order), **renamed}, order, upwards, b)
        for d in order:
            if d not in keys and b.directions[order.index(d)] != a.directions[order.index(d)]:
                b = b.flip(d)
    (x, x_mask), (y, y_mask) = a._values_and_mask(), b._values_and_mask()
    change = conversion(b.units, b.calendar, a.units, a.calendar)
    y = y if change.identity else change(y, y_mask)
    return _blanked(x, x_mask), _blanked(y, y_mask)


def _blanked(values: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Make missing values equal to each other, whatever stands for them."""
    if mask is None or not mask.any() or values.dtype.kind not in "iuf":
        return values
    return np.where(mask, np.nan, values)


def _tolerances(one: Candidate, name: str, first: tuple[MasterArray, np.ndarray], second: tuple[MasterArray, np.ndarray], fraction: float) -> tuple[float, float]:
    """Return (spacing, allowed difference); bounds take the spacing of their coordinate."""
    (a, x), (b, y) = first, second
    if x.dtype.kind not in "iuf" or y.dtype.kind not in "iuf":
        return 0.0, 0.0
    parent = next((c for c in one.array.coords.values() if name in (c.attrs.get("bounds"), c.attrs.get("climatology"))), None)
    sources = [x, y] if parent is None else [parent._values_and_mask()[0]]
    spacing = min((s for s in map(_spacing, sources) if s > 0), default=0.0)
    eps = max((float(np.finfo(c.dtype).eps) for c in (a, b) if c.dtype.kind == "f"), default=0.0)
    largest = float(np.nanmax(np.abs(x), initial=0.0)) if x.size else 0.0
    return spacing, fraction * spacing + 4 * eps * largest


def _spacing(values: np.ndarray) -> float:
    """Return the smallest distance between different neighbours along any dimension, 0 where there is none."""
    found = []
    for axis in range(values.ndim):
        steps = np.abs(np.diff(values.astype(np.float64), axis=axis))
        steps = steps[steps > 0]
        found += [float(steps.min())] if steps.size else []
    return min(found, default=0.0)


def _first_difference(name: str, x: np.ndarray, y: np.ndarray, tolerances: tuple[float, float]) -> str | None:
    spacing, allowed = tolerances
    if x.dtype.kind in "iuf" and y.dtype.kind in "iuf":
        if np.array_equal(x, y):
            return None
        apart = np.abs(x.astype(np.float64) - y.astype(np.float64))
        wrong = ~((apart <= allowed) | (np.isnan(x) & np.isnan(y)))
    else:
        apart, wrong = np.zeros(x.shape), np.asarray(x != y)
    if not wrong.any():
        return None
    index = np.unravel_index(int(wrong.argmax()), x.shape) if x.ndim else ()
    where = f" at index {', '.join(map(str, index))}" if x.ndim else ""
    if x.dtype.kind in "iuf" and x.ndim and np.isfinite(apart[index]):
        scale = f", more than {allowed / spacing:.3g} of its spacing {spacing:.6g}" if spacing else ""
        return f"{name} differs by {apart[index]:.3g}{where}{scale}"
    return f"{name} differs{where}: {shown(x[index])} and {shown(y[index])}"


def shown(value: Any) -> str:
    """Return a value as a message shows it."""
    item = value.item() if hasattr(value, "item") else value
    return f"{item:.10g}" if isinstance(item, float) else repr(item)


def differ_along(key: str, members: Sequence[Candidate], fraction: float) -> str:
    """Say how the coordinates of two arrays along one place keep them apart."""
    one, other = members
    units = reference_units([one.places[key], other.places[key]])
    x, y = one.places[key].values(*units), other.places[key].values(*units)
    name = one.places[key].name
    numeric = x.dtype.kind in "iuf" and y.dtype.kind in "iuf"
    if len(x) == len(y) and numeric and len(x) > 1:
        spacing = min(_spacing(x), _spacing(y))
        text = _first_difference(name, x, y, (spacing, fraction * spacing))
        return text or f"{name} differs"
    if not numeric:
        return f"{name} differs: {shown(x[0])} ... and {shown(y[0])} ..."
    between = [v for v in y if x[0] < v < x[-1] and v not in x] or [v for v in x if y[0] < v < y[-1] and v not in y] or [y[0]]
    return f"{name} has {len(x)} values from {shown(x[0])} to {shown(x[-1])} and {len(y)} from {shown(y[0])} to {shown(y[-1])}; {shown(between[0])} falls between those of the other"
