"""Read-only views of values that need no copy."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.cf.units import conversion_between
from aggarray.errors import MemoryAccessError
from aggarray.memory.creation import shared
from aggarray.memory.selection import Selector, result_shape
from aggarray.partition.conform import arrange
from aggarray.partition.matrix import Matrix, Step, Template
from aggarray.partition.plan import DimensionPlan, Piece, pieces_by_file, plan_dimension
from aggarray.read.library import named
from aggarray.read.open_files import opened
from aggarray.read.stored_piece import Target
from aggarray.scan.resolution import resolve_references, touched
from aggarray.storage.access import Access


def view(matrix: Matrix, target: Target, selectors: Sequence[Selector], masked: bool = False) -> np.ndarray | str:
    """Return a read-only view of a selection that one piece provides unchanged; a text with the reason if there is none.

    The piece lies in memory or, contiguous and uncompressed, in a file that is memory-mapped: the view has the file's byte
    order, and truncating the file kills the process. Missing values are allowed if they are stored as the master has them,
    unless a mask is requested (``masked``).
    """
    shape = result_shape(selectors)
    if 0 in shape:
        # An empty selection has no position.
        return shared(np.empty(shape, target.step.dtype))
    rows = [plan_dimension(s, e) for s, e in zip(selectors, matrix.edges, strict=True)]
    with target.access.reach():
        return _view(matrix, target, rows, masked)


def _view(matrix: Matrix, target: Target, rows: Sequence[DimensionPlan], masked: bool) -> np.ndarray | str:
    if any(t.declared for t in matrix.references.templates):
        matrix = resolve_references(matrix, touched(matrix, rows), target.step, target.access)
    found = [piece for group in pieces_by_file(matrix, rows) for piece in group]
    if len(found) != 1 or found[0].ref < 0:
        return f"{len(found)} partitions serve it, not one" if len(found) != 1 else "its partition is missing"
    piece = found[0]
    if any(not isinstance(s, slice) for s in (*piece.selection, *piece.out)):
        return "its indices are not evenly spaced"
    template = matrix.references.template_of(piece.ref)
    if not _as_stored(template, target.step):
        return "its values must be converted"
    try:
        whole = named(matrix, piece, lambda p: _whole(matrix, p, target.access))
    except MemoryAccessError as error:
        return str(error)
    if whole is None:
        return "it is not stored contiguous and uncompressed"
    part = whole[(*piece.selection, ...)]  # a view even without dimensions
    if template.encoding.may_miss:
        mask = template.encoding.decode(part)[1]
        if mask is not None and (masked or not _all_fill(part[mask], target.fill_value)):
            return "it has missing values, which must be filled in"
    laid = arrange(part, template.dimensions, piece.flip, matrix.dimensions)
    chosen = tuple(0 if r.dropped else slice(None, None, -1 if r.backwards else 1) for r in rows)
    return laid[(*chosen, ...)]


def _all_fill(values: np.ndarray, fill: Any) -> bool:
    """Return whether stored missing values equal the master's fill value."""
    if values.dtype.kind in "fcmM":
        return bool(np.isnan(values).all()) and bool(np.isnan(fill))
    return bool((values == fill).all())


def _as_stored(template: Template, step: Step) -> bool:
    """Return whether stored values are the master's except for byte order and missing values."""
    encoding = template.encoding
    plain = not template.steps and not encoding.packed and encoding.viewed == encoding.stored == step.dtype
    return plain and conversion_between(template, step).identity


def _whole(matrix: Matrix, piece: Piece, access: Access) -> np.ndarray | None:
    """Return a complete sub-array as read-only memory; None if the file does not hold it so."""
    references, row = matrix.references, piece.ref
    if references.uri[row] < 0:
        return shared(references.memory[int(references.variable[row])], copy=False)
    with opened(references, row, access) as handle:
        mapped = handle.mapped(references.variables[references.variable[row]])
    return None if mapped is None else shared(mapped, copy=False)
