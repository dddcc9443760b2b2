"""Messages of a repartition: the overlaps of two distributions.

Overlaps are computed per dimension: the elements owned by a process of the source and held by a process of the target, with
their positions in both buffers. Ranges are intersected by arithmetic, independent of their size; listed indices are searched. A
message is the product of the overlaps along each dimension.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product
from math import gcd, prod
from typing import NamedTuple

import numpy as np

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


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """Boxes to send to, or receive from, a rank of the distribution, in order."""

    peer: int
    boxes: tuple[Box, ...]

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
        """The lowest index, and the position or -1 of each index from it on.

        None for sparse indices.
        """
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

    def find(self, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of the listed indices, and theirs in the list.

        >>> [found.tolist() for found in Lookup(np.array([7, 3, 5])).find(np.array([4, 5, 7]))]
        [[1, 2], [2, 0]]
        """
        if not len(self._listed) or not len(wanted):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        if self._table is not None:
            low, table = self._table
            near = np.flatnonzero((wanted >= low) & (wanted < low + len(table)))
            places = table[wanted[near] - low]
            there = places >= 0
            return near[there], places[there].astype(np.int64)
        ascending, order = self._sorted
        number = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
        found = np.flatnonzero(ascending[number] == wanted)
        return found, order[number[found]]


class Run(NamedTuple):
    """Global indices of a dimension and their positions in a buffer."""

    indices: Indices
    places: Indices
    #: Lookup of listed indices that are compared with those of many processes.
    lookup: Lookup | None = None


class Overlap(NamedTuple):
    """Positions of the common elements of two buffers, and their number."""

    source: Index
    target: Index
    size: int


def owned_runs(one: Map, place: int) -> list[Run]:
    """Return the elements that a process owns along a dimension.

    The lowest rank owns elements that several processes hold.
    """
    whole = one.owned_slice(place)
    found = []
    for run in held_runs(one, place):
        if isinstance(run.indices, Range) and isinstance(run.places, Range):
            low, high = max(run.places.start, whole.start), min(run.places.start + len(run.places), whole.stop)
            if low < high:
                skipped = low - run.places.start
                start = run.indices.start + skipped * run.indices.step
                found.append(Run(Range(start, high - low, run.indices.step), Range(low, high - low)))
            continue
        mine = one.owns(place)[run.places.as_slice() if isinstance(run.places, Range) else run.places]
        found.append(run if mine.all() else Run(_taken(run.indices, mine), _taken(run.places, mine)))
    return found


def held_runs(one: Map, place: int) -> list[Run]:
    """Return all elements of a process's buffer, padding included."""
    segments = one.segments(place)
    starts = accumulate(map(len, segments), initial=0)
    runs = [Run(s, Range(start, len(s))) for s, start in zip(segments, starts, strict=False) if len(s)]
    return [r if not isinstance(r.indices, Range) or r.indices.step > 0 else Run(r.indices.indices(), r.places) for r in runs]


def _taken(items: Indices, chosen: np.ndarray) -> np.ndarray:
    return np.asarray((items.indices() if isinstance(items, Range) else items)[chosen])


def overlaps_of(source: Run, target: Run) -> Overlap | None:
    """Return the common elements of two runs, in one order; None without any.

    The result is the same on both processes, whichever run has a lookup.

    >>> overlaps_of(Run(Range(0, 10), Range(2, 10)), Run(Range(4, 5, 3), Range(0, 5)))
    Overlap(source=slice(6, 10, 3), target=slice(0, 2, 1), size=2)
    """
    a, b = source.indices, target.indices
    if isinstance(a, Range) and isinstance(b, Range):
        common = _progression(a, b)
        if not common.count:
            return None
        mine, yours = (Range((common.start - r.start) // r.step, len(common), max(common.step // r.step, 1)) for r in (a, b))
        return Overlap(_at(source.places, mine), _at(target.places, yours), len(common))
    places: tuple[np.ndarray, np.ndarray]
    if isinstance(a, Range):
        listed = _within(b, a)
        places = (_taken(b, listed) - a.start) // a.step, listed
    elif isinstance(b, Range):
        listed = _within(a, b)
        places = listed, (_taken(a, listed) - b.start) // b.step
    else:
        places = _listed_twice(a, b, source.lookup, target.lookup)
    size = len(places[0])
    return Overlap(_at(source.places, places[0]), _at(target.places, places[1]), size) if size else None


def _listed_twice(a: np.ndarray, b: np.ndarray, known: Lookup | None, other: Lookup | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of indices in both lists, in the second's order."""
    if known is None and other is not None:
        first, second = other.find(a)
        order = np.argsort(second, kind="stable")
        return first[order], second[order]
    second, first = (Lookup(a) if known is None else known).find(b)
    return first, second


def _prepared(runs: Sequence[Run]) -> list[Run]:
    """Return runs with lookups, to compare them with those of many processes."""
    return [r if isinstance(r.indices, Range) else r._replace(lookup=Lookup(r.indices)) for r in runs]


def _progression(a: Range, b: Range) -> Range:
    """Return the common numbers of two ascending progressions."""
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


def _within(indices: Indices, one: Range) -> np.ndarray:
    """Return the positions of listed indices that lie in a range."""
    listed = np.asarray(indices)
    inside = (listed >= one.start) & (listed <= one.last)
    return np.flatnonzero(inside & ((listed - one.start) % one.step == 0) if one.step > 1 else inside)


def _at(places: Indices, chosen: Indices) -> Index:
    """Return some positions of a run, as a slice where they are evenly spaced."""
    if isinstance(places, Range) and isinstance(chosen, Range):
        return Range(places.start + chosen.start, chosen.count, chosen.step).as_slice()
    found = _taken(places, chosen.indices() if isinstance(chosen, Range) else chosen)
    steps = np.diff(found[:2]).item() if len(found) > 1 else 1
    if steps > 0 and (np.diff(found) == steps).all():
        return Range(int(found[0]), len(found), steps).as_slice()
    return found


def _meetings(sources: Sequence[Run], targets: Sequence[Run]) -> list[Overlap]:
    return [m for a in sources for b in targets if (m := overlaps_of(a, b)) is not None]


#: Along one dimension: the coordinates of other processes, and the overlaps with each.
Row = list[tuple[int, list[Overlap]]]


def outgoing(source: Distribution, rank: int, target: Distribution) -> list[PlannedMessage]:
    """Return the messages of a process of the source to the target.

    Raises ExchangeError for different shapes.
    """
    require_same_shape(source, target)
    rows: list[Row] = []
    for one, place, other in zip(source.maps, source.coords(rank), target.maps, strict=True):
        mine = _prepared(owned_runs(one, place))
        met = ((p, _meetings(mine, held_runs(other, p))) for p in range(other.nprocs)) if mine else iter(())
        rows.append([(p, found) for p, found in met if found])
    return list(_messages(rows, target.grid))


def incoming(source: Distribution, target: Distribution, rank: int) -> list[PlannedMessage]:
    """Return the messages to a process of the target from the source.

    The boxes are those of `outgoing`. Raises ExchangeError for different shapes, and for elements that no process of the source
    owns.
    """
    require_same_shape(source, target)
    rows: list[Row] = []
    for d, (other, one, place) in enumerate(zip(source.maps, target.maps, target.coords(rank), strict=True)):
        mine = _prepared(held_runs(one, place))
        met = ((p, _meetings(owned_runs(other, p), mine)) for p in range(other.nprocs)) if mine else iter(())
        rows.append([(p, found) for p, found in met if found])
        if sum(m.size for _, found in rows[-1] for m in found) != one.extent(place):
            raise ExchangeError(f"dimension {d}: process {rank} of the target holds indices that nobody has in the source")
    return list(_messages(rows, source.grid))


def _messages(rows: Sequence[Row], grid: Sequence[int]) -> Iterator[PlannedMessage]:
    for combination in product(*rows):
        peer = rank_at(grid, [place for place, _ in combination])
        yield PlannedMessage(peer, tuple(map(box_of, product(*(found for _, found in combination)))))


def box_of(along: Sequence[Overlap], array: int = 0) -> Box:
    """Return the box of overlaps along every dimension."""
    return Box(tuple(m.source for m in along), tuple(m.target for m in along), tuple(m.size for m in along), array)


def require_same_shape(source: Distribution, target: Distribution) -> None:
    """Raise ExchangeError unless two distributions have one shape."""
    if source.shape != target.shape:
        raise ExchangeError(f"source of shape {source.shape}, target of shape {target.shape}: give distributions of one array")
