"""Attributes that should be equal in all files of an array, and are not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aggarray.errors import counted
from aggarray.layout.base import Archive, ArrayLayout, Check, Finding, Member, compare, differing, value_text
from aggarray.layout.checks.packing import ATTRIBUTES
from aggarray.layout.remedies import NCO, is_netcdf, with_attribute

_LONGEST = 60


def _attributes(member: Member, of_file: bool) -> Mapping[str, Any]:
    return member.file.structure.attrs if of_file else member.variable.attrs


def _differences(array: ArrayLayout, of_file: bool, ignored: Sequence[str]) -> Iterator[Finding]:
    names = dict.fromkeys(name for member in array.members for name in _attributes(member, of_file))
    where = "" if of_file else f"{array.name}: "
    pattern = "|".join(ignored)
    for name in names:
        if pattern and re.fullmatch(pattern, name):
            continue
        stored = {m.file.uri: (m, _attributes(m, of_file).get(name)) for m in array.members}
        texts = [(uri, None if value is None else value_text(value)) for uri, (_, value) in stored.items()]
        values = compare(texts)
        # What differs in every file describes the file.
        if not values.others or len(values.others) + 1 == values.examined > 2:
            continue
        model = next((value for _, value in stored.values() if value is not None and value_text(value) == values.usual), None)
        for value, more, files in differing(values):
            shown = [_shown(text) for text in (value, values.usual)]
            lines = {uri: line for uri in files if (line := _line(stored[uri][0], of_file, name, model))}
            note = f"{shown[1]} in {counted(values.number, 'file')}"
            note += "" if len(lines) == len(files) else f"; set it where {NCO}"
            yield Finding(f"{where}{name} is {shown[0]}{more}", tuple(files), values.examined, lines, note)


def _line(member: Member, of_file: bool, name: str, value: Any) -> str:
    variable = "global" if of_file else member.variable.name
    return with_attribute(member.file.uri, variable, name, value) if is_netcdf(member.file) else ""


def _shown(text: str | None) -> str:
    if text is None:
        return "missing"
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the attributes that differ in some files of an array."""
    seen = set[tuple[str, ...]]()
    for array in archive.arrays:
        files = tuple(member.file.uri for member in array.members)
        # Arrays of the same files have the same attributes of files.
        if files not in seen:
            seen.add(files)
            yield from _differences(array, True, settings["may_differ"])
        yield from _differences(array, False, [*ATTRIBUTES, *settings["variable_may_differ"]])


CHECK = Check("attributes", {"may_differ": list, "variable_may_differ": list}, find)
