"""Coordinates of cells that have no bounds, or bounds that the file lacks."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from aggarray.cf.attributes import words
from aggarray.formats.base import Variable
from aggarray.formats.partial_scan import FileLayout
from aggarray.layout.base import Archive, Check, Finding

#: Names and method of an entry of ``cell_methods``, such as ``time: lat: mean`` (CF section 7.3).
_ENTRY = re.compile(r"((?:\w+:\s+)+)(\w+)")

_NOTE = "write the bounds as CF section 7.1 describes; cdo settbounds,FREQUENCY writes those of times, and other chunks"


def averaged(cell_methods: Any) -> set[str]:
    """Return the names along which values are of cells, not of points.

    >>> sorted(averaged("area: time: mean (interval: 1 day) height: point"))
    ['area', 'time']
    """
    text = re.sub(r"\([^)]*\)", "", cell_methods) if isinstance(cell_methods, str) else ""
    entries = ((names, method) for names, method in _ENTRY.findall(text) if method != "point")
    return {name.rstrip(":") for names, _ in entries for name in names.split()}


def _faults(file: FileLayout, variable: Variable) -> Iterator[str]:
    group = variable.name.rpartition("/")[0]
    names = {v.name: v for v in file.structure.variables}
    for dimension in variable.dimensions:
        coordinate = names.get(f"{group}/{dimension}" if group else dimension) or names.get(dimension)
        if coordinate is None:
            continue
        stated = words(coordinate.attrs.get("bounds") or coordinate.attrs.get("climatology"))
        if stated and not any(name in names or f"{group}/{name}" in names for name in stated[:1]):
            yield f"{dimension}: the bounds {stated[0]!r} do not exist"
        elif not stated and dimension in averaged(variable.attrs.get("cell_methods")):
            yield f"{dimension}: no bounds, but cell_methods of its cells"


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the coordinates whose bounds are missing."""
    found: dict[str, list[str]] = {}
    members = {(m.file.uri, m.variable.name): m for array in archive.arrays for m in array.members}
    for (uri, _), member in members.items():
        for fault in _faults(member.file, member.variable):
            found.setdefault(fault, []).append(uri)
    examined = len({uri for uri, _ in members})
    for fault, files in found.items():
        yield Finding(fault, tuple(dict.fromkeys(files)), examined, None, _NOTE)


CHECK = Check("bounds", {}, find)
