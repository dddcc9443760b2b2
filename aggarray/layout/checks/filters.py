"""Filters of the chunks that differ between the files of an array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aggarray.errors import counted
from aggarray.layout.base import Archive, Check, Extract, Finding, compare, differing


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the arrays with files of other codecs, levels or orders."""
    for array in archive.arrays:
        chains = compare((member.file.uri, member.layout.filters) for member in array.members)
        for filters, more, files in differing(chains):
            own, usual = (", ".join(names) or "no filters" for names in (filters, chains.usual))
            note = f"{usual} in {counted(chains.number, 'file')}"
            yield Finding(f"{array.name}: {own}{more}", tuple(files), chains.examined, Extract(array.number), note)


CHECK = Check("filters", {}, find)
