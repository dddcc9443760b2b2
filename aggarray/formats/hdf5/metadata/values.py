"""Stored values of complete datasets."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.codecs import decode
from aggarray.formats.hdf5.metadata.chunks import Chunk, chunks_of
from aggarray.formats.hdf5.metadata.data import UNDEFINED, Data, UnsupportedError, require, require_supported
from aggarray.formats.hdf5.metadata.headers import Header
from aggarray.formats.hdf5.metadata.heaps import text_at
from aggarray.formats.hdf5.metadata.messages import CHUNKED, COMPACT, DataLayout, FillValue
from aggarray.formats.hdf5.metadata.types import CHARACTERS, ELEMENT, PLAIN, TEXTS

#: Largest size of chunks that are decoded here; the library reads larger ones.
_LARGEST = 1 << 26

_ELEMENT = np.dtype([("count", "<u4"), ("address", "<u8"), ("number", "<u4")])


def values_of(data: Data, header: Header, shape: tuple[int, ...]) -> np.ndarray:
    """Return the stored values, variable-length texts as bytes.

    ``shape``: of the variable, which may be longer than the dataset along dimensions that other variables lengthened. Missing
    elements have the fill value.
    """
    if header.datatype is None or header.space is None or header.layout is None:
        raise UnsupportedError("not a dataset")
    texts = header.datatype.category == TEXTS
    require_supported(texts or header.datatype.category in (PLAIN, CHARACTERS), "unsupported type")
    dtype = np.dtype(f"V{ELEMENT}") if texts else header.datatype.dtype
    require_supported(not header.space.empty, "dataset without a dataspace")
    values = _stored(data, header, header.layout, np.dtype(dtype))
    if shape != values.shape:
        require_supported(
            (header.fill is not None and bool(header.fill.value)) or texts, "undefined fill value of missing elements"
        )
        extended = _filled(shape, values.dtype, header.fill)
        extended[tuple(slice(0, n) for n in values.shape)] = values
        values = extended
    return _texts(data, values) if texts else values


def elements_of(data: Data, header: Header) -> np.ndarray:
    """Return the heap references of a variable-length dataset: count, address of a collection, number of the object in it."""
    if header.layout is None:
        raise UnsupportedError("not a dataset")
    elements = _stored(data, header, header.layout, np.dtype(f"V{ELEMENT}"))
    return np.ascontiguousarray(elements).view(_ELEMENT)


def _filled(shape: tuple[int, ...], dtype: np.dtype[Any], fill: FillValue | None) -> np.ndarray:
    """Return an array of fill values."""
    if fill is None or not fill.defined:
        raise UnsupportedError("undefined fill value")
    out = np.zeros(shape, dtype)
    if fill.value:
        require(len(fill.value) == dtype.itemsize, "malformed fill value")
        out[...] = np.frombuffer(fill.value, dtype)[0]
    return out


def _stored(data: Data, header: Header, layout: DataLayout, dtype: np.dtype[Any]) -> np.ndarray:
    require_supported(not header.external, "values in other files")
    shape = header.space.shape if header.space else ()
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return np.zeros(shape, dtype)
    if layout.form == CHUNKED:
        return _chunked(data, header, layout, dtype)
    require(not header.filters and size <= _LARGEST, "unsupported dataset")
    if layout.form == COMPACT:
        require(layout.size == size, "wrong storage size of a dataset")
        packed = layout.data
    elif layout.address == UNDEFINED:
        return _filled(shape, dtype, header.fill)
    else:
        require(layout.size == size, "wrong storage size of a dataset")
        packed = data.at(layout.address, size)
    return np.frombuffer(packed, dtype).reshape(shape)


def _chunked(data: Data, header: Header, layout: DataLayout, dtype: np.dtype[Any]) -> np.ndarray:
    if header.space is None:
        raise UnsupportedError("not a dataset")
    shape = header.space.shape
    *chunk, element = layout.chunk
    raw = math.prod(layout.chunk)
    require(len(chunk) == len(shape) and element == dtype.itemsize and raw <= _LARGEST, "malformed chunk shape")
    filters = tuple([f for f in header.filters if f is not None])
    require_supported(len(filters) == len(header.filters), "unknown filter")
    chunks = chunks_of(data, layout, header.space, bool(header.filters))
    # A dataset that was shrunk may keep chunks beyond its edge.
    chunks = [c for c in chunks if all(at < n for at, n in zip(c.start, shape, strict=True))]
    complete = len(chunks) == math.prod(-(-n // c) for n, c in zip(shape, chunk, strict=True))
    out = np.empty(shape, dtype) if complete else _filled(shape, dtype, header.fill)
    for item, packed in zip(chunks, _read(data, chunks), strict=True):
        require(bool(filters) or item.size == raw, "wrong size of a chunk")
        values = (decode(filters, packed, raw, item.mask).view(dtype) if filters else np.frombuffer(packed, dtype)).reshape(
            chunk
        )
        # Elements beyond the edge are cut off.
        outer = tuple([slice(at, at + c) for at, c in zip(item.start, chunk, strict=True)])
        inside = out[outer]
        inside[...] = values[tuple([slice(n) for n in inside.shape])]
    return out


def _read(data: Data, chunks: Sequence[Chunk]) -> list[memoryview]:
    require(all(c.size <= 2 * _LARGEST for c in chunks), "wrong size of a chunk")
    return data.ranges([(c.address, c.size) for c in chunks])


def _texts(data: Data, elements: np.ndarray) -> np.ndarray:
    """Return variable-length texts as bytes."""
    out = np.empty(elements.shape, object)
    flat = out.reshape(-1)
    packed = np.ascontiguousarray(elements).reshape(-1).view(_ELEMENT)
    for i, (count, address, number) in enumerate(packed.tolist()):
        flat[i] = text_at(data, count, address, number)
    return out


def check_storage(data: Data, layout: DataLayout, size: int) -> None:
    """Raise InvalidError for values outside the file or of the wrong size, as HDF5 does when it opens the dataset."""
    if layout.form != CHUNKED:
        require(layout.size == size or layout.address == UNDEFINED, "wrong storage size of a dataset")
    if layout.address != UNDEFINED:
        require(layout.address + (layout.size or 1) <= data.size, "dataset outside the file")
