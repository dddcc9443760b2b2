"""Coordinates of cells that have no bounds, or bounds that the file lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from aggarray.cf.attributes import words
from aggarray.formats.base import Variable
from aggarray.formats.partial_scan import FileLayout
from aggarray.layout.base import Archive, Check, Finding
from aggarray.layout.remedies import is_netcdf, with_attribute

#: Names and method of an entry of ``cell_methods``, such as ``time: lat: mean`` (CF section 7.3).
_ENTRY = re.compile(r"((?:\w+:\s+)+)(\w+)")

_NOTE = (
    "headers do not give the cells: write the bounds as CF section 7.1 describes, times with cdo settbounds,FREQUENCY, "
    "others with ncap2 make_bounds if cells end halfway between coordinates"
)


def averaged(cell_methods: Any) -> set[str]:
    """Return the names along which values are of cells, not of points.

    >>> sorted(averaged("area: time: mean (interval: 1 day) height: point"))
    ['area', 'time']
    """
    text = re.sub(r"\([^)]*\)", "", cell_methods) if isinstance(cell_methods, str) else ""
    entries = ((names, method) for names, method in _ENTRY.findall(text) if method != "point")
    return {name.rstrip(":") for names, _ in entries for name in names.split()}


def _faults(file: FileLayout, variable: Variable) -> Iterator[tuple[str, str]]:
    """Yield faults of coordinates, and the line that mends each, "" if none."""
    group = variable.name.rpartition("/")[0]
    names = {v.name: v for v in file.structure.variables}
    for dimension in variable.dimensions:
        coordinate = names.get(f"{group}/{dimension}" if group else dimension) or names.get(dimension)
        if coordinate is None:
            continue
        attribute = "bounds" if coordinate.attrs.get("bounds") else "climatology"
        stated, has_cells = words(coordinate.attrs.get(attribute)), dimension in averaged(variable.attrs.get("cell_methods"))
        if stated and not any(name in names or f"{group}/{name}" in names for name in stated[:1]):
            # Points need no bounds.
            can_delete = is_netcdf(file) and not has_cells
            line = with_attribute(file.uri, coordinate.name, attribute, None) if can_delete else ""
            yield f"{dimension}: the bounds {stated[0]!r} do not exist", line
        elif not stated and has_cells:
            yield f"{dimension}: no bounds, but cell_methods of its cells", ""


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the coordinates whose bounds are missing."""
    found: dict[str, dict[str, str]] = {}
    members = {(m.file.uri, m.variable.name): m for array in archive.arrays for m in array.members}
    for (uri, _), member in members.items():
        for fault, line in _faults(member.file, member.variable):
            lines = found.setdefault(fault, {})
            lines[uri] = line and lines.get(uri, line)  # cells of any variable need the bounds
    examined = len({uri for uri, _ in members})
    for fault, lines in found.items():
        mending = {uri: line for uri, line in lines.items() if line}
        yield Finding(fault, tuple(lines), examined, mending, "" if len(mending) == len(lines) else _NOTE)


CHECK = Check("bounds", {}, find)
