"""Weights of reductions: areas of cells, lengths of times, arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.cf.attributes import text_attribute
from aggarray.errors import NotFoundError, SelectionError, names_hint
from aggarray.reduce.cell_areas import area_factors, area_units, areas_of
from aggarray.reduce.memory_arrays import data_and_mask, named_array
from aggarray.reduce.time_cells import cell_lengths, time_along, time_fields, values_of

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

NAMES = ("area", "time")
#: One factor of the weights: its dimensions, and float64 values.
Factor = tuple[tuple[str, ...], np.ndarray]


def weights_of(array: MasterArray, dims: Sequence[str], weights: Any) -> tuple[Factor, ...] | None:
    """Return factors whose outer product is the weight of each value.

    ``dims``: the reduced dimensions. ``weights``: None, for which the result is None; "area": areas of cells in m2, from the
    cell measures of the array, else from bounds on the sphere, else from latitudes; "time": lengths of cells in seconds, from
    bounds, else from the step of the times; an array over ``dims``, in their order, or with names of dimensions (missing values
    of cell areas are 0); {dimension: 1-d array}. A factor may span other dimensions of the array than ``dims``. Weights are
    finite and not negative. Raises SelectionError or NotFoundError for others.
    """
    if weights is None:
        return None
    if isinstance(weights, str):
        if weights not in NAMES:
            raise NotFoundError(f"no weights {weights!r}", hint=names_hint(weights, NAMES, "give an array, or one of"))
        factors = area_factors(array, dims) if weights == "area" else (_time_factor(array, dims),)
    elif isinstance(weights, Mapping):
        factors = tuple(_of_dimension(array, dims, name, values) for name, values in weights.items())
    else:
        factors = (_of_array(array, dims, weights),)
    for names, values in factors:
        _check_values(array, names, values)
    return factors


def _time_factor(array: MasterArray, dims: Sequence[str]) -> Factor:
    times = [(dimension, c) for dimension in dims if (c := time_along(array, dimension)) is not None]
    if not times:
        what = f"weights='time' without a time dimension: none of {', '.join(map(repr, dims)) or 'no dimensions'} has 1-d times"
        raise SelectionError(what, variable=array.name, hint="reduce along the dimension of the times, or give an array")
    dimension, coordinate = times[0]
    dates = time_fields(coordinate)
    lengths = cell_lengths(array, coordinate, dates)
    if lengths is None:
        what = f"weights='time' needs lengths of the times: {dimension!r} has no bounds, and no step that gives them"
        raise SelectionError(what, variable=array.name, hint="give an array of weights")
    # A missing time has no cell.
    return (dimension,), np.where(dates.missing, 0.0, lengths / 1e6)


def _of_dimension(array: MasterArray, dims: Sequence[str], name: Any, values: Any) -> Factor:
    if name not in dims:
        raise NotFoundError(
            f"weights of {name!r}, which is not reduced", hint=names_hint(name, dims, "the reduced dimensions are")
        )
    return _of_array(array, (name,), values)


def _of_array(array: MasterArray, dims: Sequence[str], weights: Any) -> Factor:
    """Return weights given as an array, with or without names of dimensions."""
    weights = named_array(array, weights)
    is_master = isinstance(weights, type(array))
    names = tuple(weights.dimensions if is_master else dims)
    values = weights if is_master else _numbers(array, weights)
    absent = [n for n in names if n not in array.dimensions]
    if absent:
        hint = names_hint(absent[0], array.dimensions, "the dimensions are")
        raise SelectionError(f"weights have a dimension {absent[0]!r}, which the array lacks", variable=array.name, hint=hint)
    shape = tuple(array.sizes[n] for n in names)
    if values.shape != shape:
        what = f"weights of shape {values.shape} for {', '.join(names)} of shape {shape}"
        raise SelectionError(what, variable=array.name, hint="give one weight for each position")
    if is_master:
        check_coordinates(array, weights, weights.dimensions, "weights")
        values = areas_of(weights) if _is_area(array, weights) else _numbers(array, weights.read(masked=True))
    return names, values


def _is_area(array: MasterArray, weights: Any) -> bool:
    """Return whether weights are a cell measure, which may have no values."""
    return isinstance(weights, type(array)) and text_attribute(weights.attrs.get("standard_name")) == "cell_area"


def _numbers(array: MasterArray, values: Any) -> np.ndarray:
    """Return weights as float64, missing ones as NaN."""
    plain, mask = data_and_mask(values)
    if plain.dtype.kind not in "iufb":
        raise SelectionError(f"weights of type {plain.dtype} are not numbers", variable=array.name, hint="give real numbers")
    return np.where(mask, np.nan, plain.astype(np.float64))


def check_coordinates(array: MasterArray, given: MasterArray, dims: Sequence[str], what: str) -> None:
    """Raise SelectionError unless two arrays have equal coordinates.

    Coordinates along ``dims`` that only one of them has are not compared. ``what``: the word for the array that was given.
    """
    for name in dims:
        own, other = array.coords.get(name), given.coords.get(name)
        if own is None or other is None or own.shape != other.shape:
            continue
        hint = f"select or flip the {what} as the array"
        if own.dtype.kind in "TU" and other.dtype.kind in "TU" and own[...].tolist() != other[...].tolist():
            raise SelectionError(f"the {what} have other coordinates along {name!r}", variable=array.name, hint=hint)
        if own.dtype.kind not in "iuf" or other.dtype.kind not in "iuf":
            continue
        if own.units != other.units and own.units is not None and other.units is not None:
            other = other.to_units(own.units, own.calendar)
        a, b = values_of(own).astype(np.float64), values_of(other).astype(np.float64)
        if not np.allclose(a, b, rtol=1e-6, atol=1e-6, equal_nan=True):
            at = int(np.argmax(~np.isclose(a, b, rtol=1e-6, atol=1e-6, equal_nan=True)))
            where = f"{name!r}: {b[at]:g} and {a[at]:g} at position {at}"
            raise SelectionError(f"the {what} have other coordinates along {where}", variable=array.name, hint=hint)


def _check_values(array: MasterArray, names: Sequence[str], values: np.ndarray) -> None:
    hint = "give weights of 0 or more"
    for wrong, what in ((np.isnan(values), "missing"), (np.isinf(values), "infinite"), (values < 0, "negative")):
        if wrong.any():
            at = tuple(int(n) for n in np.unravel_index(int(np.argmax(wrong)), values.shape))
            where = ", ".join(f"{name}={n}" for name, n in zip(names, at, strict=True))
            raise SelectionError(f"a weight is {what}: {values[at]:g} at {where}", variable=array.name, hint=hint)
    if values.size and not values.any():
        raise SelectionError(f"all weights along {', '.join(names)} are 0", variable=array.name, hint=hint)


def weight_units(array: MasterArray, dims: Sequence[str], weights: Any) -> str | None:
    """Return the units of weights; None for arrays, which are numbers.

    A sum is multiplied by them: areas in m2, their factor along one direction in m, times in s.
    """
    if not isinstance(weights, str):
        return "m2" if _is_area(array, weights) else None
    return "s" if weights == "time" else area_units(array, dims)
