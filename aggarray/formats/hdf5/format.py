"""netCDF-4 and plain HDF5 files.

`formats.hdf5.metadata` scans files without the HDF5 library and without its lock. h5py scans unsupported and invalid files in
an isolated process (`isolated`), where a crash is an error. Chunk indexes come from the same two sources. h5py reads the values
of datasets without a chunk index (`handle`). Every call into the library holds `LIBRARY_LOCK`.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from aggarray.formats.base import Structure, Variable, full_box
from aggarray.formats.hdf5.metadata import scan as metadata_scan
from aggarray.formats.hdf5.metadata.data import UNREADABLE, refuse
from aggarray.storage.urls import is_remote

if TYPE_CHECKING:
    from aggarray.formats.partial_scan import FileLayout, PartialScan, PartialScanRequest


def scan(path: str) -> Structure:
    """Return structure, attributes and coordinates; open the file once."""

    def by_library(variable: Variable) -> np.ndarray:
        from aggarray.formats.hdf5.handle import HDF5File

        with closing(HDF5File(path)) as handle:
            return handle.read(variable.name, full_box(variable.shape))

    try:
        return metadata_scan.scan(path, by_library)
    except UNREADABLE as error:
        refuse(error, path)
    from aggarray.formats.hdf5 import isolated

    # promise: hdf5-isolated-scan
    if is_remote(path) or not isolated.can_isolate():
        from aggarray.formats.hdf5.library import scan_by_library

        return scan_by_library(path)
    structure: Structure = isolated.call_isolated(path, "scan")
    return structure


def scan_layout(path: str) -> FileLayout:
    """Return the layout; without chunks if only the library reads the file."""
    from aggarray.formats.hdf5.metadata import layout

    try:
        return layout.scan_layout(path)
    except UNREADABLE as error:
        refuse(error, path)
        from aggarray.formats.partial_scan import FileLayout

        return FileLayout(path, scan(path), {}, reason=str(error))


def scan_partially(path: str, request: PartialScanRequest) -> PartialScan | None:
    """Return the requested part of a file, None if it needs a full scan."""
    from aggarray.formats.hdf5.metadata import partial

    try:
        return partial.scan_partially(path, request)
    except UNREADABLE:
        return None
