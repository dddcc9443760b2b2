"""Unlimited dimensions that are not the first, or more than one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from aggarray.layout.base import Archive, Check, Finding, Member


def _excess(member: Member) -> tuple[str, ...]:
    """Return the unlimited dimensions besides the first, by their names."""
    names = member.variable.dimensions
    return tuple(names[axis] for axis in member.layout.unlimited if 0 < axis < len(names))


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the arrays with unlimited dimensions besides their first."""
    for array in archive.arrays:
        found: dict[tuple[str, ...], list[str]] = {}
        for member in array.members:
            if excess := _excess(member):
                found.setdefault(excess, []).append(member.file.uri)
        for names, files in found.items():
            text = f"{array.name}: unlimited along {' and '.join(names)}, not only along the first dimension"
            lines = {
                path: " && ".join(shlex.join(["ncks", "-h", "-O", "--fix_rec_dmn", name, path, path]) for name in names)
                for path in files
            }
            yield Finding(text, tuple(lines), len(array.members), lines)


CHECK = Check("unlimited", {}, find)
