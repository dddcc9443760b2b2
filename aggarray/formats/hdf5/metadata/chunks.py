"""Stored chunks of a dataset, from all chunk indexes of HDF5."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from operator import mod
from typing import TYPE_CHECKING

import numpy as np

from aggarray.dataclass import NamedTuple
from aggarray.formats.hdf5.metadata.btrees import CHUNKS, leaf_blocks, records
from aggarray.formats.hdf5.metadata.data import UNDEFINED, Data, UnsupportedError, require, require_supported, require_valid
from aggarray.formats.hdf5.metadata.messages import EXTENSIBLE_ARRAY, FIXED_ARRAY, IMPLICIT, SINGLE, TREE_1, TREE_2, DataLayout
from aggarray.formats.hdf5.metadata.types import Dataspace

if TYPE_CHECKING:
    from aggarray.formats.hdf5.metadata.chunk_arrays import Packed

_PLAIN_RECORDS, _FILTERED_RECORDS = 10, 11
#: Up to this number chunks are parsed one by one, which is faster: for columns, and for a list of chunks.
_FEW_ROWS, _FEW_CHUNKS = 4, 32
#: With more chunks than this, validation checks only the beginning of the index.
_MANY = 1 << 12


class StoredChunks(NamedTuple):
    """Stored chunks: first elements, offsets, sizes and filter masks."""

    starts: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray
    masks: np.ndarray


class Chunk(NamedTuple):
    """Stored chunk: first element, address, size, mask of skipped filters."""

    start: tuple[int, ...]
    address: int
    size: int
    mask: int


def chunks_of(data: Data, layout: DataLayout, space: Dataspace, filtered: bool) -> list[Chunk]:
    """Return the stored chunks in any order; InvalidError for a duplicate."""
    chunks = _read_index(data, layout, space, filtered, _FEW_CHUNKS)
    if isinstance(chunks, StoredChunks):
        starts = map(tuple, chunks.starts.tolist())
        columns = (chunks.offsets.tolist(), chunks.sizes.tolist(), chunks.masks.tolist())
        chunks = [Chunk(*chunk) for chunk in zip(starts, *columns, strict=True)]
    require(len({c.start for c in chunks}) == len(chunks), "duplicate chunk")
    return chunks


def stored_chunks(data: Data, layout: DataLayout, space: Dataspace, filtered: bool) -> StoredChunks:
    """Return the stored chunks as columns; offsets are addresses.

    Raises InvalidError for chunks outside the file.
    """
    chunks = _read_index(data, layout, space, filtered, _FEW_ROWS)
    if not isinstance(chunks, StoredChunks):
        starts = np.array([c.start for c in chunks], np.int64).reshape(len(chunks), len(space.shape))
        numbers = np.array([c[1:] for c in chunks], np.int64).reshape(len(chunks), 3)
        chunks = StoredChunks(starts, numbers[:, 0], numbers[:, 1], numbers[:, 2].astype(np.uint32))
    if len(chunks.offsets):
        require_valid(filtered or bool((chunks.sizes == math.prod(layout.chunk)).all()), "wrong size of a chunk")
        require(bool(chunks.offsets.min() >= 0 and chunks.sizes.min() >= 0), "chunk outside the file")
        # Each is checked first, because their sum could overflow.
        require(max(chunks.offsets.max(), chunks.sizes.max()) <= data.size, "chunk outside the file")
        require((chunks.offsets + chunks.sizes).max() <= data.size, "chunk outside the file")
        _, offsets, sizes, _ = chunks
        if not (offsets[1:] >= offsets[:-1] + sizes[:-1]).all():
            order = np.argsort(offsets, kind="stable")
            offsets, sizes = offsets[order], sizes[order]
            # One of the overlapping chunks has wrong values.
            # promise: hdf5-overlapping-chunks
            require_valid(bool((offsets[1:] >= offsets[:-1] + sizes[:-1]).all()), "overlapping chunks")
    return chunks


def check_index(data: Data, layout: DataLayout, space: Dataspace, filtered: bool) -> None:
    """Raise InvalidError for an invalid chunk index, checked up to a limit."""
    require(len(layout.chunk) == len(space.shape) + 1, "malformed chunk shape")
    count = math.prod(-(-n // c) for n, c in zip(space.shape, layout.chunk, strict=False))
    width = _width(layout, filtered)
    if layout.address == UNDEFINED:
        return
    if count > _MANY and layout.index == TREE_1:
        next(leaf_blocks(data, layout.address, CHUNKS, 8 * (len(layout.chunk) + 1)))
    elif count > _MANY and layout.index in (FIXED_ARRAY, EXTENSIBLE_ARRAY):
        next(_array_blocks(data, layout, math.prod(_grid(layout, space)), width, filtered), None)
    else:
        stored_chunks(data, layout, space, filtered)


def _read_index(data: Data, layout: DataLayout, space: Dataspace, filtered: bool, few: int) -> list[Chunk] | StoredChunks:
    require_supported(not (layout.bare and filtered), "edge chunks without filters")
    require(len(layout.chunk) == len(space.shape) + 1, "malformed chunk shape")
    if layout.address == UNDEFINED:
        return []
    if layout.index == TREE_1:
        return _tree_1(data, layout, few)
    if layout.index == TREE_2:
        return _tree_2(data, layout, filtered)
    grid = _grid(layout, space)
    require((0 in grid) == (layout.index == EXTENSIBLE_ARRAY), "malformed chunk index")
    if layout.index == SINGLE:
        require(bool(layout.parameters) == filtered and math.prod(grid) == 1, "malformed chunk index")
        return [Chunk((0,) * len(grid), layout.address, *(layout.parameters or (math.prod(layout.chunk), 0)))]
    return _numbered(data, layout, grid, filtered)


def _tree_1(data: Data, layout: DataLayout, few: int) -> list[Chunk] | StoredChunks:
    rank = len(layout.chunk) - 1
    key = 8 * (rank + 2)
    blocks = list(leaf_blocks(data, layout.address, CHUNKS, key))
    if len(blocks) == 1 and len(blocks[0]) < (few + 1) * (key + 8):
        return list(_leaf_chunks(blocks[0], layout))
    # Rows: size and filters, start and address of a chunk; keys: the keys after them.
    rows = np.frombuffer(b"".join([block[:-key] for block in blocks]), "<u8").reshape(-1, rank + 3)
    keys = np.frombuffer(b"".join([block[key + 8 :] + bytes(8) for block in blocks]), "<u8").reshape(rows.shape)
    starts, following = rows[:, 1 : rank + 2], keys[:, 1 : rank + 2]
    sides = np.array(layout.chunk, np.uint64)
    # The library finds chunks by their keys: a chunk that it misses would read as the fill value.
    require_valid(not (starts[:, -1].any() or (starts % sides).any()), "malformed chunk")
    require(not ((following % sides).any() or (starts >> np.uint64(62)).any()), "malformed chunk")
    # The library finds chunks by the keys around them.
    first = (np.arange(len(rows)), (starts != following).argmax(axis=1))
    require_valid(bool((starts[first] < following[first]).all()), "chunks out of order")
    require(bool((following[:-1] == starts[1:]).all()), "chunks out of order")
    packed = rows[:, 0]
    masks, sizes = (packed >> np.uint64(32)).astype(np.uint32), (packed & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return StoredChunks(starts[:, :-1].astype(np.int64), rows[:, -1].astype(np.int64), sizes, masks)


def _leaf_chunks(block: bytes, layout: DataLayout) -> Iterator[Chunk]:
    rank = len(layout.chunk) - 1
    *chunk, _ = layout.chunk
    key = struct.Struct(f"<II{rank + 1}Q")
    for at in range(0, len(block) - key.size, key.size + 8):
        size, mask, *start, last = key.unpack_from(block, at)
        address = int.from_bytes(block[at + key.size : at + key.size + 8], "little")
        following = key.unpack_from(block, at + key.size + 8)[2:]
        require_valid(last == 0 and not any(map(mod, start, chunk)), "malformed chunk")
        require(not any(map(mod, following, layout.chunk)), "malformed chunk")
        require_valid((*start, 0) < following, "chunks out of order")
        yield Chunk(tuple(start), address, size, mask)


def _tree_2(data: Data, layout: DataLayout, filtered: bool) -> StoredChunks:
    *chunk, _ = layout.chunk
    width = _width(layout, filtered)
    kind = _FILTERED_RECORDS if filtered else _PLAIN_RECORDS
    packed = b"".join(records(data, layout.address, kind, width + 8 * len(chunk)))
    rows = np.frombuffer(packed, np.uint8).reshape(-1, width + 8 * len(chunk))
    scaled = np.ascontiguousarray(rows[:, width:]).view("<u8")
    require(len(np.unique(scaled, axis=0)) == len(rows), "duplicate chunk")
    require(not (scaled >> np.uint64(62) | scaled * np.array(chunk, np.uint64) >> np.uint64(62)).any(), "malformed chunk")
    return StoredChunks(scaled.astype(np.int64) * np.array(chunk, np.int64), *_slots(rows[:, :width], layout, filtered))


def _width(layout: DataLayout, filtered: bool) -> int:
    if not filtered:
        return 8
    return 12 + (8 if layout.wide else min(8, 1 + (math.prod(layout.chunk).bit_length() - 1 + 8) // 8))


def _slots(rows: np.ndarray, layout: DataLayout, filtered: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    addresses = np.ascontiguousarray(rows[:, :8]).view("<i8")[:, 0]
    if not filtered:
        return addresses, np.full(len(rows), math.prod(layout.chunk), np.int64), np.zeros(len(rows), np.uint32)
    sizes = np.zeros((len(rows), 8), np.uint8)
    sizes[:, : rows.shape[1] - 12] = rows[:, 8:-4]
    return addresses, sizes.view("<i8")[:, 0], np.ascontiguousarray(rows[:, -4:]).view("<u4")[:, 0]


def _grid(layout: DataLayout, space: Dataspace) -> tuple[int, ...]:
    require_supported(bool(space.most) and 0 not in space.most and space.most.count(-1) <= 1, "unsupported order of chunks")
    return tuple(-(-max(n, 0) // c) for n, c in zip(space.most, layout.chunk, strict=False))


def _numbered(data: Data, layout: DataLayout, grid: tuple[int, ...], filtered: bool) -> StoredChunks:
    """Return the chunks of an index in C order, unlimited dimension first."""
    *chunk, _ = layout.chunk
    numbers, columns = _in_order(data, layout, grid, filtered)
    stored = columns[0] != -1
    if not stored.all():
        numbers, columns = numbers[stored], tuple(column[stored] for column in columns)
    most = int(numbers.max()) + 1 if len(numbers) else 1
    axes = sorted(range(len(grid)), key=lambda axis: grid[axis] > 0)
    rows = [grid[axis] for axis in axes[1:]]
    cells = np.empty((len(numbers), len(grid)), np.int64)
    cells[:, axes] = np.stack(np.unravel_index(numbers, (-(-most // math.prod(rows)), *rows)), axis=1)
    return StoredChunks(cells * np.array(chunk, np.int64), *columns)


def _array_blocks(data: Data, layout: DataLayout, count: int, width: int, filtered: bool) -> Iterator[Packed]:
    """Return the blocks of a chunk index that is an array of HDF5."""
    from aggarray.formats.hdf5.metadata.chunk_arrays import extensible_array, fixed_array

    if layout.index == FIXED_ARRAY:
        return fixed_array(data, layout.address, count, width, filtered)
    if layout.index == EXTENSIBLE_ARRAY:
        return extensible_array(data, layout.address, width, filtered)
    raise UnsupportedError("unsupported chunk index")


def _in_order(
    data: Data, layout: DataLayout, grid: tuple[int, ...], filtered: bool
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Return numbers, addresses (-1: not stored), sizes and masks of chunks."""
    raw, count = math.prod(layout.chunk), math.prod(grid)
    width = _width(layout, filtered)
    if layout.index == IMPLICIT:
        require(not filtered and layout.address + count * raw <= data.size, "chunks outside the file")
        numbers = np.arange(count)
        return numbers, (layout.address + numbers * raw, np.full(count, raw, np.int64), np.zeros(count, np.uint32))
    blocks = list(_array_blocks(data, layout, count, width, filtered))
    rows = np.frombuffer(b"".join([block for _, block in blocks]), np.uint8).reshape(-1, width)
    parts = [np.arange(first, first + len(block) // width) for first, block in blocks]
    return np.concatenate([np.empty(0, np.int64), *parts]), _slots(rows, layout, filtered)
