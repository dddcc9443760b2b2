"""Coordinates of results: those kept, scalar ones, and those of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.aggregate.candidate import coordinate_along
from aggarray.aggregate.identity import coordinate_identity, is_mapping
from aggarray.arrays.lazy import bounds_names
from aggarray.cf.attributes import basename
from aggarray.cf.units import is_reference_time
from aggarray.reduce.cell_areas import LATITUDES, LONGITUDES, horizontal_dimensions
from aggarray.reduce.grouping import CYCLES, Groups
from aggarray.reduce.memory_arrays import in_memory
from aggarray.reduce.time_cells import bounds_of, hull, time_along, values_of

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

#: Coordinate that marks incomplete groups, and bounds of a climatology.
COMPLETE, CLIMATOLOGY = "complete", "climatology_bounds"
_DESCRIPTIONS = {
    "month": "month of the year",
    "season": "season of the year",
    "dayofyear": "day of the year",
    "hour": "hour of the day",
}
_BOUNDS = ("bounds", "climatology")


def result_coordinates(array: MasterArray, dims: Sequence[str], groups: Groups | None) -> dict[str, MasterArray]:
    """Return the coordinates of a result by name.

    Coordinates of the kept dimensions stay. A reduced dimension with bounds, with times or in space has a scalar coordinate
    with bounds around all cells. Groups have those of `_group_coordinates`.
    """
    reduced = set(dims)
    coords = _kept(array, dims)
    if not reduced.isdisjoint(horizontal_dimensions(array)):
        coords = {name: c for name, c in coords.items() if not is_mapping(c)}
    for dimension in array.dimensions:
        if dimension in reduced and (groups is None or dimension != groups.dimension):
            coords.update(_scalar(array, dimension, coords))
    if groups is not None:
        coords.update(_group_coordinates(array, groups, coords))
    return _ordered(array, coords)


def window_coordinates(array: MasterArray, dimension: str, steps: int) -> dict[str, MasterArray]:
    """Return the coordinates of statistics of windows of some steps.

    The coordinate of ``dimension`` is in the middle of each window, with bounds around its cells.
    """
    coords = _kept(array, [dimension])
    coordinate = _along(array, dimension)
    if coordinate is None or coordinate.dtype.kind not in "iuf":
        return coords
    bounds = bounds_of(array, coordinate)
    values = values_of(coordinate).astype(np.float64)
    low, high = (values, values) if bounds is None else (bounds.min(axis=1), bounds.max(axis=1))
    ends = [[edge[: len(edge) - steps + 1], edge[steps - 1 :]] for edge in (low, high)]
    pairs = np.stack([np.minimum(*ends[0]), np.maximum(*ends[1])], axis=1)
    middle = pairs[:, 0] + (pairs[:, 1] - pairs[:, 0]) / 2
    has_bounds = bounds is not None or _is_located(coordinate)
    coords.update(_with_bounds(array, coordinate, middle, (dimension,), pairs if has_bounds else None, coords))
    return _ordered(array, coords)


def _kept(array: MasterArray, dims: Sequence[str]) -> dict[str, MasterArray]:
    """Return the coordinates of other dimensions than some."""
    own_bounds = {name for d in dims for c in [_along(array, d)] if c is not None for name in bounds_names(c)}
    return {n: c for n, c in array.coords.items() if set(dims).isdisjoint(c.dimensions) and n not in own_bounds}


def _ordered(array: MasterArray, coords: dict[str, MasterArray]) -> dict[str, MasterArray]:
    """Return coordinates in the order of those of an array, new ones last."""
    return {name: coords[name] for name in (*(n for n in array.coords if n in coords), *coords)}


def _along(array: MasterArray, dimension: str) -> MasterArray | None:
    return coordinate_along(dimension, array) if dimension in array.dimensions else None


def _scalar(array: MasterArray, dimension: str, others: Any) -> dict[str, MasterArray]:
    """Return the scalar coordinate of a reduced dimension and its bounds."""
    coordinate = _along(array, dimension)
    if coordinate is None or coordinate.dtype.kind not in "iuf" or not coordinate.size:
        return {}
    bounds = bounds_of(array, coordinate)
    is_single = coordinate.size == 1
    if bounds is None and not (is_single or _is_located(coordinate)):
        return {}
    values = values_of(coordinate).astype(np.float64)
    low, high = (values, values) if bounds is None else (bounds.min(axis=1), bounds.max(axis=1))
    first, last = hull(low, high, np.zeros(len(values), np.int64), 1)
    if np.isnan(first).any():
        return {}
    value = values_of(coordinate)[0] if is_single else first[0] + (last[0] - first[0]) / 2
    pair = None if bounds is None and is_single else np.array([first[0], last[0]])
    return _with_bounds(array, coordinate, np.asarray(value), (), pair, others)


def _is_located(coordinate: MasterArray) -> bool:
    """Return whether a coordinate is a time, or a position in space."""
    attrs = coordinate.attrs
    located = coordinate_identity(coordinate) in (*LATITUDES, *LONGITUDES) or "positive" in attrs
    return located or attrs.get("axis") in ("X", "Y", "Z", "T") or is_reference_time(coordinate.units)


def _with_bounds(
    array: MasterArray,
    coordinate: MasterArray,
    values: np.ndarray,
    dimensions: tuple[str, ...],
    bounds: np.ndarray | None,
    others: Any,
    attribute: str = "bounds",
) -> dict[str, MasterArray]:
    """Return a coordinate with the description of another, and its bounds."""
    key = next(name for name, c in array.coords.items() if c is coordinate)
    attrs = {k: v for k, v in coordinate.attrs.items() if k not in (*_BOUNDS, "_ChunkSizes", "actual_range")}
    own: Any = next((array.coords[n] for n in bounds_names(coordinate) if n in array.coords), None)
    result = {}
    if bounds is not None:
        named = next(iter(bounds_names(coordinate)), f"{basename(key)}_bnds")
        name = named if attribute == "bounds" else _free_name(CLIMATOLOGY, {*array.coords, *others})
        vertices = own.dimensions[-1] if own is not None and own.shape[-1] == 2 else "bnds"
        attrs[attribute] = name
        described = None if own is None else own.attrs
        pair = (*dimensions, _free_name(vertices, {*array.dimensions, *dimensions}))
        result[name] = in_memory(array, name, bounds, pair, coordinate.units, coordinate.calendar, attrs=described)
    return {
        key: in_memory(array, coordinate.name, values, dimensions, coordinate.units, coordinate.calendar, attrs=attrs),
        **result,
    }


def _free_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _group_coordinates(array: MasterArray, groups: Groups, others: Any) -> dict[str, MasterArray]:
    """Return the coordinates of groups.

    Periods that follow each other have a time with bounds. Cycles have their labels, and a time with the bounds of a
    climatology (CF 7.4). Other groups have their labels, and a time with bounds if each is of successive times.
    ``complete`` is 0 where cells are absent from a group.
    """
    coords: dict[str, MasterArray] = {}
    along = (groups.name,)
    coordinate = time_along(array, groups.dimension)
    if groups.edges is None:
        source = array.coords.get(groups.by or "")
        attrs = {} if source is None else {k: v for k, v in source.attrs.items() if k not in (*_BOUNDS, "_ChunkSizes")}
        units, calendar = (None, None) if source is None else (source.units, source.calendar)
        coords[groups.name] = in_memory(array, groups.name, groups.labels, along, units, calendar, attrs=attrs)
        return {**_times_of_runs(array, coordinate, groups, others), **coords}
    if groups.by in CYCLES:
        attrs = {"long_name": _DESCRIPTIONS[groups.by]}
        coords[groups.name] = in_memory(array, groups.name, groups.labels, along, attrs=attrs)
    if coordinate is not None and coordinate is not array:
        bounds = _group_bounds(array, coordinate, groups)
        is_cycle = groups.by in CYCLES
        times = groups.times if is_cycle and groups.times is not None else bounds[:, 0] + (bounds[:, 1] - bounds[:, 0]) / 2
        coords.update(_with_bounds(array, coordinate, times, along, bounds, coords, "climatology" if is_cycle else "bounds"))
    if groups.complete is not None:
        attrs = {
            "long_name": "whether the values cover the group",
            "flag_values": np.array([0, 1], np.int8),
            "flag_meanings": "incomplete complete",
        }
        name = _free_name(COMPLETE, {*array.coords, *others, *coords})
        coords[name] = in_memory(array, name, groups.complete.astype(np.int8), along, attrs=attrs)
    return coords


def _times_of_runs(array: MasterArray, coordinate: MasterArray | None, groups: Groups, others: Any) -> dict[str, MasterArray]:
    """Return the times of groups that are one run of positions each."""
    numbers = groups.numbers[groups.numbers >= 0]
    runs = 1 + np.count_nonzero(np.diff(numbers)) if len(numbers) else 0
    if (
        coordinate is None
        or coordinate is array
        or coordinate.dtype.kind not in "iuf"
        or runs != groups.count
        or coordinate.name == groups.name
    ):
        return {}
    values, bounds = values_of(coordinate).astype(np.float64), bounds_of(array, coordinate)
    low, high = (values, values) if bounds is None else (bounds.min(axis=1), bounds.max(axis=1))
    pairs = np.stack(hull(low, high, groups.numbers, groups.count), axis=1)
    middle = pairs[:, 0] + (pairs[:, 1] - pairs[:, 0]) / 2
    return _with_bounds(array, coordinate, middle, (groups.name,), pairs, others)


def _group_bounds(array: MasterArray, coordinate: MasterArray, groups: Groups) -> np.ndarray:
    """Return the bounds of groups: around the cells, else the periods.

    Those of cycles are around both: they span the first period to the last, whichever cells are absent.
    """
    edges: Any = groups.edges
    bounds = bounds_of(array, coordinate)
    if bounds is None or "climatology" in coordinate.attrs:
        return np.asarray(edges)
    first, last = hull(bounds.min(axis=1), bounds.max(axis=1), groups.numbers, groups.count)
    pairs = np.stack([first, last], axis=1)
    if groups.by in CYCLES:
        return np.stack([np.fmin(edges[:, 0], first), np.fmax(edges[:, 1], last)], axis=1)
    return np.where(np.isnan(pairs), edges, pairs)
