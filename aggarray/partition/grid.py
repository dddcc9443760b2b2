"""Refinement of boxes of any size and position into one matrix of cells.

Along each dimension, the cut points of all boxes and both ends are the edges of the cells. Every box then covers whole cells;
a cell is covered by one box or by none. The work is done per dimension and multiplied last. A matrix that is too large
raises AggregationError before memory is allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aggarray.dataclass import dataclass
from aggarray.errors import AggregationError
from aggarray.memory.selection import distinct
from aggarray.partition.matrix import MAX_CELLS


@dataclass(frozen=True, slots=True, eq=False)
class GridCover:
    """The cells that each box covers.

    ``edges``: cut points per dimension. Each (box, cell) pair has an entry in ``box`` and ``cell`` (the flat cell), int64 of
    length n, and in ``index``, int64 of shape (dimensions, n). ``overlap``: two boxes that cover the same cell, or None.
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
    """Return the edges along one dimension: sorted distinct cuts, 0 and size.

    ``boxes``: int64 (n, 2).

    >>> cut_points(np.array([[0, 3], [3, 8]]), 10).tolist()
    [0, 3, 8, 10]
    """
    return distinct(np.concatenate([boxes.ravel(), np.array([0, size])])).astype(np.int64)


def refine(boxes: np.ndarray, shape: Sequence[int], dimensions: Sequence[str], served_by: str = "all") -> GridCover:
    """Refine boxes into cells.

    ``boxes``: int64 (n, dimensions, 2), half-open, within ``shape``. Empty boxes cover no cell. If the shape itself is empty,
    the first box equal to the shape covers its one empty cell.
    ``served_by``: "all" keeps every pair (if boxes overlap, at least one pair that shows the overlap), "every" keeps every pair
    in any case, "first" and "last" keep one box per cell.
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
    owner[flat[order]] = box[order]  # the last assignment to a cell remains
    conflicts = np.flatnonzero(owner[flat] != box)
    pair = (int(kept[owner[flat[conflicts[0]]]]), int(kept[box[conflicts[0]]])) if conflicts.size else None
    if pair and served_by in ("first", "last"):
        owned = np.flatnonzero(owner[flat] == box)
        box, flat, index = box[owned], flat[owned], index[:, owned]
    return GridCover(edges, kept[box], flat, index, pair)


def _empty_cover(boxes: np.ndarray, shape: Sequence[int]) -> GridCover:
    """Cover a shape without elements: one empty cell."""
    full_box = np.stack([np.zeros(len(shape), np.int64), np.asarray(shape, np.int64)], axis=-1)
    box = np.flatnonzero((boxes == full_box).all(axis=(1, 2)))[:1]
    edges = tuple(full_box)
    return GridCover(edges, box, np.zeros(len(box), np.int64), np.zeros((len(shape), len(box)), np.int64), None)


def _checked_cells(edges: tuple[np.ndarray, ...], count: np.ndarray, dimensions: Sequence[str]) -> int:
    cells = prod(len(e) - 1 for e in edges)
    if cells > MAX_CELLS:
        misaligned = [d for d, c in zip(dimensions, count, strict=True) if (c > 1).any()]
        misaligned = misaligned or [d for d, e in zip(dimensions, edges, strict=True) if len(e) > 2]
        cuts = ", ".join(f"{d} ({len(e) - 2} cuts)" for d, e in zip(dimensions, edges, strict=True) if d in misaligned)
        raise AggregationError(
            f"the pieces cut the array into {cells} partitions, more than {MAX_CELLS}: their edges do not align along {cuts}",
            hint="join them in several arrays, or align their edges",
        )
    return cells


def _expand(first: np.ndarray, count: np.ndarray, enough: int | None) -> tuple[np.ndarray, np.ndarray]:
    """List (box, cell) pairs: ``enough`` to prove an overlap, or all (None)."""
    if (count == 1).all():
        return np.arange(first.shape[1]), first
    pairs = count.prod(axis=0)
    if enough is not None:
        limit = int(np.searchsorted(np.cumsum(pairs), enough, side="right")) + 1
        first, count, pairs = first[:, :limit], count[:, :limit], pairs[:limit]
    box = np.repeat(np.arange(len(pairs)), pairs)
    within = np.arange(len(box)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    index = np.empty((len(first), len(box)), np.int64)
    for d in reversed(range(len(first))):
        within, index[d] = np.divmod(within, count[d, box])
        index[d] += first[d, box]
    return box, index
