"""Order in which a reduction reads an array: tiles, segments and blocks.

A *tile* is a box of the kept dimensions. A *block* is its part along the reduced ones that is read at a time. Blocks end where
stored chunks end, so that each chunk is decoded once. Consecutive blocks form *segments*, which one thread folds. Their number
depends on the geometry alone, so that results have the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise, product
from math import prod

import numpy as np

from aggarray.dataclass import NamedTuple, dataclass, replace
from aggarray.partition.chunk_sizes import AxisCuts, chunk_ends, merged_ends

#: Elements of a block: as float64 twice what a processor's second cache holds.
BLOCK = 1 << 19
#: Bytes of a block, if a tile is one segment.
_LARGE = 12 << 20
#: Blocks of a segment at most, and segments that a tile should have.
_BLOCKS, _SEGMENTS = 16, 64
#: Bytes of the partial result of a segment. Larger ones are not kept beside the result.
PARTIAL = 4 << 20
#: Bytes of the accumulators of all groups that are kept beside the result.
GROUPED = 32 << 20

#: First and last position, exclusive.
Interval = tuple[int, int]
#: Where a block is: a slice with start and stop per dimension.
Key = tuple[slice, ...]


class Run(NamedTuple):
    """Positions ``start`` to ``stop`` of a block, all of one group."""

    group: int
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class Geometry:
    """Ends of blocks per dimension, and how many blocks form a segment.

    ``reduced``: the reduced dimensions; ``grouped``: the one whose positions are in groups, or None; ``numbers``: the group of
    each of its positions, -1 for none; ``groups``: their number; ``width``: bytes that accumulators need per element.
    """

    ends: tuple[tuple[int, ...], ...]
    reduced: tuple[int, ...]
    grouped: int | None
    numbers: np.ndarray | None
    groups: int
    width: int

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """The dimensions that are not reduced."""
        return tuple(d for d in range(len(self.ends)) if d not in self.reduced)

    @cached_property
    def largest_block(self) -> int:
        """Elements of the largest block."""
        return prod(max((b - a for a, b in pairwise(e)), default=0) for e in self.ends)

    @cached_property
    def largest_tile(self) -> int:
        """Elements of the largest tile."""
        return prod(max((b - a for a, b in pairwise(self.ends[d])), default=0) for d in self.kept)

    @property
    def partial(self) -> int:
        """Bytes of the accumulators of a segment, at most."""
        complete = self.largest_tile * self.groups * self.width
        return min(PARTIAL, complete) if self.is_divided else complete

    @property
    def is_divided(self) -> bool:
        """Whether a tile may have several segments."""
        return self.largest_tile * self.width <= PARTIAL

    def group_ranges(self, beside: tuple[int, int]) -> list[Interval]:
        """Return the first and last groups, exclusive, that are reduced together.

        ``beside``: see `Work.beside`. Large accumulators are those of few groups. Their positions are read, so that a stored
        chunk is decoded again only if it has positions of several ranges.
        """
        size = self.largest_tile * self.groups
        single = sum(1 for _, _ in zip(range(2), self.tiles(), strict=False)) == 1
        if self.grouped is None or size * beside[0 if single else 1] <= GROUPED:
            return [(0, self.groups)]
        step = max(1, GROUPED // (2 * self.largest_tile * beside[1]))
        return [(at, min(at + step, self.groups)) for at in range(0, self.groups, step)]

    def of_groups(self, first: int, stop: int) -> Geometry:
        """Return the geometry of a range of groups."""
        numbers = self.numbers
        if numbers is not None:
            numbers = np.where((numbers >= first) & (numbers < stop), numbers - first, -1)
        return replace(self, numbers=numbers, groups=stop - first)

    def trim_to_groups(self, key: Key) -> Key | None:
        """Return a key without the positions before and after those in groups.

        None: no position is in a group.
        """
        if self.numbers is None or self.grouped is None:
            return key
        own = key[self.grouped]
        present = own.start + np.flatnonzero(self.numbers[own] >= 0)
        if not present.size:
            return None
        return (*key[: self.grouped], slice(int(present[0]), int(present[-1]) + 1), *key[self.grouped + 1 :])

    def tiles(self) -> Iterator[tuple[Interval, ...]]:
        """Yield the intervals of each tile along the kept dimensions."""
        return product(*(_intervals(self.ends[d]) for d in self.kept))

    def segments(self, tile: Sequence[Interval]) -> Iterator[list[Key]]:
        """Yield the segments of a tile: the keys of their blocks in order."""
        cells = prod(b - a for a, b in tile)
        blocks = self._blocks
        most = min(_BLOCKS, -(-len(blocks) // _SEGMENTS)) if self.is_divided else len(blocks)
        segment: list[Key] = []
        present: set[int] = set()
        for block in blocks:
            own = self._groups_in(block)
            united = present | own
            too_large = self.is_divided and len(united) * cells * self.width > PARTIAL
            if segment and (len(segment) >= most or too_large):
                yield segment
                segment, united = [], own
            segment.append(self._key(tile, block))
            present = united
        if segment:
            yield segment

    @cached_property
    def _blocks(self) -> list[tuple[Interval, ...]]:
        return list(product(*(_intervals(self.ends[d]) for d in self.reduced)))

    def _groups_in(self, block: Sequence[Interval]) -> set[int]:
        if self.numbers is None or self.grouped is None:
            return {0}
        start, stop = block[self.reduced.index(self.grouped)]
        return set(np.unique(self.numbers[start:stop]).tolist()) - {-1}

    def _key(self, tile: Sequence[Interval], block: Sequence[Interval]) -> Key:
        intervals = dict(zip((*self.kept, *self.reduced), (*tile, *block), strict=True))
        return tuple(slice(*intervals[d]) for d in range(len(self.ends)))


def geometry_of(
    cuts: Sequence[AxisCuts],
    reduced: Sequence[int],
    grouped: int | None = None,
    numbers: np.ndarray | None = None,
    groups: int = 1,
    width: int = 16,
    itemsize: int = 8,
) -> Geometry:
    """Return the blocks of a reduction of an array with these cuts.

    >>> time = AxisCuts(np.array([0, 4, 8]), np.arange(9), np.zeros(2, bool))
    >>> lat = AxisCuts(np.array([0, 1 << 17]), np.zeros(0, int), np.zeros(1, bool))
    >>> plan = geometry_of([time, lat], [0])
    >>> plan.ends, [len(list(plan.segments(tile))) for tile in plan.tiles()]
    (((0, 4, 8), (0, 131072)), [2])
    """
    ends = merged_ends(chunk_ends(cuts, 1, BLOCK), range(len(cuts)), 1, BLOCK)
    geometry = Geometry(_plain(ends), tuple(reduced), grouped, numbers, groups, width)
    if geometry.is_divided:
        return geometry
    # Several threads read the chunks of one block.
    return replace(geometry, ends=_plain(merged_ends(ends, reduced, itemsize, _LARGE)))


def _plain(ends: Sequence[np.ndarray]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(own.tolist()) for own in ends)


def elements_of(key: Key) -> int:
    """Return the number of elements of a key."""
    return prod(s.stop - s.start for s in key)


def joined_keys(keys: Iterable[Key], most: int) -> Iterator[tuple[Key, list[Key]]]:
    """Yield unions of successive keys, and those keys.

    A union of several has at most ``most`` elements, and each key is contiguous in it: sums of other views round differently.

    >>> keys = [(slice(a, b), slice(0, 4)) for a, b in ((0, 2), (2, 3), (3, 4), (5, 6))]
    >>> [(union[0], len(own)) for union, own in joined_keys(keys, 12)]
    [(slice(0, 3, None), 2), (slice(3, 4, None), 1), (slice(5, 6, None), 1)]
    """
    union: Key = ()
    own: list[Key] = []
    for key in keys:
        longer = _continued(union, key) if own else None
        if longer is not None and elements_of(longer) <= most:
            union = longer
            own.append(key)
            continue
        if own:
            yield union, own
        union, own = key, [key]
    if own:
        yield union, own


def _continued(union: Key, key: Key) -> Key | None:
    """Return the union with a key that follows it; None if none does."""
    different = [d for d, (a, b) in enumerate(zip(union, key, strict=True)) if a != b]
    if len(different) != 1 or union[different[0]].stop != key[different[0]].start:
        return None
    d = different[0]
    if any(s.stop - s.start > 1 for s in key[:d]):
        return None
    return (*key[:d], slice(union[d].start, key[d].stop), *key[d + 1 :])


def runs_of(numbers: np.ndarray) -> tuple[list[Run], np.ndarray | None]:
    """Return the runs of equal groups, and how to sort the positions first.

    Many short runs are sorted by group (stably), so that there is one run per group; None: no sorting. Positions without a
    group are in no run.

    >>> runs_of(np.array([0, 0, 1, -1, 1]))
    ([Run(group=0, start=0, stop=2), Run(group=1, start=2, stop=3), Run(group=1, start=4, stop=5)], None)
    >>> runs, order = runs_of(np.array([0, 1, 0, 1, 0, 1]))
    >>> runs, order.tolist()
    ([Run(group=0, start=0, stop=3), Run(group=1, start=3, stop=6)], [0, 2, 4, 1, 3, 5])
    """
    order = None
    starts = _starts(numbers)
    if len(starts) > 2 * len(np.unique(numbers)):
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        starts = _starts(numbers)
    stops = [*starts[1:].tolist(), len(numbers)]
    rows = zip(numbers[starts].tolist(), starts.tolist(), stops, strict=True)
    return [Run(group, start, stop) for group, start, stop in rows if group >= 0], order


def shortened(runs: Sequence[Run], most: int) -> list[Run]:
    """Cut runs to at most some positions, at least one.

    >>> shortened([Run(0, 0, 5)], 2)
    [Run(group=0, start=0, stop=2), Run(group=0, start=2, stop=4), Run(group=0, start=4, stop=5)]
    """
    step = max(1, most)
    return [Run(r.group, at, min(at + step, r.stop)) for r in runs for at in range(r.start, r.stop, step)]


def _starts(numbers: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]])) if len(numbers) else np.zeros(0, np.int64)


def _intervals(ends: Sequence[int]) -> list[Interval]:
    return [(a, b) for a, b in pairwise(ends) if b > a]
