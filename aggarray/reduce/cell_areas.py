"""Areas of cells on the sphere, as factors along dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.aggregate.identity import coordinate_identity, is_mapping
from aggarray.arrays.lazy import bounds_names
from aggarray.cf.attributes import basename, words
from aggarray.cf.units.compatibility import conversion, incompatibility
from aggarray.errors import SelectionError
from aggarray.reduce.time_cells import values_of

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

#: Radius of the sphere in metres, unless the grid mapping states another one.
RADIUS = 6_371_000.0
LATITUDES, LONGITUDES = ("latitude", "grid_latitude"), ("longitude", "grid_longitude")
Factor = tuple[tuple[str, ...], np.ndarray]


def area_factors(array: MasterArray, dims: Sequence[str]) -> tuple[Factor, ...]:
    """Return factors of the areas of cells in m2, along and beside ``dims``.

    Where only latitudes or only longitudes are reduced, the areas come from them alone. Raises SelectionError if the areas are
    unknown.
    """
    measure = _cell_measure(array)
    if measure is not None and set(measure.dimensions) & set(dims):
        return ((measure.dimensions, areas_of(measure)),)
    radius = _radius(array)
    factors = []
    for names, widths in ((LATITUDES, _latitude_widths), (LONGITUDES, _longitude_widths)):
        coordinate = _along(array, dims, names)
        if coordinate is not None:
            factors.append((coordinate.dimensions, radius * widths(array, coordinate)))
    if factors and len({names for names, _ in factors}) == len(factors):
        return _merged(factors)
    polygons = _polygon_areas(array, dims)
    if polygons is not None:
        return ((polygons[0], radius**2 * polygons[1]),)
    raise _no_areas(array, dims)


def check_widths(array: MasterArray, dims: Sequence[str]) -> None:
    """Raise SelectionError if a single cell has no width to sum over."""
    measure = _cell_measure(array)
    if measure is not None and set(measure.dimensions) & set(dims):
        return
    for names in (LATITUDES, LONGITUDES):
        coordinate = _along(array, dims, names)
        if coordinate is not None and coordinate.size == 1 and _bounds(array, coordinate) is None:
            what = f"a sum by area needs the width of the only cell along {coordinate.name!r}, which has no bounds"
            hint = "sum more than one, give cell areas or bounds, or take the mean"
            raise SelectionError(what, variable=array.name, hint=hint)


def area_units(array: MasterArray, dims: Sequence[str]) -> str:
    """Return the units of the product of `area_factors`."""
    measure = _cell_measure(array)
    if measure is not None and set(measure.dimensions) & set(dims):
        return "m2"
    separate = [_along(array, dims, names) for names in (LATITUDES, LONGITUDES)]
    return "m" if separate.count(None) == 1 else "m2"


def horizontal_dimensions(array: MasterArray) -> tuple[str, ...]:
    """Return the dimensions of latitude and longitude, or of x and y."""
    names: dict[str, None] = {}
    for coordinate in array.coords.values():
        identity = coordinate_identity(coordinate)
        horizontal = identity in (*LATITUDES, *LONGITUDES, "projection_x_coordinate", "projection_y_coordinate")
        if horizontal or coordinate.attrs.get("axis") in ("X", "Y"):
            names.update(dict.fromkeys(d for d in coordinate.dimensions if d in array.dimensions))
    return tuple(d for d in array.dimensions if d in names)


def measure_names(array: MasterArray) -> dict[str, str]:
    """Return the names of the cell measures of an array by measure."""
    items = words(array.attrs.get("cell_measures"))
    return {key.removesuffix(":"): name for key, name in pairwise(items) if key.endswith(":")}


def _cell_measure(array: MasterArray) -> MasterArray | None:
    name = measure_names(array).get("area")
    measure = next((c for n, c in array.coords.items() if name is not None and basename(n) == basename(name)), None)
    return measure if measure is not None and set(measure.dimensions) <= set(array.dimensions) else None


def areas_of(measure: MasterArray) -> np.ndarray:
    """Return the values of a cell measure in m2; missing ones are 0.

    Cells without an area, such as those on land, have no values.
    """
    if measure.units is not None and incompatibility(measure.units, None, "m2", None) is None:
        measure = measure.astype(np.float64).to_units("m2")
    values = measure.read(masked=True)
    return np.where(np.ma.getmaskarray(values) | np.isnan(np.ma.getdata(values)), 0.0, np.ma.getdata(values)).astype(np.float64)


def _radius(array: MasterArray) -> float:
    for coordinate in array.coords.values():
        if is_mapping(coordinate):
            for name in ("earth_radius", "semi_major_axis"):
                radius = coordinate.attrs.get(name)
                if radius is not None and np.ndim(radius) == 0 and float(radius) > 0:
                    return float(radius)
    return RADIUS


def _along(array: MasterArray, dims: Sequence[str], names: Sequence[str]) -> MasterArray | None:
    """Return the 1-d latitude or longitude along one of some dimensions."""
    own = [
        c
        for c in array.coords.values()
        if len(c.dimensions) == 1 and c.dimensions[0] in dims and coordinate_identity(c) in names
    ]
    own = [c for c in own if c.dtype.kind in "iuf"]
    return min(own, key=lambda c: c.name != c.dimensions[0], default=None)


def _merged(factors: list[Factor]) -> tuple[Factor, ...]:
    """Return factors, without one of equal values."""
    if len(factors) == 2:
        for one, other in (factors, factors[::-1]):
            values = other[1]
            if values.size and np.ptp(values) <= 1e-9 * float(values.max()):
                return ((one[0], one[1] * float(values.mean())),)
    return tuple(factors)


def _radians(coordinate: MasterArray, values: np.ndarray | None = None) -> np.ndarray:
    """Return angles in radians; degrees unless the units say otherwise."""
    values = (values_of(coordinate) if values is None else values).astype(np.float64)
    units = coordinate.units
    if units is None or incompatibility(units, None, "radian", None) is not None:
        return np.asarray(np.radians(values))
    if units.lower().startswith("deg"):
        return np.asarray(np.radians(values))
    return conversion(units, None, "radian", None)(values)


def _bounds(array: MasterArray, coordinate: MasterArray) -> np.ndarray | None:
    """Return the vertices of cells in radians, None without bounds."""
    bounds: Any = next((array.coords[n] for n in bounds_names(coordinate) if n in array.coords), None)
    if bounds is None or bounds.shape[: coordinate.ndim] != coordinate.shape or bounds.ndim != coordinate.ndim + 1:
        return None
    values = values_of(bounds)
    radians = _radians(bounds if bounds.units is not None else coordinate, values)
    return None if np.isnan(radians).any() else radians


def _edges(centres: np.ndarray, width: float) -> np.ndarray:
    """Return edges halfway between centres, and as far beyond the ends."""
    if not centres.size:
        return np.zeros(1)
    if centres.size == 1:
        return np.array([centres[0] - width / 2, centres[0] + width / 2])
    middle = (centres[1:] + centres[:-1]) / 2
    return np.concatenate(([2 * centres[0] - middle[0]], middle, [2 * centres[-1] - middle[-1]]))


def _latitude_widths(array: MasterArray, coordinate: MasterArray) -> np.ndarray:
    """Return the differences of the sines of the edges of latitudes."""
    bounds = _bounds(array, coordinate)
    if bounds is None or bounds.shape[1] != 2:
        centres = _radians(coordinate)
        edges = _edges(centres, np.radians(1.0))
        bounds = np.stack([edges[:-1], edges[1:]], axis=1)
    sines = np.sin(np.clip(bounds, -np.pi / 2, np.pi / 2))
    return np.asarray(np.abs(sines[:, 1] - sines[:, 0]))


def _longitude_widths(array: MasterArray, coordinate: MasterArray) -> np.ndarray:
    """Return the widths of cells of longitude, also across the date line."""
    bounds, centres = _bounds(array, coordinate), _radians(coordinate)
    turn = 2 * np.pi
    if bounds is None or bounds.shape[1] != 2:
        steps = np.diff(centres)
        # A step across the date line is as short as the others.
        continuous = np.concatenate((centres[:1], centres[:1] + np.cumsum((steps + np.pi) % turn - np.pi)))
        return np.asarray(np.abs(np.diff(_edges(continuous, turn))))
    low, high = bounds.min(axis=1), bounds.max(axis=1)
    widths = high - low
    # Bounds such as 359.5 and 0.5 lie on both sides of the date line, and not around their centre.
    crossing = (widths > np.pi) & ~((low <= centres) & (centres <= high))
    return np.asarray(np.where(crossing, np.abs(turn - widths), widths))


def _polygon_areas(array: MasterArray, dims: Sequence[str]) -> Factor | None:
    """Return areas of cells with vertices on the unit sphere, or None."""
    for latitude in _curvilinear(array, dims, "latitude"):
        for longitude in _curvilinear(array, dims, "longitude"):
            if longitude.dimensions != latitude.dimensions:
                continue
            vertices = [_bounds(array, c) for c in (latitude, longitude)]
            if all(v is not None and v.shape[-1] >= 3 for v in vertices) and vertices[0].shape == vertices[1].shape:  # type: ignore[union-attr]
                return latitude.dimensions, spherical_areas(*vertices)  # type: ignore[arg-type]
    return None


def _curvilinear(array: MasterArray, dims: Sequence[str], name: str) -> list[MasterArray]:
    coordinates = [c for c in array.coords.values() if c.ndim and coordinate_identity(c) == name]
    return [c for c in coordinates if set(c.dimensions) & set(dims) and set(c.dimensions) <= set(array.dimensions)]


def spherical_areas(latitude: np.ndarray, longitude: np.ndarray) -> np.ndarray:
    """Return areas of polygons on the unit sphere, whose edges are arcs.

    ``latitude``, ``longitude``: vertices in radians, shape (..., vertices).

    >>> float(spherical_areas(np.array([0, 0, np.pi / 2]), np.array([0, np.pi / 2, 0])).round(6))  # an eighth of the sphere
    1.570796
    """
    cosine = np.cos(latitude)
    points = np.stack([cosine * np.cos(longitude), cosine * np.sin(longitude), np.sin(latitude)], axis=-1)
    total = np.zeros(latitude.shape[:-1])
    a = points[..., 0, :]
    for number in range(1, latitude.shape[-1] - 1):
        b, c = points[..., number, :], points[..., number + 1, :]
        volume = (a * np.cross(b, c)).sum(-1)
        total += 2 * np.arctan2(volume, 1 + (a * b).sum(-1) + (b * c).sum(-1) + (c * a).sum(-1))
    return np.abs(total)


def _no_areas(array: MasterArray, dims: Sequence[str]) -> SelectionError:
    """Return the error of cells whose areas are unknown."""
    bounds = {name for c in array.coords.values() for name in bounds_names(c)}
    places = [c for n, c in array.coords.items() if n not in bounds and coordinate_identity(c) in (*LATITUDES, *LONGITUDES)]
    curved = [str(c.name) for c in places if set(c.dimensions) & set(dims)]
    reduced = ", ".join(map(repr, dims)) or "no dimensions"
    if not curved:
        what = f"weights='area' without latitudes or longitudes along {reduced}"
        names = ", ".join(horizontal_dimensions(array))
        hint = f"reduce some of {names}, or give an array of weights" if names else "give an array of weights"
        return SelectionError(what, variable=array.name, hint=hint)
    measure = measure_names(array).get("area")
    absent = "" if measure is None else f"; cell measure {measure!r} is not among its coordinates"
    what = f"weights='area' needs cell areas, or bounds of {' and '.join(curved)}, along {reduced}{absent}"
    return SelectionError(what, variable=array.name, hint="give an array of weights")
