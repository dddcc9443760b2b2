"""Climatologies, and anomalies from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.arrays.history import history_line, names_with_shapes
from aggarray.arrays.inputs import Inputs, Relation, remember_inputs
from aggarray.cf.units.temperature import DIFFERENCE, has_temperature
from aggarray.dataclass import replace
from aggarray.errors import NotFoundError, SelectionError, listed, names_hint
from aggarray.reduce import reduce_array
from aggarray.reduce.cell_methods import DROPPED, FLAGS
from aggarray.reduce.description import result_dimensions
from aggarray.reduce.grouping import CYCLES, PERIODS, Groups, groups_of
from aggarray.reduce.memory_arrays import data_and_mask, in_memory, missing_in, named_array
from aggarray.reduce.request import OPTIONS, check_names, check_operations
from aggarray.reduce.time_cells import time_dimension
from aggarray.reduce.weighting import check_coordinates

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

#: Bytes of values that are read at a time.
_BLOCK = 4 << 20
#: Standard names that have one of their anomaly.
_ANOMALIES = ("air_pressure", "air_temperature", "geopotential", "geopotential_height", "surface_temperature")


def climatology_of(array: MasterArray, by: Any, options: Mapping[str, Any]) -> MasterArray:
    """Return the means of the cycle ``by`` along the time dimension."""
    check_names("climatology", options, OPTIONS)
    dimension = time_dimension(array)
    _check_cycle(array, by)
    return reduce_array(array, ["mean"], dimension, by=by, **options)["mean"]


def anomaly_from(array: MasterArray, by: Any, climatology: Any, options: Mapping[str, Any]) -> MasterArray:
    """Return an array less its climatology, or another one, in memory."""
    check_names("anomaly", options, OPTIONS)
    dimension = time_dimension(array)
    _check_cycle(array, by)
    check_operations(array, "mean")
    groups = groups_of(array, dimension, by)
    is_own = climatology is None
    if is_own:
        climatology = reduce_array(array, ["mean"], dimension, by=by, **options)["mean"]
    norm = _aligned(array, groups, climatology)
    values = _difference(array, array.dimensions.index(dimension), groups.numbers, norm)
    result = in_memory(array, array.name, values, array.dimensions, array.units, array.calendar, mask=missing_in(values))
    line = history_line(f"aggarray anomaly of {names_with_shapes([array])} from means by {groups.by or 'labels'}")
    history = "\n".join(filter(None, [line, str(array.file_attrs.get("history", ""))]))
    attrs = _attributes(array, groups)
    result = replace(result, attrs=attrs, file_attrs={**array.file_attrs, "history": history}, coords=array.coords)
    relations = [Relation(axis) for axis in range(array.ndim)]
    if is_own:  # of the same group, from whose mean it differs
        axis = array.dimensions.index(dimension)
        relations[axis] = Relation(axis, results=groups.numbers, inputs=groups.numbers)
    operation = f"anomaly from means by {groups.by or 'labels'}"
    return remember_inputs(result, Inputs(array, tuple(relations), operation))


def _check_cycle(array: MasterArray, by: Any) -> None:
    """Raise NotFoundError for periods that follow each other."""
    if isinstance(by, str) and by not in CYCLES and by not in array.coords:
        near = names_hint(by, CYCLES, "give one of")
        hint = f"give one of: {', '.join(CYCLES)}; for means of periods, mean(..., by={by!r})" if by in PERIODS else near
        raise NotFoundError(f"no climatology by {by!r}", variable=array.name, hint=hint)


def _aligned(array: MasterArray, groups: Groups, climatology: Any) -> np.ndarray:
    """Return a climatology in the order and units of an array.

    Its leading dimension has a row for each group. ``climatology``: a master array, a DataArray, or the values of one in the
    order of the dimensions.
    """
    expected = result_dimensions(array, (groups.dimension,), groups)
    climatology = _with_names(array, expected, climatology)
    shape = tuple(climatology.sizes.get(d, -1) for d in expected if d != groups.name)
    own = tuple(array.sizes[d] for d in expected if d != groups.name)
    if sorted(climatology.dimensions) != sorted(expected) or shape != own:
        what = f"a climatology over {dict(climatology.sizes)} for groups {groups.name!r} of {dict(array.sizes)}"
        raise SelectionError(
            what, variable=array.name, hint=f"give one over {', '.join(expected)}, as climatology(by=...) returns"
        )
    check_coordinates(array, climatology, [d for d in expected if d != groups.name], "means")
    if array.units != climatology.units and array.units is not None and climatology.units is not None:
        climatology = climatology.to_units(array.units)
    labels = climatology.coords.get(groups.name)
    positions = np.arange(groups.count)
    if labels is not None:
        places = {label: n for n, label in enumerate(labels[:].tolist())}
        absent = [str(label) for label in groups.labels.tolist() if label not in places]
        if absent:
            what = f"the climatology lacks groups of {groups.name!r}: {listed(absent)}"
            raise NotFoundError(what, variable=array.name, hint="give a climatology of all of them")
        positions = np.array([places[label] for label in groups.labels.tolist()], np.int64)
    elif climatology.sizes[groups.name] != groups.count:
        what = f"a climatology of {climatology.sizes[groups.name]} groups without labels, for {groups.count} groups"
        raise SelectionError(what, variable=array.name, hint=f"give it a coordinate {groups.name!r}")
    ordered = climatology.transpose(groups.name, *(d for d in expected if d != groups.name))
    read = ordered.read(masked=True).astype(np.float64)
    return np.ma.filled(read, np.nan)[positions]


def _with_names(array: MasterArray, names: Sequence[str], climatology: Any) -> MasterArray:
    """Return a climatology as an array; SelectionError for other objects."""
    given = named_array(array, climatology)
    if not isinstance(given, type(array)):
        values, mask = data_and_mask(given if isinstance(given, np.ndarray | list | tuple) else np.array(None))
        if values.dtype.kind not in "iufb" or values.ndim != len(names):
            what = f"a climatology of type {type(climatology).__name__}, shape {values.shape} and dtype {values.dtype}"
            hint = f"give an array over {', '.join(names)}, as climatology(by=...) returns"
            raise SelectionError(what, variable=array.name, hint=hint)
        given = in_memory(array, array.name, np.where(mask, np.nan, values.astype(np.float64)), names, array.units)
    if given.dtype.kind not in "iufb":
        what = f"a climatology of dtype {given.dtype}"
        raise SelectionError(what, variable=array.name, hint="give an array of real numbers")
    return given


def _difference(array: MasterArray, axis: int, numbers: np.ndarray, norm: np.ndarray) -> np.ndarray:
    """Return values less the rows of their groups, block by block."""
    dtype = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
    result = np.empty(array.shape, dtype)
    edges = [np.concatenate(([0], np.cumsum(sizes))).tolist() for sizes in array.chunks_for(_BLOCK)]
    for key in product(*([slice(a, b) for a, b in pairwise(e)] for e in edges)):
        values = np.ma.filled(array.read(key, masked=True).astype(np.float64), np.nan)
        rows = numbers[key[axis]]
        others: tuple[Any, ...] = tuple(s for d, s in enumerate(key) if d != axis)
        part = norm[(np.where(rows < 0, 0, rows), *others)] if len(norm) else np.full((len(rows), *values.shape[1:]), np.nan)
        part[rows < 0] = np.nan
        result[key] = values - np.moveaxis(part, 0, axis)
    return result


def _attributes(array: MasterArray, groups: Groups) -> dict[str, Any]:
    attrs = {k: v for k, v in array.attrs.items() if k not in (*DROPPED, *FLAGS, "standard_name")}
    name = array.attrs.get("standard_name")
    if name in _ANOMALIES:
        attrs["standard_name"] = f"{name}_anomaly"
    described = array.attrs.get("long_name") or name or array.name or "array"
    attrs["long_name"] = f"anomaly from means by {groups.by or 'labels'}: {described}"
    if has_temperature(array.units):
        attrs["units_metadata"] = f"temperature: {DIFFERENCE}"
    return attrs
