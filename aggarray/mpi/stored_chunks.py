"""Boxes of an array by stored chunk, with their stored sizes.

Each process inspects a share of the partitions, and all processes exchange the results, so that one process opens each file.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from aggarray.errors import AggarrayError
from aggarray.mpi.schedule.read_schedule import Units
from aggarray.partition.chunk_index import ChunkIndex
from aggarray.partition.matrix import Matrix
from aggarray.partition.plan import Indices, part_of
from aggarray.read.chunk_index import find_chunk_index
from aggarray.storage.access import Access

#: Bytes of a unit of values without filters, which can be cut anywhere.
_UNIT_BYTES = 4 << 20


def find_units(matrix: Matrix, access: Access, itemsize: int, share: range) -> Units:
    """Return the units of some partitions, which are numbered in C order."""
    boxes: list[Any] = []
    costs: list[int] = []
    chunks: list[Any] = []
    for number in share:
        ref = int(matrix.refs[number])
        try:
            with access.reach():
                result = None if ref < 0 else find_chunk_index(matrix.references, ref, access)
        except AggarrayError:
            result = None  # the read raises the error
        for box, chunk, cost in _cell_units(matrix, number, None if result is None else result[0], itemsize):
            boxes.append(box)
            # Partitions without a file share no chunk.
            chunks.append((ref, chunk) if chunk >= 0 else (-1 - number, -chunk))
            costs.append(cost)
    box_array = np.array(boxes, np.int64).reshape(len(boxes), len(matrix.cells), 2)
    return Units(box_array, np.array(costs, np.int64), np.array(chunks, np.int64).reshape(len(boxes), 2))


Unit = tuple[list[tuple[int, int]], int, int]


def _cell_units(matrix: Matrix, number: int, chunk_index: ChunkIndex | None, itemsize: int) -> Iterator[Unit]:
    """Yield the box, chunk number (negative: none) and cost of each unit."""
    ref, cell = int(matrix.refs[number]), [int(i) for i in np.unravel_index(number, matrix.cells)]
    region = [(int(e[i]), int(e[i + 1])) for e, i in zip(matrix.edges, cell, strict=True)]
    size = prod(stop - start for start, stop in region) * itemsize
    in_memory = ref < 0 or matrix.references.uri_of(ref) is None
    if in_memory or chunk_index is None:
        # A library reads the partition in one piece.
        yield region, -1, 0 if in_memory else size
        return
    if not chunk_index.filters:
        yield from ((box, -1 - n, cost) for n, (box, cost) in enumerate(_stripes(region, itemsize)))
        return
    template = matrix.references.template_of(ref)
    parts = part_of(matrix, cell, template)
    rows: list[list[tuple[tuple[int, int], int]]] = []
    fixed, strides = 0, [prod(chunk_index.grid[d + 1 :]) for d in range(len(chunk_index.grid))]
    parts_by_name: dict[str, tuple[Indices, int, int]] = {}
    for name, part, side, stride in zip(template.dimensions, parts, chunk_index.chunk, strides, strict=True):
        if name in matrix.dimensions:
            parts_by_name[name] = (part, side, stride)
        else:
            fixed += int(part.start if isinstance(part, slice) else part[0]) // side * stride
    for axis, (name, (start, stop)) in enumerate(zip(matrix.dimensions, region, strict=True)):
        if name not in parts_by_name:
            rows.append([((start, stop), 0)])
            continue
        part, side, stride = parts_by_name[name]
        flipped = bool(matrix.flips(axis, np.array([number]))[0])
        rows.append([((start + a, start + b), n * stride) for a, b, n in _runs_by_chunk(part, stop - start, side, flipped)])
    for combination in product(*rows):
        chunk = fixed + sum(offset for _, offset in combination)
        stored = int(chunk_index.sizes[chunk]) or prod(chunk_index.chunk) * chunk_index.dtype.itemsize
        yield [ends for ends, _ in combination], chunk, stored if chunk_index.offsets[chunk] >= 0 else 0


def _runs_by_chunk(part: Indices, extent: int, side: int, flipped: bool) -> list[tuple[int, int, int]]:
    """Return (start, stop, chunk) runs of a partition along one dimension.

    >>> _runs_by_chunk(slice(3, 9, 2), 3, 4, False), _runs_by_chunk(slice(3, 9, 2), 3, 4, True)
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
    runs = list(zip(edges[:-1], edges[1:], numbers, strict=True))
    return [(extent - b, extent - a, n) for a, b, n in runs] if flipped else runs


def _stripes(region: list[tuple[int, int]], itemsize: int) -> Iterator[tuple[list[tuple[int, int]], int]]:
    """Cut a partition without filters into stripes along leading axes."""
    size = prod(stop - start for start, stop in region) * itemsize
    axis = next((d for d, (start, stop) in enumerate(region) if stop - start > 1), None)
    if axis is None or size <= _UNIT_BYTES:
        yield region, size
        return
    start, stop = region[axis]
    step = max((stop - start) * _UNIT_BYTES // size, 1)
    for low in range(start, stop, step):
        stripe = [*region[:axis], (low, min(low + step, stop)), *region[axis + 1 :]]
        cost = prod(b - a for a, b in stripe) * itemsize
        if cost > 2 * _UNIT_BYTES:
            yield from _stripes(stripe, itemsize)
        else:
            yield stripe, cost
