"""Direct reading of stored chunks, without a library and its lock.

Byte ranges are read, decoded, conformed and placed, a few at a time, while they are in the processor's cache. Variables without
a chunk index are read through the library of their format.
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

#: Bytes read at once.
BATCH = 1 << 21
#: Size below which chunks are decoded several at a time, and their bytes in all.
SMALL, SLAB = 1 << 16, 1 << 20
#: Bytes, and number, of larger unfiltered chunks that are read at a time.
PART, MOST = 1 << 21, 1 << 12
#: Bytes of bookkeeping per chunk, and per element that is read individually.
_EACH, _PLACES = 1000, 50


class ReadTask(NamedTuple):
    """Work of one thread on one piece: ``read`` handles ``items``; ``size``: bytes needed meanwhile."""

    stored: StoredPiece
    read: Callable[[StoredPiece, Any], None]
    items: Sequence[ChunkBlock | ContiguousRun]
    size: int


def read_tasks(stored: StoredPiece, selection: Sequence[Indices]) -> Iterator[ReadTask]:
    """Yield the tasks for a piece, neighbouring chunks together."""
    table = stored.table
    # promise: read-maps-no-file
    chunk = prod(table.chunk) * table.dtype.itemsize
    if table.filters or table.inline or chunk < SMALL:
        most = 1 if chunk >= SMALL else min(SLAB // chunk, MOST)
        yield from _chunk_block_tasks(stored, chunk_blocks_of(table, selection, most))
    else:
        yield from _contiguous_tasks(stored, selection)


def _chunk_block_tasks(stored: StoredPiece, blocks: Iterable[ChunkBlock]) -> Iterator[ReadTask]:
    table = stored.table
    # A chunk decoded, unshuffled, converted in double precision, and its mask.
    each = prod(table.chunk) * (2 * table.dtype.itemsize + 17)
    # The chunks of a store are whole files of unknown size.
    unknown = prod(table.chunk) * table.dtype.itemsize
    found: list[ChunkBlock] = []
    size = most = count = 0
    for block in blocks:
        if found and (size >= BATCH or count >= MOST):
            yield ReadTask(stored, read_chunk_blocks, found, size + most + count * _EACH)
            found, size, most, count = [], 0, 0, 0
        found.append(block)
        count += len(block.numbers)
        size += int(table.sizes[block.numbers[0]] if len(block.numbers) == 1 else table.sizes[block.numbers].sum()) or unknown
        most = max(most, len(block.numbers) * each)
    if found:
        yield ReadTask(stored, read_chunk_blocks, found, size + most + count * _EACH)


def _contiguous_tasks(stored: StoredPiece, selection: Sequence[Indices]) -> Iterator[ReadTask]:
    table = stored.table
    itemsize = table.dtype.itemsize
    last = selection[-1] if selection else slice(0, 1, 1)
    # Elements read individually need memory for their positions.
    single = not (isinstance(last, slice) and last.step == 1)
    each = 2 * itemsize + 17 + _PLACES * single
    for part, start in parts_of(selection, table.chunk, PART // itemsize // (4 if single else 1)):
        for block in chunk_blocks_of(table, part, MOST):
            # The bytes read, the selected values, their conversion in double precision, and the mask.
            yield ReadTask(stored, read_contiguous_runs, [ContiguousRun(block, tuple(start))], SPAN + prod(block.shape) * each)


def carry_out(batch: ReadTask) -> None:
    """Run a task: read, decode, conform and place its items. Errors name file and variable."""
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
        raise _error_of(
            stored, _out_of_memory(stored.table), "read it where there is more memory, or rewrite the file with smaller chunks"
        ) from error
    except OSError as error:
        raise _error_of(stored, str(error.strerror or error), "read it again") from error


def _error_of(stored: StoredPiece, what: str, hint: str) -> FormatError:
    return FormatError(what, path=stored.path, variable=stored_name(stored.variable), hint=hint)


def _out_of_memory(table: ChunkIndex) -> str:
    """Return what is wrong with a chunk that does not fit into memory."""
    sides, size = " x ".join(map(str, table.chunk)), prod(table.chunk) * table.dtype.itemsize
    return f"no memory for a chunk of {sides} values of {table.dtype} ({size} bytes)"
