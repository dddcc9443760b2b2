"""Layout of an HDF5 file: chunks, filters, and where the metadata lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

import numpy as np

from aggarray.formats.base import Structure
from aggarray.formats.hdf5.metadata.chunks import stored_chunks
from aggarray.formats.hdf5.metadata.data import UNDEFINED, Data
from aggarray.formats.hdf5.metadata.headers import Header
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.formats.hdf5.metadata.messages import (
    CHUNKED,
    CONTIGUOUS,
    EXTENSIBLE_ARRAY,
    FIXED_ARRAY,
    TREE_1,
    TREE_2,
    DataLayout,
)
from aggarray.formats.hdf5.metadata.scan import scan_headers
from aggarray.formats.hdf5.metadata.types import PLAIN
from aggarray.formats.partial_scan import FileLayout, MetadataLayout, VariableLayout
from aggarray.storage.byte_source import ByteSource

_INDEXES = {
    TREE_1: "B-tree of version 1",
    TREE_2: "B-tree of version 2",
    FIXED_ARRAY: "fixed array",
    EXTENSIBLE_ARRAY: "extensible array",
}


class RecordedData(Data):
    """Bytes of an open file; records the ranges of metadata that are read.

    Collections of the global heap do not count: HDF5 allocates them among the values.
    """

    __slots__ = ("recorded",)

    def __init__(self, file: ByteSource) -> None:
        self.recorded: list[tuple[int, int]] = []
        super().__init__(file)

    def at(self, address: int, count: int) -> bytes:
        """Return ``count`` bytes, and record them."""
        return self._recorded(address, super().at(address, count))

    def read_uncached(self, address: int, count: int) -> bytes:
        """Return ``count`` uncached bytes, and record them."""
        return self._recorded(address, super().read_uncached(address, count))

    def _recorded(self, address: int, block: bytes) -> bytes:
        if block[:4] != b"GCOL":
            self.recorded.append((address, address + len(block)))
        return block


def scan_layout(path: str) -> FileLayout:
    """Return the layout of a file, or raise one of `data.UNREADABLE`."""
    with closing(H5File(path, RecordedData)) as file:
        structure, headers = scan_headers(file, path)
        return _file_layout(structure, headers, file.data)


def _file_layout(structure: Structure, headers: Mapping[str, Header], data: Data) -> FileLayout:
    ranges: list[tuple[int, int]] = getattr(data, "recorded", [])
    variables: dict[str, VariableLayout] = {}
    first_chunk = first_value = UNDEFINED
    last_node = -1
    for name, header in headers.items():
        if header.layout is None or header.space is None or header.external:
            continue  # values in other files
        before = len(ranges)
        offsets = _offsets(data, header, header.layout)
        nodes = ranges[before:]
        variables[name] = _variable_layout(header, header.layout, len(offsets), len(nodes))
        last_node = max([last_node, *(start for start, _ in nodes)])
        if len(offsets):
            first_value = min(first_value, int(offsets.min()))
            if header.layout.form == CHUNKED:
                first_chunk = min(first_chunk, int(offsets.min()))
    merged = list(_merged(ranges))
    scattered = sum(stop - start for start, stop in merged if start >= first_value)
    nbytes = sum(stop - start for start, stop in merged)
    metadata = MetadataLayout(nbytes, scattered, last_node < first_chunk, data.page_size, data.base + data.size)
    return FileLayout(structure.uri, structure, variables, metadata)


def _offsets(data: Data, header: Header, layout: DataLayout) -> np.ndarray:
    """Return the addresses of the stored values of a dataset."""
    if layout.form == CHUNKED and header.space is not None and not header.space.empty:
        return stored_chunks(data, layout, header.space, bool(header.filters)).offsets
    is_stored = layout.form == CONTIGUOUS and layout.address != UNDEFINED and layout.size
    return np.array([layout.address] if is_stored else [], np.int64)


def _variable_layout(header: Header, layout: DataLayout, count: int, nodes: int) -> VariableLayout:
    space, datatype = header.space, header.datatype
    plain = datatype is not None and datatype.category == PLAIN and datatype.dtype is not None
    filters = (
        "unknown filter" if f is None else f"deflate {header.deflate_level}" if f.name == "deflate" else f.name
        for f in header.filters
    )
    is_chunked = layout.form == CHUNKED
    return VariableLayout(
        datatype.dtype if plain and datatype is not None else None,
        () if space is None else space.shape,
        layout.chunk[:-1] if is_chunked else None,
        filters=tuple(filters),
        count=count,
        nodes=nodes,
        index=_INDEXES.get(layout.index, "") if is_chunked else "",
        unlimited=() if space is None else tuple(axis for axis, most in enumerate(space.most) if most == -1),
    )


def _merged(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the union of ranges as disjoint ranges, in order.

    >>> list(_merged([(4, 8), (0, 2), (6, 9)]))
    [(0, 2), (4, 9)]
    """
    first, last = -1, -1
    for start, stop in sorted(ranges):
        if start > last:
            if last >= 0:
                yield first, last
            first, last = start, stop
        last = max(last, stop)
    if last >= 0:
        yield first, last
