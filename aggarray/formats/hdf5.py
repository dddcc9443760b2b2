"""What does a netCDF-4 or plain HDF5 file hold, and what are the values of a box?

Files are scanned without any library (`aggarray.formats._h5`), in a fraction of the time and without a lock. What that reader
does not know, or finds damaged, h5py scans in a process of its own (`aggarray.formats._hdf5_apart`): a crash there is an error
here. Where values are stored is told in the same way: without a library, or else by h5py, which also reads them where that is
not told (`aggarray.formats._hdf5_file`). Every call into the library holds `LIBRARY_LOCK`.
"""

import numpy as np

from aggarray.formats import _hdf5_apart as apart
from aggarray.formats._h5 import glimpses, netcdf
from aggarray.formats._h5.data import LEFT, is_doubtful, refuse
from aggarray.formats._h5.file import H5File
from aggarray.formats._hdf5_file import HDF5File, Library, opened
from aggarray.formats._hdf5_scan import scan_structure
from aggarray.formats.base import LIBRARY_LOCK, Handle, Structure, Variable, blaming, whole
from aggarray.formats.glimpses import Glimpse, Wanted
from aggarray.formats.places import File, make_ready
from aggarray.remote import is_remote

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
        with File(path) as file:
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
        except LEFT as error:
            refuse(error, path)
        # promise: hdf5-isolated-scan
        if is_remote(path) or not apart.possible():
            return scan_by_library(path)
        found: Structure = apart.ask(path, "scan")
        return found

    def glimpse(self, path: str, wanted: Wanted) -> Glimpse | None:
        """Read the coordinates wanted, and open nothing else; None where only the library could."""
        try:
            return glimpses.glimpse(path, wanted)
        except LEFT:
            return None

    def open(self, path: str) -> Handle:
        """Open for reading values."""
        return HDF5File(path)


def scan_by_library(path: str) -> Structure:
    """Return what h5py sees of a file."""
    make_ready(path)
    with LIBRARY_LOCK, blaming(path), opened(path) as file:
        label = "netCDF4" if "_NCProperties" in file.attrs else "HDF5"
        return scan_structure(path, file, label, Library(path, file).scanned)


def holds_group(path: str, name: str) -> bool:
    """Tell whether a file may have a group at its top; of other files than HDF5 a few bytes are read."""
    with File(path) as file:
        # Of what the system makes up some has no size, and no end: reading it would wait.
        if not file.size or not FORMAT.recognises(path, file.pread(len(_SIGNATURE), 0)):
            return False
    try:
        direct = H5File(path)
    except LEFT as error:
        if is_doubtful(error) and not is_remote(path) and apart.possible():
            return bool(apart.ask(path, "holds", None, name))
        return True  # whoever opens it finds out
    try:
        return direct.holds(name)
    finally:
        direct.close()


FORMAT = _HDF5()
