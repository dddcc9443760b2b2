"""Chunk sizes of a master array: `MasterArray.chunks_for`."""

from __future__ import annotations

from typing import Any

import numpy as np

from aggarray.errors import SelectionError
from aggarray.partition.chunk_sizes import AxisCuts, ChunkSizes, chunk_sizes, stored_cuts
from aggarray.partition.matrix import used_numbers
from aggarray.read.stored_shapes import stored_shapes


def chunks_for(array: Any, nbytes: Any, regular: bool = False) -> ChunkSizes:
    """Return chunk sizes per dimension: see `MasterArray.chunks_for`."""
    if isinstance(nbytes, bool) or not isinstance(nbytes, int | np.integer) or nbytes < 1:
        raise SelectionError(f"invalid nbytes={nbytes!r}", hint="give the bytes of a chunk as a positive integer")
    if regular:
        from aggarray.partition.regular_sizes import regular_sizes

        return regular_sizes(axis_cuts(array), array.dtype.itemsize, int(nbytes))
    return chunk_sizes(axis_cuts(array), array.dtype.itemsize, int(nbytes))


def axis_cuts(array: Any) -> list[AxisCuts]:
    """Return where each dimension of an array may be cut."""
    matrix, references = array._matrix, array._matrix.references
    rows = np.flatnonzero(matrix.used) if array._known is None else np.zeros(0, np.int64)
    numbers, shapes = stored_shapes(references, rows, array._access)
    # A layout is the number of a shape and that of a template, whose dimensions it follows.
    count = max(1, len(references.templates))
    layouts = numbers * count + references.template
    used = used_numbers(layouts, rows, len(shapes) * count)
    renumbered = np.zeros(len(shapes) * count, np.int32)
    renumbered[used] = np.arange(len(used))
    layouts = renumbered[layouts] if len(used) > 1 else np.broadcast_to(renumbered[:1] * 0, len(layouts))
    sides = np.zeros((len(matrix.dimensions), len(used)), np.int64)
    for number, layout in enumerate(used.tolist()):
        shape, template = shapes[layout // count], references.templates[layout % count]
        for name, side in zip(template.dimensions, shape or (), strict=False):
            if name in matrix.dimensions:
                sides[matrix.dimensions.index(name), number] = side
    return [stored_cuts(matrix, axis, layouts, sides[axis]) for axis in range(len(matrix.dimensions))]
