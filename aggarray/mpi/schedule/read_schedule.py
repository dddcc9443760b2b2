"""Schedule of collective reads: the rank that reads each stored chunk.

A unit is a box of the array that lies in one stored chunk. Units are assigned in the order of the processes that require them,
in shares of about equal cost, so that few bytes are moved. Each share is cut into turns, and joined to few boxes. `Demand`
computes which elements of a box each node and each process requires.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from aggarray.dataclass import NamedTuple
from aggarray.maps import Distribution
from aggarray.maps.balance import assign_contiguous
from aggarray.memory.selection import Range, as_range
from aggarray.mpi.schedule.overlap import Box, Indices, Overlap, Run, boxes_of, held_runs, overlaps, owned_runs

#: (low, high) along each dimension.
BoxEnds = Sequence[Sequence[int]]


class Units(NamedTuple):
    """Boxes of an array that lie in one stored chunk each.

    ``boxes``: int64 (n, dimensions, 2), half-open; ``costs``: int64 bytes to read; ``chunks``: int64 (n, 2), the identity of
    the chunk.
    """

    boxes: np.ndarray
    costs: np.ndarray
    chunks: np.ndarray


class Turn(NamedTuple):
    """Boxes that a process reads together, and the number of holders of each.

    ``boxes``: int64 (n, dimensions, 2). A process that holds elements twice counts twice.
    """

    boxes: np.ndarray
    holders: np.ndarray


def schedule_reads(units: Units, target: Distribution, count: int, most: int) -> list[list[Turn]] | None:
    """Return the turns of each of ``count`` processes, by number of the turn.

    None where no two processes require one chunk. Chunks that are not required are left out. A process reads at most ``most``
    elements in a turn, or one chunk.
    """
    holders, preferred = _demand(units.boxes, target)
    required = np.flatnonzero(holders)
    boxes = units.boxes[required]
    _, group = np.unique(units.chunks[required], axis=0, return_inverse=True)
    group = group.reshape(-1)
    # The first unit of each chunk represents it: all units of a chunk are read together, at the cost of one.
    _, first = np.unique(group, return_index=True)
    preferred_ranks = preferred[required][first]
    if (holders <= 1).all() and (preferred_ranks[group] == preferred[required]).all():
        return None
    order = np.lexsort([*boxes[first, :, 0].T[::-1], preferred_ranks])
    sizes = np.bincount(group, (boxes[..., 1] - boxes[..., 0]).prod(axis=1)).astype(np.int64)
    readers = assign_contiguous(np.maximum(units.costs[required][first][order], 1), count)
    # Numbered by turn, then by reader.
    place = np.empty_like(readers)
    place[order] = _turns(sizes[order], readers, most) * count + readers
    places = place[group][:, np.newaxis, np.newaxis]
    joined = join_boxes(np.concatenate([places + np.arange(2), boxes], axis=1), 1)
    turns = -(-(int(place.max()) + 1) // count)
    cuts = np.searchsorted(joined[:, 0, 0], np.arange(turns * count + 1))
    holders, _ = _demand(joined[:, 1:], target)
    return [
        [Turn(joined[a:b, 1:], holders[a:b]) for a, b in pairwise(cuts[n * count : (n + 1) * count + 1].tolist())]
        for n in range(turns)
    ]


def _turns(sizes: np.ndarray, readers: np.ndarray, most: int) -> np.ndarray:
    """Return the turn of each chunk, filling one turn of a reader at a time.

    The chunks of a reader are consecutive.

    >>> _turns(np.array([2, 2, 2, 9, 1]), np.array([0, 0, 0, 1, 1]), 4).tolist()
    [0, 0, 1, 0, 1]
    """
    turns = np.zeros(len(sizes), np.int64)
    number, filled, previous = 0, 0, -1
    for position, (size, reader) in enumerate(zip(sizes.tolist(), readers.tolist(), strict=True)):
        if reader != previous:
            number, filled, previous = 0, 0, reader
        elif filled + size > most:
            number, filled = number + 1, 0
        filled += size
        turns[position] = number
    return turns


def _demand(boxes: np.ndarray, target: Distribution) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of holders of each box, and its first owner's rank."""
    holders, preferred = np.ones(len(boxes), np.int64), np.zeros(len(boxes), np.int64)
    for d, map_ in enumerate(target.maps):
        ends, number = np.unique(boxes[:, d], axis=0, return_inverse=True)
        held = np.array([_count_runs(held_runs(map_, p), ends) for p in range(map_.nprocs)])
        owned = np.array([_count_runs(owned_runs(map_, p), ends) for p in range(map_.nprocs)])
        number = number.reshape(-1)
        holders *= held.sum(axis=0)[number]
        preferred = preferred * map_.nprocs + (owned > 0).argmax(axis=0)[number]
    return holders, preferred


def _count_runs(runs: Sequence[Run], ends: np.ndarray) -> np.ndarray:
    """Return for each (low, high) the number of runs with an index in it."""
    counts = np.zeros(len(ends), np.int64)
    low, high = ends[:, 0], ends[:, 1]
    for run in runs:
        if isinstance(run.indices, Range):
            number = np.maximum(-((run.indices.start - low) // run.indices.step), 0)
            counts += (number < len(run.indices)) & (run.indices.start + number * run.indices.step < high) & (low < high)
        else:
            listed = np.sort(run.indices)
            counts += np.searchsorted(listed, low) < np.searchsorted(listed, high)
    return counts


def join_boxes(boxes: np.ndarray, first: int = 0) -> np.ndarray:
    """Join adjacent boxes, along the last dimension first.

    Boxes must not overlap. ``first``: the first dimension along which boxes are joined.

    >>> join_boxes(np.array([[[0, 1], [0, 2]], [[0, 1], [2, 4]], [[1, 2], [0, 4]]])).tolist()
    [[[0, 2], [0, 4]]]
    """
    for d in reversed(range(first, boxes.shape[1])):
        others = np.delete(boxes, d, axis=1).reshape(len(boxes), 2 * (boxes.shape[1] - 1))
        order = np.lexsort([boxes[:, d, 0], *others.T[::-1]])
        boxes, others = boxes[order], others[order]
        is_start = (others[1:] != others[:-1]).any(axis=1) | (boxes[1:, d, 0] != boxes[:-1, d, 1])
        begins = np.concatenate([[0], np.flatnonzero(is_start) + 1])[: len(boxes)]
        ends = np.append(begins[1:], len(boxes))[: len(begins)] - 1
        last = boxes[ends, d, 1]
        boxes = boxes[begins]
        boxes[:, d, 1] = last
    return boxes


class Demand:
    """Elements of boxes that nodes and processes require.

    A node is a list of processes. Boxes are products of (low, high) per dimension. What many boxes share is computed once.
    """

    def __init__(self, target: Distribution, nodes: Sequence[Sequence[int]]) -> None:
        self.target = target
        self._held = [[held_runs(map_, p) for p in range(map_.nprocs)] for map_ in target.maps]
        coords = [np.array([target.coords(rank) for rank in node]).reshape(len(node), len(target.maps)) for node in nodes]
        self._coords = [[np.unique(c[:, d]).tolist() for d in range(len(target.maps))] for c in coords]
        self._rank_coords = functools.cache(target.coords)
        self._along: dict[tuple[int, int, int, int | None], Indices] = {}
        self._overlaps: dict[tuple[int, int, int, int | None, int], list[Overlap]] = {}

    def indices(self, box: BoxEnds, node: int | None) -> list[Indices]:
        """Return, per dimension, what a node requires: positions in the box.

        The product over the dimensions contains what its processes require, and few other elements. ``node`` None: all
        positions.
        """
        return [self._indices_along(d, low, high, node) for d, (low, high) in enumerate(box)]

    def _indices_along(self, d: int, low: int, high: int, node: int | None) -> Indices:
        if node is None:
            return Range(0, high - low)
        key = d, low, high, node
        if key not in self._along:
            required = np.zeros(high - low, bool)
            for coordinate in self._coords[node][d]:
                for overlap in overlaps(_runs_between(low, high), self._held[d][coordinate]):
                    required[overlap.source] = True
            positions = np.flatnonzero(required)
            self._along[key] = as_range(positions) or positions
        return self._along[key]

    def copies(self, box: BoxEnds, node: int | None, rank: int) -> tuple[Box, ...]:
        """Return the copies to a section from what its node has of a box."""
        along = []
        for d, ((low, high), coordinate) in enumerate(zip(box, self._rank_coords(rank), strict=True)):
            key = d, low, high, node, coordinate
            if key not in self._overlaps:
                positions = self._indices_along(d, low, high, node)
                indices = Range(low, high - low) if node is None else _shift(positions, low)
                self._overlaps[key] = overlaps([Run(indices, Range(0, len(positions)))], self._held[d][coordinate])
            if not self._overlaps[key]:
                return ()
            along.append(self._overlaps[key])
        return boxes_of(along)


def _shift(positions: Indices, low: int) -> Indices:
    if isinstance(positions, Range):
        return Range(positions.start + low, positions.count, positions.step)
    return positions + low


def _runs_between(low: int, high: int) -> list[Run]:
    return [Run(Range(low, high - low), Range(0, high - low))]
