"""netCDF-4 and plain HDF5 files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggarray.storage.byte_source import open_source

if TYPE_CHECKING:
    from aggarray.formats.base import Handle, Structure
    from aggarray.formats.partial_scan import FileLayout, PartialScan, PartialScanRequest

#: First bytes of the superblock.
SIGNATURE = b"\x89HDF\r\n\x1a\n"


class _HDF5:
    name = "HDF5"

    def recognises(self, path: str, head: bytes) -> bool:
        if head.startswith(SIGNATURE):
            return True
        # A folder, or netCDF-3: a user block does not begin like it, so the file is not read again.
        if not head or head.startswith(b"CDF"):
            return False
        with open_source(path) as source:
            at = 512
            while at + len(SIGNATURE) <= source.size:
                if source.pread(len(SIGNATURE), at) == SIGNATURE:
                    return True
                at *= 2
        return False

    def scan(self, path: str) -> Structure:
        from aggarray.formats.hdf5.format import scan

        return scan(path)

    def scan_partially(self, path: str, request: PartialScanRequest) -> PartialScan | None:
        from aggarray.formats.hdf5.format import scan_partially

        return scan_partially(path, request)

    def scan_layout(self, path: str) -> FileLayout:
        from aggarray.formats.hdf5.format import scan_layout

        return scan_layout(path)

    def open(self, path: str) -> Handle:
        from aggarray.formats.hdf5.handle import HDF5File

        return HDF5File(path)


FORMAT = _HDF5()
