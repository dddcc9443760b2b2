"""Chunks that reach far beyond the end of the array."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from aggarray.layout.base import Archive, Check, Finding, Member, rechunked


def _padding(member: Member) -> float:
    """Return the values beyond the array, as a fraction of its values."""
    layout = member.layout
    if layout.chunk is None or not math.prod(layout.shape):
        return 0.0
    return math.prod(layout.grid) * math.prod(layout.chunk) / math.prod(layout.shape) - 1


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the arrays whose chunks are padded by more than a fraction."""
    for array in archive.arrays:
        padded = [m for m in array.members if _padding(m) > settings["most"] and m.layout.chunk_nbytes >= settings["tiny"]]
        if padded:
            worst = max(padded, key=_padding)
            chunk, shape = (" x ".join(map(str, sides or ())) for sides in (worst.layout.chunk, worst.layout.shape))
            text = f"{array.name}: chunks of {chunk} for {shape} values: {_padding(worst):.0%} padding"
            files = tuple(dict.fromkeys(member.file.uri for member in padded))
            yield Finding(text, files, len(array.members), rechunked(archive, array, padded))


CHECK = Check("chunk_padding", {"most": float, "tiny": int}, find)
