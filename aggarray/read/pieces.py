"""Pieces that a selection touches, grouped by file."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from aggarray.memory.selection import as_range
from aggarray.partition.matrix import Matrix
from aggarray.partition.plan import DimensionPlan, Piece, pieces
from aggarray.read.target import Target
from aggarray.scan.resolution import resolve_references, touched


def by_file(matrix: Matrix, rows: Sequence[DimensionPlan]) -> list[list[Piece]]:
    """Group the pieces by file, so that one thread at a time reads an open file."""
    groups: dict[int, list[Piece]] = defaultdict(list)
    for piece in pieces(matrix, rows):
        groups[int(matrix.references.uri[piece.ref]) if piece.ref >= 0 else -1].append(piece)
    return [_together(matrix, group) for group in groups.values()] if len(rows) == 1 else list(groups.values())


def _together(matrix: Matrix, group: list[Piece]) -> list[Piece]:
    """Merge the one-dimensional pieces of each sub-array: its chunks are decoded once, in any order of pieces."""
    if len(group) < 2:
        return group
    references = matrix.references
    by_sub_array: dict[int, list[Piece]] = defaultdict(list)
    others: list[Piece] = []
    for piece in group:
        plain = piece.ref >= 0 and not piece.flip and references.template_of(piece.ref).dimensions == matrix.dimensions
        (by_sub_array[piece.ref] if plain else others).append(piece)
    return [*(_merged(pieces) if len(pieces) > 1 else pieces[0] for pieces in by_sub_array.values()), *others]


def _merged(pieces: Sequence[Piece]) -> Piece:
    """Return several pieces of one sub-array as one, whose elements are taken in stored order."""
    wanted = np.concatenate([_taken(piece) for piece in pieces])
    positions = np.concatenate([_numbers(piece.out[0]) for piece in pieces])
    stored, ranks = np.unique(wanted, return_inverse=True)
    order = np.argsort(ranks, kind="stable")
    run, places = as_range(stored), positions[order]
    selection = stored if run is None else slice(run.start, run.last + 1, run.step)
    take = None if len(stored) == len(wanted) else ranks[order]
    if take is None and (np.diff(places) == 1).all():
        return Piece(pieces[0].ref, (selection,), (), (slice(int(places[0]), int(places[-1]) + 1),), (take,), (len(stored),))
    return Piece(pieces[0].ref, (selection,), (), (places,), (take,), (len(stored),))


def _taken(piece: Piece) -> np.ndarray:
    """Return the elements of the sub-array that a piece takes, repeats included."""
    found, (take,) = _numbers(piece.selection[0]), piece.take
    return found if take is None else found[take]


def _numbers(indices: slice | np.ndarray) -> np.ndarray:
    """Return the numbers in a slice with both ends, or in an index array."""
    return np.arange(indices.start, indices.stop, indices.step or 1) if isinstance(indices, slice) else indices


def resolve_pieces(matrix: Matrix, rows: Sequence[DimensionPlan], target: Target) -> Matrix:
    """Resolve the templates of sub-arrays about to be read that are known only from an index."""
    if not any(t.declared for t in matrix.references.templates):
        return matrix
    return resolve_references(matrix, touched(matrix, rows), target.step, target.access)
