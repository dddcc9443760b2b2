"""How is a read plan carried out?

Each touched piece is fetched (from an open file or from memory), decoded, conformed and placed into the one output array.
Files are kept open in a bounded cache; pieces of different files are worked on by several threads.
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
from aggarray.storage.versions import one_version

#: So many files per thread are shared out by the file, a few at a time, once some have shown how much work they are ...
_MANY, _BUNDLE, _FIRST = 8, 8, 4
#: ... which is little below so many bytes a file. Files of which so many bytes are wanted are divided all the same.
_LIGHT, _HEAVY = 1 << 18, 1 << 20
#: Threads that read remote files, which they mostly wait for, where the options do not have more.
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
    """Read a selection of a matrix: values of the target's dtype, fresh and writable or in ``out``, and the mask if wanted.

    ``selectors``: one per dimension, as `selection.normalise` gives them. Raises FormatError, MissingFileError or
    UnitsError naming file and variable; SelectionError where ``out`` does not fit.
    """
    with target.access.reach():
        return _read(matrix, target, selectors, FetchOptions(out, masked, threads))


class FetchOptions(NamedTuple):
    """How a selection is read: as `read` takes it."""

    out: np.ndarray | None
    masked: bool
    threads: int | None


def _read(matrix: Matrix, target: Target, selectors: Sequence[Selector], wish: FetchOptions) -> Masked:
    out, masked, threads = wish
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
        with BoundedExecutor(usual if threads is None else threads) as crew:
            if distant:
                job.hand_out(groups, crew)
            else:
                _share_out(job, groups, crew)
    return result, mask


def _look_ahead(matrix: Matrix, groups: Sequence[Sequence[Piece]]) -> bool:
    """Tell whether remote files are read, what they are like having been asked of all at once."""
    uris = (matrix.references.uri_of(group[0].ref) for group in groups if group[0].ref >= 0)
    far = [str(uri) for uri in uris if uri is not None and is_remote(str(uri))]
    prefetch_states(far)
    return bool(far)


def _share_out(job: "_ReadJob", groups: Sequence[Sequence[Piece]], crew: BoundedExecutor) -> None:
    """Have the pieces of all files read: the work on few files divided, of many files several at a time.

    Threads gain nothing where a file is so little work that handing the interpreter over costs as much: the first files tell.
    """
    if crew.threads == 1:
        job.carry_out(groups)
        return
    if len(groups) < _MANY * crew.threads or job.outputs[0].nbytes >= _HEAVY * len(groups):
        job.hand_out(groups, crew)
        return
    size = max(job.carry_out(groups[:_FIRST]), 1)
    if size < _LIGHT * _FIRST:
        job.carry_out(groups[_FIRST:])
        return
    if size > (BATCH + SLAB) * _FIRST:
        job.hand_out(groups[_FIRST:], crew)
        return
    bundle = min(_BUNDLE, max(1, len(groups) // (_MANY * crew.threads)))
    for start in range(_FIRST, len(groups), bundle):
        crew.do(partial(job.carry_out, groups[start : start + bundle]), BATCH + SLAB)


class _ReadJob(NamedTuple):
    """What is read, and what into."""

    matrix: Matrix
    outputs: Outputs
    target: Target

    def carry_out(self, groups: Sequence[Sequence[Piece]]) -> int:
        """Read the pieces of files one after the other, small ones of files alike together; return the bytes that it took."""
        total = 0
        sheaf: SmallChunkBatch | None = None
        for group in groups:
            piece = group[0]
            found = _table(self.matrix, piece, self.target) if len(group) == 1 and piece.ref >= 0 else None
            if found is None:
                total += self._all(self.works(group))
                continue
            if sheaf is not None:
                if sheaf.add(piece, found):
                    total += sheaf.size
                    continue
                sheaf.read(self.outputs, self._alone)
            sheaf = small_chunk_batch(self.matrix, self.target, piece, found)
            total += self._alone(piece, found) if sheaf is None else sheaf.size
        if sheaf is not None:
            sheaf.read(self.outputs, self._alone)
        return total

    def hand_out(self, groups: Sequence[Sequence[Piece]], crew: BoundedExecutor) -> None:
        """Have a crew read the pieces of files, a few chunks at a time."""
        for group in groups:
            for work, size in self.works(group):
                crew.do(work, size)

    def _alone(self, piece: Piece, found: Found) -> int:
        return self._all(self._works_of(piece, found))

    def _all(self, works: Iterator[tuple[Work, int]]) -> int:
        total = 0
        for work, size in works:
            work()
            total += size
        return total

    def works(self, group: Sequence[Piece]) -> Iterator[tuple[Work, int]]:
        """Yield what is to be done for the pieces of one file, with the bytes that it takes while it is done.

        Chunks are read directly, in batches; what cannot be is read piece by piece through the library of its format.
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
    """Find the chunks of a piece; whatever is wrong with its file, its library says best."""
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
