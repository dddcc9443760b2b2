"""Times and their bounds that are stored in many chunks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from aggarray.cf.attributes import words
from aggarray.cf.units import is_reference_time
from aggarray.formats.partial_scan import FileLayout
from aggarray.layout.base import Archive, Check, Finding
from aggarray.layout.remedies import repacked


def _times(file: FileLayout) -> Iterator[str]:
    """Yield the coordinate variables of times of a file, and their bounds."""
    for v in file.structure.variables:
        if len(v.dimensions) == 1 and v.dimensions[0] == v.name.rpartition("/")[2] and is_reference_time(v.attrs.get("units")):
            group = v.name.rpartition("/")[0]
            bounds = words(v.attrs.get("bounds") or v.attrs.get("climatology"))
            yield v.name
            yield from (f"{group}/{name}" if group else name for name in bounds[:1])


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the times that have more chunks than needed."""
    files: dict[str, dict[str, tuple[int, FileLayout]]] = {}
    examined: dict[str, int] = {}
    for file in archive.files:
        for name in _times(file):
            layout = file.variables.get(name)
            if layout is None:
                continue
            examined[name] = examined.get(name, 0) + 1
            count = math.prod(layout.grid) if layout.count is None else layout.count
            if layout.chunk is not None and count > settings["most"]:
                files.setdefault(name, {})[file.uri] = count, file
    for name, own in files.items():
        count = max(count for count, _ in own.values())
        limit = "one is" if settings["most"] == 1 else f"{settings['most']} are"
        layouts = {uri: file.variables[name] for uri, (_, file) in own.items()}
        shapes = {uri: "x".join(map(str, layout.shape)) for uri, layout in layouts.items() if layout.index}
        lines = {uri: repacked(uri, "-l", f"/{name}:CHUNK={shape}") for uri, shape in shapes.items()}
        note = "" if len(lines) == len(own) else "write the variable again in one chunk"
        text = f"{name}: {count} chunks, where {limit} enough"
        yield Finding(text, tuple(own), examined[name], lines, note)


CHECK = Check("time_chunks", {"most": int}, find)
