"""Structures of files with fixes applied.

The scanned structures stay as they are: arrays are made of the repaired ones. Shifted times keep their stored values. Their
units get another date.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from aggarray.cf.attributes import basename, text_attribute
from aggarray.cf.frozen import FrozenDict, Immutable, frozen
from aggarray.cf.units import is_reference_time
from aggarray.dataclass import fields, replace
from aggarray.errors import AggarrayError, AggregationError, UnitsError
from aggarray.formats.base import Attributes, FixedStructure, Structure, Variable, fixed_names
from aggarray.scan.comparison import own_number
from aggarray.scan.fixes import Fix
from aggarray.scan.renaming import named_in, renamed
from aggarray.scan.roles import VariableNames

#: Attributes in the dtype of the stored values.
_STORED = ("_FillValue", "missing_value", "valid_min", "valid_max", "valid_range", "flag_values", "flag_masks")
_MISSING, _FACTORS = ("_FillValue", "missing_value"), ("scale_factor", "add_offset")
#: Attributes that bounds share with their coordinate (CF section 7.1).
_SHARED = ("units", "calendar")


def repaired(structure: Structure, fixes: Sequence[Fix]) -> tuple[Structure, list[int]]:
    """Return a structure with fixes applied in order, and their numbers.

    A structure that no fix concerns is returned as it is. Raises the error of a fix that contradicts the file, with its path.
    """
    used, raw = [], structure
    for number, fix in enumerate(fixes):
        if fix.matches(structure.uri, structure.attrs):
            try:
                changed = _dropped(structure, fix) if fix.drop else _changed(structure, fix)
            except AggarrayError as error:
                error.path, error.variable = structure.uri, error.variable or fix.variable
                raise
            if changed is not structure:
                structure = changed
                used.append(number)
    if not used:
        return raw, used
    if any(name in (fixes[number].set or ()) for number in used for name in _SHARED):
        _check_times(structure, raw)
    seen = -1 if raw.assumed is None else own_number(raw, raw.assumed)
    return replace(_fixed(structure, *fixed_names(structure)), seen=seen), used


def _check_times(structure: Structure, raw: Structure) -> None:
    """Raise UnitsError for dates of times that are not in their calendar."""
    from aggarray.cf.units.calendars import epoch

    stored, names = fixed_names(structure)[0], VariableNames(structure)
    before = {v.name: v.attrs for v in raw.variables}
    for v in structure.variables:
        own = before[stored.get(v.name, v.name)]
        if v.attrs is own or not _counts_time(v) or all(own.get(name) == v.attrs.get(name) for name in _SHARED):
            continue
        parent = names.variables.get(names.parents.get(v.name, ""), v)
        calendar = text_attribute(v.attrs.get("calendar", parent.attrs.get("calendar")))
        try:
            epoch(str(text_attribute(v.attrs["units"])), calendar)
        except UnitsError as error:
            error.path, error.variable = raw.uri, v.name
            raise


def match_counts(structures: Sequence[Structure], fixes: Sequence[Fix]) -> list[int]:
    """Return the number of files that each fix concerns."""
    counts = [0] * len(fixes)
    for structure in structures if fixes else ():
        for number in repaired(structure, fixes)[1]:
            counts[number] += 1
    return counts


def _dropped(structure: Structure, fix: Fix) -> Structure:
    variables = tuple(v for v in structure.variables if not fix.concerns(v.name))
    skipped = tuple(item for item in structure.skipped if not fix.concerns(item[0]))
    if len(variables) + len(skipped) == len(structure.variables) + len(structure.skipped):
        return structure
    return replace(structure, variables=variables, skipped=skipped)


def _changed(structure: Structure, fix: Fix) -> Structure:
    # A name that is both a variable and an attribute of the file is that of the variable.
    paths = named_in(structure) if fix.rename is not None else set[str]()
    renames: FrozenDict[str] = fix.rename if isinstance(fix.rename, FrozenDict) else FrozenDict()
    if fix.variable is None:
        own = FrozenDict({old: new for old, new in renames.items() if not _named(old, paths)})
        attrs = _repaired_attributes(structure.attrs, fix, None, own)
        structure = structure if attrs is structure.attrs else replace(structure, attrs=attrs)
    else:
        structure = _with_dimensions(_with_attributes(structure, fix, renames), fix, renames)
    structure = _shifted(structure, fix) if fix.shift_time is not None else structure
    if isinstance(fix.rename, str):
        chosen = {path: fix.rename for path in paths if fix.concerns(path)}
    else:
        chosen = {path: renames[old] for old in renames if fix.variable is None for path in _named(old, paths)}
    return _with_names(structure, chosen) if chosen else structure


def _named(name: str, paths: Collection[str]) -> list[str]:
    """Return the paths that a name means: in any group, unless it is a path."""
    if "/" in name:
        return [path for path in paths if path == name.removeprefix("/")]
    return [path for path in paths if basename(path) == name]


def _with_attributes(structure: Structure, fix: Fix, renames: FrozenDict[str]) -> Structure:
    """Return a structure with other attributes of variables and bounds."""
    changed = dict[str, Attributes]()
    for v in structure.variables:
        if fix.concerns(v.name):
            attrs = _repaired_attributes(v.attrs, fix, v.dtype, renames)
            if attrs is not v.attrs:
                changed[v.name] = attrs
    if not changed:
        return structure
    names = VariableNames(structure)
    for bounds, parent in names.parents.items():
        if parent in changed and bounds not in changed:
            before, attrs = names.variables[parent].attrs, names.variables[bounds].attrs
            followed = _followed(attrs, before, changed[parent])
            if followed is not attrs:
                changed[bounds] = followed
    variables = tuple(replace(v, attrs=changed[v.name]) if v.name in changed else v for v in structure.variables)
    stored, units = fixed_names(structure)
    kept = {name: text for name, text in units.items() if name not in changed or "units" not in (*(fix.set or ()), *fix.delete)}
    structure = replace(structure, variables=variables)
    return structure if len(kept) == len(units) else _fixed(structure, stored, FrozenDict(kept))


def _repaired_attributes(attrs: Attributes, fix: Fix, dtype: np.dtype[Any] | None, renames: FrozenDict[str]) -> Attributes:
    """Return attributes with the changes of a fix, the same object if none.

    ``dtype``: of the variable, None for the file.
    """
    return _of_shared(Immutable(frozen(attrs)), Immutable(fix), dtype, renames, Immutable(attrs))


@lru_cache(maxsize=4096)
def _of_shared(
    shared: Immutable[FrozenDict[Any]],
    by: Immutable[Fix],
    dtype: np.dtype[Any] | None,
    renames: FrozenDict[str],
    own: Immutable[Any],
) -> Attributes:
    """Return repaired attributes, computed once for shared ones."""
    before, fix = shared.item, by.item
    after = {name: value for name, value in before.items() if name not in fix.delete}
    for old, new in renames.items():
        if old in after:
            if new in after:
                what = f"a fix renames attribute {old!r} to {new!r}, which exists"
                raise AggregationError(what, hint=f"delete={[new]!r} in the same fix")
            after = {new if name == old else name: value for name, value in after.items()}
    given = fix.set or {}
    unsigned = {**after, **given}.get("_Unsigned") in ("true", "True")
    made = {name: _attribute(name, value, dtype, unsigned) for name, value in given.items()}
    if len(after) == len(before) and not made and after.keys() == before.keys():
        return own.item  # type: ignore[no-any-return]
    return FrozenDict({**after, **made})


def _attribute(name: str, value: Any, dtype: np.dtype[Any] | None, unsigned: bool = False) -> Any:
    """Return the value of an attribute as a scan returns it.

    ``unsigned``: whether the values are seen as unsigned.
    """
    is_text = isinstance(value, str) or (isinstance(value, tuple) and isinstance(value[0], str))
    if dtype is not None and name in (*_STORED, *_FACTORS) and dtype.kind in ("iufb" if is_text else "SUTO"):
        own, hint = (str(dtype), "give a value of this dtype") if is_text else ("text", "give it to a variable of numbers")
        raise AggregationError(f"a fix sets {name}={_shown(value)} of a variable of {own}", hint=hint)
    if is_text:
        return value if isinstance(value, str) else list(value)
    made = np.asarray(value)
    if dtype is None:
        return made[()]
    if name in _FACTORS and dtype.kind == "f" and not isinstance(value, np.generic):
        made = made.astype(dtype)  # the values keep their dtype
    if name in _STORED and dtype.kind in "iuf":
        with np.errstate(all="ignore"):
            cast = made.astype(dtype)
            wraps = dtype.kind == "i" and bool((made.astype(f"u{dtype.itemsize}") == made).all())
        is_exact = bool((np.isfinite(cast) == np.isfinite(made)).all()) if dtype.kind == "f" else bool((cast == made).all())
        limits = name.startswith("valid_")
        if is_exact or (wraps and (unsigned or not limits)):
            made = cast
        elif not limits or (made.dtype.kind != "f" and not isinstance(value, np.generic)):
            hint = "give a value of its dtype" + (", or a floating one for unpacked values" if limits else "")
            raise AggregationError(f"a fix sets {name}={_shown(value)}, which {dtype} cannot hold", hint=hint)
    return made[()]


def _shown(value: Any) -> str:
    return repr(list(value) if isinstance(value, tuple) else value)


def _followed(bounds: Attributes, before: Attributes, after: Attributes) -> Attributes:
    """Return the attributes of bounds, changed as those of their coordinate."""
    shared = [n for n in _SHARED if n in bounds and bounds[n] == before.get(n) and after.get(n) != before.get(n)]
    if not shared:
        return bounds
    changed = {name: value for name, value in bounds.items() if name not in shared}
    return FrozenDict({**changed, **{name: after[name] for name in shared if name in after}})


def _with_dimensions(structure: Structure, fix: Fix, renames: FrozenDict[str]) -> Structure:
    """Return a structure with dimensions of single variables renamed."""
    if not any(old in v.dimensions for v in structure.variables if fix.concerns(v.name) for old in renames):
        return structure
    variables = list[Variable]()
    for v in structure.variables:
        dimensions = tuple(renames.get(d, d) for d in v.dimensions) if fix.concerns(v.name) else v.dimensions
        if len({*dimensions}) < len(dimensions):
            what = f"a fix gives two dimensions of {v.name!r} the same name: {dimensions}"
            raise AggregationError(what, variable=v.name, hint="rename both: rename={old: new, ...}")
        variables.append(v if dimensions == v.dimensions else replace(v, dimensions=dimensions))
    return replace(structure, variables=tuple(variables))


def _shifted(structure: Structure, fix: Fix) -> Structure:
    """Return a structure whose reference times have another date."""
    from aggarray.cf.units.calendars import shifted_epoch

    names = VariableNames(structure)
    chosen = [v for v in structure.variables if _counts_time(v) and (fix.concerns(v.name) or _is_time(fix, v, names))]
    targets = {v.name: v for v in chosen}
    for v in chosen:
        targets.update({b: names.variables[b] for b in names.bounds(v) if _counts_time(names.variables[b])})
    if not targets or fix.shift_time is None:
        return structure
    stored, units = fixed_names(structure)
    changed, shown = dict[str, Attributes](), dict(units)
    for name, v in targets.items():
        before, parent = str(text_attribute(v.attrs["units"])), names.variables.get(names.parents.get(name, ""), v)
        calendar = text_attribute(v.attrs.get("calendar", parent.attrs.get("calendar")))
        shown.setdefault(name, before)
        changed[name] = _with_units(Immutable(frozen(v.attrs)), shifted_epoch(before, calendar, *fix.shift_time))
    variables = tuple(replace(v, attrs=changed[v.name]) if v.name in changed else v for v in structure.variables)
    return _fixed(replace(structure, variables=variables), stored, FrozenDict(shown))


@lru_cache(maxsize=4096)
def _with_units(attrs: Immutable[FrozenDict[Any]], units: str) -> FrozenDict[Any]:
    return FrozenDict({**attrs.item, "units": units})


def _counts_time(variable: Variable) -> bool:
    return is_reference_time(text_attribute(variable.attrs.get("units")))


def _is_time(fix: Fix, variable: Variable, names: VariableNames) -> bool:
    """Return whether a fix without a variable means this time coordinate."""
    is_coordinate = not variable.dimensions or names.is_coordinate(variable)
    stated = text_attribute(variable.attrs.get("standard_name"))
    is_time = stated == "time" or (stated is None and is_coordinate)
    return fix.variable is None and is_time and variable.name not in names.parents


def _with_names(structure: Structure, chosen: Mapping[str, str]) -> Structure:
    before = fixed_names(structure)
    structure, paths = renamed(structure, chosen.get)
    stored = {new: before[0].get(old, old) for old, new in paths.items()}
    units = FrozenDict({paths[name]: text for name, text in before[1].items() if name in paths})
    return _fixed(structure, FrozenDict({new: old for new, old in stored.items() if new != old}), units)


def _fixed(structure: Structure, stored: Mapping[str, str], units: Mapping[str, str]) -> FixedStructure:
    own = {f.name: getattr(structure, f.name) for f in fields(Structure)}
    return FixedStructure(**own, stored=stored, units=units)
