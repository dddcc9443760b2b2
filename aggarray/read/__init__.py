"""Execution of read plans.

Each piece is fetched from an open file or from memory, decoded, conformed and placed into the output array. Files stay open in
a bounded cache; several threads work on pieces of different files.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from aggarray.errors import AggarrayError, IndexFileError
from aggarray.memory.selection import Selector
from aggarray.options import get_options
from aggarray.partition.conform import Masked
from aggarray.partition.matrix import Matrix
from aggarray.partition.plan import Piece, plan_dimension
from aggarray.read.chunk_index import Found, find_chunk_index
from aggarray.read.direct import BATCH, SLAB, carry_out, read_tasks
from aggarray.read.executor import BoundedExecutor, Work
from aggarray.read.library import named, raise_named, read_block, read_values
from aggarray.read.open_files import OpenFiles, close_files
from aggarray.read.pieces import by_file, resolve_pieces
from aggarray.read.small_chunks import SmallChunkBatch, small_chunk_batch
from aggarray.read.stored_piece import Outputs, stored_piece
from aggarray.read.target import Target, mask_output, output
from aggarray.read.views import view
from aggarray.storage.remote import is_remote, prefetch_states
from aggarray.storage.state import one_version

#: Files per thread from which several are submitted together, how many, and how many are read first to measure the work.
_MANY, _BUNDLE, _FIRST = 8, 8, 4
#: Bytes per file below which threads gain nothing, and from which each file is divided.
_LIGHT, _HEAVY = 1 << 18, 1 << 20
#: Threads that read remote files, where they mostly wait, unless the options have more.
DISTANT = 16

__all__ = ["OpenFiles", "Target", "close_files", "output", "read", "view"]


def read(
    matrix: Matrix,
    target: Target,
    selectors: Sequence[Selector],
    out: np.ndarray | None = None,
    masked: bool = False,
    threads: int | None = None,
) -> Masked:
    """Read a selection of a matrix into a new array or ``out``; return values of the target's dtype, and the mask or None.

    ``selectors``: one per dimension, as `memory.selection.normalise` returns them. FormatError, MissingFileError or UnitsError
    name file and variable; SelectionError if ``out`` does not fit.
    """
    with target.access.reach():
        return _read(matrix, target, selectors, FetchOptions(out, masked, threads))


class FetchOptions(NamedTuple):
    """Options of a read; see `read`."""

    out: np.ndarray | None
    masked: bool
    threads: int | None


def _read(matrix: Matrix, target: Target, selectors: Sequence[Selector], options: FetchOptions) -> Masked:
    out, masked, threads = options
    rows = [plan_dimension(s, e) for s, e in zip(selectors, matrix.edges, strict=True)]
    shape = tuple(r.size for r in rows if not r.dropped)
    result = output(out, shape, target.step.dtype)
    mask = mask_output(shape) if masked else None
    matrix = resolve_pieces(matrix, rows, target)
    aim: Any = tuple(np.newaxis if r.dropped else slice(None, None, -1 if r.backwards else 1) for r in rows)
    outputs = result[aim or ...], None if mask is None else mask[aim or ...]
    if result.size:
        job, groups = _ReadJob(matrix, outputs, target), by_file(matrix, rows)
        distant = _look_ahead(matrix, groups)
        usual = max(get_options().threads, DISTANT) if distant else get_options().threads
        with BoundedExecutor(usual if threads is None else threads) as executor:
            if distant:
                job.hand_out(groups, executor)
            else:
                _share_out(job, groups, executor)
    return result, mask


def _look_ahead(matrix: Matrix, groups: Sequence[Sequence[Piece]]) -> bool:
    """Return whether remote files are read, after prefetching their states concurrently."""
    uris = (matrix.references.uri_of(group[0].ref) for group in groups if group[0].ref >= 0)
    far = [str(uri) for uri in uris if uri is not None and is_remote(str(uri))]
    prefetch_states(far)
    return bool(far)


def _share_out(job: "_ReadJob", groups: Sequence[Sequence[Piece]], executor: BoundedExecutor) -> None:
    """Distribute the pieces of all files: few files are divided, many files are handed out several at a time.

    Threads gain nothing if a file is so little work that switching threads costs as much; the first files show how much it is.
    """
    if executor.threads == 1:
        job.carry_out(groups)
        return
    if len(groups) < _MANY * executor.threads or job.outputs[0].nbytes >= _HEAVY * len(groups):
        job.hand_out(groups, executor)
        return
    size = max(job.carry_out(groups[:_FIRST]), 1)
    if size < _LIGHT * _FIRST:
        job.carry_out(groups[_FIRST:])
        return
    if size > (BATCH + SLAB) * _FIRST:
        job.hand_out(groups[_FIRST:], executor)
        return
    bundle = min(_BUNDLE, max(1, len(groups) // (_MANY * executor.threads)))
    for start in range(_FIRST, len(groups), bundle):
        executor.do(partial(job.carry_out, groups[start : start + bundle]), BATCH + SLAB)


class _ReadJob(NamedTuple):
    """A matrix to read, and the outputs to read it into."""

    matrix: Matrix
    outputs: Outputs
    target: Target

    def carry_out(self, groups: Sequence[Sequence[Piece]]) -> int:
        """Read the pieces of files one after the other, batching small ones; return the bytes that this needed."""
        total = 0
        batch: SmallChunkBatch | None = None
        for group in groups:
            piece = group[0]
            found = _table(self.matrix, piece, self.target) if len(group) == 1 and piece.ref >= 0 else None
            if found is None:
                total += self._all(self.works(group))
                continue
            if batch is not None:
                if batch.add(piece, found):
                    total += batch.size
                    continue
                batch.read(self.outputs, self._alone)
            batch = small_chunk_batch(self.matrix, self.target, piece, found)
            total += self._alone(piece, found) if batch is None else batch.size
        if batch is not None:
            batch.read(self.outputs, self._alone)
        return total

    def hand_out(self, groups: Sequence[Sequence[Piece]], executor: BoundedExecutor) -> None:
        """Submit the pieces of files to the executor, a few chunks at a time."""
        for group in groups:
            for work, size in self.works(group):
                executor.do(work, size)

    def _alone(self, piece: Piece, found: Found) -> int:
        return self._all(self._works_of(piece, found))

    def _all(self, works: Iterator[tuple[Work, int]]) -> int:
        total = 0
        for work, size in works:
            work()
            total += size
        return total

    def works(self, group: Sequence[Piece]) -> Iterator[tuple[Work, int]]:
        """Yield the tasks for the pieces of one file, each with the bytes that it needs while it runs.

        Chunks are read directly, in batches; pieces without a chunk index are read through the library of their format.
        """
        others = []
        for piece in group:
            found = _table(self.matrix, piece, self.target) if piece.ref >= 0 else None
            if found is None:
                others.append(piece)
            else:
                yield from self._works_of(piece, found)
        if others:
            yield partial(_through_library, self.matrix, others, self.outputs, self.target), 0

    def _works_of(self, piece: Piece, found: Found) -> Iterator[tuple[Work, int]]:
        stored = stored_piece(self.matrix, piece, found, self.outputs, self.target)
        for batch in read_tasks(stored, piece.selection):
            yield partial(carry_out, batch), batch.size


def _table(matrix: Matrix, piece: Piece, target: Target) -> Found | None:
    """Return the chunk index of a piece; None on errors, which the format's library reports better."""
    try:
        return find_chunk_index(matrix.references, piece.ref, target.access)
    except IndexFileError as error:
        references = matrix.references
        raise_named(error, str(references.uri_of(piece.ref)), references.variables[int(references.variable[piece.ref])])
    except AggarrayError:
        return None


def _through_library(matrix: Matrix, group: Sequence[Piece], outputs: Outputs, target: Target) -> None:
    with one_version(), read_values(matrix, group, target.access):
        for piece in group:
            named(matrix, piece, lambda p: read_block(matrix, p, outputs, target))
