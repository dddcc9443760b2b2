"""HDF5 files opened by h5py: links, dimension scales, external storage.

A link is followed without opening its target: opening a pipe or a device has side effects.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from typing import Any

from aggarray.formats.base import h5py_file
from aggarray.formats.hdf5.metadata.attributes import PURE_DIMENSION, SCALE
from aggarray.formats.hdf5.metadata.groups import parts
from aggarray.formats.hdf5.refusals import DANGLING, MOST_FOLLOWED, OUTSIDE
from aggarray.storage.files import for_library
from aggarray.storage.urls import is_remote

#: Open files, and their status before they were opened.
_opened: list[tuple[weakref.ref[Any], os.stat_result]] = []


def open_file(path: str) -> Any:
    """Open a file with h5py; the lock must be held.

    It closes handles of earlier versions: HDF5 shares cached metadata and chunks among the handles of a file.
    """
    if is_remote(path):
        return h5py_file(for_library(path), "r")
    status = os.stat(path)
    # promise: hdf5-shared-caches
    _close_earlier(status)
    try:
        # Files on read-only or network file systems often cannot be locked, and reading needs no lock.
        file = h5py_file(path, "r", locking=False)
    except OSError:
        # The file is already open with locking in this process, and HDF5 requires the same flag.
        file = h5py_file(path, "r")
    _opened.append((weakref.ref(file), status))
    return file


def _close_earlier(now: os.stat_result) -> None:
    """Close the handles of earlier versions of a file; forget closed ones."""
    current = []
    for reference, status in _opened:
        file = reference()
        if not file:
            continue  # freed or closed
        if os.path.samestat(status, now) and (status.st_mtime_ns, status.st_size) != (now.st_mtime_ns, now.st_size):
            file.close()
        else:
            current.append((reference, status))
    _opened[:] = current


def leads_outside(file: Any, path: str | bytes) -> str:
    """Return the reason why an absolute path is not followed, or "".

    Reasons: it leaves the file, or has a cycle of links. ``file``: an h5py file or its ``FileID``. A missing path gives "".
    """
    import h5py

    root = h5py.h5g.open(file.id if isinstance(file, h5py.File) else file, b"/")
    remaining = parts(path.encode("utf-8", "surrogateescape") if isinstance(path, str) else path)
    resolved: list[bytes] = []
    followed = 0
    while remaining:
        resolved.append(remaining.pop())
        link_type = None
        with suppress(KeyError, RuntimeError, ValueError):
            # All links before the last one are hard links.
            link_type = root.links.get_info(b"/".join(resolved)).type
        if link_type == h5py.h5l.TYPE_SOFT:
            followed += 1
            target = root.links.get_val(b"/".join(resolved))
            resolved = [] if target.startswith(b"/") else resolved[:-1]
            remaining += parts(target)
        elif link_type is None:
            return ""
        if link_type not in (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT):
            return OUTSIDE
        if followed > MOST_FOLLOWED:
            return DANGLING
    return ""


def is_scale(dataset: Any) -> bool:
    """Return whether an h5py dataset is a dimension scale.

    ``H5DSis_scale`` is not called: HDF5 2.0 frees memory twice for another class name of the same length.
    """
    import h5py

    if not h5py.h5a.exists(dataset.id, b"CLASS"):
        return False
    datatype = h5py.h5a.open(dataset.id, b"CLASS").get_type()
    if not isinstance(datatype, h5py.h5t.TypeStringID) or datatype.is_variable_str() or datatype.get_size() != len(SCALE):
        return False
    return datatype.get_strpad() == h5py.h5t.STR_NULLTERM and bytes(dataset.attrs["CLASS"]) == SCALE.rstrip(b"\0")


def is_pure_dimension(dataset: Any) -> bool:
    """Return whether a dataset is a netCDF-4 dimension without a variable."""
    if not is_scale(dataset) or "NAME" not in dataset.attrs:
        return False
    name = dataset.attrs["NAME"]
    return (name.encode() if isinstance(name, str) else bytes(name)).startswith(PURE_DIMENSION)


def is_external(dataset: Any) -> bool:
    """Return whether values of a ``DatasetID`` may lie in other files."""
    import h5py

    properties = dataset.get_create_plist()
    return bool(properties.get_external_count()) or properties.get_layout() == h5py.h5d.VIRTUAL
