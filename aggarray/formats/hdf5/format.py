"""netCDF-4 and plain HDF5 files.

`formats.hdf5.metadata` scans files without a library and without a lock. Files that it does not know, or finds damaged, are
scanned by h5py in a process of its own (`isolated`): a crash there is an error here. Chunk indexes come from the same two
sources, and h5py reads the values of datasets that have none (`handle`). Every call into the library holds `LIBRARY_LOCK`.
"""

import numpy as np

from aggarray.formats.base import Handle, Structure, Variable, whole
from aggarray.formats.hdf5 import isolated as apart
from aggarray.formats.hdf5.h5py_files import opened
from aggarray.formats.hdf5.handle import HDF5File
from aggarray.formats.hdf5.library import scan_by_library
from aggarray.formats.hdf5.metadata import partial_scan
from aggarray.formats.hdf5.metadata import scan as netcdf
from aggarray.formats.hdf5.metadata.data import UNREADABLE, is_invalid, refuse
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.formats.partial_scan import PartialScan, PartialScanRequest
from aggarray.storage.byte_source import open_source
from aggarray.storage.remote import is_remote

__all__ = ["FORMAT", "holds_group", "opened"]

_SIGNATURE = b"\x89HDF\r\n\x1a\n"


class _HDF5:
    """netCDF-4 and plain HDF5."""

    name = "HDF5"

    def recognises(self, path: str, head: bytes) -> bool:
        """Tell whether the signature lies at the beginning or, after a user block, at 512, 1024, 2048, ... bytes."""
        if head.startswith(_SIGNATURE):
            return True
        # A folder; and netCDF-3, which no user block passes itself off as: not worth another look into the file.
        if not head or head.startswith(b"CDF"):
            return False
        with open_source(path) as file:
            at = 512
            while at + len(_SIGNATURE) <= file.size:
                if file.pread(len(_SIGNATURE), at) == _SIGNATURE:
                    return True
                at *= 2
        return False

    def scan(self, path: str) -> Structure:
        """Read structure, attributes and coordinate values."""

        def by_library(variable: Variable) -> np.ndarray:
            """Return the values of a coordinate that only the HDF5 library decodes."""
            handle = HDF5File(path)
            try:
                return handle.read(variable.name, whole(variable.shape))
            finally:
                handle.close()

        try:
            return netcdf.scan(path, by_library)
        except UNREADABLE as error:
            refuse(error, path)
        # promise: hdf5-isolated-scan
        if is_remote(path) or not apart.can_isolate():
            return scan_by_library(path)
        found: Structure = apart.ask_isolated(path, "scan")
        return found

    def scan_partially(self, path: str, wanted: PartialScanRequest) -> PartialScan | None:
        """Read the coordinates wanted, and open nothing else; None where only the library could."""
        try:
            return partial_scan.scan_partially(path, wanted)
        except UNREADABLE:
            return None

    def open(self, path: str) -> Handle:
        """Open for reading values."""
        return HDF5File(path)


def holds_group(path: str, name: str) -> bool:
    """Tell whether a file may have a group at its top; of other files than HDF5 a few bytes are read."""
    with open_source(path) as file:
        # Of what the system makes up some has no size, and no end: reading it would wait.
        if not file.size or not FORMAT.recognises(path, file.pread(len(_SIGNATURE), 0)):
            return False
    try:
        direct = H5File(path)
    except UNREADABLE as error:
        if is_invalid(error) and not is_remote(path) and apart.can_isolate():
            return bool(apart.ask_isolated(path, "holds", None, name))
        return True  # whoever opens it finds out
    try:
        return direct.holds(name)
    finally:
        direct.close()


FORMAT = _HDF5()
