"""Reading of a piece through the library of its format.

The piece is fetched from an open file or from memory, decoded, conformed and placed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np

from aggarray.errors import AggarrayError, FormatError, MissingFileError
from aggarray.formats.base import naming_errors
from aggarray.formats.flattened import stored_name
from aggarray.partition.chunk_selection import outer, parts_of
from aggarray.partition.conform import conform
from aggarray.partition.matrix import Matrix
from aggarray.partition.plan import Piece
from aggarray.read.open_files import opened
from aggarray.read.stored_piece import Outputs, Target, putter, raise_with_location
from aggarray.storage.access import Access
from aggarray.storage.state import one_version

#: Elements read at a time. A larger chunk is decoded again for each part.
PART = 1 << 21


def fetch(matrix: Matrix, piece: Piece, access: Access) -> np.ndarray:
    """Return the stored values of a piece; errors name file and variable."""
    references = matrix.references
    uri = references.uri_of(piece.ref)
    code = references.variable[piece.ref]
    if uri is None:
        boxed: tuple[Any, ...] = tuple(s if isinstance(s, slice) else slice(None) for s in piece.selection)
        values: np.ndarray = references.memory[code][(*boxed, ...)]  # an array even without dimensions
        for axis, indices in enumerate(piece.selection):
            values = values if isinstance(indices, slice) else values.take(indices, axis=axis)
        return values
    variable = references.variables[code]
    with naming_errors(uri, stored_name(variable)), opened(references, piece.ref, access) as handle:
        values = select_outer(lambda box: handle.read(variable, box), piece.selection)
    expected = tuple(len(range(s.start, s.stop, s.step or 1)) if isinstance(s, slice) else s.size for s in piece.selection)
    stored = references.template_of(piece.ref).encoding.stored
    if values.shape != expected or values.dtype != stored:
        what = f"{values.dtype} of shape {values.shape} instead of {stored} of shape {expected}"
        raise FormatError(what, path=uri, variable=stored_name(variable), hint="open the files anew")
    return values


def select_outer(read: Callable[[tuple[slice, ...]], np.ndarray], selection: Sequence[slice | np.ndarray]) -> np.ndarray:
    """Read an orthogonal selection with a function that reads boxes.

    ``selection``: per dimension a slice (step >= 1) or a strictly increasing int64 array. Indices close to each other are read
    as one box and selected in memory, distant ones in several boxes.
    """
    for axis, indices in enumerate(selection):
        if isinstance(indices, slice):
            continue
        if indices.size == 0:
            return select_outer(read, [*selection[:axis], slice(0, 0, 1), *selection[axis + 1 :]])
        cuts = np.flatnonzero(np.diff(indices) > 32) + 1
        blocks = []
        for run in np.split(indices, cuts):
            first, last = int(run[0]), int(run[-1])
            box = [*selection[:axis], slice(first, last + 1, 1), *selection[axis + 1 :]]
            block = select_outer(read, box)
            blocks.append(block if run.size == last - first + 1 else block.take(run - first, axis=axis))
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=axis)
    return read(tuple(s for s in selection if isinstance(s, slice)))


def read_block(matrix: Matrix, piece: Piece, outputs: Outputs, target: Target) -> None:
    """Fetch, decode, conform and place a piece, a large one in parts."""
    if piece.ref >= 0:
        template = matrix.references.template_of(piece.ref)
        put, _ = putter(matrix, piece, outputs, target.fill_value)
        try:
            for part, start in parts_of(piece.selection, (1,) * len(piece.selection), PART):
                raw = fetch(matrix, piece._replace(selection=tuple(part)), target.access)
                out = tuple(slice(s, s + n) for s, n in zip(start, raw.shape, strict=True))
                put(out, *conform(*template.encoding.decode(raw), template, target.step))
            return
        except MissingFileError:
            if target.access.missing != "fill":
                raise
    where = outer(tuple(slice(o.start, o.stop, 1) if isinstance(o, slice) else o for o in piece.out))
    outputs[0][where] = target.fill_value
    if outputs[1] is not None:
        outputs[1][where] = True


def read_through_library(matrix: Matrix, group: Sequence[Piece], outputs: Outputs, target: Target) -> None:
    """Read the pieces of one file, which stays open meanwhile."""
    references, first = matrix.references, group[0].ref
    with one_version(), ExitStack() as stack:
        if len(group) > 1 and first >= 0 and references.uri[first] >= 0:
            with suppress(AggarrayError):
                stack.enter_context(opened(references, first, target.access))
        for piece in group:
            call_with_location(matrix, piece, lambda p: read_block(matrix, p, outputs, target))


def call_with_location(matrix: Matrix, piece: Piece, work: Callable[[Piece], Any]) -> Any:
    """Run ``work``; add file and variable to its errors."""
    try:
        return work(piece)
    except AggarrayError as error:
        references = matrix.references
        uri = references.uri_of(piece.ref)
        if uri is None:
            raise
        raise_with_location(error, uri, references.variables[references.variable[piece.ref]])
