"""Data variables of a file as arrays with their coordinates.

`roles` determines the data variables. Results that equal files share are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from aggarray.arrays.lazy import with_step
from aggarray.arrays.master import MasterArray
from aggarray.arrays.values import KnownValues
from aggarray.cf.attributes import text_attribute, words
from aggarray.cf.frozen import FrozenDict, Immutable, frozen, intern_value
from aggarray.cf.units import normal_calendar
from aggarray.cf.units.temperature import DIFFERENCE, temperature_of
from aggarray.dataclass import NamedTuple, replace
from aggarray.errors import AggarrayError, UnitsError
from aggarray.formats.base import Attributes, Structure, Variable, fixed_names
from aggarray.formats.flattened import flat_name
from aggarray.formats.templates import are_pairs_decreasing, is_decreasing, template_of
from aggarray.partition.conform import fill_for
from aggarray.partition.matrix import Step, Template, single
from aggarray.scan.roles import Roles, VariableNames, roles_of, samplings_of
from aggarray.storage.access import ANYWHERE, Access

#: Attributes that are parameters of an array, not descriptions of it.
PARAMETERS = frozenset(
    (
        *("units", "calendar", "_FillValue", "missing_value", "valid_min", "valid_max", "valid_range"),
        *("scale_factor", "add_offset", "_Unsigned", "_Encoding"),
    )
)


def arrays_of(
    structure: Structure, access: Access = ANYWHERE, rows: bool = True
) -> tuple[list[MasterArray], list[tuple[str, str]]]:
    """Return arrays of data variables, and (name, reason) of unusable ones."""
    file = _FileVariables(structure, access)
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

    def usable(name: str, flat: bool) -> MasterArray | None:
        try:
            return file.flat(name) if flat else file.array(name)
        except AggarrayError as error:
            skipped.append((name, str(error)))
            return None

    samplings = samplings_of(structure) if rows else ()
    if samplings:
        from aggarray.aggregate.sampling import with_rows

        arrays = with_rows(structure, samplings, arrays, usable)
    return arrays, list(dict.fromkeys(skipped))


def _roles(file: _FileVariables) -> Roles:
    """Return the roles of the variables of a file, cached for equal files."""
    structure = file.structure
    key: object = structure.assumed
    if key is None or type(structure) is not Structure:
        if any(type(v.attrs) is not FrozenDict for v in structure.variables):
            return roles_of(file.names)
        variables = tuple((v.name, v.shape, v.dimensions, Immutable(v.attrs)) for v in structure.variables)
        key = variables, tuple(words(structure.attrs.get("coordinates")))
    cached: list[Roles] = _shared(key)
    if not cached:
        cached.append(roles_of(file.names))
    return cached[0]


@lru_cache(maxsize=1024)
def _shared(key: object) -> list[Any]:
    """Return the list that files or variables with equal keys share."""
    return []


class _Description(NamedTuple):
    """What the arrays of equal variables share.

    ``parent``: units, calendar and temperature kind of the coordinate whose bounds a variable is, which the bounds share (CF
    7.1), its dtype without a meaning; ``trivial``: values are as stored.
    """

    template: Template
    parent: Step | None
    attrs: FrozenDict[Any]
    fill_value: Any
    trivial: bool


def _describe(variable: Variable, structure: Structure, directions: Sequence[bool], parent: Variable | None) -> _Description:
    template, quantity = template_of(variable, structure, directions), None
    if parent is not None:
        units = text_attribute(parent.attrs.get("units"))
        calendar = normal_calendar(units, text_attribute(parent.attrs.get("calendar")))
        quantity = Step(units, calendar, np.dtype("f8"), temperature=temperature_of(units, parent.attrs))
        units = template.units if template.units is not None else units
        calendar = normal_calendar(units, text_attribute(variable.attrs.get("calendar")) or calendar)
        kind = quantity.temperature if template.temperature is None else template.temperature
        template = replace(template, units=units, calendar=calendar, temperature=kind)
    encoding, kind = template.encoding, template.temperature
    attrs = {k: v for k, v in variable.attrs.items() if k not in PARAMETERS}
    stated = kind == temperature_of(template.units, attrs) and (kind != DIFFERENCE or "units_metadata" in attrs)
    if kind is not None and not stated:
        attrs["units_metadata"] = f"temperature: {kind}"  # other attributes imply it (CF 3.1.2)
    fill = fill_for(encoding.dtype, encoding.fill_value)
    return _Description(template, quantity, intern_value(attrs), fill, encoding.trivial)


class _FileVariables:
    """The variables of one file by name, and the arrays made of them."""

    def __init__(self, structure: Structure, access: Access) -> None:
        self.structure, self.names, self._access = structure, VariableNames(structure), access
        self.variables, self._parents = self.names.variables, self.names.parents
        self._attrs = frozen(structure.attrs)  # shared by all arrays of the file
        self._stored, self._units = fixed_names(structure)
        # The scanned state of the file, by which reads detect changes.
        self._stamps = None if structure.stamp is None else np.array([structure.stamp], np.int64)
        assumed = structure.assumed
        self._seen: np.ndarray | None = None
        if assumed is not None:
            from aggarray.scan.comparison import own_number

            self._seen = np.array([own_number(structure, assumed)], np.int64)
        self._arrays: dict[str, MasterArray] = {}

    def array(self, name: str) -> MasterArray:
        """Return a variable as an array; bounds inherit units (CF section 7.1)."""
        if name not in self._arrays:
            self._arrays[name] = self._array(self.variables[name])
        return self._arrays[name]

    def flat(self, name: str) -> MasterArray:
        """Return a variable of two dimensions as an array of its joined rows."""
        variable = self.variables[name]
        values = None if variable.values is None else variable.values.reshape(-1)
        size, (_, width) = prod(variable.shape), variable.shape
        made = self._array(replace(variable, shape=(size,), dimensions=variable.dimensions[1:], values=values), [True])
        template, name = made._matrix.references.templates[0], flat_name(self._stored.get(name, name), width)
        return replace(made, _matrix=single(template, self.structure.uri, name, self._stamps, self._seen))

    def _array(self, variable: Variable, directions: Sequence[bool] | None = None) -> MasterArray:
        name, structure, values = variable.name, self.structure, variable.values
        template, parent, attrs, fill, trivial = self._description(
            variable, self._directions(variable) if directions is None else directions
        )
        known: KnownValues | None = None
        if values is not None:
            values, mask = (values, None) if trivial else template.encoding.decode(values)
            values = values if mask is None else np.where(mask, np.asarray(fill, values.dtype), values)
            if values.flags.writeable:
                values = values.view()
                values.flags.writeable = False
            known = values, mask
        matrix = single(template, structure.uri, self._stored.get(name, name), self._stamps, self._seen)
        parameters = template.encoding.dtype, template.units, template.calendar, fill
        made = MasterArray(name, *parameters, matrix, attrs, self._file_attrs(variable), {}, known, self._access)
        coordinate = self._parents.get(name, name)
        made = made if parent is None or parent.units is None else _in_units_of(made, parent, coordinate)
        shown = self._units.get(coordinate) if self._units else None
        return made if shown is None or made.units is None else _in_units(made, replace(made._step, units=shown))

    def _description(self, variable: Variable, directions: Sequence[bool]) -> _Description:
        v, structure, parent = variable, self.structure, self.variables.get(self._parents.get(variable.name, ""))
        if type(v.attrs) is not FrozenDict or (parent is not None and type(parent.attrs) is not FrozenDict):
            return _describe(v, structure, directions, parent)
        owners = Immutable(v.attrs), None if parent is None else Immutable(parent.attrs)
        stored = v.name, v.dtype, v.shape, v.dimensions, tuple(directions)
        cached: list[_Description] = _shared((owners, stored, structure.format, structure.assumed))
        if not cached:
            cached.append(_describe(v, structure, directions, parent))
        return cached[0]

    def _file_attrs(self, variable: Variable) -> Attributes:
        group = variable.name.rpartition("/")[0]
        if not group:
            return self._attrs
        attrs = dict(self.structure.attrs)
        for path in accumulate(group.split("/"), "{}/{}".format):
            attrs.update(self.structure.groups.get(path, {}))
        return attrs

    def _directions(self, variable: Variable) -> list[bool]:
        """Return directions by coordinates; decreasing pairs of bounds count too."""
        forward = []
        for d in variable.dimensions:
            name = variable.name if self.names.is_coordinate(variable) else self.names.coordinate(variable, d)
            forward.append(not is_decreasing(self.variables[name].values if name else None))
        pairs, assumed = variable.values, self.structure.assumed
        stored = self._stored.get(variable.name, variable.name)
        if assumed is not None and stored in assumed.facts and len(forward) == 2 and pairs is None:
            forward[1] = not assumed.facts[stored].falls
        if variable.name in self._parents and pairs is not None and pairs.shape[1:] == (2,):
            forward[1] = not are_pairs_decreasing(pairs)
        return forward


def _in_units_of(bounds: MasterArray, coordinate: Step, name: str) -> MasterArray:
    """Return bounds in the units of a coordinate, or raise UnitsError."""
    own = bounds._step
    if (own.units, own.calendar) == (coordinate.units, coordinate.calendar):
        return bounds
    step = replace(own, units=coordinate.units, calendar=coordinate.calendar)
    try:
        # promise: bounds-units
        return _in_units(bounds, step, coordinate.temperature)
    except UnitsError as error:
        hint = "give both the same units, or omit those of the bounds"
        raise UnitsError(f"bounds of {name!r}: {error}", hint=hint) from error


def _in_units(array: MasterArray, step: Step, temperature: str | None = None) -> MasterArray:
    """Return an array in other units; integers stay integers if they can."""
    from aggarray.cf.units.compatibility import conversion_between

    conversion = conversion_between(array._step, replace(step, temperature=temperature))
    if not conversion.identity and array.dtype.kind in "iu":
        step = replace(step, dtype=np.dtype(np.int64 if conversion.integer_exact else np.float64))
    return with_step(array, step)
