"""Read-only views of values that need no copy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aggarray.cf.units.compatibility import conversion_between
from aggarray.errors import MemoryAccessError
from aggarray.memory.creation import shared
from aggarray.memory.selection import Selector, result_shape
from aggarray.partition.conform import arrange
from aggarray.partition.matrix import Matrix
from aggarray.partition.plan import Piece, pieces_by_file, plan_dimension
from aggarray.read.library import call_with_location
from aggarray.read.open_files import opened
from aggarray.read.stored_piece import Target
from aggarray.scan.resolution import resolve_references, touched
from aggarray.storage.access import Access


def view(matrix: Matrix, target: Target, selectors: Sequence[Selector], masked: bool = False) -> np.ndarray | str:
    """Return a read-only view of a selection, or the reason for none as text.

    One piece must provide the selection unchanged. The piece lies in memory or, contiguous and uncompressed, in a file that is
    memory-mapped: the view has the file's byte order, and truncating the file kills the process. Missing values are allowed if
    they are stored as the master has them, unless a mask is requested (``masked``).
    """
    shape = result_shape(selectors)
    if 0 in shape:
        # An empty selection has no position.
        return shared(np.empty(shape, target.step.dtype))
    with target.access.reach():
        return _view(matrix, target, selectors, masked)


def _view(matrix: Matrix, target: Target, selectors: Sequence[Selector], masked: bool) -> np.ndarray | str:
    rows = [plan_dimension(s, e) for s, e in zip(selectors, matrix.edges, strict=True)]
    if any(t.declared for t in matrix.references.templates):
        matrix = resolve_references(matrix, touched(matrix, rows), target.step, target.access)
    selected = [piece for group in pieces_by_file(matrix, rows) for piece in group]
    if len(selected) != 1 or selected[0].ref < 0:
        return f"{len(selected)} partitions serve it, not one" if len(selected) != 1 else "its partition is missing"
    piece = selected[0]
    if any(not isinstance(s, slice) for s in (*piece.selection, *piece.out)):
        return "its indices are not evenly spaced"
    template = matrix.references.template_of(piece.ref)
    encoding = template.encoding
    plain = not template.steps and not encoding.packed and encoding.viewed == encoding.stored == target.step.dtype
    if not plain or not conversion_between(template, target.step).identity:
        return "its values must be converted"
    try:
        values = call_with_location(matrix, piece, lambda p: _read_only(matrix, p, target.access))
    except MemoryAccessError as error:
        return str(error)
    if values is None:
        return "it is not stored contiguous and uncompressed"
    part = values[(*piece.selection, ...)]  # a view even without dimensions
    mask = encoding.decode(part)[1] if encoding.may_miss else None
    if mask is not None:
        absent = part[mask]
        # The fill value of floats and times is NaN or NaT.
        if masked or not (np.isnan(absent) if absent.dtype.kind in "fcmM" else absent == target.fill_value).all():
            return "it has missing values, which must be filled in"
    laid = arrange(part, template.dimensions, piece.flip, matrix.dimensions)
    chosen = tuple(0 if r.dropped else slice(None, None, -1 if r.backwards else 1) for r in rows)
    return laid[(*chosen, ...)]


def _read_only(matrix: Matrix, piece: Piece, access: Access) -> np.ndarray | None:
    """Return a complete sub-array as read-only memory; None if impossible."""
    references, row = matrix.references, piece.ref
    if references.uri[row] < 0:
        return shared(references.memory[int(references.variable[row])], copy=False)
    with opened(references, row, access) as handle:
        mapped = handle.mapped(references.variables[references.variable[row]])
    return None if mapped is None else shared(mapped, copy=False)
