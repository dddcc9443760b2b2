"""What do the rows of a dataset hold, each of which has its own length?

The dataset has where each row lies: a number of values, and an object in a heap. Only the rows wanted are looked up.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from aggarray.formats.base import FREE_CHUNKS
from aggarray.formats.hdf5.metadata.chunks import stored_chunks
from aggarray.formats.hdf5.metadata.data import Data, InvalidError, UnsupportedError, require, require_supported
from aggarray.formats.hdf5.metadata.headers import Header
from aggarray.formats.hdf5.metadata.heaps import collection_size, objects_of
from aggarray.formats.hdf5.metadata.messages import CHUNKED
from aggarray.formats.hdf5.metadata.types import ELEMENT, ROWS
from aggarray.formats.hdf5.metadata.values import elements_of
from aggarray.formats.limits import MOST_INFLATED
from aggarray.memory.rows import offsets_of

#: HDF5 makes no collection of rows smaller than this.
_COLLECTION = 1 << 12
#: So many bytes of rows are gathered at a time.
_BATCH = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """The rows of a dataset: dtype of their values as stored, where each lies, and where it begins among all values."""

    dtype: np.dtype[np.generic]
    elements: np.ndarray
    offsets: np.ndarray

    def samples(self, data: Data, start: int, stop: int) -> np.ndarray:
        """Return values of all rows one after the other, those from ``start`` to ``stop``, as stored."""
        first = int(np.searchsorted(self.offsets, start, side="right")) - 1
        last = int(np.searchsorted(self.offsets, stop, side="left"))
        out = np.empty(int(self.offsets[last] - self.offsets[first]) if start < stop else 0, self.dtype)
        at = 0
        for elements in self._batches(first, last) if len(out) else ():
            found = np.frombuffer(_gathered(data, elements, self.dtype.itemsize), self.dtype)
            out[at : at + len(found)] = found
            at += len(found)
        before = int(self.offsets[first]) if len(out) else start
        return out[start - before : stop - before]

    def _batches(self, first: int, last: int) -> Iterator[np.ndarray]:
        per_batch = max(1, _BATCH // self.dtype.itemsize)
        while first < last:
            following = int(np.searchsorted(self.offsets, self.offsets[first] + per_batch, side="right")) - 1
            following = min(max(following, first + 1), last)
            yield self.elements[first:following]
            first = following


def declared_rows(data: Data, header: Header) -> str | None:
    """Return why the sizes of rows are not looked at: what is stored does not bear out so many; else None."""
    layout, space = header.layout, header.space
    if layout is None or space is None or space.count <= FREE_CHUNKS:
        return None
    stored = layout.size
    if layout.form == CHUNKED:
        stored = int(stored_chunks(data, layout, space, bool(header.filters)).sizes.sum())
    return refused_rows(space.count, stored)


def refused_rows(count: int, stored: int) -> str | None:
    """Return why a number of rows is not believed, given the bytes that are stored; None where it is."""
    most = FREE_CHUNKS + stored * MOST_INFLATED // ELEMENT
    return None if count <= most else f"a claim of {count} rows, hardly any stored; write the file anew"


def stored_rows(data: Data, header: Header) -> StoredRows:
    """Return the rows of a dataset; one of `data.UNREADABLE` where it has none, or these are left to the libraries."""
    datatype, space = header.datatype, header.space
    if datatype is None or datatype.category != ROWS or datatype.dtype is None or space is None:
        raise UnsupportedError("not rows of numbers")
    require_supported(len(space.shape) == 1 and not space.empty, "rows along several dimensions")
    elements = elements_of(data, header)
    counts = elements["count"].astype(np.int64)
    # promise: hdf5-row-length
    require(not len(counts) or int(counts.max()) * datatype.dtype.itemsize <= data.size, "row longer than the file")
    return StoredRows(datatype.dtype, elements, offsets_of(counts))


def _gathered(data: Data, elements: np.ndarray, itemsize: int) -> bytes:
    """Return the bytes of rows, one after the other."""
    elements = elements[elements["count"] > 0]
    places, which = np.unique(elements["address"], return_inverse=True)
    collections = [objects_of(block) for block in _blocks(data, places.tolist())]
    parts = []
    for (count, _, number), i in zip(elements.tolist(), which.tolist(), strict=True):
        part = collections[i].get(number)
        # promise: hdf5-row-heap
        if part is None or len(part) != count * itemsize:
            raise InvalidError("wrong length of a row")
        parts.append(part)
    return b"".join(parts)


def _blocks(data: Data, places: list[int]) -> list[memoryview]:
    """Return the collections at some addresses."""
    heads = data.ranges([(at, max(16, min(_COLLECTION, data.size - at))) for at in places])
    sizes = [collection_size(head) for head in heads]
    longer = [i for i, head in enumerate(heads) if sizes[i] > len(head)]
    found = [head[:size] for head, size in zip(heads, sizes, strict=True)]
    for i, block in zip(longer, data.ranges([(places[i], sizes[i]) for i in longer]), strict=True):
        found[i] = block
    return found
