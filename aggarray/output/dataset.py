"""Groups of arrays that can be the variables of one dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from aggarray.arrays.pickling import fingerprint
from aggarray.cf.attributes import words
from aggarray.cf.units import is_reference_time
from aggarray.cf.units.calendars import decodable
from aggarray.dataclass import dataclass, field, replace
from aggarray.errors import AggregationError, UnitsError

#: Variable name of an array without a name.
NAMELESS = "array"
#: Path of the only dataset, and of the dataset in the root group.
ROOT = "/"


def variable_name(array: Any) -> str:
    """Return the variable name of an array, without its group."""
    return (array.name or NAMELESS).rpartition("/")[2] or NAMELESS


@dataclass(frozen=True, slots=True, eq=False)
class DatasetGroup:
    """Arrays that share dimensions and coordinates; ``variables``: by name."""

    arrays: tuple[Any, ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)

    def joined(self, array: Any) -> DatasetGroup | None:
        """Return the group with one more array, or None if they conflict.

        A conflict: another array has the same name, a dimension has another size, or a coordinate has other values.
        """
        name = variable_name(array)
        if name in map(variable_name, self.arrays):
            return None
        sizes = {d: n for variable in self.variables.values() for d, n in zip(variable.dimensions, variable.shape, strict=True)}
        variables = dict(self.variables)
        for key, variable in {name: array, **{k: c for k, c in array.coords.items() if k != name}}.items():
            if any(sizes.setdefault(d, n) != n for d, n in zip(variable.dimensions, variable.shape, strict=True)):
                return None
            present = variables.get(key)
            if present is not None and not same(present, variable):
                return None
            if present is not None and present is not variable:
                variable = replace(present, attrs=common_attributes([present.attrs, variable.attrs]))
            variables[key] = variable
        return DatasetGroup((*self.arrays, array), variables)

    def attributes(self) -> dict[str, dict[str, Any]]:
        """Return the attributes of every variable, units included.

        The attribute ``coordinates`` of an array lists each of its coordinates that is not a coordinate variable, wherever the
        files list them. Bounds do not repeat the units of their coordinate (CF section 7.1).
        """
        attrs = {name: {**variable.attrs, **_units(variable)} for name, variable in self.variables.items()}
        for array in self.arrays:
            auxiliary_names = auxiliary(array)
            if auxiliary_names:
                attrs[variable_name(array)]["coordinates"] = " ".join(auxiliary_names)
        for variable in self.variables.values():
            for bounds in _names_in(variable, "bounds", "climatology"):
                if bounds in attrs and _units(self.variables[bounds]) == _units(variable):
                    attrs[bounds] = {k: v for k, v in attrs[bounds].items() if k not in ("units", "calendar", "units_metadata")}
        return attrs


def decodable_times(group: DatasetGroup) -> DatasetGroup:
    """Return a group whose times have units that xarray decodes."""
    variables = {}
    for name, array in group.variables.items():
        units = decodable(array.units) if is_reference_time(array.units) else array.units
        with suppress(UnitsError):  # xarray rejects units that do not parse
            variables[name] = array if units == array.units else array.to_units(units)
        variables.setdefault(name, array)
    return replace(group, variables=variables)


def grouped(arrays: Iterable[Any]) -> list[DatasetGroup]:
    """Return groups of arrays: each array joins the first group that it fits."""
    groups: list[DatasetGroup] = []
    for array in arrays:
        for number, group in enumerate(groups):
            extended = group.joined(array)
            if extended is not None:
                groups[number] = extended
                break
        else:
            groups.append(group_of(array))
    return groups


def group_of(array: Any) -> DatasetGroup:
    """Return the group of an array; AggregationError if coordinates conflict."""
    group = DatasetGroup().joined(array)
    if group is None:
        raise AggregationError("its coordinates have dimensions of other sizes", variable=variable_name(array))
    return group


def same(array: Any, other: Any) -> bool:
    """Return whether two arrays have equal metadata and values.

    The metadata are dimensions, shape, dtype, units and calendar.
    Values are read only if the files differ.
    """
    if array is other:
        return True
    if any(getattr(array, key) != getattr(other, key) for key in ("dimensions", "shape", "dtype", "units", "calendar")):
        return False
    if array._known is None and other._known is None and fingerprint(array) == fingerprint(other):
        return True
    return equal(array.read(), other.read())


def equal(value: Any, other: Any) -> bool:
    """Return whether two values are equal; NaN equals NaN."""
    first, second = np.asarray(value), np.asarray(other)
    if first.shape != second.shape or first.dtype.kind != second.dtype.kind:
        return False
    return np.array_equal(first, second, equal_nan=first.dtype.kind in "fcmM")


def common_attributes(mappings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the attributes that all mappings have with equal values.

    >>> common_attributes([{"title": "a", "source": "b"}, {"title": "a", "source": "c"}])
    {'title': 'a'}
    """
    first, *others = mappings or [{}]
    return {k: v for k, v in first.items() if all(k in other and equal(v, other[k]) for other in others)}


def _units(array: Any) -> dict[str, str]:
    return {key: text for key in ("units", "calendar") if (text := getattr(array, key)) is not None}


def _names_in(array: Any, *attributes: str) -> list[str]:
    """Return the names that some attributes list, without keys ("name:")."""
    return [w.rpartition("/")[2] for key in attributes for w in words(array.attrs.get(key)) if not w.endswith(":")]


def auxiliary(array: Any) -> list[str]:
    """Return the names of the coordinates that are not coordinate variables.

    The names that the attribute ``coordinates`` lists come first.
    """
    variables = (array, *array.coords.values())
    keys = [w.rstrip(":").rpartition("/")[2] for w in words(array.attrs.get("grid_mapping")) if w.endswith(":")]
    grid_mappings = keys or _names_in(array, "grid_mapping")  # CF section 5.6
    excluded = {*grid_mappings, *_names_in(array, "cell_measures")}
    excluded |= {b for variable in variables for b in _names_in(variable, "bounds", "climatology")}
    names = [name for name in array.coords if name not in excluded and name not in array.dimensions]
    listed = [name for name in dict.fromkeys(_names_in(array, "coordinates")) if name in array.coords]
    return [*listed, *(name for name in names if name not in listed)]
