"""Data variables of a file as arrays with their coordinates.

`roles` determines the data variables. Results that equal files share are computed once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from aggarray.aggregate.bounds import in_units_of
from aggarray.aggregate.sampling import with_rows
from aggarray.arrays import MasterArray
from aggarray.cf.frozen import FrozenDict, Immutable, frozen, intern_value
from aggarray.cf.units import normal_calendar, temperature_of
from aggarray.cf.units.temperature import DIFFERENCE
from aggarray.errors import AggarrayError
from aggarray.formats.base import Attributes, Structure, Variable, words
from aggarray.formats.flattened import flat_name
from aggarray.formats.templates import is_decreasing, template_of, text_attribute
from aggarray.partition.conform import fill_for
from aggarray.partition.matrix import Step, Template, single
from aggarray.partition.signatures import FileSignature
from aggarray.scan.comparison import own_number
from aggarray.scan.roles import Roles, VariableNames, roles_of

#: Attributes that are parameters of an array, not descriptions of it.
PARAMETERS = frozenset(
    (
        *("units", "calendar", "_FillValue", "missing_value", "valid_min", "valid_max", "valid_range"),
        *("scale_factor", "add_offset", "_Unsigned", "_Encoding"),
    )
)


def arrays_of(structure: Structure, rows: bool = True) -> tuple[list[MasterArray], list[tuple[str, str]]]:
    """Return the data variables of a file as arrays of one partition.

    Coordinates are attached. Also returns (variable, reason) for each variable that cannot be used. ``rows``: variables along
    samples become ragged arrays.
    """
    file = _FileVariables(structure)
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

    def usable(name: str, flat: bool = False) -> MasterArray | None:
        try:
            return file.flat(name) if flat else file.array(name)
        except AggarrayError as error:
            skipped.append((name, str(error)))
            return None

    if rows:
        arrays = with_rows(structure, arrays, usable)
    return arrays, list(dict.fromkeys(skipped))


@dataclass(slots=True)
class _VariableGroup:
    """Roles and arrays that files with an assumed signature share.

    ``arrays``: by name, with the variable that each was made of and the other values it depends on.
    """

    roles: Roles | None = None
    arrays: dict[str, tuple[Variable, object, MasterArray]] = field(default_factory=dict)


@lru_cache(maxsize=64)
def _kind(assumed: FileSignature) -> _VariableGroup:
    return _VariableGroup()


def _roles(file: "_FileVariables") -> Roles:
    """Return the roles of the variables of a file, cached for equal files."""
    if file.kind is not None:
        if file.kind.roles is None:
            file.kind.roles = roles_of(file.names)
        return file.kind.roles
    variables = file.structure.variables
    if any(type(v.attrs) is not FrozenDict for v in variables):
        return roles_of(file.names)
    variable_key = tuple((v.name, v.shape, v.dimensions, Immutable(v.attrs)) for v in variables)
    cached = _shared_roles(variable_key, tuple(words(file.structure.attrs.get("coordinates"))))
    if not cached:
        cached.append(roles_of(file.names))
    return cached[0]


@lru_cache(maxsize=64)
def _shared_roles(variables: tuple[Any, ...], stated: tuple[str, ...]) -> list[Roles]:
    """Return the list that holds the roles of files with these variables."""
    return []


class _FileVariables:
    """The variables of one file by name, and the arrays made of them."""

    def __init__(self, structure: Structure) -> None:
        self.structure, self.names = structure, VariableNames(structure)
        self.kind = None if structure.assumed is None else _kind(structure.assumed)
        self.variables, self._parents = self.names.variables, self.names.parents
        self._attrs = frozen(structure.attrs)  # shared by all arrays of the file
        # The scanned state of the file, by which reads detect changes.
        self._stamps = None if structure.stamp is None else np.array([structure.stamp], np.int64)
        assumed = structure.assumed
        self._seen = None if assumed is None else np.array([own_number(structure, assumed)], np.int64)
        self._arrays: dict[str, MasterArray] = {}

    def array(self, name: str) -> MasterArray:
        """Return a variable as an array of one partition. Bounds without units take those of their coordinate (CF 7.1)."""
        if name not in self._arrays:
            variable, kind = self.variables[name], self.kind
            self._arrays[name] = self._array(variable) if kind is None else self._copy_for_group(variable, kind)
        return self._arrays[name]

    def flat(self, name: str) -> MasterArray:
        """Return a variable of two dimensions as an array of its joined rows."""
        variable = self.variables[name]
        values = None if variable.values is None else variable.values.reshape(-1)
        size, (_, width) = prod(variable.shape), variable.shape
        made = self._array(replace(variable, shape=(size,), dimensions=variable.dimensions[1:], values=values), [True])
        template = made._matrix.references.templates[0]
        return replace(made, _matrix=single(template, self.structure.uri, flat_name(name, width), self._stamps, self._seen))

    def _copy_for_group(self, variable: Variable, kind: _VariableGroup) -> MasterArray:
        """Return a variable as an array, reusing that of an equal file. Only the location differs then."""
        name, assumed = variable.name, self.structure.assumed
        own = assumed is not None and not assumed.along.isdisjoint(variable.dimensions)
        parent = self.variables.get(self._parents.get(name, ""))
        units = None if parent is None else _quantity(parent)
        key = tuple(self._directions(variable)) if own else None, units, name.rpartition("/")[0] or None
        cached = kind.arrays.get(name)
        if cached is None or cached[0] is not variable or cached[1] != key:
            array = self._array(variable)
            if key[2] is None and (assumed is None or name not in assumed.read):
                kind.arrays[name] = (variable, key, array)
            return array
        array = cached[2]
        matrix = single(array._matrix.references.templates[0], self.structure.uri, name, self._stamps, self._seen)
        return replace(array, _matrix=matrix, file_attrs=self._attrs)

    def _array(self, variable: Variable, directions: Sequence[bool] | None = None) -> MasterArray:
        parent = self.variables.get(self._parents.get(variable.name, ""))
        template = template_of(variable, self.structure, self._directions(variable) if directions is None else directions)
        quantity = None if parent is None else _quantity(parent)
        if quantity is not None:
            units = template.units if template.units is not None else quantity.units
            calendar = text_attribute(variable.attrs.get("calendar")) or quantity.calendar
            kind = quantity.temperature if template.temperature is None else template.temperature
            template = replace(template, units=units, calendar=normal_calendar(units, calendar), temperature=kind)
        decoding = template.encoding
        made = MasterArray(
            variable.name,
            decoding.dtype,
            template.units,
            template.calendar,
            fill_for(decoding.dtype, decoding.fill_value),
            single(template, self.structure.uri, variable.name, self._stamps, self._seen),
            _described(variable.attrs, template),
            self._file_attrs(variable),
            {},
            None if variable.values is None else _decoded(template, variable.values),
        )
        return made if quantity is None or quantity.units is None else in_units_of(made, quantity, self._parents[variable.name])

    def _file_attrs(self, variable: Variable) -> Attributes:
        group = variable.name.rpartition("/")[0]
        if not group:
            return self._attrs
        attrs = dict(self.structure.attrs)
        parts = group.split("/")
        for depth in range(len(parts)):
            attrs.update(self.structure.groups.get("/".join(parts[: depth + 1]), {}))
        return attrs

    def _directions(self, variable: Variable) -> list[bool]:
        """Return directions by coordinates; decreasing pairs of bounds count too."""
        forward = []
        for d in variable.dimensions:
            name = variable.name if self.names.is_coordinate(variable) else self.names.coordinate(variable, d)
            forward.append(not is_decreasing(self.variables[name].values if name else None))
        pairs, assumed = variable.values, self.structure.assumed
        if assumed is not None and variable.name in assumed.facts and len(forward) == 2 and pairs is None:
            forward[1] = not assumed.facts[variable.name].falls
        if variable.name in self._parents and pairs is not None and pairs.shape[1:] == (2,) and pairs.dtype.kind in "iuf":
            forward[1] = not (len(pairs) and bool((pairs[:, 1] < pairs[:, 0]).all()))
        return forward


def _decoded(template: Template, stored: np.ndarray) -> Any:
    """Return values and mask of a scanned coordinate, missing values filled."""
    values, mask = (stored, None) if template.encoding.trivial else template.encoding.decode(stored)
    if mask is not None:
        values = np.where(mask, np.asarray(fill_for(values.dtype, template.encoding.fill_value), values.dtype), values)
    if values.flags.writeable:
        values = values.view()
        values.flags.writeable = False
    return values, mask


def _quantity(coordinate: Variable) -> Step:
    """Return units, calendar and temperature kind of a coordinate. Its bounds share them (CF 7.1). The dtype has no meaning."""
    units = text_attribute(coordinate.attrs.get("units"))
    calendar = normal_calendar(units, text_attribute(coordinate.attrs.get("calendar")))
    return Step(units, calendar, np.dtype("f8"), temperature=temperature_of(units, coordinate.attrs))


def _described(attrs: Attributes, template: Template) -> FrozenDict[Any]:
    """Return the attributes of an array, with the kind of a temperature.

    It is added where other attributes imply it (CF 3.1.2).
    """
    described, kind = _descriptions(attrs), template.temperature
    if kind is None or (
        kind == temperature_of(template.units, described) and (kind != DIFFERENCE or "units_metadata" in described)
    ):
        return described
    return intern_value({**described, "units_metadata": f"temperature: {template.temperature}"})


def _descriptions(attrs: Attributes) -> FrozenDict[Any]:
    """Return the attributes without the parameters."""
    if type(attrs) is FrozenDict:
        return _descriptions_of_shared(Immutable(attrs))
    return intern_value({k: v for k, v in attrs.items() if k not in PARAMETERS})


@lru_cache(maxsize=1024)
def _descriptions_of_shared(attrs: Immutable[FrozenDict[Any]]) -> FrozenDict[Any]:
    return intern_value({k: v for k, v in attrs.item.items() if k not in PARAMETERS})
