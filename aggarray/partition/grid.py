"""How do boxes of any size and place become one hyperrectangular matrix of cells?

By common refinement: along each dimension the cut points of all boxes, together with both ends, are the edges of the
cells; every box then covers whole cells, a cell is covered by one box or by none. Work is done per dimension and
multiplied last, and a matrix that would become too large is refused before memory is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from aggarray.errors import AggregationError

#: A matrix of more cells than this is refused.
MAX_CELLS = 10_000_000


@dataclass(frozen=True, slots=True, eq=False)
class GridCover:
    """Which cell each box covers: ``edges`` per dimension; for every (box, cell) pair the box, the flat cell and its index.

    ``box`` and ``cell`` are int64 of length n, ``index`` int64 of shape (dimensions, n); ``overlap`` is a pair of boxes that
    want the same cell, or None.
    """

    edges: tuple[np.ndarray, ...]
    box: np.ndarray
    cell: np.ndarray
    index: np.ndarray
    overlap: tuple[int, int] | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of cells per dimension."""
        return tuple(len(e) - 1 for e in self.edges)


def cut_points(boxes: np.ndarray, size: int) -> np.ndarray:
    """Return the edges along one dimension: sorted distinct cuts of ``boxes`` (n, 2), with 0 and ``size``.

    >>> cut_points(np.array([[0, 3], [3, 8]]), 10).tolist()
    [0, 3, 8, 10]
    """
    return np.unique(np.concatenate([boxes.ravel(), np.array([0, size])])).astype(np.int64)


def refine(boxes: np.ndarray, shape: Sequence[int], dimensions: Sequence[str], served_by: str = "all") -> GridCover:
    """Refine boxes into cells.

    ``boxes``: int64 (n, dimensions, 2), half-open, within ``shape``. Boxes without positions cover nothing, unless the
    whole shape has none: then the first box that is all of it serves the one empty cell.
    ``served_by``: "all" keeps every pair (or, where boxes overlap, enough of them to show it), "every" really every one,
    "first" and "last" one box per cell.
    Raises AggregationError for a matrix of more than 10 million cells, naming the misaligned dimensions.

    >>> cover = refine(np.array([[[0, 2], [0, 3]], [[2, 4], [0, 1]], [[2, 4], [1, 3]]]), (4, 3), ("y", "x"))
    >>> cover.shape, cover.box.tolist(), cover.cell.tolist()
    ((2, 2), [0, 0, 1, 2], [0, 1, 2, 3])
    """
    boxes = np.asarray(boxes, np.int64).reshape(len(boxes), len(shape), 2)
    if prod(shape) == 0:
        return _empty_cover(boxes, shape)
    kept = np.flatnonzero((boxes[:, :, 1] > boxes[:, :, 0]).all(axis=1))
    boxes = boxes[kept]
    edges = tuple(cut_points(boxes[:, d], n) for d, n in enumerate(shape))
    first = np.empty((len(shape), len(kept)), np.int64)
    count = np.empty_like(first)
    for d, e in enumerate(edges):
        first[d] = np.searchsorted(e, boxes[:, d, 0])
        count[d] = np.searchsorted(e, boxes[:, d, 1]) - first[d]
    cells = _checked_cells(edges, count, dimensions)
    box, index = _expand(first, count, cells if served_by == "all" else None)
    flat = np.zeros(len(box), np.int64)
    for d, e in enumerate(edges):
        flat = flat * (len(e) - 1) + index[d]
    owner = np.full(cells, -1, np.int64)
    order = slice(None) if served_by == "last" else slice(None, None, -1)
    owner[flat[order]] = box[order]  # of repeated cells the last assignment stays
    other = np.flatnonzero(owner[flat] != box)
    pair = (int(kept[owner[flat[other[0]]]]), int(kept[box[other[0]]])) if other.size else None
    if pair and served_by in ("first", "last"):
        alone = np.flatnonzero(owner[flat] == box)
        box, flat, index = box[alone], flat[alone], index[:, alone]
    return GridCover(edges, kept[box], flat, index, pair)


def _empty_cover(boxes: np.ndarray, shape: Sequence[int]) -> GridCover:
    """Cover a shape without positions: one empty cell."""
    whole = np.stack([np.zeros(len(shape), np.int64), np.asarray(shape, np.int64)], axis=-1)
    box = np.flatnonzero((boxes == whole).all(axis=(1, 2)))[:1]
    edges = tuple(whole)
    return GridCover(edges, box, np.zeros(len(box), np.int64), np.zeros((len(shape), len(box)), np.int64), None)


def _checked_cells(edges: tuple[np.ndarray, ...], count: np.ndarray, dimensions: Sequence[str]) -> int:
    cells = prod(len(e) - 1 for e in edges)
    if cells > MAX_CELLS:
        misaligned = [d for d, c in zip(dimensions, count, strict=True) if (c > 1).any()]
        misaligned = misaligned or [d for d, e in zip(dimensions, edges, strict=True) if len(e) > 2]
        cuts = ", ".join(f"{d} ({len(e) - 2} cuts)" for d, e in zip(dimensions, edges, strict=True) if d in misaligned)
        raise AggregationError(
            f"the pieces cut the array into {cells} partitions, more than {MAX_CELLS}: their edges do not align along {cuts}; "
            "join them in several arrays, or align their edges"
        )
    return cells


def _expand(first: np.ndarray, count: np.ndarray, enough: int | None) -> tuple[np.ndarray, np.ndarray]:
    """List every (box, cell) pair; stops soon after ``enough`` pairs: with more pairs than cells an overlap is certain."""
    if (count == 1).all():
        return np.arange(first.shape[1]), first
    each = count.prod(axis=0)
    if enough is not None:
        until = int(np.searchsorted(np.cumsum(each), enough, side="right")) + 1
        first, count, each = first[:, :until], count[:, :until], each[:until]
    box = np.repeat(np.arange(len(each)), each)
    within = np.arange(len(box)) - np.repeat(np.cumsum(each) - each, each)
    index = np.empty((len(first), len(box)), np.int64)
    for d in reversed(range(len(first))):
        within, index[d] = np.divmod(within, count[d, box])
        index[d] += first[d, box]
    return box, index
