"""Chunk indexes of HDF5 datasets.

`build_chunk_index` builds a chunk index from the stored chunks that any reader finds. `chunk_index_through_h5py` finds them
with h5py's low-level interface, without reading values, in files that `formats.hdf5.metadata` does not support; its caller
holds `LIBRARY_LOCK`. The result is None for a dataset that cannot be described exactly (a filter with unknown parameters, an
undefined fill value, edge chunks that may be stored without their filters): HDF5 reads its values.
"""

import math
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from aggarray.codecs import Filter
from aggarray.formats.base import LIBRARY_ERRORS, ChunkIndex, grid_of, needs_chunk_index, one_chunk
from aggarray.formats.hdf5.links import is_pure_dimension, is_scale

#: Filters that decode without parameters, by HDF5's filter number.
_PLAIN = {1: "deflate", 3: "fletcher32", 32000: "lzf", 32001: "blosc", 32004: "lz4_hdf5", 32015: "zstd", 307: "bz2"}
_SHUFFLE, _SZIP, _BITSHUFFLE = 2, 4, 32008

#: Number of chunks that are held as Python objects at a time.
_BATCH = 1 << 16

#: Number of chunks that are read to find the origin of offsets in a file with a user block.
_LOOKED_AT = 64


def chunk_index_through_h5py(path: str, dataset: Any, dtype: np.dtype[Any]) -> ChunkIndex | None:
    """Return the chunk index of an h5py dataset, or None; ``dtype``: from `plain_dtype`, ``path``: of the file."""
    if dataset.shape is None or not has_numpy_layout(dataset, dtype):
        return None
    shape = _full_shape(dataset)
    if shape is None:
        return None
    properties = dataset.id.get_create_plist()
    fill = _fill(dataset, properties, dtype)
    index: ChunkIndex | None = None
    if is_contiguous(dataset):
        index = one_chunk(shape, dtype, fill, offset_of(dataset))
    elif dataset.chunks is not None:
        steps = [properties.get_filter(position) for position in range(properties.get_nfilters())]
        filters = filters_of([(code, tuple(int(v) for v in values)) for code, _, values, _ in steps])
        empty = None if filters is None else empty_chunk_index(shape, dataset.chunks, dtype, filters, fill)
        index = None if empty is None else _chunked(path, dataset, empty)
    # With an undefined fill value only HDF5 knows the values of elements that were never written.
    return None if index is None or (fill is None and (index.offsets < 0).any()) else index


def empty_chunk_index(
    shape: tuple[int, ...], chunk: tuple[int, ...], dtype: np.dtype[Any], filters: tuple[Filter, ...], fill: Any
) -> ChunkIndex:
    """Return a chunk index without chunks, which `build_chunk_index` fills in."""
    return ChunkIndex(shape, chunk, dtype, filters, fill, np.empty(0, np.int64), np.empty(0, np.int64))


def has_numpy_layout(dataset: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether a dataset stores numbers in a NumPy layout: full precision, no booleans (which HDF5 checks)."""
    import h5py

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


def is_contiguous(dataset: Any) -> bool:
    """Return whether a dataset is contiguous in its own file."""
    import h5py

    properties = dataset.id.get_create_plist()
    return properties.get_layout() == h5py.h5d.CONTIGUOUS and not properties.get_external_count()


def offset_of(dataset: Any) -> int | None:
    """Return the offset of a contiguous dataset in its file, None if nothing was written."""
    # HDF5 adds the size of a user block even to an undefined offset.
    return dataset.id.get_offset() if dataset.id.get_storage_size() else None


def _fill(dataset: Any, properties: Any, dtype: np.dtype[Any]) -> Any:
    """Return the value of elements that were never written, None if it is undefined."""
    import h5py

    if properties.get_fill_time() == h5py.h5d.FILL_TIME_NEVER:
        return None
    if properties.fill_value_defined() == h5py.h5d.FILL_VALUE_UNDEFINED:
        return None
    return np.asarray(dataset.fillvalue).astype(dtype.newbyteorder("="))[()]


def filters_of(steps: Iterable[tuple[int, tuple[int, ...]]]) -> tuple[Filter, ...] | None:
    """Return the filters of (HDF5's number, values) in the order of encoding, None if one of them is unknown."""
    filters = []
    for code, values in steps:
        step = filter_of(code, values)
        if step is None:
            return None
        filters.append(step)
    return tuple(filters)


def filter_of(code: int, values: tuple[int, ...]) -> Filter | None:
    """Return a filter, None for an unknown one; ``values``: its parameters in the file.

    >>> filter_of(2, (4,)), filter_of(6, ()), filter_of(32008, (0, 4, 8, 0, 2))
    (Filter(name='shuffle', parameters=(4,)), None, Filter(name='bitshuffle', parameters=(8, 0, 2)))
    """
    if code in _PLAIN:
        return Filter(_PLAIN[code])
    if code == _SHUFFLE and len(values) == 1:
        return Filter("shuffle", values)
    if code == _SZIP and len(values) == 4:
        # Options, pixels per block, bits per pixel, pixels per scanline.
        return Filter("szip", values)
    if code == _BITSHUFFLE and len(values) >= 3:
        # Two numbers of the version, then element size, elements per block, and 0 none, 2 lz4, 3 zstd.
        return Filter("bitshuffle", (*values[2:5], 0, 0)[:3])
    return None


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
    import h5py

    longest = 0 if is_pure_dimension(scale) else int(scale.shape[0])
    for reference, axis in scale.attrs.get("REFERENCE_LIST", ()):
        other = h5py.h5r.dereference(reference, dataset.id)
        if other is not None:
            space = other.get_space()
            if space.get_simple_extent_dims(True)[axis] == h5py.h5s.UNLIMITED:
                longest = max(longest, int(space.get_simple_extent_dims()[axis]))
    return longest


# Chunks


class StoredChunks(NamedTuple):
    """Stored chunks: first elements in the dataset (n, dimensions), offsets, sizes and filter masks."""

    starts: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray
    masks: np.ndarray


def build_chunk_index(empty: ChunkIndex, stored: StoredChunks) -> ChunkIndex | None:
    """Return the chunk index with the stored chunks, None if it would be inexact or too large."""
    grid = grid_of(empty.shape, empty.chunk)
    if not needs_chunk_index(grid, len(stored.offsets)):
        return None
    columns: tuple[np.ndarray, ...] = stored[1:]
    cells = stored.starts // np.asarray(empty.chunk, np.int64)
    inside = (cells < np.asarray(grid, np.int64)).all(axis=1)
    if not inside.all():
        cells, columns = cells[inside], tuple(column[inside] for column in columns)
    if not _all_filtered(empty, cells, columns[1], columns[2]):
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


def _all_filtered(index: ChunkIndex, cells: np.ndarray, sizes: np.ndarray, masks: np.ndarray) -> bool:
    """Return whether all filters that the masks do not skip were certainly applied to the chunks."""
    raw = index.dtype.itemsize * math.prod(index.chunk)
    if not index.filters:
        return bool((sizes == raw).all())
    # A dataset can store partial edge chunks without filters, which only their size shows.
    uncertain = (masks == 0) & (sizes == raw)
    if not uncertain.any():
        return True
    partial = (cells + 1) * np.asarray(index.chunk, np.int64) > np.asarray(index.shape, np.int64)
    return not (partial.any(axis=1) & uncertain).any()


# Chunks found by h5py


def _chunked(path: str, dataset: Any, empty: ChunkIndex) -> ChunkIndex | None:
    """Return the table with its columns filled in, None where they cannot be or would claim too much memory."""
    stored = _stored(dataset)
    if not needs_chunk_index(empty.grid, len(stored.offsets)):
        return None
    if not _offsets_from_file_start(path, dataset) or not _starts_are_exact(dataset, stored.starts, empty.grid):
        return None
    return build_chunk_index(empty, stored)


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
