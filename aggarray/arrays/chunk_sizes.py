"""Chunk sizes of a master array: `MasterArray.chunks_for`."""

from typing import Any

import numpy as np

from aggarray.errors import SelectionError
from aggarray.memory.selection import distinct
from aggarray.partition.chunk_sizes import AxisCuts, ChunkSizes, chunk_sizes, stored_cuts
from aggarray.partition.matrix import used_rows
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
    used = matrix.refs[matrix.refs >= 0] if array._known is None else np.zeros(0, np.int64)
    rows = used_rows(used, len(references))
    numbers, shapes = stored_shapes(references, rows, array._access)
    # Sides by number of the shape and of the template, whose dimensions they follow.
    pairs = numbers * len(references.templates) + references.template if len(references) else numbers
    sides = np.zeros((len(matrix.dimensions), len(references)), np.int64)
    for pair in distinct(pairs[rows]).tolist():
        shape, template = shapes[pair // len(references.templates)], references.templates[pair % len(references.templates)]
        for name, side in zip(template.dimensions, shape or (), strict=False):
            if name in matrix.dimensions:
                sides[matrix.dimensions.index(name), pairs == pair] = side
    return [stored_cuts(matrix, axis, sides[axis]) for axis in range(len(matrix.dimensions))]
