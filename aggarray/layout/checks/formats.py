"""Files of formats that a profile does not allow."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from aggarray.layout.base import Archive, Check, Finding


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the formats of files that are not among the allowed ones."""
    found: dict[str, list[str]] = {}
    for file in archive.files:
        if file.structure.format not in settings["allowed"]:
            found.setdefault(file.structure.format, []).append(file.uri)
    for name, files in found.items():
        text = f"{name}, where the profile wants {' or '.join(settings['allowed'])}"
        is_classic = name == "netCDF3"
        lines = {path: shlex.join(["ncks", "-h", "-O", "-7", "-L", "4", path, path]) for path in files if is_classic}
        note = "" if lines else "write the files again in another format"
        yield Finding(text, tuple(files), len(archive.files), lines, note)


CHECK = Check("formats", {"allowed": list}, find)
