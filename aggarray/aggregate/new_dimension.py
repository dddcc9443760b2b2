"""New dimensions from attributes or paths, and checks of names in rules.

Each array gets the new dimension as a scalar coordinate; scalar coordinates that differ become a leading dimension in the
join. Rules that name something that no array has raise AggregationError, because the name is probably misspelt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from aggarray.aggregate.identity import identity_of, uri_of
from aggarray.aggregate.rules import ERA5_VERSIONS, FACETS, Rules, facet, parse_dimension
from aggarray.arrays.lazy import bounds_names
from aggarray.arrays.master import MasterArray
from aggarray.arrays.subarray import SubArray
from aggarray.cf.units import is_reference_time, normal_calendar
from aggarray.cf.units.compatibility import canonical_units, equivalent
from aggarray.cf.units.udunits import signature
from aggarray.dataclass import replace
from aggarray.errors import AggregationError, UnitsError
from aggarray.partition.tiling import expand


def with_dimension(
    arrays: Sequence[MasterArray], new_dimension: str, series: Sequence[Sequence[str]] | None = None
) -> list[MasterArray]:
    """Return the arrays with the scalar coordinate of a new dimension.

    Arrays without a value are not changed. Values become int64 if all are whole numbers, else text. ``series``: the values of
    each array that has the dimension, but no coordinate. Raises AggregationError where no array has a value, and where an array
    has a dimension or coordinate of that name already.
    """
    name, pattern = parse_dimension(new_dimension)
    along = series or [()] * len(arrays)
    values = [own or _value(array, name, pattern) for array, own in zip(arrays, along, strict=True)]
    if arrays and all(v is None for v in values):
        where = f"an attribute {name!r}" if pattern is None else f"a path that {pattern.pattern!r} matches"
        what = f"new_dimension={new_dimension!r}: no file has {where}"
        raise AggregationError(what, hint="correct the name or the pattern")
    stated = [(a, v) for a, v in zip(arrays, values, strict=True) if isinstance(v, str)]
    taken = [a for a, _ in stated if name in (*a.dimensions, *a.coords)]
    if taken:
        raise AggregationError(
            f"new_dimension={new_dimension!r}: the array has a dimension or coordinate {name!r} already",
            path=next((str(uri) for uri in taken[0]._matrix.references.uris), None),
            variable=taken[0].name,
            hint="give another name",
        )
    integers = all(re.fullmatch(r"-?[0-9]{1,18}", v) for v in chain((v for _, v in stated), *along))
    dtype: Any = np.int64 if integers else np.dtypes.StringDType()
    extended = list(arrays)
    for number, value in enumerate(values):
        if value is not None:
            texts = [value] if isinstance(value, str) else value
            known = np.array([int(text) for text in texts] if integers else texts, dtype)
            known.flags.writeable = False
            coordinate = _scalar(name, known[0, ...]) if isinstance(value, str) else _joined(name, known)
            extended[number] = replace(arrays[number], coords={**arrays[number].coords, name: coordinate})
    return extended


def _scalar(name: str, known: np.ndarray) -> MasterArray:
    scalar = MasterArray.from_subarrays([((), SubArray.from_array(known))], dimensions=(), name=name)
    return replace(scalar, _known=(known, None))


def _joined(name: str, known: np.ndarray) -> MasterArray:
    """Return the join of the scalar coordinates of the files of a series."""
    first, count = _scalar(name, known[0, ...]), len(known)
    one, order, zeros = expand(first._matrix, name), np.arange(count, dtype=np.int32), np.zeros(count, np.int32)
    memory = tuple([known[n, ...] for n in range(count)])
    references = replace(one.references, memory=memory, uri=zeros - np.int32(1), variable=order, template=zeros)
    edges = (np.arange(count + 1, dtype=np.int64),)
    return replace(first, _matrix=replace(one, edges=edges, references=references, refs=order), _known=(known, None))


def with_members(series: MasterArray, name: str, arrays: Sequence[MasterArray]) -> list[MasterArray]:
    """Return arrays of a series' files, with its values of a new dimension."""
    rows = {uri: row for row, uri in enumerate(series._matrix.references.uris)}
    known = series.coords[name]._values_and_mask()[0]
    own = [_scalar(name, known[rows[uri_of(array)], ...]) for array in arrays]
    return [replace(a, coords={**a.coords, name: scalar}) for a, scalar in zip(arrays, own, strict=True)]


def _value(array: MasterArray, name: str, pattern: re.Pattern[str] | None) -> str | None:
    if pattern is None:
        return facet(array.file_attrs, name) if name in array.file_attrs else facet(array.attrs, name)
    for uri in array._matrix.references.uris:
        match = pattern.search(str(uri))
        if match is not None:
            return match.group(1)
    return None


def check_names(arrays: Sequence[MasterArray], rules: Rules) -> None:
    """Raise AggregationError for unknown names, UnitsError for invalid units."""
    if not arrays:
        return
    names = {"along": rules.along or (), "order": [*rules.order], "directions": [*rules.directions], "units": [*rules.units]}
    if any(names.values()):
        _check_known(arrays, names)
    for name in () if rules.separate_by == FACETS else rules.separate_by:
        if not any(name in array.file_attrs or name in array.attrs for array in arrays):
            raise AggregationError(f"separate_by names {name!r}, an attribute that no file has", hint="correct or omit it")
    # The preset for ERA5 also accepts files of final data alone, which have no version.
    if rules.versions not in (None, ERA5_VERSIONS) and not any(rules.versions in array.coords for array in arrays):
        known = ", ".join(sorted({name for array in arrays for name in array.coords})) or "none"
        raise AggregationError(f"versions={rules.versions!r}: no array has such a coordinate", hint=f"the arrays have {known}")
    for name, how in rules.order.items():
        spanning = [array for array in arrays if name in array.dimensions]
        if spanning and all(name in a.coords and a.coords[name].dimensions == (name,) for a in spanning):
            what = f"order={{{name!r}: {how!r}}}: {name} has a coordinate, which gives the order"
            raise AggregationError(what, hint="omit it")
    if rules.units:
        _check_units([item for array in arrays for item in (array, *array.coords.values())], rules.units)


def _check_units(items: Sequence[MasterArray], units_by_name: Mapping[str, str]) -> None:
    """Raise UnitsError for units that no array converts to, or invalid ones."""
    used = {item.units for item in items}
    for name, units in units_by_name.items():
        argument = f"units={{{name!r}: {units!r}}}"
        if is_reference_time(units):  # standard and 360-day calendar together have every possible date
            parses = any(canonical_units(units, each).startswith("reference time") for each in ("standard", "360_day"))
        else:
            parses = not units.strip() or signature(units.strip()) is not None
        if units not in used and not parses:
            raise UnitsError(f"{argument}: not a unit that UDUNITS knows", hint="correct it")
        named = [item for item in items if name in (item.name, identity_of(item))]
        distinct, first = {(item.units, item.calendar) for item in named}, named[0]
        if not any(equivalent(own, calendar, units, normal_calendar(units, calendar)) for own, calendar in distinct):
            path = next((str(uri) for uri in first._matrix.references.uris), None)
            what = f"units do not convert: {first.units!r} to {units!r}"
            raise UnitsError(what, path=path, variable=first.name, hint=f"correct {argument}")


def _check_known(arrays: Sequence[MasterArray], names_by_field: Mapping[str, Sequence[str]]) -> None:
    bounds = {own for a in arrays for c in a.coords.values() for own in bounds_names(c)}
    spanned = {name for array in arrays for name in array.dimensions}
    dimensions = spanned | {name for array in arrays for name in array.coords} - bounds
    dimensions |= {str(c.attrs["standard_name"]) for a in arrays for c in a.coords.values() if "standard_name" in c.attrs}
    quantities = {name for array in arrays for name in (array.name or "", identity_of(array))}
    quantities |= {text for a in arrays for n, c in a.coords.items() if n not in bounds for text in (n, identity_of(c))}
    for field, names in names_by_field.items():
        available = {"units": quantities, "order": spanned}.get(field, dimensions)
        unknown = [name for name in names if name not in available]
        if unknown:
            listed = ", ".join(sorted(available - {""})) or "none"
            what = "bounds, which follow their coordinate" if unknown[0] in bounds else "which no array has"
            raise AggregationError(f"{field} names {unknown[0]!r}, {what}", hint=f"the arrays have {listed}")
