"""What are a few coordinates of an HDF5 file, when nothing else of it is asked for?

This is for files that `aggarray.formats._h5` leaves to the library. Datasets and attributes are opened by name through h5py's
low-level interface: no group is listed, no dimension scale followed. Whatever is not a plain array of numbers under a plain
name is left to a scan.
"""

import functools
import math
import os
from typing import Any

import numpy as np

from aggarray.formats._hdf5_links import borrows, is_pure_dimension, leads_outside
from aggarray.formats._hdf5_scan import attribute
from aggarray.formats.base import LIBRARY_ERRORS, SCAN_ELEMENTS, Variable, stored_values
from aggarray.formats.glimpses import GLIMPSED, Glimpse, Wanted, glimpsed, unread


def glimpse_at(path: str, wanted: Wanted) -> Glimpse | None:
    """Return what is wanted of a file; None where something is not as plain as that. The lock must be held."""
    import h5py

    try:
        file = h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDONLY, fapl=_unlocked())
    except LIBRARY_ERRORS:
        return None
    try:
        attrs = _attributes(h5py.h5g.open(file, b"/"), wanted.attributes) if wanted.attributes else {}
        found = [_variable(file, name) for name in wanted.coordinates]
        return glimpsed(path, attrs, [v for v in found if v is not None], wanted, unread)
    except LIBRARY_ERRORS:
        return None  # a scan says what is wrong
    finally:
        file.close()


@functools.cache
def _unlocked() -> Any:
    """Return how a file is opened: read-only file systems often cannot lock, and reading needs no lock."""
    import h5py

    plist = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    plist.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    plist.set_file_locking(False, True)
    return plist


def _variable(file: Any, name: str) -> Variable | None:
    """Return a coordinate with its values, units and calendar; None unless it is one piece of plain numbers."""
    import h5py

    if leads_outside(file, name):
        return None
    dataset = h5py.h5d.open(file, name.encode())
    if borrows(dataset):
        return None
    kind, space = dataset.get_type(), dataset.get_space()
    if not isinstance(kind, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID) or space.get_simple_extent_type() == h5py.h5s.NULL:
        return None
    if math.prod(space.shape) > SCAN_ELEMENTS:
        return None
    attrs = _attributes(dataset, GLIMPSED)
    if not attrs and is_pure_dimension(h5py.Dataset(dataset)):
        return None
    raw = np.empty(space.shape, kind.dtype)
    dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, raw)
    values = stored_values(raw, {})
    # Names of dimensions are those of the kind.
    return Variable(name, values.dtype, values.shape, tuple(f"dim_{n}" for n in range(values.ndim)), attrs, values)


def _attributes(item: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return those of some attributes that are there and can be read."""
    found = {}
    for name in names:
        value = _attribute(item, name)
        if value is not None:
            found[name] = value
    return found


def _attribute(item: Any, name: str) -> Any:
    """Return an attribute, None where it is not there or neither number nor text."""
    import h5py

    if not h5py.h5a.exists(item, name.encode()):
        return None
    opened = h5py.h5a.open(item, name.encode())
    kind = opened.get_type()
    if isinstance(kind, h5py.h5t.TypeStringID) and not kind.is_variable_str() and opened.shape == ():
        text = np.empty((), f"S{kind.get_size()}")
        opened.read(text)
        return attribute(text[()])
    return attribute(h5py.AttributeManager(_Item(item))[name])


class _Item:
    """What h5py's attributes want of their owner."""

    def __init__(self, item: Any) -> None:
        self.id = item
