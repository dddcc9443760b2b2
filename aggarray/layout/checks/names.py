"""Names of files and variables that a profile does not allow."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from aggarray.formats.partial_scan import FileLayout
from aggarray.layout.base import Archive, Check, Finding

_ODD = "file names do not match the pattern"
#: Formats of single files, which have names of their own.
_FILES = ("netCDF3", "netCDF4", "HDF5")


def _variables(archive: Archive, pattern: str) -> Iterator[Finding]:
    found: dict[str, list[str]] = {}
    for array in archive.arrays:
        for member in array.members:
            name = member.variable.name.rpartition("/")[2]
            if not re.fullmatch(pattern, name):
                found.setdefault(member.variable.name, []).append(member.file.uri)
    for name, files in found.items():
        allowed = re.sub(r"\W", "_", name.rpartition("/")[2], flags=re.ASCII)
        renamed = allowed if re.fullmatch(pattern, allowed) else f"v{allowed}"
        is_plain = re.fullmatch(pattern, renamed) and "/" not in name
        line = shlex.join(["ncrename", "-h", "-O", "-v", f"{name},{renamed}", files[0]]) if is_plain else None
        text = f"variable {name!r} does not match {pattern}"
        yield Finding(text, tuple(dict.fromkeys(files)), len(archive.files), line, "" if line else "rename the variable")


def _contradictions(file: FileLayout, match: re.Match[str]) -> Iterator[tuple[str, str]]:
    """Yield the attributes that differ from the file name, and both values."""
    for name, part in match.groupdict().items():
        value = file.structure.attrs.get(name)
        if part is not None and value is not None and str(value) != part:
            yield f"{name} is not that of the file name", f" ({part!r} in the name, {str(value)!r} in the file)"


def _files(archive: Archive, pattern: str) -> Iterator[Finding]:
    named = [file for file in archive.files if file.structure.format in _FILES]
    found: dict[str, list[str]] = {}
    examples: dict[str, str] = {}
    for file in named:
        match = re.fullmatch(pattern, os.path.basename(file.uri.partition("?")[0]))
        for fault, example in [(_ODD, "")] if match is None else _contradictions(file, match):
            found.setdefault(fault, []).append(file.uri)
            examples.setdefault(fault, example)
    for fault, files in found.items():
        is_odd = fault == _ODD
        note = "rename the files as the profile describes" if is_odd else "correct the attribute, or rename the files"
        yield Finding(f"{fault}{examples[fault]}", tuple(files), len(named), None, note)


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield names that do not match, or that contradict attributes."""
    if settings.get("variable"):
        yield from _variables(archive, settings["variable"])
    if settings.get("file"):
        yield from _files(archive, settings["file"])


CHECK = Check("names", {"variable": str, "file": str}, find, ("variable", "file"))
