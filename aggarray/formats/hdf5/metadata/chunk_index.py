"""Chunk indexes of variables, and contiguous variables.

A chunk index describes a dataset exactly. HDF5 reads the values of other datasets: those with unknown filters, an undefined
fill value, or edge chunks that may be stored without their filters.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aggarray.dataclass import replace
from aggarray.formats.base import SCAN_ELEMENTS, stored_values
from aggarray.formats.hdf5.metadata.attributes import shown_attributes
from aggarray.formats.hdf5.metadata.chunks import StoredChunks, check_index, stored_chunks
from aggarray.formats.hdf5.metadata.data import UNDEFINED, Data, UnsupportedError, require
from aggarray.formats.hdf5.metadata.groups import attributes_at
from aggarray.formats.hdf5.metadata.headers import Header
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.formats.hdf5.metadata.messages import CHUNKED, COMPACT, CONTIGUOUS, DataLayout, FillValue
from aggarray.formats.hdf5.metadata.types import PLAIN, TEXTS, Dataspace
from aggarray.formats.hdf5.metadata.values import is_bounded, values_of
from aggarray.partition.chunk_index import ChunkIndex, grid_of, needs_chunk_index, one_chunk


def chunk_index_of(file: H5File, variable: str) -> ChunkIndex | None:
    """Return the chunk index of a variable, None if its storage has none.

    Raises one of `data.UNREADABLE` as `H5File` does.
    """
    header = file.variable(variable)
    dtype, _, layout = _plain(header)
    if layout.form == COMPACT:
        return None
    fill = _fill(header.fill, dtype)
    shape = file.shape(header)
    if layout.form == CONTIGUOUS:
        index: ChunkIndex | None = one_chunk(shape, dtype, fill, _offset(file.data, header, layout))
    else:
        index = _chunked(file.data, header, shape, fill)
    return None if index is None or (fill is None and (index.offsets < 0).any()) else index


def check_chunks(file: H5File, variable: str) -> None:
    """Raise one of `data.UNREADABLE` if the chunk index cannot be read."""
    header = file.variable(variable)
    if header.layout is not None and header.space is not None and header.layout.form == CHUNKED:
        check_index(file.data, header.layout, header.space, bool(header.filters))


def texts_of(file: H5File, variable: str, path: str) -> np.ndarray | None:
    """Return all texts, None for other types and too large variables."""
    header = file.variable(variable)
    if header.datatype is None or header.datatype.category != TEXTS:
        return None
    shape = file.shape(header)
    if math.prod(shape) > SCAN_ELEMENTS:
        return None
    attrs = shown_attributes(attributes_at(file.data, header), file.data)
    return stored_values(values_of(file.data, header, shape), attrs, False, f"{path}, variable {variable!r}")


def numbers_of(file: H5File, variable: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return all numbers of a variable, None if only HDF5 reads them."""
    header = file.variable(variable)
    dtype, space, _ = _plain(header)
    if space.shape != shape or not is_bounded(file.data, header):
        return None
    return values_of(file.data, header, shape).astype(dtype.newbyteorder("="), copy=False)


def contiguous_of(file: H5File, variable: str) -> tuple[np.dtype[Any], int, tuple[int, ...]] | None:
    """Return dtype, offset and shape of a contiguous variable, or None."""
    header = file.variable(variable)
    dtype, space, layout = _plain(header)
    offset = _offset(file.data, header, layout) if layout.form == CONTIGUOUS and space.count else None
    return None if offset is None else (dtype, offset, space.shape)


def _plain(header: Header) -> tuple[np.dtype[Any], Dataspace, DataLayout]:
    """Return dtype, space and layout, or raise for other than plain numbers."""
    datatype, space, layout = header.dataset
    dtype = datatype.dtype
    if datatype.category != PLAIN or dtype is None or dtype.kind not in "iuf" or space.empty or header.external:
        raise UnsupportedError("not a dataset of plain numbers in this file")
    return dtype, space, layout


def _fill(fill: FillValue | None, dtype: np.dtype[Any]) -> Any:
    if fill is None:
        raise UnsupportedError("undefined fill value")
    if not fill.defined:
        return None
    require(len(fill.value) in (0, dtype.itemsize), "malformed fill value")
    return np.frombuffer(fill.value or bytes(dtype.itemsize), dtype).astype(dtype.newbyteorder("="))[0]


def _offset(data: Data, header: Header, layout: DataLayout) -> int | None:
    datatype, space, _ = header.dataset
    size = datatype.size * space.count
    if layout.address == UNDEFINED:
        return None
    require(not header.filters and layout.size == size, "wrong storage size of a dataset")
    require(layout.address + size <= data.size, "dataset outside the file")
    return data.base + layout.address if size else None


def _chunked(data: Data, header: Header, shape: tuple[int, ...], fill: Any) -> ChunkIndex | None:
    dtype, space, layout = _plain(header)
    *chunk, element = layout.chunk
    require(layout.form == CHUNKED and len(chunk) == len(shape) and element == dtype.itemsize, "malformed chunk shape")
    filters = tuple([f for f in header.filters if f is not None])
    if len(filters) < len(header.filters):
        return None
    stored = stored_chunks(data, layout, space, bool(header.filters))
    if data.base:
        stored = stored._replace(offsets=stored.offsets + data.base)
    empty = np.empty(0, np.int64)
    return fill_chunk_index(ChunkIndex(shape, tuple(chunk), dtype, filters, fill, empty, empty), stored)


def fill_chunk_index(empty: ChunkIndex, stored: StoredChunks) -> ChunkIndex | None:
    """Return the index of the stored chunks, None if inexact or too large."""
    grid = grid_of(empty.shape, empty.chunk)
    if not needs_chunk_index(grid, len(stored.offsets)):
        return None
    columns: tuple[np.ndarray, ...] = stored[1:]
    cells = stored.starts // np.asarray(empty.chunk, np.int64)
    inside = (cells < np.asarray(grid, np.int64)).all(axis=1)
    if not inside.all():
        cells, columns = cells[inside], tuple(column[inside] for column in columns)
    _, sizes, masks = columns
    unfiltered = sizes == empty.dtype.itemsize * math.prod(empty.chunk)
    if not empty.filters:
        if not unfiltered.all():
            return None
    elif (uncertain := unfiltered & (masks == 0)).any():
        # A dataset can store partial edge chunks without filters, which only their size shows.
        partial = (cells + 1) * np.asarray(empty.chunk, np.int64) > np.asarray(empty.shape, np.int64)
        if (partial.any(axis=1) & uncertain).any():
            return None
    positions = np.ravel_multi_index(tuple(cells.T), grid) if len(cells) else np.empty(0, np.int64)
    count = math.prod(grid)
    dense = []
    for column, absent in zip(columns, (-1, 0, 0), strict=True):
        out = np.full(count, absent, column.dtype)
        out[positions] = column
        dense.append(out)
    offsets, sizes, masks = dense
    return replace(empty, offsets=offsets, sizes=sizes, masks=masks if masks.any() else None)
