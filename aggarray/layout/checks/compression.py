"""Large variables that are stored without compression."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aggarray.layout.base import Archive, Check, Extract, Finding, chunk_option, suggested_chunks
from aggarray.scan.progress import amount


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the arrays with files whose values are stored as they are."""
    for array in archive.arrays:
        plain = [m for m in array.members if not m.layout.filters and m.layout.nbytes >= settings["least"]]
        if plain:
            text = f"{array.name}: {amount(max(m.layout.nbytes for m in plain), 'bytes')} stored without compression"
            files = tuple(dict.fromkeys(member.file.uri for member in plain))
            options = ("--compress", "zlib:4", *chunk_option(suggested_chunks(array, archive.limits)))
            yield Finding(text, files, len(array.members), Extract(array.number, options))


CHECK = Check("compression", {"least": int}, find)
