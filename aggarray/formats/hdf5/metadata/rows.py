"""Rows of variable-length datasets.

The dataset holds a reference per row: the number of values and an object in the global heap. Only the requested rows are read.
"""

from __future__ import annotations

import numpy as np

from aggarray.dataclass import dataclass
from aggarray.formats.hdf5.metadata.chunks import stored_chunks
from aggarray.formats.hdf5.metadata.data import Data, InvalidError, UnsupportedError, require, require_supported
from aggarray.formats.hdf5.metadata.headers import Header
from aggarray.formats.hdf5.metadata.heaps import collection_size, objects_of
from aggarray.formats.hdf5.metadata.messages import CHUNKED
from aggarray.formats.hdf5.metadata.types import ELEMENT, ROWS
from aggarray.formats.hdf5.metadata.values import elements_of
from aggarray.formats.limits import MOST_INFLATED
from aggarray.memory.rows import offsets_of
from aggarray.partition.chunk_index import FREE_CHUNKS

#: Smallest size of a heap collection.
_COLLECTION = 1 << 12
#: Number of bytes of rows that are read at a time.
_BATCH = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """Rows of a dataset: dtype, heap references, offsets in flat values."""

    dtype: np.dtype[np.generic]
    elements: np.ndarray
    offsets: np.ndarray

    def samples(self, data: Data, start: int, stop: int) -> np.ndarray:
        """Return the flat values from ``start`` to ``stop`` as stored."""
        first = int(np.searchsorted(self.offsets, start, side="right")) - 1
        last = int(np.searchsorted(self.offsets, stop, side="left"))
        out = np.empty(int(self.offsets[last] - self.offsets[first]) if start < stop else 0, self.dtype)
        at, row = 0, first
        while row < last and len(out):
            most = self.offsets[row] + max(1, _BATCH // self.dtype.itemsize)
            following = int(np.searchsorted(self.offsets, most, side="right")) - 1
            following = min(max(following, row + 1), last)
            values = np.frombuffer(_gather(data, self.elements[row:following], self.dtype.itemsize), self.dtype)
            out[at : at + len(values)] = values
            at, row = at + len(values), following
        before = int(self.offsets[first]) if len(out) else start
        return out[start - before : stop - before]


def refuse_rows(data: Data, header: Header) -> str | None:
    """Return why row sizes are not read, None if stored bytes justify them."""
    layout, space = header.layout, header.space
    if layout is None or space is None or space.count <= FREE_CHUNKS:
        return None
    stored = layout.size
    if layout.form == CHUNKED:
        stored = int(stored_chunks(data, layout, space, bool(header.filters)).sizes.sum())
    return refused_rows(space.count, stored)


def refused_rows(count: int, stored: int) -> str | None:
    """Return why a number of rows is refused, None if bytes justify it."""
    most = FREE_CHUNKS + stored * MOST_INFLATED // ELEMENT
    return None if count <= most else f"{count} rows are declared, far more than are stored; rewrite the file"


def stored_rows(data: Data, header: Header) -> StoredRows:
    """Return the rows of a dataset, or raise one of `data.UNREADABLE`."""
    datatype, space, _ = header.dataset
    if datatype.category != ROWS or datatype.dtype is None:
        raise UnsupportedError("not rows of numbers")
    require_supported(len(space.shape) == 1 and not space.empty, "rows along several dimensions")
    elements = elements_of(data, header)
    counts = elements["count"].astype(np.int64)
    # promise: hdf5-row-length
    require(not len(counts) or int(counts.max()) * datatype.dtype.itemsize <= data.size, "row longer than the file")
    return StoredRows(datatype.dtype, elements, offsets_of(counts))


def _gather(data: Data, elements: np.ndarray, itemsize: int) -> bytes:
    elements = elements[elements["count"] > 0]
    addresses, inverse = np.unique(elements["address"], return_inverse=True)
    collections = [objects_of(block) for block in _blocks(data, addresses.tolist())]
    parts = []
    for (count, _, number), i in zip(elements.tolist(), inverse.tolist(), strict=True):
        part = collections[i].get(number)
        # promise: hdf5-row-heap
        if part is None or len(part) != count * itemsize:
            raise InvalidError("wrong length of a row")
        parts.append(part)
    return b"".join(parts)


def _blocks(data: Data, addresses: list[int]) -> list[memoryview]:
    heads = data.ranges([(at, max(16, min(_COLLECTION, data.size - at))) for at in addresses])
    sizes = [collection_size(head) for head in heads]
    longer = [i for i, head in enumerate(heads) if sizes[i] > len(head)]
    blocks = [head[:size] for head, size in zip(heads, sizes, strict=True)]
    for i, block in zip(longer, data.ranges([(addresses[i], sizes[i]) for i in longer]), strict=True):
        blocks[i] = block
    return blocks
