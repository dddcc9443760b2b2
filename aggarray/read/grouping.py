"""Which pieces does a selection touch, and which of them lie in one file?"""

from collections import defaultdict
from collections.abc import Sequence

from aggarray.plan import Along, Piece, pieces
from aggarray.read.target import Target
from aggarray.settle import settled, touched
from aggarray.table import Matrix


def by_file(matrix: Matrix, rows: Sequence[Along]) -> list[list[Piece]]:
    """Group the pieces so that each file is read by one thread at a time, once it is open."""
    groups: dict[int, list[Piece]] = defaultdict(list)
    for piece in pieces(matrix, rows):
        groups[int(matrix.references.uri[piece.ref]) if piece.ref >= 0 else -1].append(piece)
    return list(groups.values())


def settle(matrix: Matrix, rows: Sequence[Along], target: Target) -> Matrix:
    """Look at the files of sub-arrays that are about to be read and that so far only an index has told of."""
    if not any(t.declared for t in matrix.references.templates):
        return matrix
    return settled(matrix, touched(matrix, rows), target.step, target.access)
