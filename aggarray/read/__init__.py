"""How is a read plan carried out?

Each touched piece is fetched (from an open file or from memory), decoded, conformed and placed into the one output array.
Files are kept open in a bounded cache; pieces of different files are worked on by several threads.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from aggarray.conform import Masked
from aggarray.errors import SelectionError
from aggarray.options import get_options
from aggarray.plan import Piece, along
from aggarray.read.blocks import block, held, named, place
from aggarray.read.files import OpenFiles, close_files
from aggarray.read.grouping import by_file, settle
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
    matrix = settle(matrix, rows, target)
    shape = tuple(r.size for r in rows if not r.dropped)
    result = output(out, shape, target.step.dtype)
    mask = np.zeros(shape, bool) if masked else None
    aim: Any = tuple(np.newaxis if r.dropped else slice(None, None, -1 if r.backwards else 1) for r in rows)
    view, mask_view = result[aim or ...], None if mask is None else mask[aim or ...]

    def work(group: list[Piece]) -> None:
        with held(matrix, group, target.access):
            for piece in group:
                found = named(matrix, piece, lambda p: block(matrix, p, target))
                place(view, mask_view, piece, found, target.fill_value)

    if result.size:
        _run(work, by_file(matrix, rows), get_options().threads if threads is None else threads)
    return result, mask


def _run(work: Callable[[list[Piece]], None], groups: list[list[Piece]], threads: int) -> None:
    if threads < 1:
        raise SelectionError(f"threads={threads}: give a whole number of at least 1, or None for the option")
    if threads == 1 or len(groups) <= 1:
        for group in groups:
            work(group)
        return
    pool = ThreadPoolExecutor(min(threads, len(groups)))
    try:
        for future in [pool.submit(work, group) for group in groups]:
            future.result()
    finally:
        # After an error nobody needs the rest.
        pool.shutdown(cancel_futures=True)
