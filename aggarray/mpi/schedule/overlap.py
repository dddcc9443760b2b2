"""Messages of a repartition: the overlaps of two distributions.

Overlaps are computed per dimension: the elements owned by a process of the source and held by a process of the target, with
their positions in both buffers. Ranges are intersected by arithmetic, independent of their size; listed indices are searched. A
message is the product of the overlaps along each dimension.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, product
from math import gcd, prod

import numpy as np

from aggarray.dataclass import NamedTuple
from aggarray.errors import ExchangeError
from aggarray.maps import Distribution, Map
from aggarray.memory.selection import Range
from aggarray.mpi.schedule.groups import rank_at

Index = slice | np.ndarray
Indices = Range | np.ndarray


class Box(NamedTuple):
    """Elements that two buffers have in common.

    ``source``, ``target``: their positions, one selector per dimension; ``shape``: theirs.
    """

    source: tuple[Index, ...]
    target: tuple[Index, ...]
    shape: tuple[int, ...]
    #: Number of the source's array, where a process has several.
    array: int = 0


class PlannedMessage(NamedTuple):
    """Boxes to send to, or receive from, a rank of the distribution, in order.

    ``direction``: distinguishes several messages between two ranks.
    """

    rank: int
    boxes: tuple[Box, ...]
    direction: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return sum(prod(box.shape) for box in self.boxes)


class Lookup:
    """Positions of listed indices, prepared on first use and reused."""

    def __init__(self, listed: np.ndarray) -> None:
        self._listed = listed

    @cached_property
    def _table(self) -> tuple[int, np.ndarray] | None:
        """Return the lowest index and positions from it (-1: none), if not sparse."""
        low, high = int(self._listed.min()), int(self._listed.max())
        if high - low >= max(64 * len(self._listed), 1 << 16):
            return None
        table = np.full(high - low + 1, -1, np.int32 if len(self._listed) < 1 << 31 else np.int64)
        table[self._listed - low] = np.arange(len(self._listed))
        return low, table

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(self._listed, kind="stable")
        return self._listed[order], order

    def find(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of the listed indices, and theirs in the list.

        >>> [positions.tolist() for positions in Lookup(np.array([7, 3, 5])).find(np.array([4, 5, 7]))]
        [[1, 2], [2, 0]]
        """
        if not len(self._listed) or not len(indices):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        if self._table is not None:
            low, table = self._table
            candidates = np.flatnonzero((indices >= low) & (indices < low + len(table)))
            positions = table[indices[candidates] - low]
            is_listed = positions >= 0
            return candidates[is_listed], positions[is_listed].astype(np.int64)
        ascending, order = self._sorted
        number = np.minimum(np.searchsorted(ascending, indices), len(ascending) - 1)
        matches = np.flatnonzero(ascending[number] == indices)
        return matches, order[number[matches]]


class Run(NamedTuple):
    """Global indices of a dimension and their positions in a buffer."""

    indices: Indices
    positions: Indices
    #: Lookup of listed indices that are compared with those of many processes.
    lookup: Lookup | None = None


class Overlap(NamedTuple):
    """Positions of the common elements of two buffers, and their number."""

    source: Index
    target: Index
    size: int


def owned_runs(map_: Map, coordinate: int) -> list[Run]:
    """Return the elements that a rank owns, and no lower rank, along an axis."""
    owned = map_.owned_slice(coordinate)
    runs = []
    for run in held_runs(map_, coordinate):
        if isinstance(run.indices, Range) and isinstance(run.positions, Range):
            low, high = max(run.positions.start, owned.start), min(run.positions.start + len(run.positions), owned.stop)
            if low < high:
                skipped = low - run.positions.start
                start = run.indices.start + skipped * run.indices.step
                runs.append(Run(Range(start, high - low, run.indices.step), Range(low, high - low)))
            continue
        mine = map_.owns(coordinate)[run.positions.as_slice() if isinstance(run.positions, Range) else run.positions]
        runs.append(run if mine.all() else Run(_select(run.indices, mine), _select(run.positions, mine)))
    return runs


def held_runs(map_: Map, coordinate: int) -> list[Run]:
    """Return all elements of a process's buffer, padding included."""
    segments = map_.segments(coordinate)
    starts = accumulate(map(len, segments), initial=0)
    runs = [Run(s, Range(start, len(s))) for s, start in zip(segments, starts, strict=False) if len(s)]
    return [
        r if not isinstance(r.indices, Range) or r.indices.step > 0 else Run(r.indices.indices(), r.positions) for r in runs
    ]


def _select(items: Indices, selection: np.ndarray) -> np.ndarray:
    return np.asarray((items.indices() if isinstance(items, Range) else items)[selection])


def find_overlap(source: Run, target: Run) -> Overlap | None:
    """Return the common elements of two runs, None without any.

    The result and its order are the same on both processes, whichever run has a lookup.

    >>> find_overlap(Run(Range(0, 10), Range(2, 10)), Run(Range(4, 5, 3), Range(0, 5)))
    Overlap(source=slice(6, 10, 3), target=slice(0, 2, 1), size=2)
    """
    a, b = source.indices, target.indices
    if isinstance(a, Range) and isinstance(b, Range):
        common = _intersect_ranges(a, b)
        if not common.count:
            return None
        first, second = (Range((common.start - r.start) // r.step, len(common), max(common.step // r.step, 1)) for r in (a, b))
        return Overlap(_select_positions(source.positions, first), _select_positions(target.positions, second), len(common))
    positions: tuple[np.ndarray, np.ndarray]
    if isinstance(a, Range):
        matches = _positions_in_range(np.asarray(b), a)
        positions = (_select(b, matches) - a.start) // a.step, matches
    elif isinstance(b, Range):
        matches = _positions_in_range(a, b)
        positions = matches, (_select(a, matches) - b.start) // b.step
    elif source.lookup is None and target.lookup is not None:
        # The result has the order of the target.
        in_a, in_b = target.lookup.find(a)
        order = np.argsort(in_b, kind="stable")
        positions = in_a[order], in_b[order]
    else:
        in_b, in_a = (source.lookup or Lookup(a)).find(b)
        positions = in_a, in_b
    size = len(positions[0])
    if not size:
        return None
    return Overlap(_select_positions(source.positions, positions[0]), _select_positions(target.positions, positions[1]), size)


def _with_lookups(runs: Sequence[Run]) -> list[Run]:
    """Return runs with lookups, to compare them with those of many processes."""
    return [r if isinstance(r.indices, Range) else r._replace(lookup=Lookup(r.indices)) for r in runs]


def _intersect_ranges(a: Range, b: Range) -> Range:
    common = gcd(a.step, b.step)
    if not a.count or not b.count or (b.start - a.start) % common:
        return Range(0, 0)
    step = a.step // common * b.step
    # The first common number of both progressions, extended in both directions.
    turns = (b.start - a.start) // common * pow(a.step // common, -1, b.step // common) % (b.step // common)
    first, low = a.start + turns * a.step, max(a.start, b.start)
    first += -((first - low) // step) * step if first < low else 0
    last = min(a.last, b.last)
    return Range(first, (last - first) // step + 1, step) if first <= last else Range(0, 0)


def _positions_in_range(listed: np.ndarray, range_: Range) -> np.ndarray:
    inside = (listed >= range_.start) & (listed <= range_.last)
    return np.flatnonzero(inside & ((listed - range_.start) % range_.step == 0) if range_.step > 1 else inside)


def _select_positions(positions: Indices, selection: Indices) -> Index:
    """Return some positions of a run, as a slice where they are evenly spaced."""
    if isinstance(positions, Range) and isinstance(selection, Range):
        return Range(positions.start + selection.start, selection.count, selection.step).as_slice()
    selected = _select(positions, selection.indices() if isinstance(selection, Range) else selection)
    steps = np.diff(selected[:2]).item() if len(selected) > 1 else 1
    if steps > 0 and (np.diff(selected) == steps).all():
        return Range(int(selected[0]), len(selected), steps).as_slice()
    return selected


def overlaps(sources: Sequence[Run], targets: Sequence[Run]) -> list[Overlap]:
    """Return the overlaps of each source with each target."""
    return [m for a in sources for b in targets if (m := find_overlap(a, b)) is not None]


#: Along one dimension: the coordinates of processes that have overlaps, and these.
Row = list[tuple[int, list[Overlap]]]


def plan_sends(source: Distribution, rank: int, target: Distribution) -> list[PlannedMessage]:
    """Return the messages of a source process to the target.

    Raises ExchangeError for different shapes.
    """
    require_same_shape(source, target)
    rows: list[Row] = []
    for map_, coordinate, other_map in zip(source.maps, source.coords(rank), target.maps, strict=True):
        runs = _with_lookups(owned_runs(map_, coordinate))
        rows.append([(p, common) for p in range(other_map.nprocs) if (common := overlaps(runs, held_runs(other_map, p)))])
    return list(plan_messages(rows, target.grid))


def plan_receives(source: Distribution, target: Distribution, rank: int) -> list[PlannedMessage]:
    """Return the messages to a target process, as `plan_sends` cuts them.

    Raises ExchangeError for different shapes, and for elements that the source does not have.
    """
    require_same_shape(source, target)
    rows: list[Row] = []
    for d, (other_map, map_, coordinate) in enumerate(zip(source.maps, target.maps, target.coords(rank), strict=True)):
        runs = _with_lookups(held_runs(map_, coordinate))
        rows.append([(p, common) for p in range(other_map.nprocs) if (common := overlaps(owned_runs(other_map, p), runs))])
        if sum(m.size for _, common in rows[-1] for m in common) != map_.extent(coordinate):
            raise ExchangeError(f"dimension {d}: process {rank} of the target holds indices that the source does not have")
    return list(plan_messages(rows, source.grid))


def plan_messages(rows: Sequence[Row], grid: Sequence[int], array: int = 0) -> Iterator[PlannedMessage]:
    """Yield one message per combination of processes along the dimensions."""
    for combination in product(*rows):
        rank = rank_at(grid, [coordinate for coordinate, _ in combination])
        yield PlannedMessage(rank, boxes_of([common for _, common in combination], array))


def boxes_of(rows: Sequence[Sequence[Overlap]], array: int = 0) -> tuple[Box, ...]:
    """Return one box per combination of overlaps along the dimensions."""
    return tuple(
        Box(tuple(m.source for m in along), tuple(m.target for m in along), tuple(m.size for m in along), array)
        for along in product(*rows)
    )


def require_same_shape(source: Distribution, target: Distribution) -> None:
    """Raise ExchangeError unless two distributions have one shape."""
    if source.shape != target.shape:
        reason = f"source of shape {source.shape}, target of shape {target.shape}"
        raise ExchangeError(reason, hint="give distributions of one array")
