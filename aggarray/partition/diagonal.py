"""Matrix of cells along a path through two dimensions, without any read.

Forecasts are a matrix over reference time and lead. Their values along the valid time are a path through it.
"""

from __future__ import annotations

from math import prod

import numpy as np

from aggarray.dataclass import replace
from aggarray.memory.selection import Range
from aggarray.partition.matrix import Matrix
from aggarray.partition.plan import DimensionPlan, plan_dimension
from aggarray.partition.tiling import select


def covered_cells(matrix: Matrix) -> np.ndarray:
    """Return which positions of the first two dimensions have a sub-array.

    The result is bool, of the sizes of these dimensions.
    """
    rows, columns = matrix.cells[:2]
    cells = (matrix.refs >= 0).reshape(rows, columns, prod(matrix.cells[2:])).any(axis=2)
    return np.repeat(np.repeat(cells, np.diff(matrix.edges[0]), 0), np.diff(matrix.edges[1]), 1)


def along_path(matrix: Matrix, rows: np.ndarray, columns: np.ndarray) -> Matrix:
    """Return the matrix of positions (rows[i], columns[i]) of two dimensions.

    ``matrix``: of which these are the first two, both increasing; the result has the second in place of both. Neighbours of one
    row and consecutive columns stay in one partition.
    """
    count = matrix.shape[0]
    if not len(rows):
        first = select(matrix, 0, plan_dimension(0, matrix.edges[0])) if count else _without_first(matrix)
        return select(first, 0, plan_dimension(Range(0, 0), first.edges[0]))
    single = _in_single_rows(matrix)
    inner = single.edges[1]
    cells = np.searchsorted(inner, columns, side="right") - 1
    begins = (rows[1:] != rows[:-1]) | (cells[1:] != cells[:-1]) | (columns[1:] != columns[:-1] + 1)
    starts = np.concatenate([[0], np.flatnonzero(begins) + 1])
    counts = np.diff(np.append(starts, len(rows)))
    # Rows of one position follow each other: the cells of both dimensions are those of one.
    offsets = np.arange(count, dtype=np.int64)[:, np.newaxis] * inner[-1]
    edges = np.append((offsets + inner[:-1]).ravel(), count * inner[-1])
    merged = replace(_without_first(single), edges=(edges, *single.edges[2:]))
    numbers = rows[starts] * (len(inner) - 1) + cells[starts]
    first = columns[starts] - inner[cells[starts]]
    return select(merged, 0, DimensionPlan(len(rows), numbers, first, counts, np.ones(len(starts), np.int64), starts))


def _in_single_rows(matrix: Matrix) -> Matrix:
    """Return the matrix with its first dimension cut into single positions."""
    edges, size = matrix.edges[0], matrix.shape[0]
    if len(edges) == size + 1:
        return matrix
    positions = np.arange(size, dtype=np.int64)
    cells = np.searchsorted(edges, positions, side="right") - 1
    ones = np.ones(size, np.int64)
    return select(matrix, 0, DimensionPlan(size, cells, positions - edges[cells], ones, ones, positions))


def _without_first(matrix: Matrix) -> Matrix:
    return replace(matrix, dimensions=matrix.dimensions[1:], directions=matrix.directions[1:], edges=matrix.edges[1:])
