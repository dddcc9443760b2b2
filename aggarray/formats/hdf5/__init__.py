"""netCDF-4 and plain HDF5 files."""

from typing import TYPE_CHECKING

from aggarray.formats.hdf5.signature import has_signature

if TYPE_CHECKING:
    from aggarray.formats.base import Handle, Structure
    from aggarray.formats.partial_scan import PartialScan, PartialScanRequest


class _HDF5:
    name = "HDF5"

    def recognises(self, path: str, head: bytes) -> bool:
        return has_signature(path, head)

    def scan(self, path: str) -> "Structure":
        from aggarray.formats.hdf5.format import scan

        return scan(path)

    def scan_partially(self, path: str, request: "PartialScanRequest") -> "PartialScan | None":
        from aggarray.formats.hdf5.format import scan_partially

        return scan_partially(path, request)

    def open(self, path: str) -> "Handle":
        from aggarray.formats.hdf5.handle import HDF5File

        return HDF5File(path)


FORMAT = _HDF5()
