"""Scanned structures with the fixes of an aggregation applied."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from aggarray.aggregate.report import Problem
from aggarray.formats.base import Structure, fixed_names, scan_values
from aggarray.index import Opening
from aggarray.index.decoder import unplain
from aggarray.index.encoder import plain
from aggarray.index.uris import resolve_uri, written
from aggarray.opening.provenance import Provenance
from aggarray.read.open_files import with_coordinates
from aggarray.scan.fixes import FIELDS, Fix, is_absolute, make_fix
from aggarray.scan.repairs import match_counts, repaired
from aggarray.scan.structure_table import StructureTable
from aggarray.storage import relocated
from aggarray.storage.access import Access

if TYPE_CHECKING:
    from aggarray.index.record_columns import ContinuedRecords

#: Attributes that make coordinates, whose values a scan reads.
_NAMING = frozenset(("coordinates", "bounds", "climatology"))
#: Attributes by which stored values become values. Fragments without units have those of the array (CF section 2.8).
_PACKING = ("scale_factor", "add_offset", "_Unsigned", "_FillValue", "missing_value", "valid_min", "valid_max", "valid_range")
_MEANING = ("units", "calendar", *_PACKING)


def repaired_structures(structures: Sequence[Structure], fixes: Sequence[Fix], access: Access) -> Sequence[Structure]:
    """Return structures with fixes applied, as a table if they are one.

    Values of variables that become coordinates are read from the files.
    """
    adds_coordinates = any(fix.rename or not _NAMING.isdisjoint(fix.set or ()) for fix in fixes)

    def made(structure: Structure) -> Structure:
        after, used = repaired(structure, fixes)
        return _with_values(structure, after, access) if used and adds_coordinates else after

    fixed = map(made, structures)
    return StructureTable(fixed) if isinstance(structures, StructureTable) else list(fixed)


def _with_values(before: Structure, after: Structure, access: Access) -> Structure:
    """Return a repaired structure with the values that scans read."""
    stored, expected = fixed_names(after)[0], scan_values(before.variables)
    wanted = {name for name in scan_values(after.variables) if stored.get(name, name) not in expected}
    if after.assumed is not None:  # others are read, and verified, on access
        wanted &= {v.name for v in after.variables if len(v.dimensions) == 1}
    return with_coordinates(after, wanted, access)


def stored_fixes(fixes: Sequence[Fix], folder: str, relative: bool) -> list[Any]:
    """Return fixes as JSON, absolute globs like the files of an index."""

    def condition(one: Any) -> Any:
        return {"path": written([one], folder, relative)[0]} if isinstance(one, str) and is_absolute(one) else plain(one)

    def stored(fix: Fix) -> dict[str, Any]:
        values = {name: getattr(fix, name) for name in FIELDS if getattr(fix, name)}
        where = {"where": list(map(condition, fix.conditions))} if fix.conditions else {}
        return {**{name: plain(value) for name, value in values.items()}, **where}

    return list(map(stored, fixes))


def restored_fixes(stored: Any, folder: str, how: Opening) -> tuple[Fix, ...]:
    """Return the fixes of `stored_fixes`, with globs on present folders.

    ``folder``: that of the index. Raises AggregationError, and the errors of Python, for damaged ones.
    """

    def condition(one: Any) -> Any:
        if isinstance(one, dict) and "path" in one:
            return relocated(resolve_uri(how.path_map.applied(str(one["path"])), folder))
        return unplain(one)

    return tuple(
        make_fix({name: list(map(condition, value)) if name == "where" else unplain(value) for name, value in fields.items()})
        for fields in stored
    )


def redefined_variables(structures: Sequence[Structure] | ContinuedRecords, fixes: Sequence[Fix]) -> set[tuple[str, str]]:
    """Return (file, variable) whose stored values fixes redefine.

    Other software reads their files, and does not know the fixes. Of the columns of an index, one file of each kind is
    repaired.
    """
    redefined = set[tuple[str, str]]()
    if not isinstance(structures, Sequence):
        has_globs = any(isinstance(one, str) for fix in fixes for one in fix.conditions)
        extra = partial(_matching_paths, fixes) if has_globs else None
        for structure, uris in structures.base.kinds_of_files(_consulted(fixes), extra) if fixes else ():
            names = _redefined(structure, fixes)
            redefined.update((uri, name) for uri in (uris if names else ()) for name in names)
        structures = structures.added
    for structure in structures if fixes else ():
        redefined.update((structure.uri, name) for name in _redefined(structure, fixes))
    return redefined


def _redefined(structure: Structure, fixes: Sequence[Fix]) -> list[str]:
    """Return the variables of a file whose stored values fixes redefine."""
    after, used = repaired(structure, fixes)
    stored, before = fixed_names(after)[0], {v.name: v for v in structure.variables}
    redefined = []
    for v in after.variables if used else ():
        name = stored.get(v.name, v.name)
        own = before[name].attrs
        stated = [n for n in _MEANING if n in own or n in _PACKING]
        if own is not v.attrs and any(repr(own.get(n)) != repr(v.attrs.get(n)) for n in stated):
            redefined.append(name)
    return redefined


def _consulted(fixes: Sequence[Fix]) -> set[str]:
    """Return the attributes of files on which the effect of fixes depends."""
    names = {name for fix in fixes for condition in fix.conditions if not isinstance(condition, str) for name in condition}
    return names.union(*(fix.rename for fix in fixes if fix.rename is not None and not isinstance(fix.rename, str)))


def _matching_paths(fixes: Sequence[Fix], uri: str) -> tuple[bool, ...]:
    """Return which globs of fixes match a path."""
    return tuple(fix.matches_path(uri) for fix in fixes if any(isinstance(one, str) for one in fix.conditions))


def unmatched(provenance: Provenance) -> list[Fix]:
    """Return the fixes that concern no file, except optional ones."""
    structures = () if all(fix.optional for fix in provenance.fixes) else provenance.structures()
    if not len(structures):  # those of a selection by position are unknown
        return []
    counts = match_counts(structures, provenance.fixes)
    return [fix for fix, count in zip(provenance.fixes, counts, strict=True) if not count and not fix.optional]


def fix_problems(provenance: Provenance) -> list[Problem]:
    """Return a problem for each fix that concerns no file."""
    return [Problem("fix", None, f"{fix!r} matches no file: correct it, or leave it out") for fix in unmatched(provenance)]
