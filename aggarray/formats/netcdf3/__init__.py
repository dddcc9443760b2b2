"""netCDF-3 files in their three versions, read without a library."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aggarray.formats.base import Handle, Structure
    from aggarray.formats.partial_scan import FileLayout, PartialScan, PartialScanRequest


class _NetCDF3:
    name = "netCDF3"

    def recognises(self, path: str, head: bytes) -> bool:
        return head[:3] == b"CDF" and head[3:4] in (b"\x01", b"\x02", b"\x05")

    def scan(self, path: str) -> Structure:
        from aggarray.formats.netcdf3.format import scan

        return scan(path)

    def scan_partially(self, path: str, request: PartialScanRequest) -> PartialScan | None:
        from aggarray.formats.netcdf3.format import scan_partially

        return scan_partially(path, request)

    def scan_layout(self, path: str) -> FileLayout:
        from aggarray.formats.netcdf3.layout import scan_layout

        return scan_layout(path)

    def open(self, path: str) -> Handle:
        from aggarray.formats.netcdf3.format import NetCDF3File

        return NetCDF3File(path)


FORMAT = _NetCDF3()
