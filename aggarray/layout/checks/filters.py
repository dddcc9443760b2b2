"""Filters of the chunks that differ between the files of an array."""

from collections.abc import Iterator, Mapping
from typing import Any

from aggarray.layout.base import Archive, Check, Extract, Finding, minority


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the arrays with files of other codecs, levels or orders of filters."""
    for array in archive.arrays:
        usual, others, number = minority((member.file.uri, member.layout.filters) for member in array.members)
        for filters, files in others.items():
            own, most = (", ".join(names or ()) or "no filters" for names in (filters, usual))
            text = f"{array.name}: {own}, where most files have {most}"
            yield Finding(text, tuple(files), number, Extract(array.number))


CHECK = Check("filters", {}, find)
