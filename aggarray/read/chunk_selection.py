"""Which stored chunks does a selection of a sub-array touch, which part of each, and where does that part go?

Pure: a selection per dimension and a grid of chunks become `ChunkBlock`s of chunks that are decoded whole; of large chunks
without filters only `Rows` are read.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise, product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from aggarray.formats.base import ChunkIndex, grid_of

Indices = slice | np.ndarray

#: Selections of up to so many chunks are worked out once for files alike.
_SHARED = 1 << 10


class Run(NamedTuple):
    """What a selection takes of one chunk along one dimension: ``local`` positions in it go to ``out`` of the selection."""

    chunk: int
    local: Indices
    out: slice


@dataclass(frozen=True, eq=False)
class ChunkBlock:
    """A rectangle of chunks that are decoded together.

    ``numbers``: of the chunks, in C order; ``runs``: what is taken of them, per dimension; ``chunk``: the shape of one;
    ``out``: where all that goes in the selection. Slabs are shared between files whose chunks are alike: what follows from
    these is worked out once.
    """

    numbers: list[int]
    runs: tuple[Sequence[Run], ...]
    chunk: tuple[int, ...]
    out: tuple[slice, ...]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Number of chunks along each dimension."""
        return tuple(map(len, self.runs))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of what is taken."""
        return tuple(o.stop - o.start for o in self.out)

    @cached_property
    def wanted(self) -> float:
        """Fraction of the elements of the chunks that is taken."""
        return prod(self.shape) / (len(self.numbers) * prod(self.chunk))

    @cached_property
    def index(self) -> tuple[Indices, ...]:
        """What is taken of the chunks, laid side by side in one array."""
        return outer([joined(runs, side) for runs, side in zip(self.runs, self.chunk, strict=True)])

    @cached_property
    def elements(self) -> tuple[np.ndarray, ...]:
        """What is taken of an array of chunks (their numbers along all dimensions, then their shape), element by element."""
        places = [places_of(runs) for runs in self.runs]
        rank = len(places)

        def along(d: int, positions: np.ndarray) -> np.ndarray:
            return positions.reshape((-1,) + (1,) * (rank - 1 - d))

        return tuple(along(d, pair[k]) for k in (0, 1) for d, pair in enumerate(places))


def runs_along(selection: Indices, chunk: int) -> list[Run]:
    """Cut a selection along one dimension at the borders of chunks of ``chunk`` positions.

    ``selection``: a slice with step >= 1, or a strictly increasing array.

    >>> runs_along(slice(1, 8, 3), 4)
    [Run(chunk=0, local=slice(1, 2, 3), out=slice(0, 1, None)), Run(chunk=1, local=slice(0, 4, 3), out=slice(1, 3, None))]
    """
    if isinstance(selection, slice):
        return list(_range_runs(range(selection.start, selection.stop, selection.step or 1), chunk))
    numbers = selection // chunk
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(selection)]
    found = ((int(numbers[i]), i, j) for i, j in pairwise(cuts) if j > i)
    return [Run(n, selection[i:j] - n * chunk, slice(i, j)) for n, i, j in found]


def _range_runs(wanted: range, chunk: int) -> Iterator[Run]:
    if not wanted:
        return
    start, step, count = wanted.start, wanted.step, len(wanted)
    done = 0
    while done < count:
        position = start + done * step
        number = position // chunk
        until = min(count, -((start - (number + 1) * chunk) // step))
        local = position - number * chunk
        yield Run(number, slice(local, local + (until - done - 1) * step + 1, step), slice(done, until))
        done = until


def chunk_blocks_of(table: ChunkIndex, selection: Sequence[Indices], most: int) -> Iterable[ChunkBlock]:
    """Return the chunks of a selection in rectangles of at most ``most`` chunks, at least one, in the order of the grid."""
    key = []
    count = 1
    for chosen, side in zip(selection, table.chunk, strict=True):
        if not isinstance(chosen, slice):
            return _chunk_blocks(table.shape, table.chunk, selection, most)
        key.append((chosen.start, chosen.stop, chosen.step))
        count *= (chosen.stop - 1) // side - chosen.start // side + 1
    if count > _SHARED:
        return _chunk_blocks(table.shape, table.chunk, selection, most)
    return _shared_chunk_blocks(table.shape, table.chunk, tuple(key), most)


# The files of an archive are mostly alike, and the same is wanted of each.
@lru_cache(maxsize=128)
def _shared_chunk_blocks(
    shape: tuple[int, ...], chunk: tuple[int, ...], key: tuple[Any, ...], most: int
) -> tuple[ChunkBlock, ...]:
    return tuple(_chunk_blocks(shape, chunk, [slice(*ends) for ends in key], most))


def _chunk_blocks(
    shape: tuple[int, ...], chunk: tuple[int, ...], selection: Sequence[Indices], most: int
) -> Iterator[ChunkBlock]:
    columns = [runs_along(chosen, side) for chosen, side in zip(selection, chunk, strict=True)]
    strides = _strides(grid_of(shape, chunk))
    room, axis = most, len(columns)
    while axis and len(columns[axis - 1]) <= room:
        axis -= 1
        room //= max(1, len(columns[axis]))
    groups: list[list[Sequence[Run]]] = [[column] for column in columns]
    for d in range(axis):
        size = max(1, room) if d == axis - 1 else 1
        groups[d] = [columns[d][i : i + size] for i in range(0, len(columns[d]), size)]
    for runs in product(*groups):
        if not all(runs):
            return
        numbers = np.zeros(1, np.int64)
        for own, stride in zip(runs, strides, strict=True):
            numbers = np.add.outer(numbers, [run.chunk * stride for run in own]).ravel()
        yield ChunkBlock(numbers.tolist(), runs, chunk, tuple(slice(own[0].out.start, own[-1].out.stop) for own in runs))


def _strides(grid: Sequence[int]) -> list[int]:
    return [prod(grid[d + 1 :]) for d in range(len(grid))]


def joined(runs: Sequence[Run], side: int) -> Indices:
    """Return what runs take of their chunks, laid side by side.

    >>> joined(runs_along(slice(1, 8, 3), 4), 4), joined(runs_along(slice(1, 40, 13), 4), 4)
    (slice(1, 8, 3), array([ 1,  6, 11]))
    """
    first, last = runs[0], runs[-1]
    if len(runs) == 1:
        return first.local
    if isinstance(first.local, slice) and isinstance(last.local, slice) and last.chunk - first.chunk == len(runs) - 1:
        return slice(first.local.start, (len(runs) - 1) * side + last.local.stop, first.local.step)
    places, local = places_of(runs)
    return np.asarray(places * side + local)


def places_of(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
    """Return of every element that runs take which run it is of, and its position in that chunk.

    >>> places_of(runs_along(slice(1, 40, 13), 4))
    (array([0, 1, 2]), array([1, 2, 3]))
    """
    local = [np.arange(r.local.start, r.local.stop, r.local.step) if isinstance(r.local, slice) else r.local for r in runs]
    return np.repeat(np.arange(len(runs)), [len(one) for one in local]), np.concatenate(local)


def parts_of(selection: Sequence[Indices], chunk: Sequence[int], most: int) -> Iterator[tuple[list[Indices], list[int]]]:
    """Cut a selection into parts of at most ``most`` elements, along the first dimensions, at the borders of chunks if it can.

    Yields the part of the selection, and where it begins in the whole, per dimension.

    >>> [(part[0], start) for part, start in parts_of([slice(0, 5, 1), slice(0, 3, 1)], (2, 3), 7)]
    [(slice(0, 2, 1), [0, 0]), (slice(2, 4, 1), [2, 0]), (slice(4, 5, 1), [4, 0])]
    """
    counts = [_count(chosen) for chosen in selection]
    axis = 0
    while axis < len(counts) and prod(counts[axis + 1 :]) > most:
        axis += 1
    if prod(counts) <= most or axis == len(counts):
        yield list(selection), [0] * len(counts)
        return
    size = max(1, most // max(1, prod(counts[axis + 1 :])))
    if size > chunk[axis]:
        size -= size % chunk[axis]
    for lead in product(*(range(n) for n in counts[:axis])):
        for start in range(0, counts[axis], size):
            cut = [_cut(s, i, 1) for s, i in zip(selection, lead, strict=False)]
            yield (
                [*cut, _cut(selection[axis], start, size), *selection[axis + 1 :]],
                [*lead, start, *[0] * (len(counts) - axis - 1)],
            )


def _cut(chosen: Indices, start: int, size: int) -> Indices:
    """Return some of what is chosen along a dimension, from its element ``start`` on."""
    if not isinstance(chosen, slice):
        return chosen[start : start + size]
    wanted = range(chosen.start, chosen.stop, chosen.step or 1)[start : start + size]
    return slice(wanted[0], wanted[-1] + 1, wanted.step)


def _count(chosen: Indices) -> int:
    return len(range(chosen.start, chosen.stop, chosen.step or 1)) if isinstance(chosen, slice) else len(chosen)


class Rows(NamedTuple):
    """Contiguous rows of chunks that are read without the rest of these.

    ``numbers``: of the chunks, and ``starts``: where in it each row begins, in elements; both of the shape: elements along the
    dimensions before ``axis``, chunks along the others. ``shape``: of a row, () for single elements; ``local``: what is wanted
    of it along ``axis``; ``out``: where all that goes in the selection.
    """

    axis: int
    numbers: np.ndarray
    starts: np.ndarray
    shape: tuple[int, ...]
    local: Indices
    out: tuple[slice, ...]


def rows_of(slab: ChunkBlock, grid: Sequence[int]) -> Iterator[Rows]:
    """Yield the rows that hold what is wanted of a slab: as long as what is wanted whole, or nearly so, allows."""
    rank, sides, runs = len(slab.runs), slab.chunk, slab.runs
    axis = rank
    while axis and all(isinstance(r.local, slice) and r.local == slice(0, sides[axis - 1], 1) for r in runs[axis - 1]):
        axis -= 1
    if axis and all(map(_is_dense, runs[axis - 1])):
        axis -= 1
    of_grid, of_chunk = _strides(grid), _strides(sides)
    numbers, starts = np.zeros((), np.int64), np.zeros((), np.int64)
    for d in range(axis):
        places, local = places_of(runs[d])
        cells = np.array([run.chunk for run in runs[d]])[places]
        numbers, starts = np.add.outer(numbers, cells * of_grid[d]), np.add.outer(starts, local * of_chunk[d])
    if axis == rank:
        yield Rows(axis, numbers, starts, (), slice(0, 1, 1), slab.out)
        return
    for own in _are_equal(runs[axis]):
        low, high = _ends(own[0].local)
        which, begins = numbers, starts + low * of_chunk[axis]
        for d, some in enumerate([own, *runs[axis + 1 :]], axis):
            which = np.add.outer(which, [run.chunk * of_grid[d] for run in some])
            begins = np.add.outer(begins, np.zeros(len(some), np.int64))
        first = own[0].local
        wanted = slice(0, high - low, first.step) if isinstance(first, slice) else first - low
        out = (*slab.out[:axis], slice(own[0].out.start, own[-1].out.stop), *slab.out[axis + 1 :])
        yield Rows(axis, which, begins, (high - low, *sides[axis + 1 :]), wanted, out)


def _is_dense(run: Run) -> bool:
    """Tell whether a run takes at least every other of the positions between its first and its last."""
    low, high = _ends(run.local)
    return high - low <= 2 * _count(run.local)


def _are_equal(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Group neighbouring runs that take the same of their chunks."""
    group: list[Run] = []
    for run in runs:
        if group and not (isinstance(run.local, slice) and run.local == group[0].local):
            yield group
            group = []
        group.append(run)
    if group:
        yield group


def _ends(chosen: Indices) -> tuple[int, int]:
    """Return the first position, and the one after the last."""
    if isinstance(chosen, slice):
        wanted = range(chosen.start, chosen.stop, chosen.step)
        return wanted[0], wanted[-1] + 1
    return int(chosen[0]), int(chosen[-1]) + 1


def outer(local: Sequence[Indices]) -> tuple[Indices, ...]:
    """Return an index that picks along every dimension by itself."""
    arrays = [axis for axis, chosen in enumerate(local) if not isinstance(chosen, slice)]
    if len(arrays) < 2:
        return tuple(local)
    return np.ix_(*(np.arange(c.start, c.stop, c.step) if isinstance(c, slice) else c for c in local))
