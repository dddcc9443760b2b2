"""Which variables of a file are data, and what hangs on them?

Follows the roles that CF gives variables: coordinate variables (section 5), ``coordinates``, ``bounds`` and
``climatology`` (7.1, 7.4), ``cell_measures`` (7.2) and ``grid_mapping`` (5.6), names in groups found by proximity
(2.7). What hangs on nothing is data; ancillary variables and formula terms are data too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from aggarray.conform import fill_for
from aggarray.errors import AggarrayError
from aggarray.formats.base import Attributes, Structure, Variable, basename, words
from aggarray.formats.described import is_decreasing, template_of, text_attribute
from aggarray.frozen import FrozenDict, Itself, frozen, interned
from aggarray.master import MasterArray
from aggarray.table import Assumed, Template, single
from aggarray.units import normal_calendar

#: Attributes that are parameters of an array, not descriptions of it.
PARAMETERS = frozenset(
    (
        *("units", "calendar", "_FillValue", "missing_value", "valid_min", "valid_max", "valid_range"),
        *("scale_factor", "add_offset", "_Unsigned", "_Encoding"),
    )
)


def arrays_of(structure: Structure) -> tuple[list[MasterArray], list[tuple[str, str]]]:
    """Return the data variables of a file as arrays of one partition, coordinates hung on them.

    Also returns (variable, reason) for each one that cannot be used.
    """
    file = _File(structure)
    roles, data = _roles(file)
    skipped = list(structure.skipped)
    arrays = []
    for name in data:
        try:
            array = file.array(name)
        except AggarrayError as error:
            skipped.append((name, str(error)))
            continue
        coords = {}
        for key, other in roles[name].items():
            try:
                coords[key] = file.array(other)
            except AggarrayError as error:
                skipped.append((other, str(error)))
        arrays.append(replace(array, coords=coords))
    return arrays, list(dict.fromkeys(skipped))


#: What hangs on each variable, by base name; and which variables are data.
_Roles: TypeAlias = tuple[Mapping[str, Mapping[str, str]], tuple[str, ...]]


@dataclass(slots=True)
class _Kind:
    """What is the same for files that are assumed to be alike: data variables, what hangs on each, arrays made of variables.

    ``arrays``: by name, with the variable that each was made of and what else it depends on.
    """

    roles: _Roles | None = None
    arrays: dict[str, tuple[Variable, object, MasterArray]] = field(default_factory=dict)


@lru_cache(maxsize=64)
def _kind(assumed: Assumed) -> _Kind:
    return _Kind()


def _roles(file: "_File") -> _Roles:
    """Return the roles of the variables of a file: worked out once for files alike."""
    if file.kind is not None:
        if file.kind.roles is None:
            file.kind.roles = _found_roles(file)
        return file.kind.roles
    variables = file.structure.variables
    if any(type(v.attrs) is not FrozenDict for v in variables):
        return _found_roles(file)
    alike = tuple((v.name, v.shape, v.dimensions, Itself(v.attrs)) for v in variables)
    known = _roles_of_alike(alike, tuple(words(file.structure.attrs.get("coordinates"))))
    if not known:
        known.append(_found_roles(file))
    return known[0]


@lru_cache(maxsize=64)
def _roles_of_alike(variables: tuple[Any, ...], stated: tuple[str, ...]) -> list[_Roles]:
    """Return where the roles are kept in files that have these variables: an archive has many."""
    return []


def _found_roles(file: "_File") -> _Roles:
    variables, hung = file.structure.variables, set[str]()
    roles = {v.name: dict(file.hanging(v)) for v in variables}
    for name, names in roles.items():
        hung.update(h for h in names.values() if h != name)
    data = [v.name for v in variables if v.name not in hung and not file.is_coordinate(v)]
    reached = {h for name in data for h in roles[name].values()}
    spare = [v for v in variables if v.name not in reached and v.name not in data]
    return roles, (*data, *(v.name for v in spare if file.stands_alone(v, roles)))


class _File:
    """The variables of one file by name, and the arrays made of them."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.kind = None if structure.assumed is None else _kind(structure.assumed)
        self.variables = {v.name: v for v in structure.variables}
        self._attrs = frozen(structure.attrs)  # shared by all arrays of the file
        # What the file was like: reading finds out where it has changed.
        self._stamps = None if structure.stamp is None else np.array([structure.stamp], np.int64)
        self._arrays: dict[str, MasterArray] = {}
        self._parents: dict[str, str] = {}
        self._roles = [v for v in structure.variables if "cf_role" in v.attrs]
        for v in structure.variables:
            for attribute in ("bounds", "climatology"):
                for found in self.named(v, words(v.attrs.get(attribute))):
                    self._parents.setdefault(found, v.name)

    def find(self, name: str, group: str) -> str | None:
        """Find a variable by path, or by name in a group or the nearest above it (CF section 2.7)."""
        if name.startswith("/"):
            return name[1:] if name[1:] in self.variables else None
        while True:
            path = f"{group}/{name}" if group else name
            if path in self.variables:
                return path
            if not group:
                return None
            group = group.rpartition("/")[0]

    def named(self, variable: Variable, names: list[str]) -> Iterator[str]:
        """Yield the variables that names in an attribute of ``variable`` stand for."""
        group = variable.name.rpartition("/")[0]
        for name in names:
            found = self.find(name, group)
            if found is not None and found != variable.name:
                yield found

    def coordinate(self, variable: Variable, dimension: str) -> str | None:
        """Return the coordinate variable of a dimension of a variable."""
        found = self.find(dimension, variable.name.rpartition("/")[0])
        if found is None or not self.is_coordinate(self.variables[found]):
            return None
        # A group may have a dimension of that name of its own, of another size.
        size = variable.shape[variable.dimensions.index(dimension)] if dimension in variable.dimensions else None
        return found if size in (None, self.variables[found].shape[0]) else None

    def is_coordinate(self, variable: Variable) -> bool:
        """Tell whether a variable is the coordinate variable of its own dimension."""
        return variable.dimensions == (basename(variable.name),)

    def hanging(self, variable: Variable) -> Iterator[tuple[str, str]]:
        """Yield (key, variable) for all that hangs on a variable; the key is the base name."""
        direct = [c for d in variable.dimensions if (c := self.coordinate(variable, d)) is not None and c != variable.name]
        stated = words(variable.attrs.get("coordinates")) + words(self.structure.attrs.get("coordinates"))
        direct += [c for c in self.named(variable, stated) if set(self.variables[c].dimensions) <= set(variable.dimensions)]
        direct += self._instances(variable)
        if not direct and variable.name in self._parents:
            return
        for name in dict.fromkeys(direct):
            yield basename(name), name
        for name in dict.fromkeys([variable.name, *direct]):
            yield from ((basename(b), b) for b in self.bounds(self.variables[name]))
        for name in self.named(variable, [w for w in words(variable.attrs.get("cell_measures")) if not w.endswith(":")]):
            if set(self.variables[name].dimensions) <= set(variable.dimensions):
                yield basename(name), name
        mapping = words(variable.attrs.get("grid_mapping"))
        stated = [w.rstrip(":") for w in mapping if w.endswith(":")] or mapping
        yield from ((basename(name), name) for name in self.named(variable, stated))

    def _instances(self, variable: Variable) -> list[str]:
        """Return the variables that say which station, profile or trajectory is which (CF section 9.5)."""
        return [
            v.name
            for v in self._roles
            if v.dimensions and v.name != variable.name and set(v.dimensions) <= set(variable.dimensions)
        ]

    def bounds(self, variable: Variable) -> list[str]:
        """Return the boundary variables of a coordinate: its dimensions and one or more for the vertices."""
        found = self.named(variable, words(variable.attrs.get("bounds")) + words(variable.attrs.get("climatology")))
        return [b for b in found if self.variables[b].dimensions[: len(variable.dimensions)] == variable.dimensions]

    def stands_alone(self, variable: Variable, roles: Mapping[str, Mapping[str, str]]) -> bool:
        """Tell whether a coordinate that no data variable uses is to be an array itself: bounds go with their coordinate."""
        parent = self._parents.get(variable.name)
        return parent is None or variable.name not in roles[parent].values()

    def array(self, name: str) -> MasterArray:
        """Return a variable as an array of one partition; bounds take units they lack from their coordinate (CF 7.1)."""
        if name not in self._arrays:
            variable, kind = self.variables[name], self.kind
            self._arrays[name] = self._array(variable) if kind is None else self._alike(variable, kind)
        return self._arrays[name]

    def _alike(self, variable: Variable, kind: _Kind) -> MasterArray:
        """Return a variable as an array: that of another file of its kind but for the place, where both are one variable."""
        name, assumed = variable.name, self.structure.assumed
        own = assumed is not None and not assumed.along.isdisjoint(variable.dimensions)
        parent = self.variables.get(self._parents.get(name, ""))
        units = None if parent is None else (parent.attrs.get("units"), parent.attrs.get("calendar"))
        key = tuple(self._directions(variable)) if own else None, units, name.rpartition("/")[0] or None
        known = kind.arrays.get(name)
        if known is None or known[0] is not variable or known[1] != key:
            made = self._array(variable)
            if key[2] is None and (assumed is None or name not in assumed.read):
                kind.arrays[name] = (variable, key, made)
            return made
        array = known[2]
        matrix = single(array._matrix.references.templates[0], self.structure.uri, name, self._stamps)
        return replace(array, _matrix=matrix, file_attrs=self._attrs)

    def _array(self, variable: Variable) -> MasterArray:
        parent = self.variables.get(self._parents.get(variable.name, ""))
        template = template_of(variable, self.structure, self._directions(variable))
        if parent is not None:
            units = template.units if template.units is not None else text_attribute(parent.attrs.get("units"))
            calendar = text_attribute(variable.attrs.get("calendar", parent.attrs.get("calendar")))
            template = replace(template, units=units, calendar=normal_calendar(units, calendar))
        decoding = template.encoding
        return MasterArray(
            variable.name,
            decoding.dtype,
            template.units,
            template.calendar,
            fill_for(decoding.dtype, decoding.fill_value),
            single(template, self.structure.uri, variable.name, self._stamps),
            _descriptions(variable.attrs),
            self._file_attrs(variable),
            {},
            None if variable.values is None else _decoded(template, variable.values),
        )

    def _file_attrs(self, variable: Variable) -> Attributes:
        group = variable.name.rpartition("/")[0]
        if not group:
            return self._attrs
        found = dict(self.structure.attrs)
        parts = group.split("/")
        for depth in range(len(parts)):
            found.update(self.structure.groups.get("/".join(parts[: depth + 1]), {}))
        return found

    def _directions(self, variable: Variable) -> list[bool]:
        """Directions as the coordinates have them; pairs of bounds that run downwards are a direction too."""
        forward = []
        for d in variable.dimensions:
            name = variable.name if self.is_coordinate(variable) else self.coordinate(variable, d)
            forward.append(not is_decreasing(self.variables[name].values if name else None))
        pairs, assumed = variable.values, self.structure.assumed
        if assumed is not None and variable.name in assumed.facts and len(forward) == 2 and pairs is None:
            forward[1] = not assumed.facts[variable.name].falls
        if variable.name in self._parents and pairs is not None and pairs.shape[1:] == (2,) and pairs.dtype.kind in "iuf":
            forward[1] = not (len(pairs) and bool((pairs[:, 1] < pairs[:, 0]).all()))
        return forward


def _decoded(template: Template, stored: np.ndarray) -> Any:
    """Return values and mask of a coordinate that the scan read; missing ones are NaN where there is one."""
    values, mask = (stored, None) if template.encoding.trivial else template.encoding.decode(stored)
    if mask is not None:
        values = np.where(mask, np.asarray(fill_for(values.dtype, template.encoding.fill_value), values.dtype), values)
    if values.flags.writeable:
        values = values.view()
        values.flags.writeable = False
    return values, mask


def _descriptions(attrs: Attributes) -> FrozenDict[Any]:
    """Return the attributes that are no parameters."""
    if type(attrs) is FrozenDict:
        return _descriptions_of_shared(Itself(attrs))
    return interned({k: v for k, v in attrs.items() if k not in PARAMETERS})


@lru_cache(maxsize=1024)
def _descriptions_of_shared(attrs: Itself[FrozenDict[Any]]) -> FrozenDict[Any]:
    return interned({k: v for k, v in attrs.item.items() if k not in PARAMETERS})
