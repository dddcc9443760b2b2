"""Partial scan of an HDF5 file without the library."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from aggarray.formats.base import SCAN_ELEMENTS, Variable, stored_values
from aggarray.formats.hdf5.metadata.attributes import shown_attributes
from aggarray.formats.hdf5.metadata.data import require_supported
from aggarray.formats.hdf5.metadata.groups import attributes_at
from aggarray.formats.hdf5.metadata.headers import Header
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.formats.hdf5.metadata.types import PLAIN
from aggarray.formats.hdf5.metadata.values import values_of
from aggarray.formats.partial_scan import COORDINATE_ATTRIBUTES, PartialScan, PartialScanRequest, select_partial


def scan_partially(path: str, request: PartialScanRequest) -> PartialScan | None:
    """Return the requested items, or raise one of `data.UNREADABLE`."""
    with closing(H5File(path)) as file:
        attrs = _attributes(file, file.root, request.attributes) if request.attributes else {}
        return select_partial(path, attrs, [_coordinate(file, name) for name in request.coordinates], request)


def _attributes(file: H5File, header: Header, names: tuple[str, ...]) -> Mapping[str, Any]:
    shown = shown_attributes(attributes_at(file.data, header), file.data)
    return {name: shown[name] for name in names if name in shown}


def _coordinate(file: H5File, name: str) -> Variable:
    header = file.dataset(name)
    datatype, space, _ = header.dataset
    shape = space.shape
    require_supported(datatype.category == PLAIN and not space.empty, "not plain numbers")
    require_supported(space.count <= SCAN_ELEMENTS, "too large for a scan")
    attrs = _attributes(file, header, COORDINATE_ATTRIBUTES)
    require_supported(bool(attrs) or not attributes_at(file.data, header).pure, "dimension without a coordinate")
    values = stored_values(values_of(file.data, header, shape), {})
    # The dimension names come from the file group.
    return Variable(name, values.dtype, shape, tuple([f"dim_{n}" for n in range(len(shape))]), attrs, values)
