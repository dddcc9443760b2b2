"""Schedule of collective reads: the rank that reads each stored chunk.

A unit is a box of the array that lies in one stored chunk. Units are assigned in the order of the processes that require them,
in shares of about equal cost, so that few bytes are moved. Each share is joined to few boxes.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from aggarray.maps import Distribution
from aggarray.maps.balance import assign_contiguous
from aggarray.memory.selection import Range
from aggarray.mpi.schedule.groups import rank_at
from aggarray.mpi.schedule.overlap import Box, Overlap, PlannedMessage, Run, box_of, held_runs, overlaps_of, owned_runs


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Boxes of an array that lie in one stored chunk each.

    ``boxes``: int64 (n, dimensions, 2), half-open; ``costs``: int64 bytes to read; ``chunks``: int64 (n, 2), the identity of
    the chunk.
    """

    boxes: np.ndarray
    costs: np.ndarray
    chunks: np.ndarray

    @classmethod
    def joined(cls, several: Sequence["Units"]) -> "Units":
        """Return the concatenation of several units."""
        return cls(*(np.concatenate([getattr(one, name) for one in several]) for name in ("boxes", "costs", "chunks")))


def schedule_reads(units: Units, target: Distribution, count: int, most: int) -> list[list[np.ndarray]] | None:
    """Return for each round the boxes that each of ``count`` processes reads.

    None where no two processes require one chunk. Chunks that are not required are left out. A process reads at most ``most``
    elements in a round, or one chunk.
    """
    wanted, preferred = _demand(units.boxes, target)
    kept = np.flatnonzero(wanted)
    boxes = units.boxes[kept]
    _, group = np.unique(units.chunks[kept], axis=0, return_inverse=True)
    group = group.reshape(-1)
    # The first unit of each chunk represents it: all units of a chunk are read together, at the cost of one.
    _, first = np.unique(group, return_index=True)
    homes = preferred[kept][first]
    if (wanted <= 1).all() and (homes[group] == preferred[kept]).all():
        return None
    order = np.lexsort([*boxes[first, :, 0].T[::-1], homes])
    sizes = np.bincount(group, (boxes[..., 1] - boxes[..., 0]).prod(axis=1)).astype(np.int64)
    readers = assign_contiguous(np.maximum(units.costs[kept][first][order], 1), count)
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
    number, filled, before = 0, 0, -1
    for place, (size, reader) in enumerate(zip(sizes.tolist(), readers.tolist(), strict=True)):
        if reader != before:
            number, filled, before = 0, 0, reader
        elif filled + size > most:
            number, filled = number + 1, 0
        filled += size
        turns[place] = number
    return turns


def _demand(boxes: np.ndarray, target: Distribution) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of holders of each box, and the first owner's rank.

    The number is higher where padding wraps.
    """
    wanted, preferred = np.ones(len(boxes), np.int64), np.zeros(len(boxes), np.int64)
    for d, one in enumerate(target.maps):
        ends, number = np.unique(boxes[:, d], axis=0, return_inverse=True)
        held = np.array([_touched(held_runs(one, p), ends) for p in range(one.nprocs)])
        owned = np.array([_touched(owned_runs(one, p), ends) for p in range(one.nprocs)])
        number = number.reshape(-1)
        wanted *= held.sum(axis=0)[number]
        preferred = preferred * one.nprocs + (owned > 0).argmax(axis=0)[number]
    return wanted, preferred


def _touched(runs: Sequence[Run], ends: np.ndarray) -> np.ndarray:
    """Return for each (low, high) the number of runs with an index in it."""
    found = np.zeros(len(ends), np.int64)
    low, high = ends[:, 0], ends[:, 1]
    for run in runs:
        if isinstance(run.indices, Range):
            number = np.maximum(-((run.indices.start - low) // run.indices.step), 0)
            found += (number < len(run.indices)) & (run.indices.start + number * run.indices.step < high) & (low < high)
        else:
            listed = np.sort(run.indices)
            found += np.searchsorted(listed, low) < np.searchsorted(listed, high)
    return found


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
        apart = (others[1:] != others[:-1]).any(axis=1) | (boxes[1:, d, 0] != boxes[:-1, d, 1])
        begins = np.concatenate([[0], np.flatnonzero(apart) + 1])[: len(boxes)]
        ends = np.append(begins[1:], len(boxes))[: len(begins)] - 1
        last = boxes[ends, d, 1]
        boxes = boxes[begins]
        boxes[:, d, 1] = last
    return boxes


def chunks_to_read(boxes: np.ndarray, target: Distribution) -> list[PlannedMessage]:
    """Return the messages of a process that has read boxes to the target."""
    found: dict[int, list[Box]] = defaultdict(list)
    for number, box in enumerate(boxes.tolist()):
        rows = []
        for one, ends in zip(target.maps, box, strict=True):
            met = [(p, _meetings(ends, held_runs(one, p))) for p in range(one.nprocs)]
            rows.append([(p, meetings) for p, meetings in met if meetings])
        for combination in product(*rows):
            peer = rank_at(target.grid, [place for place, _ in combination])
            found[peer] += _boxes([meetings for _, meetings in combination], number)
    return [PlannedMessage(peer, tuple(parts)) for peer, parts in sorted(found.items())]


def chunks_to_receive(boxes_of_all: Sequence[np.ndarray], target: Distribution, rank: int) -> list[PlannedMessage]:
    """Return the messages to a process of the target from all readers."""
    held = [held_runs(one, place) for one, place in zip(target.maps, target.coords(rank), strict=True)]
    found = []
    for peer, boxes in enumerate(boxes_of_all):
        parts: list[Box] = []
        for number, box in enumerate(boxes.tolist()):
            parts += _boxes([_meetings(ends, runs) for ends, runs in zip(box, held, strict=True)], number)
        found += [PlannedMessage(peer, tuple(parts))] if parts else []
    return found


def _meetings(ends: Sequence[int], runs: Sequence[Run]) -> list[Overlap]:
    mine = Run(Range(ends[0], ends[1] - ends[0]), Range(0, ends[1] - ends[0]))
    return [m for run in runs if (m := overlaps_of(mine, run)) is not None]


def _boxes(along: Sequence[Sequence[Overlap]], number: int) -> Iterator[Box]:
    return (box_of(combination, number) for combination in product(*along))
