"""Directory of an index: where its columns lie, behind the HDF5 file.

HDF5 permits bytes behind the end of file that its superblock states, and cuts them off whenever it modifies the file. A
directory is thus never older than the columns that it describes. It is a magic number, the length and CRC-32 of a table, and
the table in JSON, up to the end of the file. By its directory an index is opened with two reads and without parsing HDF5. Of a
file whose directory is absent or damaged, the HDF5 metadata state the same (`hdf5_columns`).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from aggarray.codecs import Filter, check_size, decode
from aggarray.codecs.base import MOST_INFLATED
from aggarray.dataclass import NamedTuple
from aggarray.errors import LIBRARY_ERRORS
from aggarray.index import HEAD, end_of_hdf5
from aggarray.storage.byte_source import open_source
from aggarray.storage.ranges import Range

#: The columns of an index, those that opening reads first, and their dtypes.
DTYPES = {"document": "u1", "texts": "u1", "integers": "<i8", "values": "u1", "blocks": "u1", "records": "u1"}
#: Bytes at the end of an index that are read with the directory: all that opening a small index needs.
TAIL = 1 << 17

_MAGIC = b"\x89AGGDIR1"
#: Magic number, length and CRC-32 of the table, which follows.
_HEADER = struct.Struct("<8sQI")
#: Largest directory in bytes; that of an index of a hundred million files is smaller.
_LARGEST = 1 << 26
#: Filters of the columns that `save` writes.
_FILTERS = ((), (Filter("deflate"),), (Filter("shuffle", (8,)), Filter("deflate")))


class Column(NamedTuple):
    """Stored column: one-dimensional chunks at absolute offsets in a file.

    ``chunk``: elements of a chunk; ``masks``: filter masks of HDF5, None if no filter was skipped.
    """

    length: int
    chunk: int
    filters: tuple[Filter, ...]
    offsets: np.ndarray
    sizes: np.ndarray
    masks: np.ndarray | None = None


class Directory(NamedTuple):
    """Schema, generation and columns of an index."""

    schema: int
    generation: int
    columns: Mapping[str, Column]

    def column(self, name: str) -> Column:
        """Return a column; raise ValueError if the index has none of the name."""
        if name not in self.columns:
            raise ValueError(f"no column {name}")
        return self.columns[name]

    def close(self) -> None:
        """Do nothing: a directory holds no file."""


def encode(directory: Directory) -> bytes | None:
    """Return the bytes of a directory, None if it cannot state a column."""
    import json

    columns = {}
    for name, column in directory.columns.items():
        if column.filters not in _FILTERS or column.masks is not None:
            return None
        places = {"offsets": column.offsets.tolist(), "sizes": column.sizes.tolist()}
        columns[name] = {"length": column.length, "chunk": column.chunk, "filters": _FILTERS.index(column.filters), **places}
    content = {"schema": directory.schema, "generation": directory.generation, "columns": columns}
    table = json.dumps(content, separators=(",", ":")).encode()
    return _HEADER.pack(_MAGIC, len(table), zlib.crc32(table)) + table


def parse(content: bytes | memoryview, end: int) -> Directory:
    """Return the directory in the bytes behind the end of an HDF5 file.

    Raises ValueError, or one of `LIBRARY_ERRORS`, if they are damaged, or name bytes behind the end.
    """
    import json

    magic, length, checksum = _HEADER.unpack_from(content)
    table = content[_HEADER.size :]
    # promise: index-directory-checksum
    if magic != _MAGIC or length != len(table) or checksum != zlib.crc32(table):
        raise ValueError("not a directory, or damaged")
    decoded = json.loads(bytes(table))
    columns = {name: _column(name, decoded["columns"][name], end) for name in DTYPES if name in decoded["columns"]}
    schema, generation = decoded["schema"], decoded["generation"]
    if type(schema) is not int or type(generation) is not int:
        raise ValueError("schema or generation is not an integer")
    return Directory(schema, generation, columns)


def check_length(name: str, length: int, size: int) -> None:
    """Raise ValueError for a column too long for a file of ``size`` bytes."""
    # promise: index-column-length
    if (count := length * np.dtype(DTYPES[name]).itemsize) > MOST_INFLATED * size:
        raise ValueError(f"{name} of {count} bytes, more than the file can hold")


def _column(name: str, stated: Mapping[str, Any], end: int) -> Column:
    length, chunk, places = stated["length"], stated["chunk"], (stated["offsets"], stated["sizes"])
    numbers = [length, chunk, stated["filters"], *places[0], *places[1]]
    if not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers) or not chunk:
        raise ValueError("column of other values than sizes")
    check_length(name, length, end)
    offsets, sizes = (np.array(p, np.int64) for p in places)
    if not len(offsets) == len(sizes) == -(-length // chunk):
        raise ValueError(f"{len(offsets)} chunks of {chunk} elements for {length}")
    # promise: index-directory-bounds
    if len(offsets) and int((offsets + sizes).max()) > end:
        raise ValueError("chunk behind the end of the file")
    return Column(length, chunk, _FILTERS[stated["filters"]], offsets, sizes)


def append_directory(path: str, directory: Directory) -> None:
    """Append a directory to an index that no library has open.

    Nothing is appended to a file whose end the superblock does not state. Raises OSError.
    """
    content = encode(directory)
    with open(path, "r+b", buffering=0) as file:
        end, size = end_of_hdf5(file.read(HEAD)), file.seek(0, 2)
        remaining = memoryview(content if content is not None and end == size else b"")
        while remaining:
            remaining = remaining[file.write(remaining) :]


class IndexFile:
    """Open file that may be an index; ``directory``: None if it has none.

    ``end``: of HDF5 in the file, None if not yet read.
    """

    __slots__ = ("_source", "_start", "_tail", "directory", "size")

    def __init__(self, path: str, end: int | None = None) -> None:
        self._source = open_source(path)
        self.size, self._start, self._tail = self._source.size, self._source.size, memoryview(b"")
        self.directory: Directory | None = None
        try:
            if end is None and self.size:
                end = end_of_hdf5(self._source.pread(HEAD, 0))
            if end is not None and end + _HEADER.size <= self.size:
                self._find(end)
        except BaseException:
            self.close()
            raise

    def _find(self, end: int) -> None:
        start = max(0, self.size - TAIL)
        self._tail, self._start = memoryview(self._source.pread(self.size - start, start)), start
        content = self._tail[max(0, end - start) :]
        if end < start:
            if self.size - end > _LARGEST or self._source.pread(len(_MAGIC), end) != _MAGIC:
                return
            content = memoryview(self._source.pread(self.size - end, end))
        with suppress(*LIBRARY_ERRORS):  # the columns are found through HDF5
            self.directory = parse(content, end)

    def read(self, column: Column, dtype: np.dtype[Any], start: int, stop: int) -> np.ndarray:
        """Return elements of a column, decoded from the chunks that hold them."""
        side = column.chunk
        first, last = start // side, -(-stop // side)
        offsets, sizes = column.offsets[first:last], column.sizes[first:last]
        if len(sizes):
            check_size(column.filters, int(sizes.min()), side * dtype.itemsize)
        rows = np.empty((len(offsets), side), dtype)
        masks = [0] * len(rows) if column.masks is None else column.masks[first:last].tolist()
        parts = self._ranges(list(zip(offsets.tolist(), sizes.tolist(), strict=True)))
        for row, part, mask in zip(rows, parts, masks, strict=True):
            decode(column.filters, part, row.nbytes, mask, row.view(np.uint8))
        return rows.reshape(-1)[start - first * side : stop - first * side]

    def _ranges(self, ranges: Sequence[Range]) -> Sequence[memoryview]:
        start = self._start
        if all(start <= offset and offset + size <= self.size for offset, size in ranges):
            return [self._tail[offset - start : offset - start + size] for offset, size in ranges]
        return self._source.read_ranges(ranges)

    def close(self) -> None:
        """Close the file."""
        self._source.close()
