"""Names of files and variables that a profile does not allow."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aggarray.formats.partial_scan import FileLayout
from aggarray.layout.base import Archive, Check, Finding
from aggarray.layout.remedies import NCO, is_netcdf, with_attribute

#: Formats of single files, which have names of their own.
_FILES = ("netCDF3", "netCDF4", "HDF5")
#: End of a file name: dates that the file covers, and the suffix.
_DATES = re.compile(r"_\d{4,12}(-\d{4,12})?(-clim)?\.\w+$")


def _variables(archive: Archive, pattern: str) -> Iterator[Finding]:
    found: dict[str, dict[str, FileLayout]] = {}
    for array in archive.arrays:
        for member in array.members:
            if not re.fullmatch(pattern, member.variable.name.rpartition("/")[2]):
                found.setdefault(member.variable.name, {})[member.file.uri] = member.file
    for name, files in found.items():
        group, _, own = name.rpartition("/")
        allowed = re.sub(r"\W", "_", own, flags=re.ASCII)
        new = allowed if re.fullmatch(pattern, allowed) else f"v{allowed}"
        old, path = (f"/{name}", f"{group}/{new}") if group else (name, new)
        lines = {
            uri: shlex.join(["ncrename", "-h", "-O", "-v", f"{old},{new}", uri])
            for uri, file in files.items()
            if re.fullmatch(pattern, new) and is_netcdf(file) and all(v.name != path for v in file.structure.variables)
        }
        note = "" if len(lines) == len(files) else f"rename the variable where {NCO}, or another one has the name {new}"
        yield Finding(f"variable {name!r} does not match {pattern}", tuple(files), len(archive.files), lines, note)


def _base(uri: str) -> str:
    return os.path.basename(uri.partition("?")[0])


def _renamed(file: FileLayout, parts: Sequence[str]) -> str:
    """Return the name of a file by its attributes and dates, "" if unknown."""
    values = [file.structure.attrs.get(name) for name in parts]
    if not values or not all(isinstance(value, str) and re.fullmatch("[^_/]+", value) for value in values):
        return ""
    dates = _DATES.search(_base(file.uri))
    is_fixed = file.structure.attrs.get("frequency") == "fx"
    if dates is None and not is_fixed:  # headers do not give the times
        return ""
    return "_".join(map(str, values)) + (os.path.splitext(file.uri)[1] if dates is None else dates[0])


def _moves(files: Sequence[FileLayout], pattern: str, parts: Sequence[str], present: set[str]) -> dict[str, str]:
    """Return the lines that rename files, none to the name of another one."""
    new = {file.uri: os.path.join(os.path.dirname(file.uri), name) for file in files if (name := _renamed(file, parts))}
    users = Counter([*present, *new.values()])
    return {
        uri: shlex.join(["mv", "-n", uri, path])
        for uri, path in new.items()
        if users[path] == 1 and re.fullmatch(pattern, os.path.basename(path))
    }


def _files(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    pattern = settings["file"]
    named = [file for file in archive.files if file.structure.format in _FILES]
    odd = list[FileLayout]()
    differing: dict[tuple[str, str], dict[str, tuple[FileLayout, Any]]] = {}
    for file in named:
        match = re.fullmatch(pattern, _base(file.uri))
        if match is None:
            odd.append(file)
            continue
        for name, part in match.groupdict().items():
            value = file.structure.attrs.get(name)
            if part is not None and value is not None and str(value) != part:
                differing.setdefault((name, part), {})[file.uri] = file, value
    if odd:
        lines = _moves(odd, pattern, settings.get("parts", ()), {file.uri for file in named})
        note = "rename the files as the profile describes"
        note = "" if len(lines) == len(odd) else f"{note}: their attributes and dates give no new name"
        yield Finding("file names do not match the pattern", tuple(file.uri for file in odd), len(named), lines, note)
    for (name, part), own in differing.items():
        text = f"{name} is not that of the file name ({part!r} in the name, {str(next(iter(own.values()))[1])!r} in the file)"
        can_set = {uri: is_netcdf(file) and isinstance(value, str) for uri, (file, value) in own.items()}
        lines = {uri: with_attribute(uri, "global", name, part) for uri in own if can_set[uri]}
        yield Finding(text, tuple(own), len(named), lines, "correct the attribute, or rename the files if it is right")


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield names that do not match, or that contradict attributes."""
    if settings.get("variable"):
        yield from _variables(archive, settings["variable"])
    if settings.get("file"):
        yield from _files(archive, settings)


CHECK = Check("names", {"variable": str, "file": str, "parts": list}, find, ("variable", "file", "parts"))
