"""Stored chunks of an array as the grid of one Zarr array.

A Zarr array has one dtype, one chain of codecs, one fill value and one grid of chunks. `find_chunk_grid` returns those of an
array, or raises an error with the reason. Chunks without codecs may be cut into smaller ones that are contiguous in the file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NoReturn

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.cf.encoding import Encoding
from aggarray.cf.units.compatibility import conversion_between
from aggarray.codecs import Filter, codecs
from aggarray.dataclass import NamedTuple, dataclass
from aggarray.errors import AggarrayError, AggregationError
from aggarray.partition.chunk_index import ChunkIndex, grid_of
from aggarray.partition.matrix import Template
from aggarray.partition.plan import Indices, part_of
from aggarray.read.chunk_index import find_chunk_index, gather_chunk_indexes
from aggarray.read.stored_piece import raise_with_location
from aggarray.storage.state import FileState

#: Most references of an array whose chunks are cut.
_MAX_REFERENCES = 10_000_000
_HINT = "write the values with `aggarray extract`, or open the files with aggarray"


class GridError(AggregationError):
    """Why the stored chunks of an array are no grid of one Zarr array."""


class GridPiece(NamedTuple):
    """One partition: file, cell, template, chunks, and its two origins.

    ``at``: origin in the master; ``start``: in the sub-array. All tuples have one item per dimension of the master; a
    dimension that the sub-array lacks has side and size 1. ``state``: that of the file for which the chunks hold, None for a
    store.
    """

    uri: str
    cell: tuple[int, ...]
    template: Template
    table: ChunkIndex
    at: tuple[int, ...]
    shape: tuple[int, ...]
    start: tuple[int, ...]
    sides: tuple[int, ...]
    sizes: tuple[int, ...]
    state: FileState | None = None


class StoredChunk(NamedTuple):
    """A stored chunk of a grid, by its position.

    ``size``: 0 for the complete file; ``inline``: its bytes if it lies in no file.
    """

    position: tuple[int, ...]
    piece: GridPiece
    uri: str
    offset: int
    size: int
    inline: bytes | None = None


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """Grid of chunks that all pieces share; ``fill``: None if all are stored."""

    pieces: Sequence[GridPiece]
    dtype: np.dtype[Any]
    chunk: tuple[int, ...]
    filters: tuple[Filter, ...]
    encoding: Encoding
    fill: Any


def find_chunk_grid(array: MasterArray) -> ChunkGrid:
    """Return the grid of stored chunks, or raise GridError."""
    pieces = list(_pieces(array))
    if not pieces:
        raise _error("none of its partitions is a file")
    first = pieces[0]
    for piece, (what, find) in product(pieces[1:], _STORED.items()):
        value, expected = find(piece), find(first)
        if value != expected:
            refuse(piece, f"{what} {_text(value)}, but {_text(expected)} in {first.uri}")
    chunk, fill = _chunk_of(array, pieces), _fill_of(array, pieces)
    return ChunkGrid(pieces, first.table.dtype, chunk, first.table.filters, first.template.encoding, fill)


def _stored_chunks(layout: ChunkGrid, piece: GridPiece) -> Iterator[tuple[tuple[int, ...], int, int, int]]:
    """Yield stored chunks: master position, table number, offset and size.

    Offset and size 0 mean the complete file. Chunks of the table are cut if those of the layout are smaller.
    """
    chunk, sides, table = layout.chunk, piece.sides, piece.table
    grid = grid_of(piece.sizes, sides)
    strides = [math.prod(grid[d + 1 :]) for d in range(len(grid))]
    inner_strides = [math.prod(sides[d + 1 :]) for d in range(len(sides))]
    cut = chunk != sides
    size = math.prod(chunk) * table.dtype.itemsize
    counts = [-(-n // c) for n, c in zip(piece.shape, chunk, strict=True)]
    for step in product(*map(range, counts)):
        origin = [s + i * c for s, i, c in zip(piece.start, step, chunk, strict=True)]
        number = sum(o // side * stride for o, side, stride in zip(origin, sides, strides, strict=True))
        offset = int(table.offsets[number])
        if offset < 0:
            continue
        position = tuple(a // c + i for a, c, i in zip(piece.at, chunk, step, strict=True))
        if cut:
            skipped = sum(o % side * w for o, side, w in zip(origin, sides, inner_strides, strict=True))
            yield position, number, offset + skipped * table.dtype.itemsize, size
        else:
            yield position, number, offset, int(table.sizes[number])


def located_chunks(layout: ChunkGrid) -> Iterator[StoredChunk]:
    """Yield the stored chunks with their files; GridError for missing ones.

    A file that a store lacks is a chunk that was never written, and is left out if it reads the same.
    """
    for piece in layout.pieces:
        table = piece.table
        for position, number, offset, size in _stored_chunks(layout, piece):
            if table.inline and number in table.inline:
                yield StoredChunk(position, piece, "", 0, 0, table.inline[number])
                continue
            uri, needed = table.file_of(piece.uri, number)
            if needed or "://" in uri or os.path.exists(uri):
                yield StoredChunk(position, piece, uri, offset, size)
            else:
                _check_missing(layout, piece)


def check_filters(layout: ChunkGrid, has_codec: Callable[[Filter], bool]) -> None:
    """Raise GridError for filters that numcodecs does not decode.

    numcodecs shuffles complete elements only; HDF5 leaves the bytes of an incomplete last element in place.
    """
    first = layout.pieces[0]
    size: int | None = math.prod(first.table.chunk) * first.table.dtype.itemsize
    for position, step in enumerate(layout.filters):
        if not has_codec(step):
            refuse(first, f"filter {step.name} has no codec in numcodecs")
        # promise: kerchunk-filter-order
        if step.name == "shuffle" and (size is None or size % int(step.parameters[0])):
            before = ", ".join(f.name for f in layout.filters[:position]) or "no filter"
            what = f"shuffle of elements of {step.parameters[0]} bytes after {before}"
            length = "a varying number of" if size is None else size
            refuse(first, f"{what}, which gives {length} bytes (numcodecs shuffles whole elements only)")
        size = None if size is None else codecs()[step.name].grown(size, step.parameters)


def packing_attributes(encoding: Encoding) -> dict[str, Any]:
    """Return the attributes that decode stored values, except the fill value."""
    missing = [*encoding.missing[1:], *([np.nan] if encoding.missing_nan and encoding.missing else [])]
    bounds = encoding.valid if encoding.valid != (None, None) else encoding.valid_unpacked
    unsigned = None if encoding.viewed == encoding.stored else str(encoding.viewed.kind == "u").lower()
    packing = {"scale_factor": encoding.scale_factor, "add_offset": encoding.add_offset, "missing_value": missing or None}
    packing |= {"valid_min": bounds[0], "valid_max": bounds[1], "_Unsigned": unsigned}
    return {name: value for name, value in packing.items() if value is not None}


def _error(what: str, path: str | None = None) -> GridError:
    return GridError(what, path=path, hint=_HINT)


def refuse(piece: GridPiece, what: str) -> NoReturn:
    """Raise GridError for a partition."""
    raise _error(f"partition {piece.cell} ({piece.uri}): {what}", piece.uri)


def _pieces(array: MasterArray) -> Iterator[GridPiece]:
    matrix, access = array._matrix, array._access
    references = matrix.references
    gathered = {(e.uri, e.variable): (e.chunks, e.state) for e in gather_chunk_indexes([(references, access)])}
    for number in np.flatnonzero(matrix.refs >= 0).tolist():
        row, cell = int(matrix.refs[number]), tuple(int(i) for i in np.unravel_index(number, matrix.cells))
        uri, template = references.uri_of(row), references.template_of(row)
        at = tuple(int(e[i]) for e, i in zip(matrix.edges, cell, strict=True))
        shape = tuple(int(e[i + 1]) - a for e, i, a in zip(matrix.edges, cell, at, strict=True))
        if uri is None:
            raise _error(f"partition {cell} is in memory")
        bare = GridPiece(uri, cell, template, _NO_CHUNKS, at, shape, (), (), ())
        _check_conformed(array, bare)
        variable = references.variables[int(references.variable[row])]
        table, state = gathered.get((uri, variable), (None, None))
        if table is None or table.names is not None:
            try:
                index = find_chunk_index(references, row, access)
            except AggarrayError as error:
                raise_with_location(error, uri, variable)
            if index is None:
                refuse(bare, "a codec or storage layout that only its library reads")
            table, _, state = index
        part = dict(zip(template.dimensions, part_of(matrix, cell, template), strict=True))
        yield _with_part(array, bare._replace(table=table, state=state), part)


_NO_CHUNKS = ChunkIndex((), (), np.dtype("u1"), (), np.uint8(0), np.zeros(0, np.int64), np.zeros(0, np.int64))


def _check_conformed(array: MasterArray, piece: GridPiece) -> None:
    """Refuse a piece whose values need conversion or reordering."""
    template, matrix = piece.template, array._matrix
    if template.steps:
        refuse(piece, "values are converted by to_units, astype or an aggregation variable")
    if not conversion_between(template, array._step).identity:
        ours, theirs = (" ".join(filter(None, (o.units, o.calendar))) or "none" for o in (array, template))
        refuse(piece, f"units {theirs!r} differ from the array's {ours!r}")
    order = [d for d in matrix.dimensions if d in template.dimensions]
    if order != list(template.dimensions):
        refuse(piece, f"dimensions {template.dimensions} differ from the array's {matrix.dimensions}")
    forward = dict(zip(matrix.dimensions, matrix.directions, strict=True))
    for name, direction in zip(template.dimensions, template.directions, strict=True):
        if direction != forward[name]:
            words = ["increasing" if increases else "decreasing" for increases in (direction, forward[name])]
            refuse(piece, f"{name!r} is {words[0]}, but {words[1]} in the array")
    if template.encoding.dtype != array.dtype:
        refuse(piece, f"dtype {template.encoding.dtype} differs from the array's {array.dtype}")


def _with_part(array: MasterArray, piece: GridPiece, part: Mapping[str, Indices]) -> GridPiece:
    if piece.table.masks is not None and piece.table.masks.any():
        refuse(piece, "chunks were written with a filter skipped")
    start = []
    for name in array.dimensions:
        indices = part.get(name, slice(0, 1, 1))
        if not isinstance(indices, slice) or (indices.step or 1) != 1:
            refuse(piece, f"its part of {name!r} is not contiguous")
        start.append(int(indices.start))
    stored = (dict(zip(piece.template.dimensions, n, strict=True)) for n in (piece.table.chunk, piece.table.shape))
    sides, sizes = (tuple(n.get(d, 1) for d in array.dimensions) for n in stored)
    return piece._replace(start=tuple(start), sides=sides, sizes=sizes)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_text, value)) or "none"
    return f"{value.name}{list(value.parameters)}" if isinstance(value, Filter) else str(value)


def _missing(piece: GridPiece) -> str:
    encoding = piece.template.encoding
    return repr((*map(str, encoding.missing), encoding.missing_nan, str(encoding.valid), str(encoding.valid_unpacked)))


_STORED: Mapping[str, Any] = {
    "stored dtype": lambda p: p.table.dtype.str,
    "codecs": lambda p: p.table.filters,
    "scale_factor and add_offset": lambda p: (p.template.encoding.scale_factor, p.template.encoding.add_offset),
    "missing values and valid bounds": _missing,
    "values viewed as": lambda p: p.template.encoding.viewed.str,
}


def _chunk_of(array: MasterArray, pieces: Sequence[GridPiece]) -> tuple[int, ...]:
    """Return the chunk shape, cut if no codecs, or raise GridError."""
    first = pieces[0]
    problem = next((misfit for piece in pieces if (misfit := _misfit(array, first, piece)) is not None), None)
    if problem is None:
        return first.sides
    if any(piece.table.filters for piece in pieces) or any(piece.table.inline for piece in pieces):
        refuse(*problem)
    chunk = _cut(array, pieces)
    count = math.prod(grid_of(array.shape, chunk))
    if count > _MAX_REFERENCES:
        refuse(problem[0], f"{problem[1]}, and cutting them to fit would give {count} chunks of {chunk}")
    return chunk


def _misfit(array: MasterArray, first: GridPiece, piece: GridPiece) -> tuple[GridPiece, str] | None:
    """Return why a piece is off the grid of the first, None if it is not."""
    if piece.sides != first.sides:
        return piece, f"chunks of {piece.sides}, but {first.sides} in {first.uri}"
    for d, name in enumerate(array.dimensions):
        side, end = piece.sides[d], piece.at[d] + piece.shape[d]
        if piece.at[d] % side or piece.start[d] % side:
            return piece, f"it begins at {piece.at[d]} of {name!r} (at {piece.start[d]} in the file) with chunks of {side}"
        if end % side and end != array.shape[d]:
            return piece, f"it ends at {end} of {name!r} with chunks of {side}"
    return None


def _cut(array: MasterArray, pieces: Sequence[GridPiece]) -> tuple[int, ...]:
    """Return the largest contiguous chunk that divides pieces and chunks."""
    columns = zip(*((p.at, p.start, p.shape, p.sides) for p in pieces), strict=True)
    common = [[math.gcd(*numbers) for numbers in zip(*rows, strict=True)] for rows in columns]
    steps = [max(1, math.gcd(*each)) for each in zip(*common, strict=True)] if array.ndim else []
    # The padding of edge chunks is not part of the array: the array must end at the end of a chunk.
    axis = len(steps)
    while axis and all(piece.sides[axis - 1] == steps[axis - 1] for piece in pieces):
        axis -= 1
    return (*(1,) * max(0, axis - 1), *steps[max(0, axis - 1) :])


def _fill_of(array: MasterArray, pieces: Sequence[GridPiece]) -> Any:
    """Return the fill value of missing chunks, None if all are stored."""
    encoding = pieces[0].template.encoding
    declared = encoding.missing[0] if encoding.missing else None
    if declared is None and (encoding.missing_nan or encoding.stored.kind == "f"):
        declared = encoding.stored.type(np.nan)
    if declared is not None:
        declared = np.asarray(declared).view(encoding.stored)[()]
    needed = bool(encoding.missing) or encoding.missing_nan
    if (array._matrix.refs < 0).any():
        if declared is None:
            raise _error("some of its partitions are missing, and no stored value means missing")
        needed = True
    for piece in pieces:
        if len(piece.table.offsets) and (piece.table.offsets < 0).any():
            if not _same(piece.table.fill, declared):
                refuse(piece, f"chunks that are not stored are {piece.table.fill}, but {declared} means missing")
            needed = True
        # Missing chunks of a store are found only when references are made: see `located_chunks`.
        needed = needed or (piece.table.names is not None and _same(piece.table.fill, declared))
    return declared if needed else None


def _check_missing(layout: ChunkGrid, piece: GridPiece) -> None:
    """Refuse a missing chunk unless it reads the same through references."""
    fill, written = piece.table.fill, layout.fill
    if not (fill == 0 if written is None else _same(fill, written)):
        effect = "references read them as 0" if written is None else f"{written} means missing"
        refuse(piece, f"chunks that are not stored are {fill}, but {effect}")


def _same(fill: Any, declared: Any) -> bool:
    return declared is not None and bool(fill == declared or (fill != fill and declared != declared))
