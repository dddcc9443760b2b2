"""Reading of selections: key -> plan -> chunk tasks -> execution.

`read` plans the pieces that a selection takes of each file. A piece with a chunk index becomes `ReadTask`s that read byte
ranges, decode, conform and place a few chunks while they are in the processor's cache, without a library and its lock. Other
pieces are read through the library of their format. Several threads run the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.dataclass import NamedTuple, dataclass
from aggarray.errors import (
    AggarrayError,
    AggregationError,
    ChangedFileError,
    FormatError,
    IndexFileError,
    MissingFileError,
    SelectionError,
)
from aggarray.memory.selection import Selector
from aggarray.options import get_options
from aggarray.partition.chunk_selection import ChunkBlock, Indices, chunk_blocks_of, parts_of
from aggarray.partition.conform import Masked
from aggarray.partition.matrix import Matrix
from aggarray.partition.plan import Piece, pieces_by_file, plan_dimension
from aggarray.read.chunk_blocks import read_chunk_blocks
from aggarray.read.chunk_index import LocatedIndex, chunk_tables, find_chunk_index
from aggarray.read.executor import BoundedExecutor, ReadTask, run_all
from aggarray.read.open_files import OpenFiles, close_files, open_paths
from aggarray.read.stored_piece import Outputs, StoredPiece, Target, put_missing, raise_with_location, stored_piece
from aggarray.storage.files import prefetch_states
from aggarray.storage.urls import is_remote

if TYPE_CHECKING:
    from aggarray.read.contiguous import ContiguousRun
    from aggarray.read.small_chunks import SmallChunkBatch

#: Files per thread from which several are submitted together, how many, and how many are read first to measure the work.
_MANY, _BUNDLE, _FIRST = 8, 8, 4
#: Bytes per file below which threads gain nothing, and from which each file is divided.
_LIGHT, _HEAVY = 1 << 18, 1 << 20
#: Threads that read remote files, where they mostly wait, unless the options have more.
DISTANT = 16
#: Bytes read at once.
BATCH = 1 << 21
#: Size below which chunks are decoded several at a time, and their bytes in all.
SMALL, SLAB = 1 << 16, 1 << 20
#: Bytes, and number, of larger unfiltered chunks that are read at a time.
PART, MOST = 1 << 21, 1 << 12
#: Bytes of bookkeeping per chunk, and per element that is read individually.
_EACH, _PLACES = 1000, 50
COPY_HINT = "give True, None (a view where possible) or False (a view or an error)"

__all__ = ["OpenFiles", "ReadOptions", "Target", "close_files", "masked_array", "open_paths", "output", "read"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a read: mask, output array, view or copy, number of threads.

    Raises AggregationError or SelectionError for invalid values.
    """

    masked: bool = False
    out: np.ndarray | None = None
    copy: bool | None = True
    threads: int | None = None

    def __post_init__(self) -> None:
        if not (self.copy is None or self.copy is True or self.copy is False):
            raise AggregationError(f"invalid copy={self.copy!r}", hint=COPY_HINT)
        if self.copy is False and self.out is not None:
            raise AggregationError("copy=False and out= contradict each other", hint="leave one out")
        is_integer = isinstance(self.threads, int | np.integer) and not isinstance(self.threads, bool)
        if self.threads is not None and not (is_integer and self.threads >= 1):
            hint = "give an integer of at least 1, or None to use the option"
            raise SelectionError(f"invalid threads={self.threads!r}", hint=hint)


def read(matrix: Matrix, target: Target, selectors: Sequence[Selector], options: ReadOptions) -> np.ndarray:
    """Read a selection of a matrix; return values of the target's dtype.

    The result is a masked array if the mask is requested. ``selectors``: one per dimension, as `memory.selection.normalise`
    returns them. FormatError, MissingFileError or UnitsError name file and variable; SelectionError if ``out`` does not fit;
    AggregationError if there is no view without a copy.
    """
    if options.copy is not True and options.out is None:
        from aggarray.read.views import view

        viewed = view(matrix, target, selectors, options.masked)
        if isinstance(viewed, np.ndarray):
            return np.ma.MaskedArray(viewed, mask=False) if options.masked else viewed
        if options.copy is False:
            raise AggregationError(f"no view without a copy: {viewed}", hint="read with copy=None or copy=True")
    with target.access.reach():
        values, mask = _read(matrix, target, selectors, options)
    return values if mask is None else masked_array(values, mask, target.fill_value)


def masked_array(values: np.ndarray, mask: np.ndarray, fill_value: Any) -> np.ma.MaskedArray:
    """Return a masked array, with the fill value where NumPy can hold it."""
    return np.ma.MaskedArray(values, mask=mask, fill_value=fill_value if values.dtype.kind in "iufcbmM" else None)


def _read(matrix: Matrix, target: Target, selectors: Sequence[Selector], options: ReadOptions) -> Masked:
    rows = [plan_dimension(s, e) for s, e in zip(selectors, matrix.edges, strict=True)]
    shape = tuple(r.size for r in rows if not r.dropped)
    values = output(options.out, shape, target.step.dtype)
    mask = _allocate(np.zeros, shape, np.dtype(bool), "values and their mask") if options.masked else None
    if any(t.declared for t in matrix.references.templates):
        from aggarray.scan.resolution import resolve_references, touched

        matrix = resolve_references(matrix, touched(matrix, rows), target.step, target.access)
    if values.size:
        aim: Any = tuple(np.newaxis if r.dropped else slice(None, None, -1 if r.backwards else 1) for r in rows) or ...
        reader = _MatrixReader(matrix, (values[aim], None if mask is None else mask[aim]), target)
        reader.read(pieces_by_file(matrix, rows), options.threads)
    return values, mask


def output(out: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return an array to fill, or ``out``; SelectionError if it does not fit."""
    if out is None:
        return _allocate(np.empty, shape, dtype, f"values of {dtype}")
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != dtype or not out.flags.writeable:
        what = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        read_only = ", read-only" if isinstance(out, np.ndarray) and not out.flags.writeable else ""
        hint = f"give a writable array of {dtype} and shape {shape}"
        raise SelectionError(f"out does not fit: {what}{read_only}", hint=hint)
    return out


def _allocate(make: Callable[..., np.ndarray], shape: tuple[int, ...], dtype: np.dtype[Any], what: str) -> np.ndarray:
    try:
        return make(shape, dtype)
    except (MemoryError, ValueError) as error:
        size = " x ".join(map(str, shape))
        raise SelectionError(f"{size} {what} do not fit into memory", hint="read a part of them") from error


class _MatrixReader(NamedTuple):
    matrix: Matrix
    outputs: Outputs
    target: Target

    def read(self, groups: Sequence[Sequence[Piece]], threads: int | None) -> None:
        """Read the pieces of all files with threads.

        Few files are divided, many files are handed out several at a time. Threads gain nothing if a file is so little work
        that switching threads costs as much; the first files show how much it is.
        """
        uris = [self.matrix.references.uri_of(group[0].ref) for group in groups if group[0].ref >= 0]
        remote = [uri for uri in uris if uri is not None and is_remote(uri)]
        if remote:
            prefetch_states(remote)
        threads = threads or max(get_options().threads, DISTANT if remote else 1)
        many = len(groups) >= _MANY * threads and self.outputs[0].nbytes < _HEAVY * len(groups)
        if len(groups) == 1 or remote or (threads > 1 and not many):
            run_tasks(chain.from_iterable(map(self.tasks, groups)), threads)
            return
        size = self.read_batches(groups if threads == 1 else groups[:_FIRST])
        if threads == 1:
            return
        rest = groups[_FIRST:]
        if size < _LIGHT * _FIRST:
            self.read_batches(rest)
        elif size > (BATCH + SLAB) * _FIRST:
            run_tasks(chain.from_iterable(map(self.tasks, rest)), threads)
        else:
            bundle = min(_BUNDLE, max(1, len(groups) // (_MANY * threads)))
            starts = range(0, len(rest), bundle)
            run_tasks((ReadTask(partial(self.read_batches, rest[i : i + bundle]), BATCH + SLAB) for i in starts), threads)

    def read_batches(self, groups: Sequence[Sequence[Piece]]) -> int:
        """Read files in order, small pieces in batches; return the bytes needed."""
        from aggarray.read.small_chunks import indexed_rows, small_chunk_batch

        total = 0
        batch: SmallChunkBatch | None = None
        tables, rows = indexed_rows(self.matrix.references, groups)
        for group, row in zip(groups, rows, strict=True):
            piece = group[0]
            if row >= 0 and batch is not None and tables is not None and batch.add_indexed(piece, row, tables):
                total += batch.size
                continue
            located = self.chunk_index(piece) if len(group) == 1 else None
            if located is None:
                total += run_all(self.tasks(group))
                continue
            if batch is not None:
                if batch.add(piece, located):
                    total += batch.size
                    continue
                batch.read(self.outputs, self.chunk_index, self.read_alone)
            batch = small_chunk_batch(self.matrix, self.target, piece, located)
            total += self.read_piece(piece, located) if batch is None else batch.size
        if batch is not None:
            batch.read(self.outputs, self.chunk_index, self.read_alone)
        return total

    def read_alone(self, piece: Piece) -> int:
        """Read one piece of a batch, looked up again; return the bytes needed."""
        return run_all(self.tasks([piece]))

    def read_piece(self, piece: Piece, located: LocatedIndex) -> int:
        """Read one piece; return the bytes that this needed."""
        return run_all(chunk_tasks(stored_piece(self.matrix, piece, located, self.outputs, self.target), piece.selection))

    def tasks(self, group: Sequence[Piece]) -> Iterator[ReadTask]:
        """Yield the tasks for the pieces of a file, by chunk index or library."""
        others = []
        for piece in group:
            located = self.chunk_index(piece)
            if located is None:
                others.append(piece)
            else:
                yield from chunk_tasks(stored_piece(self.matrix, piece, located, self.outputs, self.target), piece.selection)
        if others:
            from aggarray.read.library import read_through_library

            yield ReadTask(partial(read_through_library, self.matrix, others, self.outputs, self.target), 0)

    def chunk_index(self, piece: Piece) -> LocatedIndex | None:
        """Return the chunk index of a piece; None if there is none, or on errors.

        The library of the format reports errors better, except IndexFileError, which is raised.
        """
        if piece.ref < 0:
            return None
        references = self.matrix.references
        try:
            return find_chunk_index(references, piece.ref, self.target.access)
        except IndexFileError as error:
            raise_with_location(
                error, str(references.uri_of(piece.ref)), references.variables[int(references.variable[piece.ref])]
            )
        except AggarrayError:
            return None


def run_tasks(tasks: Iterator[ReadTask], threads: int) -> None:
    """Run tasks by several threads, a single task in this one."""
    first = list(islice(tasks, 2))
    if len(first) < 2:
        for task in first:
            task.run()
        return
    with BoundedExecutor(threads) as executor:
        for task in chain(first, tasks):
            executor.do(task)


def chunk_tasks(stored: StoredPiece, selection: Sequence[Indices]) -> Iterator[ReadTask]:
    """Yield the tasks for a piece, neighbouring chunks together."""
    table = stored.table
    # promise: read-maps-no-file
    chunk = prod(table.chunk) * table.dtype.itemsize
    if not table.filters and not table.inline and chunk >= SMALL:
        yield from _contiguous_tasks(stored, selection)
        return
    # A chunk decoded, unshuffled, converted in double precision, and its mask.
    each = prod(table.chunk) * (2 * table.dtype.itemsize + 17)
    blocks: list[ChunkBlock] = []
    size = most = count = 0
    # Larger ones are decoded together if they may follow each other in the output.
    together = chunk < SMALL or (stored.is_plain and stored.view is not None and stored.view.flags.c_contiguous)
    for block in chunk_blocks_of(table, selection, max(1, min(SLAB // chunk, MOST)) if together else 1):
        if blocks and (size >= BATCH or count >= MOST):
            yield ReadTask(partial(read_stored, stored, read_chunk_blocks, blocks), size + most + count * _EACH)
            blocks, size, most, count = [], 0, 0, 0
        blocks.append(block)
        count += len(block.numbers)
        # The chunks of a store are whole files of unknown size.
        size += int(table.sizes[block.numbers[0]] if len(block.numbers) == 1 else table.sizes[block.numbers].sum()) or chunk
        most = max(most, len(block.numbers) * each)
    if blocks:
        yield ReadTask(partial(read_stored, stored, read_chunk_blocks, blocks), size + most + count * _EACH)


def _contiguous_tasks(stored: StoredPiece, selection: Sequence[Indices]) -> Iterator[ReadTask]:
    from aggarray.read.contiguous import SPAN, ContiguousRun, read_contiguous_runs

    table = stored.table
    itemsize = table.dtype.itemsize
    last = selection[-1] if selection else slice(0, 1, 1)
    # Elements read individually need memory for their positions.
    single = not (isinstance(last, slice) and last.step == 1)
    each = 2 * itemsize + 17 + _PLACES * single
    for part, start in parts_of(selection, table.chunk, PART // itemsize // (4 if single else 1)):
        for block in chunk_blocks_of(table, part, MOST):
            run = ContiguousRun(block, tuple(start))
            # The bytes read, the selected values, their conversion in double precision, and the mask.
            yield ReadTask(partial(read_stored, stored, read_contiguous_runs, [run]), SPAN + prod(block.shape) * each)


def read_stored(
    stored: StoredPiece, fetch: Callable[[StoredPiece, Any], None], items: Sequence[ChunkBlock | ContiguousRun]
) -> None:
    """Read and place parts of a piece; errors name file and variable."""
    try:
        fetch(stored, items)
    except MissingFileError as error:
        if stored.target.access.missing != "fill":
            raise_with_location(error, stored.path, stored.variable)
        for item in items:
            for part, _ in parts_of(item.out, (1,) * len(item.out), PART):
                put_missing(stored, tuple(s for s in part if isinstance(s, slice)))
    except AggarrayError as error:
        if isinstance(error, ChangedFileError):
            chunk_tables.discard((stored.path, stored.variable))
        raise_with_location(error, stored.path, stored.variable)
    # promise: chunk-memory-error
    except MemoryError as error:
        table = stored.table
        sides, size = " x ".join(map(str, table.chunk)), prod(table.chunk) * table.dtype.itemsize
        what = f"no memory for a chunk of {sides} values of {table.dtype} ({size} bytes)"
        hint = "read it where there is more memory, or rewrite the file with smaller chunks"
        raise_with_location(FormatError(what, hint=hint), stored.path, stored.variable, error)
    except OSError as error:
        what = str(error.strerror or error)
        raise_with_location(FormatError(what, hint="read it again"), stored.path, stored.variable, error)
