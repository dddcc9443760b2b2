"""How is a read plan carried out?

Each touched piece is fetched (from an open file or from memory), decoded, conformed and placed into the one output array.
Files are kept open in a bounded cache; pieces of different files are worked on by several threads.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from aggarray.conform import Masked
from aggarray.errors import AggarrayError, IndexFileError
from aggarray.options import get_options
from aggarray.plan import Piece, along
from aggarray.read.blocks import block, held, named, place, raise_named
from aggarray.read.crew import Crew
from aggarray.read.direct import batches, carry_out
from aggarray.read.files import OpenFiles, close_files
from aggarray.read.grouping import by_file, settle
from aggarray.read.stored import Outputs, stored_piece
from aggarray.read.tables import Found, find_table
from aggarray.read.target import Target, output
from aggarray.read.views import view
from aggarray.selection import Selector
from aggarray.table import Matrix

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
    rows = [along(s, e) for s, e in zip(selectors, matrix.edges, strict=True)]
    shape = tuple(r.size for r in rows if not r.dropped)
    result = output(out, shape, target.step.dtype)
    mask = np.zeros(shape, bool) if masked else None
    matrix = settle(matrix, rows, target)
    aim: Any = tuple(np.newaxis if r.dropped else slice(None, None, -1 if r.backwards else 1) for r in rows)
    outputs = result[aim or ...], None if mask is None else mask[aim or ...]
    if result.size:
        with Crew(get_options().threads if threads is None else threads) as crew:
            for group in by_file(matrix, rows):
                for work, size in _works(matrix, group, outputs, target):
                    crew.do(work, size)
    return result, mask


def _works(
    matrix: Matrix, group: Sequence[Piece], outputs: Outputs, target: Target
) -> Iterator[tuple[Callable[[], None], int]]:
    """Yield what is to be done for the pieces of one file, with the bytes that it takes while it is done.

    Chunks are read directly, in batches; what cannot be is read piece by piece through the library of its format.
    """
    others = []
    for piece in group:
        found = _table(matrix, piece, target) if piece.ref >= 0 else None
        if found is None:
            others.append(piece)
            continue
        stored = stored_piece(matrix, piece, found, outputs, target)
        for batch in batches(stored, piece.selection):
            yield partial(carry_out, batch), batch.size
    if others:
        yield partial(_through_library, matrix, others, outputs, target), 0


def _table(matrix: Matrix, piece: Piece, target: Target) -> Found | None:
    """Find the chunks of a piece; whatever is wrong with its file, its library says best."""
    try:
        return find_table(matrix.references, piece.ref, target.access)
    except IndexFileError as error:
        references = matrix.references
        raise_named(error, str(references.uri_of(piece.ref)), references.variables[int(references.variable[piece.ref])])
    except AggarrayError:
        return None


def _through_library(matrix: Matrix, group: Sequence[Piece], outputs: Outputs, target: Target) -> None:
    with held(matrix, group, target.access):
        for piece in group:
            found = named(matrix, piece, lambda p: block(matrix, p, target))
            place(*outputs, piece, found, target.fill_value)
