"""Results of reductions as arrays: metadata that says what was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.arrays.history import history_line, names_with_shapes
from aggarray.arrays.inputs import Inputs, Relation, remember_inputs
from aggarray.cf.attributes import basename, words
from aggarray.cf.frequency import Frequency
from aggarray.dataclass import dataclass, replace
from aggarray.errors import UnitsError
from aggarray.reduce.cell_areas import horizontal_dimensions, measure_names
from aggarray.reduce.cell_methods import cell_method, result_attributes, result_units
from aggarray.reduce.coordinates import result_coordinates
from aggarray.reduce.grouping import CYCLES, Groups
from aggarray.reduce.memory_arrays import in_memory
from aggarray.reduce.operations import CHOSEN
from aggarray.reduce.time_cells import step_of, time_along, time_fields
from aggarray.reduce.weighting import weight_units

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

#: File attributes of the step of times, and CMIP values of the first for times of each grouping.
_FREQUENCY, _TABLE = "frequency", "table_id"
_FREQUENCIES = {"year": "yr", "year-month": "mon", "day": "day", "month": "monC"}
_COVERAGE = ("time_coverage_resolution", "time_coverage_duration")


@dataclass(frozen=True, slots=True, eq=False)
class Description:
    """What the results of one pass share: everything but values.

    It is made before values are read, so that coordinates that cannot be read raise their error first. ``dims``: the reduced
    dimensions, that of ``groups`` included; ``weights``: as given to the reduction; ``step``: of the reduced times, or None.
    """

    array: MasterArray
    dims: tuple[str, ...]
    groups: Groups | None
    weights: Any
    coords: Mapping[str, MasterArray]
    weight_units: str | None
    step: Frequency | None

    @classmethod
    def of(cls, array: MasterArray, dims: Sequence[str], groups: Groups | None = None, weights: Any = None) -> Description:
        """Return the description of the results of a reduction."""
        times = [c for d in array.dimensions if d in dims and (c := time_along(array, d)) is not None]
        coords = result_coordinates(array, dims, groups)
        return cls(
            array, tuple(dims), groups, weights, coords, weight_units(array, dims, weights), step_along(array, *times[:1])
        )

    def result(self, values: np.ndarray, mask: np.ndarray | None, operation: str, detail: str = "") -> MasterArray:
        """Return a result as an array in memory.

        ``values``: in the order of the dimensions of the array, without the reduced ones; groups stand in the place of their
        dimension. ``mask``: True where missing, or None. ``detail``: more words about the operation, for ``history``.
        """
        array = self.array
        units, calendar = result_units(array.units, array.calendar, operation, self.weight_units)
        attrs = result_attributes(array.attrs, array.name, array.units, operation, self._method(operation))
        names = result_dimensions(array, self.dims, self.groups)
        # Sums and counts may equal the fill value of the array, and are not missing.
        fill = array.fill_value if operation in CHOSEN else None
        result = in_memory(array, array.name, values, names, units, calendar, mask=mask, fill_value=fill)
        attrs = valid_references(array, attrs, self.coords, self.dims)
        file_attrs = _file_attributes(array, f"{operation} {detail}".strip(), self.dims, self.groups, self.weights)
        result = replace(result, attrs=attrs, file_attrs=file_attrs, coords=self.coords)
        over = ", ".join(d for d in array.dimensions if d in self.dims)
        by = "" if self.groups is None else f" by {self.groups.by or 'labels'}"
        return remember_inputs(result, Inputs(array, tuple(map(self._relation, names)), f"{operation} over {over}{by}"))

    def _relation(self, name: str) -> Relation:
        """Return the relation of a dimension of results to one of the array."""
        groups = self.groups
        if groups is None or name != groups.name:
            return Relation(self.array.dimensions.index(name))
        axis = self.array.dimensions.index(groups.dimension)
        return Relation(axis, results=np.arange(groups.count), inputs=groups.numbers)

    def _method(self, operation: str) -> str | None:
        """Return the cell method of an operation."""
        array, groups = self.array, self.groups
        names = [d for d in array.dimensions if d in self.dims]
        times = [(d, c) for d in names if (c := time_along(array, d)) is not None]
        horizontal = horizontal_dimensions(array)
        is_area = isinstance(self.weights, str) and self.weights == "area"
        if is_area and len(horizontal) > 1 and set(horizontal) <= set(names):
            at = names.index(horizontal[0])
            names = [*(d for d in names[:at] if d not in horizontal), "area", *(d for d in names[at:] if d not in horizontal)]
        if not times:
            return cell_method(names, operation)
        time, coordinate = times[0]
        named = basename(coordinate.name or time)
        is_cycle = groups is not None and groups.edges is not None and groups.by in CYCLES
        cycle = groups.by if groups is not None and is_cycle else None
        return cell_method([named if d == time else d for d in names], operation, time=named, cycle=cycle, step=self.step)


def step_along(array: MasterArray, coordinate: MasterArray | None = None) -> Frequency | None:
    """Return the step of times; None if there is none, or without times."""
    with suppress(UnitsError):  # dates that do not parse have no step
        return None if coordinate is None else step_of(array, time_fields(coordinate))
    return None


def result_dimensions(array: MasterArray, dims: Sequence[str], groups: Groups | None) -> tuple[str, ...]:
    """Return the dimensions of a result, in the order of the array's."""
    own = {groups.dimension: groups.name} if groups is not None else {}
    return tuple(own.get(d, d) for d in array.dimensions if d in own or d not in dims)


def valid_references(
    array: MasterArray, attrs: dict[str, Any], coords: Mapping[str, Any], dims: Sequence[str]
) -> dict[str, Any]:
    """Return attributes without names of variables that no longer apply."""
    horizontal = set(horizontal_dimensions(array)) & set(dims)
    if "coordinates" in attrs:
        present = {basename(name) for name in coords}
        names = [w for w in words(attrs["coordinates"]) if basename(w) in present]
        attrs = {**attrs, "coordinates": " ".join(names)} if names else {k: v for k, v in attrs.items() if k != "coordinates"}
    if "cell_measures" in attrs:
        own = {m: n for m, n in measure_names(array).items() if _measure_applies(array, m, n, dims, bool(horizontal))}
        attrs = {**attrs, "cell_measures": " ".join(f"{m}: {n}" for m, n in own.items())}
    drop = {k for k in ("cell_measures",) if not attrs.get(k)} | ({"grid_mapping"} if horizontal else set())
    return {k: v for k, v in attrs.items() if k not in drop}


def _measure_applies(array: MasterArray, measure: str, name: str, dims: Sequence[str], horizontal: bool) -> bool:
    own = next((c for n, c in array.coords.items() if basename(n) == basename(name)), None)
    if own is not None:
        return not set(own.dimensions) & set(dims)
    # A cell measure in another file has dimensions that are not known here: horizontal, and vertical ones of volumes.
    vertical = any(
        c.dimensions and c.dimensions[0] in dims and ("positive" in c.attrs or c.attrs.get("axis") == "Z")
        for c in array.coords.values()
    )
    return not horizontal and not (measure == "volume" and vertical)


def _file_attributes(array: MasterArray, what: str, dims: Sequence[str], groups: Groups | None, weights: Any) -> dict[str, Any]:
    """Return file attributes with one more line of history."""
    attributes = dict(array.file_attrs)
    if any(time_along(array, d) is not None for d in dims if d in array.dimensions):
        stated = attributes.get(_FREQUENCY)
        frequency = None if groups is None else _FREQUENCIES.get(groups.by or "")
        same = stated is not None and frequency == stated
        attributes = {k: v for k, v in attributes.items() if k not in (_FREQUENCY, *_COVERAGE) and (same or k != _TABLE)}
        if stated is not None and frequency is not None:
            attributes[_FREQUENCY] = frequency
    over = ", ".join(d for d in array.dimensions if d in dims) or "no dimensions"
    by = "" if groups is None else f" by {groups.by or 'labels'}"
    weighted = (
        "" if weights is None else f" with weights {weights}" if isinstance(weights, str) else " with weights of an array"
    )
    line = history_line(f"aggarray reduce of {names_with_shapes([array])}: {what} over {over}{by}{weighted}")
    return {**attributes, "history": "\n".join(filter(None, [line, str(attributes.get("history", ""))]))}
