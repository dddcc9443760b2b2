"""Chunk indexes of variables, and contiguous variables.

The results equal those of `aggarray.formats.hdf5.chunk_index.chunk_index_through_h5py`.
"""

import math
from typing import Any

import numpy as np

from aggarray.formats.base import SCAN_ELEMENTS, ChunkIndex, one_chunk, stored_values
from aggarray.formats.hdf5.chunk_index import build_chunk_index, empty_chunk_index, filters_of
from aggarray.formats.hdf5.metadata.chunks import check_index, stored_chunks
from aggarray.formats.hdf5.metadata.conventions import shown_attributes
from aggarray.formats.hdf5.metadata.data import UNDEFINED, Data, UnsupportedError, require
from aggarray.formats.hdf5.metadata.headers import Header
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.formats.hdf5.metadata.messages import CHUNKED, COMPACT, CONTIGUOUS, DataLayout, FillValue
from aggarray.formats.hdf5.metadata.types import PLAIN, TEXTS, Dataspace
from aggarray.formats.hdf5.metadata.values import values_of


def chunk_index_of(file: H5File, variable: str) -> ChunkIndex | None:
    """Return the chunk index of a variable, None if `ChunkIndex` cannot describe its storage.

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
    """Raise one of `data.UNREADABLE` for a variable whose chunk index is invalid or unsupported."""
    header = file.variable(variable)
    if header.layout is not None and header.space is not None and header.layout.form == CHUNKED:
        check_index(file.data, header.layout, header.space, bool(header.filters))


def texts_of(file: H5File, variable: str, path: str) -> np.ndarray | None:
    """Return all texts of a variable-length text variable, None for other types and for variables too large for a scan.

    ``path``: of the file, for the log.
    """
    header = file.variable(variable)
    if header.datatype is None or header.datatype.category != TEXTS:
        return None
    shape = file.shape(header)
    if math.prod(shape) > SCAN_ELEMENTS:
        return None
    attrs = shown_attributes(file.facts(header), file.heap)
    return stored_values(values_of(file.data, file.heap, header, shape), attrs, False, f"{path}, variable {variable!r}")


def contiguous_of(file: H5File, variable: str) -> tuple[np.dtype[Any], int, tuple[int, ...]] | None:
    """Return dtype, offset and shape of a contiguous variable without filters, None for other variables."""
    header = file.variable(variable)
    dtype, space, layout = _plain(header)
    offset = _offset(file.data, header, layout) if layout.form == CONTIGUOUS and space.count else None
    return None if offset is None else (dtype, offset, space.shape)


def _plain(header: Header) -> tuple[np.dtype[Any], Dataspace, DataLayout]:
    """Return dtype, dataspace and layout of a dataset of plain numbers; UnsupportedError for other datasets."""
    datatype, space, layout = header.datatype, header.space, header.layout
    if (
        datatype is None
        or space is None
        or layout is None
        or datatype.category != PLAIN
        or datatype.dtype is None
        or space.empty
    ):
        raise UnsupportedError("not a dataset of plain numbers")
    if datatype.dtype.kind not in "iuf" or header.external:
        raise UnsupportedError("not a dataset of plain numbers in this file")
    return datatype.dtype, space, layout


def _fill(fill: FillValue | None, dtype: np.dtype[Any]) -> Any:
    """Return the value of elements that were never written, None if it is undefined."""
    if fill is None:
        raise UnsupportedError("undefined fill value")
    if not fill.defined:
        return None
    require(len(fill.value) in (0, dtype.itemsize), "malformed fill value")
    return np.frombuffer(fill.value or bytes(dtype.itemsize), dtype).astype(dtype.newbyteorder("="))[0]


def _offset(data: Data, header: Header, layout: DataLayout) -> int | None:
    """Return the offset of contiguous values in the file, None if nothing was written."""
    if header.datatype is None or header.space is None:
        raise UnsupportedError("not a dataset")
    size = header.datatype.size * header.space.count
    if layout.address == UNDEFINED:
        return None
    require(not header.filters and layout.size == size, "wrong storage size of a dataset")
    require(layout.address + size <= data.size, "dataset outside the file")
    return data.base + layout.address if size else None


def _chunked(data: Data, header: Header, shape: tuple[int, ...], fill: Any) -> ChunkIndex | None:
    dtype, space, layout = _plain(header)
    *chunk, element = layout.chunk
    require(layout.form == CHUNKED and len(chunk) == len(shape) and element == dtype.itemsize, "malformed chunk shape")
    filters = filters_of((step.code, step.values) for step in header.filters)
    if filters is None:
        return None
    stored = stored_chunks(data, layout, space, bool(header.filters))
    if data.base:
        stored = stored._replace(offsets=stored.offsets + data.base)
    return build_chunk_index(empty_chunk_index(shape, tuple(chunk), dtype, filters, fill), stored)
