"""Stored values of complete datasets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aggarray.codecs import decode
from aggarray.formats.hdf5.metadata.chunks import chunks_of, stored_chunks
from aggarray.formats.hdf5.metadata.data import UNDEFINED, Data, UnsupportedError, require, require_supported
from aggarray.formats.hdf5.metadata.headers import Header
from aggarray.formats.hdf5.metadata.heaps import text_at
from aggarray.formats.hdf5.metadata.messages import CHUNKED, COMPACT, DataLayout, FillValue
from aggarray.formats.hdf5.metadata.types import CHARACTERS, ELEMENT, PLAIN, TEXTS
from aggarray.formats.limits import is_plausible

#: Largest size of chunks that are decoded here, and of datasets without stored values.
LARGEST = 1 << 26
#: Size of values that are read where they belong, not into the cache of pages.
_DIRECT = 1 << 20

_ELEMENT = np.dtype([("count", "<u4"), ("address", "<u8"), ("number", "<u4")])


def values_of(data: Data, header: Header, shape: tuple[int, ...]) -> np.ndarray:
    """Return the stored values, variable-length texts as bytes.

    ``shape``: of the variable, which may be longer than the dataset along dimensions that other variables lengthened. Missing
    elements have the fill value.
    """
    datatype, space, _ = header.dataset
    texts = datatype.category == TEXTS
    require_supported(texts or datatype.category in (PLAIN, CHARACTERS), "unsupported type")
    require_supported(not space.empty, "dataset without a dataspace")
    values = stored_of(data, header, np.dtype(f"V{ELEMENT}" if texts else datatype.dtype))
    if shape != values.shape:
        defined = texts or (header.fill is not None and bool(header.fill.value))
        require_supported(defined, "undefined fill value of missing elements")
        extended = _filled(shape, values.dtype, header.fill)
        extended[tuple(slice(0, n) for n in values.shape)] = values
        values = extended
    if not texts:
        return values
    decoded = np.empty(values.size, object)
    for i, element in enumerate(np.ascontiguousarray(values).reshape(-1).view(_ELEMENT).tolist()):
        decoded[i] = text_at(data, *element)
    return decoded.reshape(values.shape)


def elements_of(data: Data, header: Header) -> np.ndarray:
    """Return the heap references (count, collection, number) of a dataset."""
    return np.ascontiguousarray(stored_of(data, header, np.dtype(f"V{ELEMENT}"))).view(_ELEMENT)


def _filled(shape: tuple[int, ...], dtype: np.dtype[Any], fill: FillValue | None) -> np.ndarray:
    if fill is None or not fill.defined:
        raise UnsupportedError("undefined fill value")
    out = np.zeros(shape, dtype)
    if fill.value:
        require(len(fill.value) == dtype.itemsize, "malformed fill value")
        out[...] = np.frombuffer(fill.value, dtype)[0]
    return out


def stored_of(data: Data, header: Header, dtype: np.dtype[Any]) -> np.ndarray:
    """Return the stored elements of a dataset."""
    require_supported(not header.external, "values in other files")
    _, space, layout = header.dataset
    shape = space.shape
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return np.zeros(shape, dtype)
    if layout.form == CHUNKED:
        return _chunked(data, header, dtype)
    require(not header.filters, "unsupported dataset")
    if layout.form == COMPACT:
        require(layout.size == size, "wrong storage size of a dataset")
        packed = layout.data
    elif layout.address == UNDEFINED:
        require(size <= LARGEST, "unsupported dataset")
        return _filled(shape, dtype, header.fill)
    else:
        require(layout.size == size, "wrong storage size of a dataset")
        if size >= _DIRECT:
            values = np.empty(shape, dtype)
            data.read_into(layout.address, values.reshape(-1).view(np.uint8))
            return values
        packed = data.at(layout.address, size)
    return np.frombuffer(packed, dtype).reshape(shape)


def _chunked(data: Data, header: Header, dtype: np.dtype[Any]) -> np.ndarray:
    _, space, layout = header.dataset
    shape = space.shape
    *chunk, element = layout.chunk
    raw = math.prod(layout.chunk)
    require(len(chunk) == len(shape) and element == dtype.itemsize and raw <= LARGEST, "malformed chunk shape")
    filters = tuple([f for f in header.filters if f is not None])
    require_supported(len(filters) == len(header.filters), "unknown filter")
    chunks = chunks_of(data, layout, space, bool(header.filters))
    # A dataset that was shrunk may keep chunks beyond its edge.
    chunks = [c for c in chunks if all(at < n for at, n in zip(c.start, shape, strict=True))]
    complete = len(chunks) == math.prod(-(-n // c) for n, c in zip(shape, chunk, strict=True))
    out = np.empty(shape, dtype) if complete else _filled(shape, dtype, header.fill)
    require(all(c.size <= 2 * LARGEST for c in chunks), "wrong size of a chunk")
    for item, packed in zip(chunks, data.ranges([(c.address, c.size) for c in chunks]), strict=True):
        require(bool(filters) or item.size == raw, "wrong size of a chunk")
        values = decode(filters, packed, raw, item.mask).view(dtype) if filters else np.frombuffer(packed, dtype)
        # Elements beyond the edge are cut off.
        outer = tuple([slice(at, at + c) for at, c in zip(item.start, chunk, strict=True)])
        inside = out[outer]
        inside[...] = values.reshape(chunk)[tuple([slice(n) for n in inside.shape])]
    return out


def is_bounded(data: Data, header: Header) -> bool:
    """Return whether the stored bytes justify the size of a dataset."""
    datatype, space, layout = header.dataset
    stored = 0 if layout.address == UNDEFINED else layout.size
    if layout.form == CHUNKED:
        if math.prod(layout.chunk) > LARGEST:
            return False
        stored = int(stored_chunks(data, layout, space, bool(header.filters)).sizes.sum())
    return is_plausible(space.count * datatype.size, stored)


def check_storage(data: Data, layout: DataLayout, size: int) -> None:
    """Raise InvalidError for values out of the file or of the wrong size."""
    if layout.form != CHUNKED:
        require(layout.size == size or layout.address == UNDEFINED, "wrong storage size of a dataset")
    if layout.address != UNDEFINED:
        require(layout.address + (layout.size or 1) <= data.size, "dataset outside the file")
