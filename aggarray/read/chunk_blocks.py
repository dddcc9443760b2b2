"""Decoding of chunks, small ones in blocks to keep the cost per chunk low.

The bytes of a block are read together, decoded into rows of one buffer and unshuffled at once; the selected elements are taken
out, conformed and placed. A large chunk whose layout the output shares is decoded in place. If few elements of shuffled chunks
are selected, only their bytes are gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from aggarray.codecs import Filter, before_shuffle, check_size, decode, decode_all
from aggarray.errors import AggarrayError, FormatError
from aggarray.options import get_options
from aggarray.partition.chunk_index import ChunkIndex, read_parts
from aggarray.partition.chunk_selection import ChunkBlock, parts_of
from aggarray.read.stored_piece import StoredPiece, convert_in_place, native, place_in_view, put_conformed
from aggarray.storage.byte_source import read_into, shared_source
from aggarray.storage.lru_cache import LRUCache
from aggarray.storage.state import Versions

#: Decoded chunks by file, variable and number.
decoded_chunks = LRUCache(lambda: get_options().cache_bytes, lambda array: array.nbytes)
#: If less than this fraction of a shuffled chunk is selected, only those bytes are gathered.
_FEW = 8

#: Larger chunks are checked against their stored size before memory is allocated.
_LARGE = 1 << 26
#: Chunks of at least this size are not joined with those of other files before elements are selected.
_DIRECT = 1 << 15
#: Elements filled at a time.
_FILLED = 1 << 21

#: The stored bytes of a chunk; None if it is not stored.
Part = memoryview | None
#: Takes decoded chunks as rows of bytes.
Keep = Callable[[np.ndarray], None]


def read_chunk_blocks(stored: StoredPiece, blocks: Sequence[ChunkBlock]) -> None:
    """Read and place blocks of chunks; FormatError names the damaged chunk."""
    if not stored.table.filters and stored.table.names is None:
        for block in blocks:
            put_conformed(stored, block.out, _plain_values(stored, block))
        return
    keep = bool(get_options().cache_bytes and stored.state and stored.table.filters)
    blocks = [s for s in blocks if not (keep and _served(stored, s))]
    parts = iter(_parts(stored, [n for block in blocks for n in block.numbers]))
    for block in blocks:
        own = [next(parts) for _ in range(len(block.numbers))]
        if all(part is None for part in own):
            fill = np.asarray(stored.table.fill, stored.table.dtype.newbyteorder("="))
            for part, _ in parts_of(block.out, (1,) * len(block.out), _FILLED):
                out = tuple(s for s in part if isinstance(s, slice))
                put_conformed(stored, out, np.broadcast_to(fill, tuple(s.stop - s.start for s in out)))
            continue
        try:
            if keep or not _decode_in_place(stored, block, own):
                held = partial(_keep, stored, block) if keep else None
                put_conformed(stored, block.out, decode_block(stored.table, block, own, keep=held)[0])
        except AggarrayError:  # some of them are ValueErrors
            raise
        except ValueError as error:
            raise _blamed(stored, block, own, error) from error


def stored_ranges(table: ChunkIndex, numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return offset and size of chunks; the offset of absent ones is negative."""
    if len(numbers) == 1:
        return [(int(table.offsets[numbers[0]]), int(table.sizes[numbers[0]]))]
    return list(zip(table.offsets[numbers].tolist(), table.sizes[numbers].tolist(), strict=True))


def _parts(stored: StoredPiece, numbers: Sequence[int]) -> list[Part]:
    if stored.table.names is not None:
        return read_parts(stored.path, stored.table, numbers, stored.versions or Versions())
    ranges = stored_ranges(stored.table, numbers)
    with shared_source(stored.path, stored.state) as source:
        parts = iter(source.read_ranges([r for r in ranges if r[0] >= 0]))
    return [None if offset < 0 else next(parts) for offset, _ in ranges]


def _plain_values(stored: StoredPiece, block: ChunkBlock) -> np.ndarray:
    table, numbers = stored.table, block.numbers
    rows = np.empty((len(numbers), prod(table.chunk) * table.dtype.itemsize), np.uint8)
    first = int(table.offsets[numbers[0]])
    if first >= 0 and (len(numbers) == 1 or (np.diff(table.offsets[numbers]) == rows.shape[1]).all()):
        read_into(stored.path, first, rows, state=stored.state)
    else:
        parts = _parts(stored, numbers)
        for number, part, row in zip(numbers, parts, rows, strict=True):
            if part is not None and len(part) != row.size:
                text = f"{len(part)} bytes stored where {row.size} should be"
                raise FormatError(f"{stored.table.describe(stored.path, number)}: {text}", hint="restore the file")
            if part is not None:
                row[...] = np.frombuffer(part, np.uint8)
        _fill(table, parts, rows.reshape(len(numbers), -1, table.dtype.itemsize))
    return np.asarray(_select(rows, block, table.dtype, 1, False)[0])


def _decode_in_place(stored: StoredPiece, block: ChunkBlock, parts: Sequence[Part]) -> bool:
    """Decode fully selected chunks into an output; return False if it cannot.

    They must follow each other there.
    """
    table = stored.table
    several = [axis for axis, runs in enumerate(block.runs) if len(runs) > 1]
    if not table.filters or None in parts or (several and max(table.chunk[: several[-1]], default=1) > 1):
        return False
    where = place_in_view(stored, block.out, tuple(len(r) * side for r, side in zip(block.runs, table.chunk, strict=True)))
    if where is None:
        return False
    rows = where.reshape(len(parts), -1).view(np.uint8)
    if table.masks is None:
        decode_all(table.filters, parts, rows)
    else:
        for number, part, row in zip(block.numbers, parts, rows, strict=True):
            decode(table.filters, part, row.size, _mask(table, number), row)
    convert_in_place(stored, block.out, where)
    return True


def _mask(table: ChunkIndex, number: int) -> int:
    return 0 if table.masks is None else int(table.masks[number])


def decode_block(
    table: ChunkIndex, block: ChunkBlock, parts: Sequence[Part], members: int = 1, keep: Keep | None = None
) -> np.ndarray:
    """Return the selected values of equal blocks of several files.

    Their shape is (members, ...), their dtype that of the file. ``parts``: the chunks of all members; ``keep`` gets the
    decoded chunks, as bytes.
    """
    itemsize = table.dtype.itemsize
    size = prod(table.chunk) * itemsize
    # promise: chunk-memory-plausible
    if size > _LARGE:
        for number, part in zip(block.numbers, parts, strict=True):
            if part is not None:
                check_size(table.filters, len(part), size, _mask(table, number))
    if not table.filters and keep is None and len(block.numbers) == 1 and size >= _DIRECT and _are_all_of(parts, size):
        # Few elements may be selected of much: the bytes are not joined first.
        separate = (np.frombuffer(part, np.uint8).reshape(1, size) for part in parts if part is not None)
        return np.concatenate([_select(row, block, table.dtype, 1, False) for row in separate])
    masked = table.masks is not None and bool(table.masks[block.numbers].any())
    rest = None if keep or masked else _filters_before_shuffle(table, block)
    filters = table.filters if rest is None else rest
    rows = np.empty((len(parts), size), np.uint8)
    if table.masks is None and None not in parts:
        decode_all(filters, parts, rows)
    else:
        for number, part, row in zip(block.numbers, parts, rows, strict=True):
            if part is not None:
                mask = _mask(table, number)
                decode(filters, part, size, mask if rest is None else mask >> 1, row)
        split = rows.reshape(len(parts), itemsize, -1).transpose(0, 2, 1)
        _fill(table, parts, rows.reshape(len(parts), -1, itemsize) if rest is None else split)
    if keep is not None:
        keep(rows)
    return _select(rows, block, table.dtype, members, rest is not None)


def _are_all_of(parts: Sequence[Part], size: int) -> bool:
    return all(part is not None and len(part) == size for part in parts)


def _keep(stored: StoredPiece, block: ChunkBlock, rows: np.ndarray) -> None:
    for row, number in zip(native(rows.view(stored.table.dtype)), block.numbers, strict=True):
        decoded_chunks.keep(_key(stored, number), row.reshape(stored.table.chunk).copy())


def _filters_before_shuffle(table: ChunkIndex, block: ChunkBlock) -> tuple[Filter, ...] | None:
    """Return the filters to undo before few elements are taken from planes."""
    itemsize = table.dtype.itemsize
    # Planes belong to elements only if the filter's item size is theirs.
    if block.fraction * _FEW > 1 or itemsize == 1 or not table.filters or table.filters[0].parameters != (itemsize,):
        return None
    return before_shuffle(table.filters)


def _select(rows: np.ndarray, block: ChunkBlock, dtype: np.dtype[Any], members: int, split: bool) -> np.ndarray:
    """Return the selected elements of rows of chunks: (members, ...).

    ``rows``: (members x chunks, bytes); ``split``: they are planes of bytes.
    """
    counts, rank = [len(runs) for runs in block.runs], len(block.runs)
    index: Any
    if split:
        planes = rows.reshape((members, *counts, dtype.itemsize, *block.chunk))
        last = planes.transpose((*range(rank + 1), *range(rank + 2, 2 * rank + 2), rank + 1))
        index = slice(None), *block.elements
        return np.ascontiguousarray(last[index]).view(dtype)[..., 0]
    chunks = rows.view(dtype).reshape((members, *counts, *block.chunk))
    if block.fraction * _FEW <= 1:
        index = slice(None), *block.elements
        return np.asarray(chunks[index])
    joined = chunks.transpose([0, *(axis for d in range(rank) for axis in (1 + d, 1 + rank + d))])
    index = slice(None), *block.index
    return np.asarray(joined.reshape([members, *(n * side for n, side in zip(counts, block.chunk, strict=True))])[index])


def _fill(table: ChunkIndex, parts: Sequence[Part], elements: np.ndarray) -> None:
    """Fill the elements, given as bytes, of chunks that are not stored."""
    absent = [i for i, part in enumerate(parts) if part is None]
    if absent:
        elements[absent] = np.frombuffer(np.asarray(table.fill, table.dtype).tobytes(), np.uint8)


def _key(stored: StoredPiece, number: int) -> tuple[Any, ...]:
    return stored.path, stored.state, stored.variable, number


def _served(stored: StoredPiece, block: ChunkBlock) -> bool:
    kept = [decoded_chunks.get(_key(stored, number)) for number in block.numbers]
    if any(chunk is None for chunk in kept):
        return False
    rows = np.stack(kept).reshape(len(kept), -1)
    put_conformed(stored, block.out, _select(rows.view(np.uint8), block, rows.dtype, 1, False)[0])
    return True


def _blamed(stored: StoredPiece, block: ChunkBlock, parts: Sequence[Part], error: ValueError) -> FormatError:
    table, size = stored.table, prod(stored.table.chunk) * stored.table.dtype.itemsize
    for number, part in zip(block.numbers, parts, strict=True):
        try:
            if part is not None:
                if size > _LARGE:
                    check_size(table.filters, len(part), size, _mask(table, number))
                decode(table.filters, part, size, _mask(table, number))
        except ValueError as own:
            # promise: chunk-error-names-chunk
            return FormatError(f"{own}, in {stored.table.describe(stored.path, number)}", hint="restore the file")
    return FormatError(str(error), hint="restore the file")
