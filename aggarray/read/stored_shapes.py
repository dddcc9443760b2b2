"""Shapes and filters of the stored chunks of sub-arrays.

An index has them for all files. Without one, the first and the last file of each template are opened, and the others only if
these two differ.
"""

from __future__ import annotations

from contextlib import suppress
from math import prod

import numpy as np

from aggarray.errors import AggarrayError
from aggarray.partition.chunk_index import ChunkIndex
from aggarray.partition.matrix import BLOCK, References, used_numbers
from aggarray.read.chunk_index import find_chunk_index
from aggarray.read.open_files import opened
from aggarray.storage.access import Access
from aggarray.storage.urls import is_remote

#: Shape of a stored chunk in the dimensions of the sub-array, None if it is not stored in chunks or this is not known.
Shape = tuple[int, ...] | None
#: Most templates whose files are opened.
_MOST = 64


def stored_shapes(references: References, rows: np.ndarray, access: Access) -> tuple[np.ndarray, list[Shape]]:
    """Return a number per sub-array, and the chunk shape of each number.

    ``rows``: the sub-arrays in question; the others have the number 0, as those that are not stored in chunks. Files that are
    missing, or must not be read, count as not stored in chunks.
    """
    numbers = np.zeros(len(references), np.int32)
    shapes: dict[Shape, int] = {None: 0}
    in_files = references.uri[rows] >= 0
    rows = rows if in_files.all() else rows[in_files]
    find = getattr(references.tables, "layouts_of", None)
    if find is not None:
        found, layouts = find(references, rows)
        own_shapes = (_grid_shape(shape, chunk, bool(filters)) for shape, chunk, _, filters, _ in layouts)
        codes = np.array([shapes.setdefault(shape, len(shapes)) for shape in own_shapes] or [0])
        for at in range(0, len(rows), BLOCK):
            block = found[at : at + BLOCK]
            numbers[rows[at : at + BLOCK]] = np.where(block >= 0, codes[block], 0)
        rows = rows[found < 0]
    with access.reach():
        for template in used_numbers(references.template, rows, len(references.templates))[:_MOST].tolist():
            if not references.templates[template].unresolved:
                own = rows[references.template[rows] == template]
                ends = [shapes.setdefault(_read_shape(references, row, access), len(shapes)) for row in (own[0], own[-1])]
                numbers[own] = ends[0]
                if ends[0] != ends[1]:
                    all_own = (_read_shape(references, row, access) for row in own)
                    numbers[own] = [shapes.setdefault(shape, len(shapes)) for shape in all_own]
    return numbers, list(shapes)


def _read_shape(references: References, row: int, access: Access) -> Shape:
    with suppress(AggarrayError):  # the read raises the error
        located = find_chunk_index(references, int(row), access)
        if located is not None:
            return shape_of(located[0])
    return None


def stored_filters(references: References, row: int, access: Access) -> tuple[ChunkIndex, int | None] | None:
    """Return how a sub-array is stored, and the level of deflate if known.

    The result is None for files that are missing or must not be read, and for variables that their library reads.
    """
    with access.reach(), suppress(AggarrayError):
        located = find_chunk_index(references, row, access)
        deflated = located is not None and any(f.name == "deflate" for f in located[0].filters)
        if located is not None and deflated and not is_remote(located[1]):  # a request costs more than the level is worth
            with opened(references, row, access) as handle:
                # Other formats do not store the level, or not in this way.
                level = getattr(handle, "deflate_level", lambda variable: None)
                return located[0], level(references.variables[int(references.variable[row])])
        return None if located is None else (located[0], None)
    return None


def shape_of(index: ChunkIndex) -> Shape:
    """Return the shape of a chunk, None if parts of it are read as well."""
    return _grid_shape(index.shape, index.chunk, bool(index.filters))


def _grid_shape(shape: tuple[int, ...], chunk: tuple[int, ...], filtered: bool) -> Shape:
    return chunk if filtered or prod(-(-n // c) for n, c in zip(shape, chunk, strict=True)) != 1 else None
