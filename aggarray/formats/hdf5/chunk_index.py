"""Where an HDF5 file stores the values of a dataset.

`build_chunk_index` builds the chunk index from chunks found by any reader. `chunk_index_through_h5py` finds them through h5py's
low-level interface, without reading a value, in files that `formats.hdf5.metadata` leaves to the library; its caller holds
`LIBRARY_LOCK`. A dataset that cannot be described exactly (a filter with unknown parameters, an undefined fill value, edge
chunks that may be stored without their filters) gives None, and HDF5 reads its values.
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

#: Filters that need no parameter to be undone, by HDF5's number.
_PLAIN = {1: "deflate", 3: "fletcher32", 32000: "lzf", 32001: "blosc", 32004: "lz4_hdf5", 32015: "zstd", 307: "bz2"}
_SHUFFLE, _SZIP, _BITSHUFFLE = 2, 4, 32008

#: So many chunks are held as Python objects at a time.
_BATCH = 1 << 16

#: In a file with a user block so many chunks are looked at to learn from where offsets count.
_LOOKED_AT = 64


def chunk_index_through_h5py(path: str, dataset: Any, dtype: np.dtype[Any]) -> ChunkIndex | None:
    """Return where an h5py dataset is stored, or None; ``dtype`` as `plain_dtype` gives it, ``path``: the file's."""
    if dataset.shape is None or not is_stored_plainly(dataset, dtype):
        return None
    shape = _full_shape(dataset)
    if shape is None:
        return None
    made = dataset.id.get_create_plist()
    # Elements that were never written have no value of their own: only HDF5 can say what they read as.
    fill = _fill(dataset, made, dtype)
    found: ChunkIndex | None = None
    if lies_in_one_piece(dataset):
        found = one_chunk(shape, dtype, fill, offset_of(dataset))
    elif dataset.chunks is not None:
        steps = [made.get_filter(position) for position in range(made.get_nfilters())]
        filters = filters_of([(code, tuple(int(v) for v in values)) for code, _, values, _ in steps])
        empty = None if filters is None else without_columns(shape, dataset.chunks, dtype, filters, fill)
        found = None if empty is None else _chunked(path, dataset, empty)
    return None if found is None or (fill is None and (found.offsets < 0).any()) else found


def without_columns(
    shape: tuple[int, ...], chunk: tuple[int, ...], dtype: np.dtype[Any], filters: tuple[Filter, ...], fill: Any
) -> ChunkIndex:
    """Return a table that tells of no chunk yet, to be given to `build_chunk_index`."""
    return ChunkIndex(shape, chunk, dtype, filters, fill, np.empty(0, np.int64), np.empty(0, np.int64))


def is_stored_plainly(dataset: Any, dtype: np.dtype[Any]) -> bool:
    """Tell whether a dataset holds numbers as NumPy does: no odd precision, no booleans (which HDF5 checks)."""
    import h5py

    if dtype.kind not in "iuf":
        return False
    stored = dataset.id.get_type()
    if isinstance(stored, h5py.h5t.TypeEnumID):
        stored = stored.get_super()
    if not isinstance(stored, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID):
        return False
    if dtype.itemsize == 1:
        # One byte has no order, whatever is written.
        stored = stored.copy()
        stored.set_order(h5py.h5t.py_create(dtype).get_order())
    return bool(stored.equal(h5py.h5t.py_create(dtype)))


def lies_in_one_piece(dataset: Any) -> bool:
    """Tell whether a dataset is contiguous, in its own file."""
    import h5py

    made = dataset.id.get_create_plist()
    return made.get_layout() == h5py.h5d.CONTIGUOUS and not made.get_external_count()


def offset_of(dataset: Any) -> int | None:
    """Return where in its file a contiguous dataset begins, None where nothing of it was ever written."""
    # HDF5 adds the size of a user block even to the offset of what lies nowhere.
    return dataset.id.get_offset() if dataset.id.get_storage_size() else None


def _fill(dataset: Any, made: Any, dtype: np.dtype[Any]) -> Any:
    """Return what elements that were never written are, None where that is undefined."""
    import h5py

    if made.get_fill_time() == h5py.h5d.FILL_TIME_NEVER or made.fill_value_defined() == h5py.h5d.FILL_VALUE_UNDEFINED:
        return None
    return np.asarray(dataset.fillvalue).astype(dtype.newbyteorder("="))[()]


def filters_of(steps: Iterable[tuple[int, tuple[int, ...]]]) -> tuple[Filter, ...] | None:
    """Return the filters of (HDF5's number, values) in the order of encoding, None where one of them is not known here."""
    found = []
    for code, values in steps:
        step = filter_of(code, values)
        if step is None:
            return None
        found.append(step)
    return tuple(found)


def filter_of(code: int, values: tuple[int, ...]) -> Filter | None:
    """Return one filter; ``values``: as its writer left them in the file.

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


# Dimensions that other variables have lengthened


def _full_shape(dataset: Any) -> tuple[int, ...] | None:
    """Return the shape of the variable: along unlimited dimensions that of the longest variable which has them.

    netCDF-4 lets one variable lengthen a dimension without touching the others. None where that cannot be told.
    """

    unlimited = [axis for axis, most in enumerate(dataset.maxshape) if most is None]
    shape = [int(n) for n in dataset.shape]
    if not unlimited:
        return tuple(shape)
    try:
        listed = dataset.attrs.get("DIMENSION_LIST")
        if listed is None:
            if is_scale(dataset):
                return (max(shape[0], _longest(dataset, dataset)), *shape[1:]) if unlimited == [0] else None
            # Dimensions known by number alone: nothing leads to the other variables that have them.
            return None if "_Netcdf4Coordinates" in dataset.attrs else tuple(shape)
        for axis in unlimited:
            if len(listed[axis]) and listed[axis][0]:
                shape[axis] = max(shape[axis], _longest(dataset.file[listed[axis][0]], dataset))
    except LIBRARY_ERRORS:
        return None
    return tuple(shape)


def _longest(scale: Any, dataset: Any) -> int:
    """Return the length of the unlimited dimension of a scale: that of the longest variable which has it."""
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
    """The chunks that are stored: where they start in the dataset (n, dimensions), offsets, sizes and filter masks."""

    starts: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray
    masks: np.ndarray


def build_chunk_index(table: ChunkIndex, stored: StoredChunks) -> ChunkIndex | None:
    """Return a table with its columns filled in, None where they cannot be or would claim too much memory."""
    grid = grid_of(table.shape, table.chunk)
    if not needs_chunk_index(grid, len(stored.offsets)):
        return None
    columns: tuple[np.ndarray, ...] = stored[1:]
    cells = stored.starts // np.asarray(table.chunk, np.int64)
    inside = (cells < np.asarray(grid, np.int64)).all(axis=1)
    if not inside.all():
        cells, columns = cells[inside], tuple(column[inside] for column in columns)
    if not _are_as_filtered(table, cells, columns[1], columns[2]):
        return None
    at = np.ravel_multi_index(tuple(cells.T), grid) if len(cells) else np.empty(0, np.int64)
    count = math.prod(grid)
    laid = []
    for column, absent in zip(columns, (-1, 0, 0), strict=True):
        out = np.full(count, absent, column.dtype)
        out[at] = column
        laid.append(out)
    shown = laid[2] if laid[2].any() else None
    return replace(table, offsets=laid[0], sizes=laid[1], masks=shown)


def _are_as_filtered(table: ChunkIndex, cells: np.ndarray, sizes: np.ndarray, masks: np.ndarray) -> bool:
    """Tell whether chunks are sure to be stored as their filters say."""
    raw = table.dtype.itemsize * math.prod(table.chunk)
    if not table.filters:
        return bool((sizes == raw).all())
    # A dataset may be set to leave out the filters of chunks that reach beyond its edge: nothing but their size shows it.
    doubtful = (masks == 0) & (sizes == raw)
    if not doubtful.any():
        return True
    beyond = (cells + 1) * np.asarray(table.chunk, np.int64) > np.asarray(table.shape, np.int64)
    return not (beyond.any(axis=1) & doubtful).any()


# Chunks by h5py


def _chunked(path: str, dataset: Any, table: ChunkIndex) -> ChunkIndex | None:
    """Return the table with its columns filled in, None where they cannot be or would claim too much memory."""
    stored = _stored(dataset)
    if not needs_chunk_index(table.grid, len(stored.offsets)):
        return None
    if not _are_from_the_beginning(path, dataset) or not _are_in_their_places(dataset, stored.starts, table.grid):
        return None
    return build_chunk_index(table, stored)


def _stored(dataset: Any) -> StoredChunks:
    """Return where h5py says that every stored chunk is."""
    rank = len(dataset.shape)
    batches: list[tuple[np.ndarray, ...]] = []
    waiting: list[Any] = []

    def flush() -> None:
        """Turn the objects of a batch into columns."""
        count = len(waiting)
        starts = np.fromiter((c.chunk_offset for c in waiting), np.dtype((np.int64, (rank,))), count)
        offsets = np.fromiter((c.byte_offset for c in waiting), np.int64, count)
        sizes = np.fromiter((c.size for c in waiting), np.int64, count)
        masks = np.fromiter((c.filter_mask for c in waiting), np.uint32, count)
        batches.append((starts, offsets, sizes, masks))
        waiting.clear()

    def note(info: Any) -> None:
        """Take down a chunk."""
        waiting.append(info)
        if len(waiting) == _BATCH:
            flush()

    dataset.id.chunk_iter(note)
    flush()
    return StoredChunks(*(np.concatenate(columns) for columns in zip(*batches, strict=True)))


def _are_in_their_places(dataset: Any, starts: np.ndarray, grid: tuple[int, ...]) -> bool:
    """Tell whether chunks lie where HDF5 says in the dataset: begin at ``starts``; ``grid``: of the variable.

    Of a dataset with one unlimited dimension which is not the first, written in the latest layout, HDF5 numbers the chunks
    with that dimension in front and forgets it when it tells where they belong: they do not cover the grid then.
    """
    unlimited = [axis for axis, most in enumerate(dataset.maxshape) if most is None]
    if len(unlimited) != 1 or unlimited == [0]:
        return True
    cells = starts // np.asarray(dataset.chunks, np.int64)
    cells = cells[(cells < np.asarray(grid, np.int64)).all(axis=1)]
    return len(np.unique(cells, axis=0)) == len(cells) == math.prod(grid_of(dataset.shape, dataset.chunks))


def _are_from_the_beginning(path: str, dataset: Any) -> bool:
    """Tell whether offsets of chunks count from the beginning of the file, a user block included.

    Versions of HDF5 differ in that: where there is a user block, chunks are looked at until one of them tells.
    """
    block = dataset.file.userblock_size
    if not block:
        return True
    count = int(dataset.id.get_num_chunks())
    with open(path, "rb", buffering=0) as file:
        for position in range(min(count, _LOOKED_AT)):
            info = dataset.id.get_chunk_info(position)
            data = bytes(dataset.id.read_direct_chunk(info.chunk_offset)[1])
            here = os.pread(file.fileno(), len(data), info.byte_offset)
            later = os.pread(file.fileno(), len(data), info.byte_offset + block)
            if here != later:
                return here == data
    return not count
