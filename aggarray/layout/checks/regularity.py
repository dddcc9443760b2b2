"""Chunks of the files of an array that form no regular grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aggarray.errors import counted
from aggarray.layout.base import (
    Archive,
    ArrayLayout,
    Check,
    Extract,
    Finding,
    Member,
    chunk_option,
    compare,
    differing,
    rechunked,
    suggested_chunks,
)


def _chunk_of(member: Member) -> tuple[int, ...] | None:
    """Return the shape of chunks, None if any part can be read by itself."""
    layout = member.layout
    return layout.chunk if layout.chunk is not None and (layout.filters or layout.count != 1) else None


def _ends_inside(member: Member, array: ArrayLayout, dimension: str) -> bool:
    """Return whether a file ends within a chunk, before the end of the array."""
    chunk = _chunk_of(member)
    if chunk is None or dimension not in member.dimensions or member.stops.get(dimension, 0) >= array.sizes[dimension]:
        return False
    axis = member.dimensions.index(dimension)
    return axis < len(chunk) and bool(member.layout.shape[axis] % chunk[axis])


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield arrays of files of other chunk shapes, or that end in a chunk."""
    for array in archive.arrays:
        chunked = [member for member in array.members if _chunk_of(member) is not None]
        shapes = compare((member.file.uri, _chunk_of(member)) for member in chunked)
        remedy = Extract(array.number, chunk_option(suggested_chunks(array, archive.limits)))
        for chunk, more, files in differing(shapes):
            with_fault = {*files}
            irregular = [member for member in chunked if member.file.uri in with_fault]
            rechunking = rechunked(archive, array, irregular, shapes.usual)
            own, usual = (" x ".join(map(str, shape)) for shape in (chunk, shapes.usual))
            note = f"{usual} in {counted(shapes.number, 'file')}"
            yield Finding(f"{array.name}: chunks of {own}{more}", tuple(files), shapes.examined, rechunking, note)
        for dimension in array.joined if settings.get("ends", True) else ():
            inside = [member for member in chunked if _ends_inside(member, array, dimension)]
            if inside:
                first = inside[0]
                axis = first.dimensions.index(dimension)
                size, side = first.layout.shape[axis], (first.layout.chunk or ())[axis]
                text = f"{array.name}: files end within a chunk along {dimension} ({size} steps in chunks of {side})"
                yield Finding(text, tuple(dict.fromkeys(member.file.uri for member in inside)), len(chunked), remedy)


CHECK = Check("regularity", {"ends": bool}, find, ("ends",))
