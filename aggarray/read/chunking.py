"""Which stored chunks does a selection of a sub-array touch, which part of each, and where does that part go?

Pure: a selection per dimension and a grid of chunks become `Slab`s of chunks that are decoded whole, or, of large chunks
without filters, `Task`s: only the rows between the first and the last that are wanted.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise, product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from aggarray.formats.base import Chunks, grid_of

Indices = slice | np.ndarray

#: Stretches of chunks without filters are read in pieces of about this many bytes.
STRETCH = 1 << 22
#: Selections of up to so many chunks are worked out once for files alike.
_SHARED = 1 << 10
#: One more read costs as much as so many bytes more.
_PER_READ = 1 << 16


class Run(NamedTuple):
    """What a selection takes of one chunk along one dimension: ``local`` positions in it go to ``out`` of the selection."""

    chunk: int
    local: Indices
    out: slice


@dataclass(frozen=True, eq=False)
class Slab:
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


class Task(NamedTuple):
    """One range of bytes to be read: a stretch of a chunk without filters.

    ``offset`` -1: not stored, all fill; ``shape``: of what is read; ``local``: what is wanted of that, per dimension; ``out``:
    where it goes in the selection; ``chunk``: the number of the chunk.
    """

    offset: int
    size: int
    shape: tuple[int, ...]
    local: tuple[Indices, ...]
    out: tuple[slice, ...]
    chunk: int


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


def slabs_of(table: Chunks, selection: Sequence[Indices], most: int) -> Iterable[Slab]:
    """Return the chunks of a selection in rectangles of at most ``most`` chunks, at least one, in the order of the grid."""
    key = []
    count = 1
    for chosen, side in zip(selection, table.chunk, strict=True):
        if not isinstance(chosen, slice):
            return _slabs(table.shape, table.chunk, selection, most)
        key.append((chosen.start, chosen.stop, chosen.step))
        count *= (chosen.stop - 1) // side - chosen.start // side + 1
    if count > _SHARED:
        return _slabs(table.shape, table.chunk, selection, most)
    return _shared_slabs(table.shape, table.chunk, tuple(key), most)


# The files of an archive are mostly alike, and the same is wanted of each.
@lru_cache(maxsize=128)
def _shared_slabs(shape: tuple[int, ...], chunk: tuple[int, ...], key: tuple[Any, ...], most: int) -> tuple[Slab, ...]:
    return tuple(_slabs(shape, chunk, [slice(*ends) for ends in key], most))


def _slabs(shape: tuple[int, ...], chunk: tuple[int, ...], selection: Sequence[Indices], most: int) -> Iterator[Slab]:
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
        yield Slab(numbers.tolist(), runs, chunk, tuple(slice(own[0].out.start, own[-1].out.stop) for own in runs))


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


def tasks_of(table: Chunks, selection: Sequence[Indices]) -> Iterator[Task]:
    """Yield the stretches of a selection, one or several per chunk; ``table``: of chunks without filters."""
    columns = [runs_along(chosen, side) for chosen, side in zip(selection, table.chunk, strict=True)]
    strides = _strides(table.grid)
    for runs in product(*columns):
        number = sum(run.chunk * stride for run, stride in zip(runs, strides, strict=True))
        local, out = tuple(run.local for run in runs), tuple(run.out for run in runs)
        task = Task(int(table.offsets[number]), int(table.sizes[number]), table.chunk, local, out, number)
        if task.offset >= 0:
            yield from _stretches(task, table.dtype.itemsize)
        else:
            yield task


def _stretches(task: Task, itemsize: int) -> Iterator[Task]:
    """Cut a chunk without filters into stretches of rows: along the first dimension where little is read in vain."""
    counts = [_count(chosen) for chosen in task.local]
    axis = _axis(task, counts, itemsize)
    inner = prod(task.shape[axis + 1 :]) * itemsize
    rows = max(1, STRETCH // max(1, inner))
    lead = [_singles(chosen) for chosen in task.local[:axis]]
    strides = [prod(task.shape[d + 1 :]) * itemsize for d in range(axis)]
    for combination in product(*(list(enumerate(positions)) for positions in lead)):
        base = task.offset + sum(p * s for (_, p), s in zip(combination, strides, strict=True))
        before = tuple(slice(o.start + k, o.start + k + 1) for (k, _), o in zip(combination, task.out, strict=False))
        for run in runs_along(task.local[axis], rows) if axis < len(task.shape) else ():
            low, high = _ends(run.local)
            local = slice(0, high - low, run.local.step) if isinstance(run.local, slice) else run.local - low
            first = run.chunk * rows + low
            out = task.out[axis]
            yield Task(
                base + first * inner,
                (high - low) * inner,
                (*(1,) * axis, high - low, *task.shape[axis + 1 :]),
                (*(slice(0, 1, 1),) * axis, local, *task.local[axis + 1 :]),
                (*before, slice(out.start + run.out.start, out.start + run.out.stop), *task.out[axis + 1 :]),
                task.chunk,
            )


def _axis(task: Task, counts: Sequence[int], itemsize: int) -> int:
    """Return the dimension from which on rows are read whole: where reads and bytes together cost least."""

    def cost(axis: int) -> int:
        low, high = _ends(task.local[axis])
        return prod(counts[:axis]) * ((high - low) * prod(task.shape[axis + 1 :]) * itemsize + _PER_READ)

    return min(range(len(counts)), key=cost, default=0)


def _count(chosen: Indices) -> int:
    return len(range(chosen.start, chosen.stop, chosen.step)) if isinstance(chosen, slice) else len(chosen)


def _ends(chosen: Indices) -> tuple[int, int]:
    """Return the first position, and the one after the last."""
    if isinstance(chosen, slice):
        wanted = range(chosen.start, chosen.stop, chosen.step)
        return wanted[0], wanted[-1] + 1
    return int(chosen[0]), int(chosen[-1]) + 1


def _singles(chosen: Indices) -> Sequence[int]:
    if isinstance(chosen, slice):
        return range(chosen.start, chosen.stop, chosen.step)
    positions: list[int] = chosen.tolist()
    return positions


def outer(local: Sequence[Indices]) -> tuple[Indices, ...]:
    """Return an index that picks along every dimension by itself."""
    arrays = [axis for axis, chosen in enumerate(local) if not isinstance(chosen, slice)]
    if len(arrays) < 2:
        return tuple(local)
    return np.ix_(*(np.arange(c.start, c.stop, c.step) if isinstance(c, slice) else c for c in local))
