"""Chunks that a selection of a sub-array touches, and the part of each.

Pure: a selection per dimension and a chunk grid become `ChunkBlock`s of chunks that are decoded completely; of large unfiltered
chunks only `Rows` are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np

from aggarray.dataclass import NamedTuple, dataclass
from aggarray.partition.chunk_index import ChunkIndex

Indices = slice | np.ndarray

#: Largest selection, in chunks, that is computed once for files with equal chunks.
_SHARED = 1 << 10


class Run(NamedTuple):
    """Part of a chunk along a dimension: ``local`` positions go to ``out``."""

    chunk: int
    local: Indices
    out: slice


@dataclass(frozen=True, eq=False)
class ChunkBlock:
    """A rectangle of chunks that are decoded together.

    ``numbers``: of the chunks, in C order; ``runs``: the selected parts, per dimension; ``chunk``: the shape of one chunk;
    ``out``: the target within the selection. Files with equal chunks share blocks, whose properties are computed once.
    """

    numbers: list[int]
    runs: tuple[Sequence[Run], ...]
    chunk: tuple[int, ...]
    out: tuple[slice, ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the selected elements."""
        return tuple(o.stop - o.start for o in self.out)

    @cached_property
    def fraction(self) -> float:
        """Fraction of the elements that is selected."""
        selected: int = prod([o.stop - o.start for o in self.out])
        return selected / (len(self.numbers) * prod(self.chunk))

    @cached_property
    def index(self) -> tuple[Indices, ...]:
        """Selected positions in the chunks laid side by side in one array."""
        return outer([joined(runs, side) for runs, side in zip(self.runs, self.chunk, strict=True)])

    @cached_property
    def elements(self) -> tuple[np.ndarray, ...]:
        """Index of the selected elements: chunk numbers, then positions in chunks."""
        places = [places_of(runs) for runs in self.runs]
        shapes = [(-1,) + (1,) * d for d in reversed(range(len(places)))]
        return tuple(pair[k].reshape(shape) for k in (0, 1) for pair, shape in zip(places, shapes, strict=True))


def runs_along(selection: Indices, chunk: int) -> list[Run]:
    """Cut a selection along one dimension every ``chunk`` positions.

    ``selection``: a slice with step >= 1, or a strictly increasing array.

    >>> runs_along(slice(1, 8, 3), 4)
    [Run(chunk=0, local=slice(1, 2, 3), out=slice(0, 1, None)), Run(chunk=1, local=slice(0, 4, 3), out=slice(1, 3, None))]
    """
    if not isinstance(selection, slice):
        numbers = selection // chunk
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(selection)]
        ends = ((int(numbers[i]), i, j) for i, j in pairwise(cuts) if j > i)
        return [Run(n, selection[i:j] - n * chunk, slice(i, j)) for n, i, j in ends]
    start, step = selection.start, selection.step or 1
    count, done = len(range(start, selection.stop, step)), 0
    runs = []
    while done < count:
        position = start + done * step
        number = position // chunk
        until = min(count, -((start - (number + 1) * chunk) // step))
        local = position - number * chunk
        runs.append(Run(number, slice(local, local + (until - done - 1) * step + 1, step), slice(done, until)))
        done = until
    return runs


def chunk_blocks_of(table: ChunkIndex, selection: Sequence[Indices], most: int) -> Iterable[ChunkBlock]:
    """Return chunks as rectangles of at most ``most``, in grid order."""
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


@lru_cache(maxsize=128)  # most files of an archive have equal chunks and the same selection
def _shared_chunk_blocks(shape: tuple[int, ...], chunk: tuple[int, ...], key: Any, most: int) -> tuple[ChunkBlock, ...]:
    return tuple(_chunk_blocks(shape, chunk, [slice(*ends) for ends in key], most))


def _chunk_blocks(
    shape: Sequence[int], chunk: tuple[int, ...], selection: Sequence[Indices], most: int
) -> Iterator[ChunkBlock]:
    columns = [runs_along(chosen, side) for chosen, side in zip(selection, chunk, strict=True)]
    grid = [-(-size // side) for size, side in zip(shape, chunk, strict=True)]
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
        for own, count in zip(runs, grid, strict=True):
            numbers = np.add.outer(numbers * count, [run.chunk for run in own]).ravel()
        yield ChunkBlock(numbers.tolist(), runs, chunk, tuple(slice(own[0].out.start, own[-1].out.stop) for own in runs))


def joined(runs: Sequence[Run], side: int) -> Indices:
    """Return the selected positions of neighbouring runs, side by side.

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
    """Return the run of each selected element, and its position in that chunk.

    >>> places_of(runs_along(slice(1, 40, 13), 4))
    (array([0, 1, 2]), array([1, 2, 3]))
    """
    local = [np.arange(r.local.start, r.local.stop, r.local.step) if isinstance(r.local, slice) else r.local for r in runs]
    return np.repeat(np.arange(len(runs)), [len(one) for one in local]), np.concatenate(local)


def parts_of(selection: Sequence[Indices], chunk: Sequence[int], most: int) -> Iterator[tuple[list[Indices], list[int]]]:
    """Cut a selection into parts of at most ``most`` elements.

    Cuts are along the first dimensions, at chunk boundaries if possible. Yields each part of the selection, and its start per
    dimension.

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
    if not isinstance(chosen, slice):
        return chosen[start : start + size]
    positions = range(chosen.start, chosen.stop, chosen.step or 1)[start : start + size]
    return slice(positions[0], positions[-1] + 1, positions.step)


def _count(chosen: Indices) -> int:
    return len(range(chosen.start, chosen.stop, chosen.step or 1)) if isinstance(chosen, slice) else len(chosen)


class Rows(NamedTuple):
    """Contiguous rows of chunks, read without the rest of these chunks.

    ``numbers``: of the chunks; ``starts``: where each row begins in its chunk, in elements; both of shape: elements along the
    dimensions before ``axis``, chunks along the others. ``shape``: of a row, () for single elements; ``local``: the selected
    part of it along ``axis``; ``out``: the target within the selection.
    """

    axis: int
    numbers: np.ndarray
    starts: np.ndarray
    shape: tuple[int, ...]
    local: Indices
    out: tuple[slice, ...]


def rows_of(block: ChunkBlock, grid: Sequence[int]) -> Iterator[Rows]:
    """Yield the rows, as long as possible, that hold the selected elements."""
    rank, sides, runs = len(block.runs), block.chunk, block.runs
    axis = rank
    while axis and all(isinstance(r.local, slice) and r.local == slice(0, sides[axis - 1], 1) for r in runs[axis - 1]):
        axis -= 1
    # Rows are read completely where a run takes at least every other position between its first and last.
    if axis and all(high - low <= 2 * _count(r.local) for r in runs[axis - 1] for low, high in [_ends(r.local)]):
        axis -= 1
    of_grid, of_chunk = ([prod(sizes[d + 1 :]) for d in range(rank)] for sizes in (grid, sides))
    numbers, starts = np.zeros((), np.int64), np.zeros((), np.int64)
    for d in range(axis):
        places, local = places_of(runs[d])
        cells = np.array([run.chunk for run in runs[d]])[places]
        numbers, starts = np.add.outer(numbers, cells * of_grid[d]), np.add.outer(starts, local * of_chunk[d])
    if axis == rank:
        yield Rows(axis, numbers, starts, (), slice(0, 1, 1), block.out)
        return
    for own in _are_equal(runs[axis]):
        low, high = _ends(own[0].local)
        which, begins = numbers, starts + low * of_chunk[axis]
        for d, some in enumerate([own, *runs[axis + 1 :]], axis):
            which = np.add.outer(which, [run.chunk * of_grid[d] for run in some])
            begins = np.add.outer(begins, np.zeros(len(some), np.int64))
        first = own[0].local
        selected = slice(0, high - low, first.step) if isinstance(first, slice) else first - low
        out = (*block.out[:axis], slice(own[0].out.start, own[-1].out.stop), *block.out[axis + 1 :])
        yield Rows(axis, which, begins, (high - low, *sides[axis + 1 :]), selected, out)


def _are_equal(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Group neighbouring runs that take the same positions of their chunks."""
    first = 0
    for i in range(1, len(runs) + 1):
        if i == len(runs) or not (isinstance(runs[i].local, slice) and runs[i].local == runs[first].local):
            yield list(runs[first:i])
            first = i


def _ends(chosen: Indices) -> tuple[int, int]:
    if isinstance(chosen, slice):
        positions = range(chosen.start, chosen.stop, chosen.step)
        return positions[0], positions[-1] + 1
    return int(chosen[0]), int(chosen[-1]) + 1


def outer(local: Sequence[Indices]) -> tuple[Indices, ...]:
    """Return an index that selects along each dimension independently."""
    arrays = [axis for axis, chosen in enumerate(local) if not isinstance(chosen, slice)]
    if len(arrays) < 2:
        return tuple(local)
    return np.ix_(*(np.arange(c.start, c.stop, c.step) if isinstance(c, slice) else c for c in local))
