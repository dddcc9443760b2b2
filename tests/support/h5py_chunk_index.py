"""Chunk indexes of HDF5 datasets as h5py reports them: the oracle of the indexes that `formats.hdf5.metadata` reads."""

import math
import os
from typing import Any

import h5py
import numpy as np

from aggarray.errors import LIBRARY_ERRORS
from aggarray.formats.hdf5.h5py_files import is_pure_dimension, is_scale
from aggarray.formats.hdf5.library import H5pyFile
from aggarray.formats.hdf5.metadata.chunk_index import fill_chunk_index
from aggarray.formats.hdf5.metadata.chunks import StoredChunks
from aggarray.formats.hdf5.metadata.messages import filter_of
from aggarray.formats.hdf5.rows import samples_dtype
from aggarray.partition.chunk_index import ChunkIndex, grid_of, needs_chunk_index, one_chunk

#: Number of chunks that are held as Python objects at a time.
_BATCH = 1 << 16

#: Number of chunks that are read to find the origin of offsets in a file with a user block.
_LOOKED_AT = 64


def chunk_index(path: str, file: h5py.File, variable: str) -> ChunkIndex | None:
    """Return the chunk index of a variable of an open file, or None if `ChunkIndex` cannot describe its storage."""
    dataset, dtype, _ = H5pyFile(path, file).dataset(variable)
    return None if samples_dtype(dataset) is not None else _chunk_index(path, dataset, dtype)


def contiguous(path: str, file: h5py.File, variable: str) -> tuple[np.dtype[Any], int, tuple[int, ...]] | None:
    """Return dtype, offset and shape of a contiguous variable without filters, None for other variables."""
    dataset, dtype, _ = H5pyFile(path, file).dataset(variable)
    if not dataset.size or samples_dtype(dataset) is not None:
        return None
    offset = _offset_of(dataset) if _is_contiguous(dataset) and _has_numpy_layout(dataset, dtype) else None
    return None if offset is None else (dtype, offset, dataset.shape)


def _chunk_index(path: str, dataset: Any, dtype: np.dtype[Any]) -> ChunkIndex | None:
    """Return the chunk index of an h5py dataset, or None; ``dtype``: from `plain_dtype`, ``path``: of the file."""
    if dataset.shape is None or not _has_numpy_layout(dataset, dtype):
        return None
    shape = _full_shape(dataset)
    if shape is None:
        return None
    properties = dataset.id.get_create_plist()
    fill = _fill(dataset, properties, dtype)
    index: ChunkIndex | None = None
    if _is_contiguous(dataset):
        index = one_chunk(shape, dtype, fill, _offset_of(dataset))
    elif dataset.chunks is not None:
        steps = [properties.get_filter(position) for position in range(properties.get_nfilters())]
        filters = tuple(filter_of(code, tuple(int(v) for v in values)) for code, _, values, _ in steps)
        if None not in filters:
            empty = np.empty(0, np.int64)
            index = _chunked(path, dataset, ChunkIndex(shape, dataset.chunks, dtype, filters, fill, empty, empty))
    # With an undefined fill value only HDF5 knows the values of elements that were never written.
    return None if index is None or (fill is None and (index.offsets < 0).any()) else index


def _has_numpy_layout(dataset: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether a dataset stores numbers in a NumPy layout: full precision, no booleans (which HDF5 checks)."""
    if dtype.kind not in "iuf":
        return False
    stored = dataset.id.get_type()
    if isinstance(stored, h5py.h5t.TypeEnumID):
        stored = stored.get_super()
    if not isinstance(stored, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID):
        return False
    if dtype.itemsize == 1:
        # The byte order of one byte has no meaning.
        stored = stored.copy()
        stored.set_order(h5py.h5t.py_create(dtype).get_order())
    return bool(stored.equal(h5py.h5t.py_create(dtype)))


def _is_contiguous(dataset: Any) -> bool:
    """Return whether a dataset is contiguous in its own file."""
    properties = dataset.id.get_create_plist()
    return properties.get_layout() == h5py.h5d.CONTIGUOUS and not properties.get_external_count()


def _offset_of(dataset: Any) -> int | None:
    """Return the offset of a contiguous dataset in its file, None if nothing was written."""
    # HDF5 adds the size of a user block even to an undefined offset.
    return dataset.id.get_offset() if dataset.id.get_storage_size() else None


def _fill(dataset: Any, properties: Any, dtype: np.dtype[Any]) -> Any:
    """Return the value of elements that were never written, None if it is undefined."""
    if properties.get_fill_time() == h5py.h5d.FILL_TIME_NEVER:
        return None
    if properties.fill_value_defined() == h5py.h5d.FILL_VALUE_UNDEFINED:
        return None
    return np.asarray(dataset.fillvalue).astype(dtype.newbyteorder("="))[()]


# Unlimited dimensions


def _full_shape(dataset: Any) -> tuple[int, ...] | None:
    """Return the shape of the variable: the length of an unlimited dimension is that of its longest variable.

    netCDF-4 lets one variable lengthen a dimension without extending the others along it. None if the length is unknown.
    """

    unlimited = [axis for axis, limit in enumerate(dataset.maxshape) if limit is None]
    shape = [int(n) for n in dataset.shape]
    if not unlimited:
        return tuple(shape)
    try:
        scales = dataset.attrs.get("DIMENSION_LIST")
        if scales is None:
            if is_scale(dataset):
                return (max(shape[0], _longest(dataset, dataset)), *shape[1:]) if unlimited == [0] else None
            # Dimensions identified by number alone: there is no reference to the other variables along them.
            return None if "_Netcdf4Coordinates" in dataset.attrs else tuple(shape)
        for axis in unlimited:
            if len(scales[axis]) and scales[axis][0]:
                shape[axis] = max(shape[axis], _longest(dataset.file[scales[axis][0]], dataset))
    except LIBRARY_ERRORS:
        return None
    return tuple(shape)


def _longest(scale: Any, dataset: Any) -> int:
    """Return the length of the unlimited dimension of a scale: that of the longest variable along it."""
    longest = 0 if is_pure_dimension(scale) else int(scale.shape[0])
    for reference, axis in scale.attrs.get("REFERENCE_LIST", ()):
        other = h5py.h5r.dereference(reference, dataset.id)
        if other is not None:
            space = other.get_space()
            if space.get_simple_extent_dims(True)[axis] == h5py.h5s.UNLIMITED:
                longest = max(longest, int(space.get_simple_extent_dims()[axis]))
    return longest


# Chunks found by h5py


def _chunked(path: str, dataset: Any, empty: ChunkIndex) -> ChunkIndex | None:
    """Return the table with its columns filled in, None where they cannot be or would claim too much memory."""
    stored = _stored(dataset)
    if not needs_chunk_index(empty.grid, len(stored.offsets)):
        return None
    if not _offsets_from_file_start(path, dataset) or not _starts_are_exact(dataset, stored.starts, empty.grid):
        return None
    return fill_chunk_index(empty, stored)


def _stored(dataset: Any) -> StoredChunks:
    """Return the stored chunks as h5py reports them."""
    rank = len(dataset.shape)
    batches: list[tuple[np.ndarray, ...]] = []
    waiting: list[Any] = []

    def flush() -> None:
        """Convert the objects of a batch to columns."""
        count = len(waiting)
        starts = np.fromiter((c.chunk_offset for c in waiting), np.dtype((np.int64, (rank,))), count)
        offsets = np.fromiter((c.byte_offset for c in waiting), np.int64, count)
        sizes = np.fromiter((c.size for c in waiting), np.int64, count)
        masks = np.fromiter((c.filter_mask for c in waiting), np.uint32, count)
        batches.append((starts, offsets, sizes, masks))
        waiting.clear()

    def note(info: Any) -> None:
        """Record a chunk."""
        waiting.append(info)
        if len(waiting) == _BATCH:
            flush()

    dataset.id.chunk_iter(note)
    flush()
    return StoredChunks(*(np.concatenate(columns) for columns in zip(*batches, strict=True)))


def _starts_are_exact(dataset: Any, starts: np.ndarray, grid: tuple[int, ...]) -> bool:
    """Return whether the chunk positions that HDF5 reports are exact; ``grid``: of the variable.

    HDF5 numbers the chunks of a dataset whose one unlimited dimension is not the first, in the latest layout, with that
    dimension in front, but ignores this when it reports their positions: they do not cover the grid then.
    """
    unlimited = [axis for axis, limit in enumerate(dataset.maxshape) if limit is None]
    if len(unlimited) != 1 or unlimited == [0]:
        return True
    cells = starts // np.asarray(dataset.chunks, np.int64)
    cells = cells[(cells < np.asarray(grid, np.int64)).all(axis=1)]
    return len(np.unique(cells, axis=0)) == len(cells) == math.prod(grid_of(dataset.shape, dataset.chunks))


def _offsets_from_file_start(path: str, dataset: Any) -> bool:
    """Return whether chunk offsets count from the beginning of the file, including a user block.

    Versions of HDF5 differ in this: in a file with a user block, chunks are read at both places until one shows the origin.
    """
    block = dataset.file.userblock_size
    if not block:
        return True
    count = int(dataset.id.get_num_chunks())
    with open(path, "rb", buffering=0) as file:
        for position in range(min(count, _LOOKED_AT)):
            info = dataset.id.get_chunk_info(position)
            data = bytes(dataset.id.read_direct_chunk(info.chunk_offset)[1])
            from_start = os.pread(file.fileno(), len(data), info.byte_offset)
            from_block = os.pread(file.fileno(), len(data), info.byte_offset + block)
            if from_start != from_block:
                return from_start == data
    return not count
