"""References that kerchunk, VirtualiZarr and aggarray write."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aggarray.formats.base import Handle, Structure
    from aggarray.formats.partial_scan import FileLayout

#: Keys that distinguish references from other JSON, in the first ``_HEAD`` bytes.
_KEYS = rb'"refs"\s*:|\.z(group|array|attrs)"|/zarr\.json"'
_HEAD = 1 << 20


class _Kerchunk:
    name = "Kerchunk"

    def recognises(self, path: str, head: bytes) -> bool:
        if not head:
            marks = (os.path.join(path, mark) for mark in (".zgroup", ".zarray", "zarr.json"))
            if os.path.isfile(os.path.join(path, ".zmetadata")) and not any(map(os.path.isfile, marks)):
                import json

                with suppress(OSError, ValueError, RecursionError), open(os.path.join(path, ".zmetadata"), "rb") as file:
                    metadata = json.load(file)
                    return isinstance(metadata, dict) and "record_size" in metadata
            return False
        if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
            return False
        if re.search(_KEYS, head):
            return True
        with suppress(OSError), open(path, "rb") as file:
            return re.search(_KEYS, file.read(_HEAD)) is not None
        return False

    def scan(self, path: str) -> Structure:
        from aggarray.formats.kerchunk.format import scan

        return scan(path)

    def scan_layout(self, path: str) -> FileLayout:
        from aggarray.formats.kerchunk.format import ReferencedFile
        from aggarray.formats.zarr.layout import layout_of_nodes

        return layout_of_nodes(path, "Kerchunk", ReferencedFile(path).references.nodes, True)

    def open(self, path: str) -> Handle:
        from aggarray.formats.kerchunk.format import ReferencedFile

        return ReferencedFile(path)


FORMAT = _Kerchunk()
