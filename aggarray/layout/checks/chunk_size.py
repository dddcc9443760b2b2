"""Chunks that are too small or too large."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from aggarray.layout.base import Archive, ArrayLayout, Check, Finding, Member, rechunked
from aggarray.scan.progress import amount


def _fault(member: Member, settings: Mapping[str, Any]) -> str:
    """Return "small", "large", or "" for a variable of one file."""
    layout, nbytes = member.layout, member.layout.chunk_nbytes
    # Records of netCDF-3 are read in any number at a time.
    if layout.chunk is None or layout.dtype is None or member.file.structure.format == "netCDF3":
        return ""
    if settings.get("most") and nbytes > settings["most"]:
        return "large"
    number = math.prod(layout.grid) if layout.count is None else layout.count
    # One step more along the first dimension may be too much.
    step = nbytes // layout.chunk[0] if settings.get("leading") and layout.chunk else 0
    is_small = nbytes + step < settings["least"]
    return "small" if is_small and number > 1 and layout.nbytes >= settings.get("tiny", settings["least"]) else ""


def _text(array: ArrayLayout, fault: str, members: list[Member], settings: Mapping[str, Any]) -> str:
    sizes = sorted({member.layout.chunk_nbytes for member in members})
    words, key = ("less than", "least") if fault == "small" else ("more than", "most")
    limit = f"{words} {amount(settings[key], 'bytes')}"
    texts = [amount(size, "bytes") for size in (sizes[0], sizes[-1])]
    size = texts[0] if texts[0] == texts[1] else " to ".join(texts)
    shapes = sorted({member.layout.chunk or () for member in members})
    shown = " x ".join(map(str, shapes[0])) + f" and {len(shapes) - 1} other shapes" * (len(shapes) > 1)
    return f"{array.name}: chunks of {size} ({shown} values), {limit}"


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the arrays with too small or too large chunks."""
    for array in archive.arrays:
        faults: dict[str, list[Member]] = {}
        for member in array.members:
            if fault := _fault(member, settings):
                faults.setdefault(fault, []).append(member)
        for fault, members in faults.items():
            files = tuple(dict.fromkeys(member.file.uri for member in members))
            text = _text(array, fault, members, settings)
            yield Finding(text, files, len(array.members), rechunked(archive, array, members))


CHECK = Check("chunk_size", {"least": int, "most": int, "tiny": int, "leading": bool}, find, ("most", "tiny", "leading"))
