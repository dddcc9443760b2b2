"""Which arrays can be variables of one dataset, and what do its variables say of each other?

Variables of a dataset share dimensions and coordinates: a name stands for one thing only. Pure: nothing here knows xarray.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from aggarray.cf.units import decodable, is_reference_time
from aggarray.errors import AggregationError, UnitsError
from aggarray.formats.base import words
from aggarray.interop.pickling import fingerprint

#: The name of a variable that has none.
NAMELESS = "array"


def variable_name(array: Any) -> str:
    """Return the name of an array as a variable, without its group."""
    return (array.name or NAMELESS).rpartition("/")[2] or NAMELESS


@dataclass(frozen=True, slots=True, eq=False)
class DatasetGroup:
    """Arrays that share dimensions and coordinates, and the variables of their dataset by name."""

    arrays: tuple[Any, ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)

    def joined(self, array: Any) -> "DatasetGroup | None":
        """Return the group with one more array; None where that would lose something.

        None if another array has its name, or a dimension another size, or a coordinate other values.
        """
        name = variable_name(array)
        if name in map(variable_name, self.arrays):
            return None
        sizes = {d: n for one in self.variables.values() for d, n in zip(one.dimensions, one.shape, strict=True)}
        found = dict(self.variables)
        for key, one in {name: array, **{k: c for k, c in array.coords.items() if k != name}}.items():
            if any(sizes.setdefault(d, n) != n for d, n in zip(one.dimensions, one.shape, strict=True)):
                return None
            other = found.get(key)
            if other is not None and not same(other, one):
                return None
            found[key] = one if other is None else _agreed(other, one)
        return DatasetGroup((*self.arrays, array), found)

    def attributes(self) -> dict[str, dict[str, Any]]:
        """Return the attributes of all variables, units included.

        Every coordinate that is not one of a dimension is named by the attribute ``coordinates`` of its arrays, whatever
        names it in the files. Bounds do not repeat the units of their coordinate (CF 7.1).
        """
        attrs = {name: {**one.attrs, **_units(one)} for name, one in self.variables.items()}
        for array in self.arrays:
            named = auxiliary(array)
            if named:
                attrs[variable_name(array)]["coordinates"] = " ".join(named)
        for one in self.variables.values():
            for bounds in _named(one, "bounds", "climatology"):
                if bounds in attrs and _units(self.variables[bounds]) == _units(one):
                    attrs[bounds] = {k: v for k, v in attrs[bounds].items() if k not in ("units", "calendar", "units_metadata")}
        return attrs


def decodable_times(group: DatasetGroup) -> DatasetGroup:
    """Return a group whose times are in units that xarray decodes."""
    found = {}
    for name, array in group.variables.items():
        units = decodable(array.units) if is_reference_time(array.units) else array.units
        with suppress(UnitsError):  # xarray refuses units that are not understood
            found[name] = array if units == array.units else array.to_units(units)
        found.setdefault(name, array)
    return replace(group, variables=found)


def grouped(arrays: Iterable[Any]) -> list[DatasetGroup]:
    """Put each array into the first group that it goes into."""
    groups: list[DatasetGroup] = []
    for array in arrays:
        for number, group in enumerate(groups):
            more = group.joined(array)
            if more is not None:
                groups[number] = more
                break
        else:
            groups.append(alone(array))
    return groups


def alone(array: Any) -> DatasetGroup:
    """Return the group of one array; AggregationError where its coordinates do not fit it."""
    group = DatasetGroup().joined(array)
    if group is None:
        raise AggregationError(f"{variable_name(array)}: its coordinates have dimensions of other sizes: no dataset holds both")
    return group


def _agreed(one: Any, other: Any) -> Any:
    """Return one of two arrays of equal values, with the attributes that both have."""
    if one is other:
        return one
    attrs = common_attributes([one.attrs, other.attrs])
    return one if len(attrs) == len(one.attrs) else replace(one, attrs=attrs)


def same(one: Any, other: Any) -> bool:
    """Tell whether two arrays have the same dimensions, dtype, units and values; these are read only where files differ."""
    if one is other:
        return True
    if any(getattr(one, key) != getattr(other, key) for key in ("dimensions", "shape", "dtype", "units", "calendar")):
        return False
    if one._known is None and other._known is None and fingerprint(one) == fingerprint(other):
        return True
    return equal(one.read(), other.read())


def equal(one: Any, other: Any) -> bool:
    """Tell whether two values are the same; NaN is NaN."""
    first, second = np.asarray(one), np.asarray(other)
    if first.shape != second.shape or first.dtype.kind != second.dtype.kind:
        return False
    return np.array_equal(first, second, equal_nan=first.dtype.kind in "fcmM")


def common_attributes(mappings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the attributes that all mappings have, of equal values.

    >>> common_attributes([{"title": "a", "source": "b"}, {"title": "a", "source": "c"}])
    {'title': 'a'}
    """
    first, *others = mappings or [{}]
    return {k: v for k, v in first.items() if all(k in other and equal(v, other[k]) for other in others)}


def _units(array: Any) -> dict[str, str]:
    """Return units and, of times, calendar."""
    return {key: text for key in ("units", "calendar") if (text := getattr(array, key)) is not None}


def _named(array: Any, *attributes: str) -> list[str]:
    """Return the names in some attributes of an array, those of `grid_mapping` and `cell_measures` without their keys."""
    return [w.rpartition("/")[2] for key in attributes for w in words(array.attrs.get(key)) if not w.endswith(":")]


def auxiliary(array: Any) -> list[str]:
    """Return the names of the coordinates of an array that are not those of a dimension: as it names them, then the others."""
    every = (array, *array.coords.values())
    others = {b for one in every for b in _named(one, "bounds", "climatology")} | set(_mappings(array))
    others |= set(_named(array, "cell_measures"))
    found = [name for name in array.coords if name not in others and name not in array.dimensions]
    stated = [name for name in dict.fromkeys(_named(array, "coordinates")) if name in array.coords]
    return [*stated, *(name for name in found if name not in stated)]


def _mappings(array: Any) -> list[str]:
    """Return the grid mappings of an array, however they are written (CF 5.6)."""
    return [w.rstrip(":").rpartition("/")[2] for w in words(array.attrs.get("grid_mapping")) if w.endswith(":")] or _named(
        array, "grid_mapping"
    )
