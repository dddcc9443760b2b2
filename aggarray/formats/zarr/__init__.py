"""Zarr stores of version 2 and 3 in folders, local or remote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggarray.storage.files import is_store

if TYPE_CHECKING:
    from aggarray.formats.base import Handle, Structure
    from aggarray.formats.partial_scan import FileLayout, PartialScan, PartialScanRequest


class _Zarr:
    name = "Zarr"

    def recognises(self, path: str, head: bytes) -> bool:
        return not head and is_store(path)

    def scan(self, path: str) -> Structure:
        from aggarray.formats.zarr.format import scan

        return scan(path)

    def scan_partially(self, path: str, request: PartialScanRequest) -> PartialScan | None:
        from aggarray.formats.zarr.format import scan_partially

        return scan_partially(path, request)

    def scan_layout(self, path: str) -> FileLayout:
        from aggarray.formats.zarr.layout import scan_layout

        return scan_layout(path)

    def open(self, path: str) -> Handle:
        from aggarray.formats.zarr.format import ZarrHandle

        return ZarrHandle(path)


FORMAT = _Zarr()
