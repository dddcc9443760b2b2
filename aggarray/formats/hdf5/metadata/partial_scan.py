"""What are a few coordinates of a file, read by no library, when nothing else of it is asked for?

The answers are those of `aggarray.formats._hdf5_glimpse.glimpse_at`, and by the same rules.
"""

import math
from collections.abc import Mapping
from typing import Any

from aggarray.formats.base import SCAN_ELEMENTS, Variable, stored_values
from aggarray.formats.hdf5.metadata.conventions import shown_attributes
from aggarray.formats.hdf5.metadata.data import UnsupportedError
from aggarray.formats.hdf5.metadata.headers import Header
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.formats.hdf5.metadata.types import PLAIN
from aggarray.formats.hdf5.metadata.values import values_of
from aggarray.formats.partial_scan import COORDINATE_ATTRIBUTES, PartialScan, PartialScanRequest, select_partial, unread


def scan_partially(path: str, wanted: PartialScanRequest) -> PartialScan | None:
    """Return what is wanted of a file; one of `data.UNREADABLE` where it is left to the library."""
    file = H5File(path)
    try:
        attrs = _attributes(file, file.root, wanted.attributes) if wanted.attributes else {}
        return select_partial(path, attrs, [_variable(file, name) for name in wanted.coordinates], wanted, unread)
    finally:
        file.close()


def _attributes(file: H5File, header: Header, names: tuple[str, ...]) -> Mapping[str, Any]:
    """Return those of some attributes that are there."""
    shown = shown_attributes(file.facts(header), file.heap)
    return {name: shown[name] for name in names if name in shown}


def _variable(file: H5File, name: str) -> Variable:
    """Return a coordinate with its values, units and calendar; UnsupportedError unless it is one piece of plain numbers."""
    header = file.dataset(name)
    if header.datatype is None or header.datatype.category != PLAIN or header.space is None or header.space.empty:
        raise UnsupportedError("not plain numbers")
    shape = header.space.shape
    if math.prod(shape) > SCAN_ELEMENTS:
        raise UnsupportedError("too large for a scan")
    attrs = _attributes(file, header, COORDINATE_ATTRIBUTES)
    if not attrs and file.facts(header).pure:
        raise UnsupportedError("dimension without a coordinate")
    values = stored_values(values_of(file.data, file.heap, header, shape), {})
    # Names of dimensions are those of the datatype.
    return Variable(name, values.dtype, shape, tuple([f"dim_{n}" for n in range(len(shape))]), attrs, values)
