"""Chunk indexes of many blocks, which lie between the chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aggarray.layout.base import Archive, Check, Finding, rechunked


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the arrays whose chunk index takes many reads."""
    for array in archive.arrays:
        found = [
            member
            for member in array.members
            if member.layout.nodes > settings["most"]
            and member.file.metadata is not None
            and not (member.file.metadata.consolidated or member.file.metadata.paged)
        ]
        if found:
            worst = max(found, key=lambda member: member.layout.nodes).layout
            index = f"{worst.nodes} blocks of the chunk index ({worst.index}, {worst.count} chunks)"
            text = f"{array.name}: {index} lie between the chunks"
            files = tuple(dict.fromkeys(member.file.uri for member in found))
            yield Finding(text, files, len(array.members), rechunked(archive, array, found))


CHECK = Check("chunk_index", {"most": int}, find)
