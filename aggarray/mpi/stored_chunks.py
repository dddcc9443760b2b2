"""Boxes of an array by stored chunk, with their stored sizes.

Each process inspects a share of the partitions, and all processes exchange the results, so that one process opens each file.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from aggarray.errors import AggarrayError
from aggarray.formats.base import ChunkIndex
from aggarray.mpi.schedule.read_schedule import Units
from aggarray.partition.matrix import Matrix
from aggarray.partition.plan import Indices, part_of
from aggarray.read.chunk_index import find_chunk_index
from aggarray.storage.access import Access

#: Bytes of a unit of values without filters, which can be cut anywhere.
_PLAIN = 4 << 20


def units_of(matrix: Matrix, access: Access, itemsize: int, share: range) -> Units:
    """Return the units of some partitions, by their number in C order.

    ``itemsize``: that of the master array.
    """
    boxes: list[Any] = []
    costs: list[int] = []
    chunks: list[Any] = []
    for number in share:
        cell = np.unravel_index(number, matrix.cells)
        ref = int(matrix.refs[number])
        table = _table(matrix, ref, access)
        for box, chunk, cost in _units_of_cell(matrix, [int(i) for i in cell], ref, table, itemsize):
            boxes.append(box)
            # Partitions without a file share no chunk.
            chunks.append((ref, chunk) if chunk >= 0 else (-1 - number, -chunk))
            costs.append(cost)
    ndim = len(matrix.cells)
    return Units(
        np.array(boxes, np.int64).reshape(len(boxes), ndim, 2),
        np.array(costs, np.int64),
        np.array(chunks, np.int64).reshape(len(boxes), 2),
    )


def _table(matrix: Matrix, ref: int, access: Access) -> ChunkIndex | None:
    """Return the chunk index of a sub-array; None where it cannot be read.

    The read raises the error.
    """
    if ref < 0:
        return None
    try:
        with access.reach():
            found = find_chunk_index(matrix.references, ref, access)
    except AggarrayError:
        return None
    return None if found is None else found[0]


Unit = tuple[list[tuple[int, int]], int, int]


def _units_of_cell(matrix: Matrix, cell: Sequence[int], ref: int, table: ChunkIndex | None, itemsize: int) -> Iterator[Unit]:
    """Yield the box, chunk number and cost of each unit of a partition.

    A negative chunk number means that the unit has no chunk.
    """
    whole = [(int(e[i]), int(e[i + 1])) for e, i in zip(matrix.edges, cell, strict=True)]
    size = prod(stop - start for start, stop in whole) * itemsize
    inside = ref < 0 or matrix.references.uri_of(ref) is None
    if inside or table is None:
        # A library reads the partition in one piece.
        yield whole, -1, 0 if inside else size
        return
    if not table.filters:
        yield from ((box, -1 - n, cost) for n, (box, cost) in enumerate(_stripes(whole, itemsize)))
        return
    template = matrix.references.template_of(ref)
    parts = part_of(matrix, cell, template)
    rows: list[list[tuple[tuple[int, int], int]]] = []
    fixed, strides = 0, _strides(table.grid)
    along: dict[str, tuple[Indices, int, int]] = {}
    for name, part, side, stride in zip(template.dimensions, parts, table.chunk, strides, strict=True):
        if name in matrix.dimensions:
            along[name] = (part, side, stride)
        else:
            fixed += _first(part) // side * stride
    for axis, (name, (start, stop)) in enumerate(zip(matrix.dimensions, whole, strict=True)):
        if name not in along:
            rows.append([((start, stop), 0)])
            continue
        part, side, stride = along[name]
        turned = bool(matrix.flips(axis, np.array([_flat(matrix, cell)]))[0])
        rows.append([((start + a, start + b), n * stride) for a, b, n in _stretches(part, stop - start, side, turned)])
    for combination in product(*rows):
        number = fixed + sum(offset for _, offset in combination)
        stored = int(table.sizes[number]) or prod(table.chunk) * table.dtype.itemsize
        yield [ends for ends, _ in combination], number, stored if table.offsets[number] >= 0 else 0


def _strides(grid: Sequence[int]) -> list[int]:
    return [prod(grid[d + 1 :]) for d in range(len(grid))]


def _flat(matrix: Matrix, cell: Sequence[int]) -> int:
    return sum(i * s for i, s in zip(cell, _strides(matrix.cells), strict=True))


def _first(part: Indices) -> int:
    return int(part.start if isinstance(part, slice) else part[0])


def _stretches(part: Indices, extent: int, side: int, turned: bool) -> list[tuple[int, int, int]]:
    """Return the (start, stop, chunk) runs of a partition along one dimension.

    Each run lies in one chunk.

    >>> _stretches(slice(3, 9, 2), 3, 4, False), _stretches(slice(3, 9, 2), 3, 4, True)
    ([(0, 1, 0), (1, 3, 1)], [(2, 3, 0), (0, 2, 1)])
    """
    if isinstance(part, slice):
        begin, step = int(part.start), int(part.step or 1)
        borders = np.arange(begin // side + 1, (begin + (extent - 1) * step) // side + 1, dtype=np.int64) * side
        cuts = np.unique(-((begin - borders) // step))
        firsts = begin + np.concatenate([[0], cuts]) * step
    else:
        cuts = np.flatnonzero(np.diff(part // side)) + 1
        firsts = part[np.concatenate([[0], cuts])]
    edges = np.concatenate([[0], cuts, [extent]]).tolist()
    numbers = (firsts // side).tolist()
    found = list(zip(edges[:-1], edges[1:], numbers, strict=True))
    return [(extent - b, extent - a, n) for a, b, n in found] if turned else found


def _stripes(whole: list[tuple[int, int]], itemsize: int) -> Iterator[tuple[list[tuple[int, int]], int]]:
    """Cut a partition without filters into stripes along its first dimensions."""
    size = prod(stop - start for start, stop in whole) * itemsize
    axis = next((d for d, (start, stop) in enumerate(whole) if stop - start > 1), None)
    if axis is None or size <= _PLAIN:
        yield whole, size
        return
    start, stop = whole[axis]
    step = max((stop - start) * _PLAIN // size, 1)
    for low in range(start, stop, step):
        stripe = [*whole[:axis], (low, min(low + step, stop)), *whole[axis + 1 :]]
        cost = prod(b - a for a, b in stripe) * itemsize
        if cost > 2 * _PLAIN:
            yield from _stripes(stripe, itemsize)
        else:
            yield stripe, cost
