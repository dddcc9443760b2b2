"""Schedule of collective reads: the rank that reads each stored chunk.

A unit is a box of the array that lies in one stored chunk. Units are assigned in the order of the processes that require them,
in shares of about equal cost, so that few bytes are moved. Each share is joined to few boxes.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from aggarray.maps import Distribution
from aggarray.maps.balance import assign_contiguous
from aggarray.memory.selection import Range
from aggarray.mpi.schedule.overlap import Box, PlannedMessage, Run, boxes_of, held_runs, overlaps, owned_runs, plan_messages


class Units(NamedTuple):
    """Boxes of an array that lie in one stored chunk each.

    ``boxes``: int64 (n, dimensions, 2), half-open; ``costs``: int64 bytes to read; ``chunks``: int64 (n, 2), the identity of
    the chunk.
    """

    boxes: np.ndarray
    costs: np.ndarray
    chunks: np.ndarray


def schedule_reads(units: Units, target: Distribution, count: int, most: int) -> list[list[np.ndarray]] | None:
    """Return for each round the boxes that each of ``count`` processes reads.

    None where no two processes require one chunk. Chunks that are not required are left out. A process reads at most ``most``
    elements in a round, or one chunk.
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
    reader, turn = np.empty_like(readers), np.empty_like(readers)
    reader[order], turn[order] = readers, _rounds(sizes[order], readers, most)
    return [
        [join_boxes(boxes[(reader[group] == rank) & (turn[group] == number)]) for rank in range(count)]
        for number in range(int(turn.max(initial=-1)) + 1)
    ]


def _rounds(sizes: np.ndarray, readers: np.ndarray, most: int) -> np.ndarray:
    """Return the round of each chunk, filling one round of a reader at a time.

    The chunks of a reader are consecutive.

    >>> _rounds(np.array([2, 2, 2, 9, 1]), np.array([0, 0, 0, 1, 1]), 4).tolist()
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


def join_boxes(boxes: np.ndarray) -> np.ndarray:
    """Join adjacent boxes, along the last dimension first.

    Boxes must not overlap.

    >>> join_boxes(np.array([[[0, 1], [0, 2]], [[0, 1], [2, 4]], [[1, 2], [0, 4]]])).tolist()
    [[[0, 2], [0, 4]]]
    """
    for d in reversed(range(boxes.shape[1])):
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


def plan_chunk_sends(boxes: np.ndarray, target: Distribution) -> list[PlannedMessage]:
    """Return the messages of a process that has read boxes to the target."""
    held = [[held_runs(map_, p) for p in range(map_.nprocs)] for map_ in target.maps]
    boxes_by_rank: dict[int, list[Box]] = defaultdict(list)
    for number, box in enumerate(boxes.tolist()):
        rows = [
            [(p, common) for p, runs in enumerate(runs_of_map) if (common := overlaps(_runs_between(ends), runs))]
            for runs_of_map, ends in zip(held, box, strict=True)
        ]
        for message in plan_messages(rows, target.grid, number):
            boxes_by_rank[message.rank] += message.boxes
    return [PlannedMessage(rank, tuple(parts)) for rank, parts in sorted(boxes_by_rank.items())]


def plan_chunk_receives(boxes_of_all: Sequence[np.ndarray], target: Distribution, rank: int) -> list[PlannedMessage]:
    """Return the messages to a process of the target from all readers."""
    held = [held_runs(map_, coordinate) for map_, coordinate in zip(target.maps, target.coords(rank), strict=True)]
    messages = []
    for reader, boxes in enumerate(boxes_of_all):
        parts: list[Box] = []
        for number, box in enumerate(boxes.tolist()):
            parts += boxes_of([overlaps(_runs_between(ends), runs) for ends, runs in zip(box, held, strict=True)], number)
        messages += [PlannedMessage(reader, tuple(parts))] if parts else []
    return messages


def _runs_between(ends: Sequence[int]) -> list[Run]:
    size = ends[1] - ends[0]
    return [Run(Range(ends[0], size), Range(0, size))]
