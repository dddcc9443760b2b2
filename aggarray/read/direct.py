"""How do values get from stored chunks to their places without a library that lets one thread work at a time?

Byte ranges are read, decoded, conformed and placed, a few at a time, while they are in the cache of the processor. What
cannot be read this way is said so by `tables`, and read through the library of its format.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from aggarray.errors import AggarrayError, ChangedFileError, FormatError, MissingFileError
from aggarray.formats.base import ChunkIndex
from aggarray.formats.flattened import stored_name
from aggarray.read.cache import chunk_tables
from aggarray.read.chunk_blocks import read_chunk_blocks
from aggarray.read.chunk_selection import ChunkBlock, Indices, chunk_blocks_of, parts_of
from aggarray.read.contiguous import SPAN, ContiguousRun, read_contiguous_runs
from aggarray.read.library import raise_named
from aggarray.read.stored_piece import StoredPiece, put_missing

#: Bytes that are read at once.
BATCH = 1 << 21
#: Chunks of fewer bytes are decoded several at a time, so many bytes in all.
SMALL, SLAB = 1 << 16, 1 << 20
#: Of larger ones without filters so many bytes, and so many chunks at most, are read at a time.
PART, MOST = 1 << 21, 1 << 12
#: Bytes of bookkeeping for a chunk, and for an element that is read by itself.
_EACH, _PLACES = 1000, 50


class ReadTask(NamedTuple):
    """Work on one piece: ``items``, carried out by ``read``; ``size``: bytes needed meanwhile."""

    stored: StoredPiece
    read: Callable[[StoredPiece, Any], None]
    items: Sequence[ChunkBlock | ContiguousRun]
    size: int


def read_tasks(stored: StoredPiece, selection: Sequence[Indices]) -> Iterator[ReadTask]:
    """Yield the work for a piece, neighbours together."""
    table = stored.table
    # promise: read-maps-no-file
    chunk = prod(table.chunk) * table.dtype.itemsize
    if table.filters or table.inline or chunk < SMALL:
        most = 1 if chunk >= SMALL else min(SLAB // chunk, MOST)
        yield from _chunk_block_tasks(stored, chunk_blocks_of(table, selection, most))
    else:
        yield from _contiguous_tasks(stored, selection)


def _chunk_block_tasks(stored: StoredPiece, slabs: Iterable[ChunkBlock]) -> Iterator[ReadTask]:
    table = stored.table
    # A chunk decoded, unshuffled, converted in double precision, and its mask.
    each = prod(table.chunk) * (2 * table.dtype.itemsize + 17)
    # The chunks of a store are whole files, whose sizes nobody has asked for.
    unknown = prod(table.chunk) * table.dtype.itemsize
    found: list[ChunkBlock] = []
    size = most = count = 0
    for slab in slabs:
        if found and (size >= BATCH or count >= MOST):
            yield ReadTask(stored, read_chunk_blocks, found, size + most + count * _EACH)
            found, size, most, count = [], 0, 0, 0
        found.append(slab)
        count += len(slab.numbers)
        size += int(table.sizes[slab.numbers[0]] if len(slab.numbers) == 1 else table.sizes[slab.numbers].sum()) or unknown
        most = max(most, len(slab.numbers) * each)
    if found:
        yield ReadTask(stored, read_chunk_blocks, found, size + most + count * _EACH)


def _contiguous_tasks(stored: StoredPiece, selection: Sequence[Indices]) -> Iterator[ReadTask]:
    table = stored.table
    itemsize = table.dtype.itemsize
    last = selection[-1] if selection else slice(0, 1, 1)
    # Elements that are read one by one need room for where they are.
    single = not (isinstance(last, slice) and last.step == 1)
    each = 2 * itemsize + 17 + _PLACES * single
    for part, start in parts_of(selection, table.chunk, PART // itemsize // (4 if single else 1)):
        for slab in chunk_blocks_of(table, part, MOST):
            # What is read, picked out of it, converted in double precision, and its mask.
            yield ReadTask(stored, read_contiguous_runs, [ContiguousRun(slab, tuple(start))], SPAN + prod(slab.shape) * each)


def carry_out(batch: ReadTask) -> None:
    """Read, decode, conform and place the items of a batch; errors name the file and the variable."""
    stored = batch.stored
    try:
        batch.read(stored, batch.items)
    except MissingFileError as error:
        if stored.target.access.missing != "fill":
            raise_named(error, stored.path, stored.variable)
        for item in batch.items:
            for part, _ in parts_of(item.out, (1,) * len(item.out), PART):
                put_missing(stored, tuple(s for s in part if isinstance(s, slice)))
    except AggarrayError as error:
        if isinstance(error, ChangedFileError):
            chunk_tables.discard((stored.path, stored.variable))
        raise_named(error, stored.path, stored.variable)
    # promise: chunk-memory-error
    except MemoryError as error:
        raise FormatError(
            f"{stored.path}, variable {stored_name(stored.variable)!r}: {_out_of_memory(stored.table)}"
        ) from error
    except OSError as error:
        text = f"{stored.path}, variable {stored_name(stored.variable)!r}: {error.strerror or error}"
        raise FormatError(f"{text}; read it again") from error


def _out_of_memory(table: ChunkIndex) -> str:
    """Say that a chunk took more memory than there is, and what to do."""
    sides, size = " x ".join(map(str, table.chunk)), prod(table.chunk) * table.dtype.itemsize
    text = f"no memory for a chunk of {sides} values of {table.dtype} ({size} bytes)"
    return f"{text}; read it where there is more memory, or rewrite the file with smaller chunks"
