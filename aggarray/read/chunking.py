"""Which stored chunks does a selection of a sub-array touch, which part of each, and where does that part go?

Pure: a selection per dimension and a grid of chunks become `Task`s, each one range of bytes of a file. Chunks without
filters are not read whole: only the rows between the first and the last that are wanted.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

import numpy as np

from aggarray.formats.base import Chunks

Indices = slice | np.ndarray

#: Stretches of chunks without filters are read in pieces of about this many bytes.
STRETCH = 1 << 22
#: One more read costs as much as so many bytes more.
_PER_READ = 1 << 16


class Run(NamedTuple):
    """What a selection takes of one chunk along one dimension: ``local`` positions in it go to ``out`` of the selection."""

    chunk: int
    local: Indices
    out: slice


class Task(NamedTuple):
    """One range of bytes to be read and decoded.

    ``offset`` -1: not stored, all fill; ``size`` 0: the whole file; ``shape``: of what it decodes to; ``local``: what is wanted
    of that, per dimension; ``out``: where it goes in the selection; ``chunk``: the number of the chunk.
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


def tasks_of(table: Chunks, selection: Sequence[Indices]) -> Iterator[Task]:
    """Yield the tasks of a selection, one per chunk, or several for a chunk without filters."""
    grid = table.grid
    strides = [prod(grid[d + 1 :]) for d in range(len(grid))]
    columns = [
        [(run.chunk * stride, run.chunk, run.local, run.out) for run in runs_along(chosen, side)]
        for chosen, side, stride in zip(selection, table.chunk, strides, strict=True)
    ]
    plain = not table.filters
    for combination in product(*columns):
        number = sum(entry[0] for entry in combination)
        local = tuple(entry[2] for entry in combination)
        out = tuple(entry[3] for entry in combination)
        shape = table.chunk
        if table.clipped:
            index = (entry[1] for entry in combination)
            shape = tuple(min(c, n - i * c) for c, n, i in zip(table.chunk, table.shape, index, strict=True))
        offset = int(table.offsets[number])
        task = Task(offset, int(table.sizes[number]), shape, local, out, number)
        if plain and offset >= 0:
            yield from _stretches(task, table.dtype.itemsize)
        else:
            yield task


def _stretches(task: Task, itemsize: int) -> Iterator[Task]:
    """Cut a chunk without filters into stretches of rows: along the first dimension where little is read in vain."""
    counts = [_count(chosen) for chosen in task.local]
    if prod(task.shape) * itemsize <= 1 << 16:
        yield task
        return
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
