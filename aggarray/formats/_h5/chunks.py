"""Where are the chunks of a dataset?"""

import math
import struct
from collections.abc import Iterator
from operator import mod
from typing import NamedTuple

import numpy as np

from aggarray.formats._h5.arrays import Slot, extensible_array, fixed_array
from aggarray.formats._h5.data import UNDEFINED, Data, UnmodelledError, require
from aggarray.formats._h5.messages import EXTENSIBLE_ARRAY, FIXED_ARRAY, IMPLICIT, SINGLE, TREE_1, TREE_2, Layout
from aggarray.formats._h5.trees import CHUNKS, leaves, records
from aggarray.formats._h5.types import Space

_PLAIN_RECORDS, _FILTERED_RECORDS = 10, 11


class Chunk(NamedTuple):
    """A stored chunk: the first element that it holds, its address and size, and which filters were skipped."""

    start: tuple[int, ...]
    address: int
    size: int
    mask: int


def chunks_of(data: Data, layout: Layout, space: Space, filtered: bool) -> list[Chunk]:
    """Return the chunks that are stored, in no special order; none of them is there twice."""
    if layout.address == UNDEFINED:
        return []
    if layout.index == TREE_1:
        found = list(_tree_1(data, layout))
    elif layout.index == TREE_2:
        found = list(_tree_2(data, layout, filtered))
    else:
        grid = _grid(layout, space)
        found = [c for c in _numbered(data, layout, grid, filtered) if c.address != UNDEFINED]
    require(len({c.start for c in found}) == len(found), "a chunk that is there twice")
    return found


def _tree_1(data: Data, layout: Layout) -> Iterator[Chunk]:
    rank = len(layout.chunk) - 1
    key = struct.Struct(f"<II{rank + 1}Q")
    *chunk, _ = layout.chunk
    for packed, address, following in leaves(data, layout.address, CHUNKS, key.size):
        size, mask, *start, last = key.unpack(packed)
        # Chunks are looked up by the keys around them.
        behind = key.unpack(following)[2:]
        require(last == 0 and not any(map(mod, start, chunk)) and not any(map(mod, behind, layout.chunk)), "an odd chunk")
        require((*start, 0) < behind, "chunks in an odd order")
        yield Chunk(tuple(start), address, size, mask)


def _tree_2(data: Data, layout: Layout, filtered: bool) -> Iterator[Chunk]:
    *chunk, _ = layout.chunk
    raw = math.prod(layout.chunk)
    head = 8 + (_size_width(layout) + 4 if filtered else 0)
    kind = _FILTERED_RECORDS if filtered else _PLAIN_RECORDS
    for record in records(data, layout.address, kind, head + 8 * len(chunk)):
        slot = _slot(record[:head], raw, filtered)
        scaled = struct.unpack_from(f"<{len(chunk)}Q", record, head)
        yield Chunk(tuple(n * c for n, c in zip(scaled, chunk, strict=True)), *slot)


def _size_width(layout: Layout) -> int:
    """Return how many bytes hold the size of a filtered chunk, which may be larger than that of a plain one."""
    return 8 if layout.wide else min(8, 1 + (math.prod(layout.chunk).bit_length() - 1 + 8) // 8)


def _slot(packed: bytes, raw: int, filtered: bool) -> Slot:
    address = int.from_bytes(packed[:8], "little")
    if not filtered:
        return address, raw, 0
    return address, int.from_bytes(packed[8:-4], "little"), int.from_bytes(packed[-4:], "little")


def _grid(layout: Layout, space: Space) -> tuple[int, ...]:
    """Return how many chunks there may ever be along each dimension; without end is 0, and only the first may be."""
    require(all(n > 0 for n in space.most[1:]) and len(layout.chunk) == len(space.shape) + 1, "an odd order of chunks")
    return tuple(-(-max(n, 0) // c) for n, c in zip(space.most, layout.chunk, strict=False))


def _numbered(data: Data, layout: Layout, grid: tuple[int, ...], filtered: bool) -> Iterator[Chunk]:
    """Yield the chunks of an index that numbers them in C order of the grid of the largest shape."""
    *chunk, _ = layout.chunk
    raw = math.prod(layout.chunk)
    unlimited = grid[:1] == (0,)
    require(unlimited == (layout.index == EXTENSIBLE_ARRAY), "an odd index of chunks")
    if layout.index == SINGLE:
        require(bool(layout.parameters) == filtered and math.prod(grid) == 1, "an odd index of chunks")
        yield Chunk((0,) * len(chunk), layout.address, *(layout.parameters or (raw, 0)))
        return
    for number, (address, size, mask) in _slots(data, layout, grid, filtered):
        cell = np.unravel_index(number, (number // math.prod(grid[1:]) + 1, *grid[1:]))
        yield Chunk(tuple(int(n) * c for n, c in zip(cell, chunk, strict=True)), address, size, mask)


def _slots(data: Data, layout: Layout, grid: tuple[int, ...], filtered: bool) -> Iterator[tuple[int, Slot]]:
    raw = math.prod(layout.chunk)
    width = 8 + (_size_width(layout) + 4 if filtered else 0)
    if layout.index == IMPLICIT:
        count = math.prod(grid)
        require(not filtered and layout.address + count * raw <= data.size, "chunks outside of the file")
        for number in range(count):
            yield number, (layout.address + number * raw, raw, 0)
        return
    if layout.index == FIXED_ARRAY:
        packed = fixed_array(data, layout.address, math.prod(grid), width, filtered)
    elif layout.index == EXTENSIBLE_ARRAY:
        packed = extensible_array(data, layout.address, width, filtered)
    else:
        raise UnmodelledError("an index of chunks that is not modelled")
    for number, item in packed:
        yield number, _slot(item, raw, filtered)
