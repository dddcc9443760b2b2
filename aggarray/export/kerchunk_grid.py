"""Can the values of an array stay in their files and yet be one Zarr array: are its partitions whole chunks of one kind?

A Zarr array has one dtype, one chain of codecs, one fill value and one grid of chunks from its origin on. `layout_of` says what
these are for an array, or why there are none. Chunks without codecs may be cut into smaller ones, contiguous in the file.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, NoReturn

import numpy as np

from aggarray.arrays import MasterArray
from aggarray.cf.encoding import Encoding
from aggarray.cf.units import conversion_between
from aggarray.codecs import Filter
from aggarray.errors import AggarrayError, AggregationError
from aggarray.formats.base import ChunkIndex, grid_of
from aggarray.partition.matrix import Template
from aggarray.partition.plan import Indices, part_of
from aggarray.read.chunk_index import find_chunk_index, gather_chunk_indexes
from aggarray.read.library import raise_named

#: So many references at most are made of an array by cutting chunks without codecs.
_MOST = 10_000_000
_WAY_OUT = "write the values by `aggarray extract`, or open the files by aggarray"


class GridPiece(NamedTuple):
    """One partition: its file, where it begins in the master and in its sub-array, its shape there, its stored chunks.

    All per dimension of the master; one that the sub-array lacks has side 1. ``whole``: up to the sub-array's end.
    """

    uri: str
    cell: tuple[int, ...]
    at: tuple[int, ...]
    start: tuple[int, ...]
    shape: tuple[int, ...]
    sides: tuple[int, ...]
    sizes: tuple[int, ...]
    table: ChunkIndex
    template: Template


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """The one grid of chunks that all pieces share; ``fill``: what chunks that are not stored hold, None where all are."""

    pieces: Sequence[GridPiece]
    dtype: np.dtype[Any]
    chunk: tuple[int, ...]
    filters: tuple[Filter, ...]
    encoding: Encoding
    fill: Any


def layout_of(array: MasterArray) -> ChunkGrid:
    """Return how an array is laid out in its files. AggregationError says why it is no Zarr array as it lies there."""
    pieces = list(_pieces(array))
    if not pieces:
        raise AggregationError(f"{array.name}: kerchunk references: none of its partitions is a file; {_WAY_OUT}")
    first = pieces[0]
    for piece in pieces[1:]:
        _alike(array, first, piece)
    chunk = _chunk_of(array, pieces)
    fill = _fill_of(array, pieces)
    return ChunkGrid(pieces, first.table.dtype, chunk, first.table.filters, first.template.encoding, fill)


def chunk_places(layout: ChunkGrid, piece: GridPiece) -> Iterator[tuple[tuple[int, ...], int, int, int]]:
    """Yield the chunks of a piece that are stored: place in the master's grid, number in the table, offset, size.

    Offset and size 0: the whole file. Chunks of the table are cut where those of the layout are smaller.
    """
    chunk, own, table = layout.chunk, piece.sides, piece.table
    grid = grid_of(piece.sizes, own)
    strides = [math.prod(grid[d + 1 :]) for d in range(len(grid))]
    within = [math.prod(own[d + 1 :]) for d in range(len(own))]
    cut = chunk != own
    size = math.prod(chunk) * table.dtype.itemsize
    counts = [-(-n // c) for n, c in zip(piece.shape, chunk, strict=True)]
    for step in product(*map(range, counts)):
        origin = [s + i * c for s, i, c in zip(piece.start, step, chunk, strict=True)]
        number = sum(o // side * stride for o, side, stride in zip(origin, own, strides, strict=True))
        offset = int(table.offsets[number])
        if offset < 0:
            continue
        place = tuple(a // c + i for a, c, i in zip(piece.at, chunk, step, strict=True))
        if cut:
            skipped = sum(o % side * w for o, side, w in zip(origin, own, within, strict=True))
            yield place, number, offset + skipped * table.dtype.itemsize, size
        else:
            yield place, number, offset, int(table.sizes[number])


def refuse(array: MasterArray, piece: GridPiece, what: str) -> NoReturn:
    """Raise AggregationError that names the array, the partition, its file, and the way out."""
    raise AggregationError(f"{array.name}: partition {piece.cell} ({piece.uri}): {what}: no kerchunk reference; {_WAY_OUT}")


def _pieces(array: MasterArray) -> Iterator[GridPiece]:
    matrix, access = array._matrix, array._access
    references = matrix.references
    known = {(e.uri, e.variable): e.chunks for e in gather_chunk_indexes([(references, access)])}
    for number in np.flatnonzero(matrix.refs >= 0).tolist():
        row, cell = int(matrix.refs[number]), tuple(int(i) for i in np.unravel_index(number, matrix.cells))
        uri, template = references.uri_of(row), references.template_of(row)
        at = tuple(int(e[i]) for e, i in zip(matrix.edges, cell, strict=True))
        shape = tuple(int(e[i + 1]) - a for e, i, a in zip(matrix.edges, cell, at, strict=True))
        ones = (1,) * len(at)
        if uri is None:
            raise AggregationError(f"{array.name}: partition {cell} is in memory: no kerchunk reference; {_WAY_OUT}")
        bare = GridPiece(uri, cell, at, ones, shape, ones, ones, _NO_CHUNKS, template)
        _conforms(array, bare)
        variable = references.variables[int(references.variable[row])]
        table = known.get((uri, variable))
        if table is None or table.names is not None:
            try:
                found = find_chunk_index(references, row, access)
            except AggarrayError as error:
                raise_named(error, uri, variable)
            if found is None:
                refuse(array, bare, "a codec or a way of storing that only its library reads")
            table = found[0]
        part = dict(zip(template.dimensions, part_of(matrix, cell, template), strict=True))
        yield _placed(array, bare._replace(table=table), part)


_NO_CHUNKS = ChunkIndex((), (), np.dtype("u1"), (), np.uint8(0), np.zeros(0, np.int64), np.zeros(0, np.int64))


def _conforms(array: MasterArray, piece: GridPiece) -> None:
    """Refuse a piece whose values take arithmetic, or another order, to become those of the array."""
    template, matrix = piece.template, array._matrix
    if template.steps:
        refuse(array, piece, "values converted by to_units, astype or an aggregation variable")
    if not conversion_between(template, array._step).identity:
        ours, theirs = (" ".join(filter(None, (o.units, o.calendar))) or "none" for o in (array, template))
        refuse(array, piece, f"units {theirs!r} where the array has {ours!r}")
    order = [d for d in matrix.dimensions if d in template.dimensions]
    if order != list(template.dimensions):
        refuse(array, piece, f"dimensions {template.dimensions} where the array has {matrix.dimensions}")
    forward = dict(zip(matrix.dimensions, matrix.directions, strict=True))
    for name, own in zip(template.dimensions, template.directions, strict=True):
        if own != forward[name]:
            ways = ["increasing" if way else "decreasing" for way in (own, forward[name])]
            refuse(array, piece, f"{name!r} {ways[0]} where the array has it {ways[1]}")
    if template.encoding.dtype != array.dtype:
        refuse(array, piece, f"values of {template.encoding.dtype} where the array has {array.dtype}")


def _placed(array: MasterArray, piece: GridPiece, part: Mapping[str, Indices]) -> GridPiece:
    """Return a piece with what it shows of its sub-array, in the dimensions of the array."""
    if piece.table.masks is not None and piece.table.masks.any():
        refuse(array, piece, "chunks for which a filter was skipped when they were written")
    sides = dict(zip(piece.template.dimensions, piece.table.chunk, strict=True))
    sizes = dict(zip(piece.template.dimensions, piece.table.shape, strict=True))
    start = []
    for name in array.dimensions:
        shown = part.get(name, slice(0, 1, 1))
        if not isinstance(shown, slice) or (shown.step or 1) != 1:
            refuse(array, piece, f"a part of {name!r} that leaves elements out")
        start.append(int(shown.start))
    return piece._replace(
        start=tuple(start),
        sides=tuple(sides.get(d, 1) for d in array.dimensions),
        sizes=tuple(sizes.get(d, 1) for d in array.dimensions),
    )


def _alike(array: MasterArray, first: GridPiece, piece: GridPiece) -> None:
    """Refuse a piece that is stored in another way than the first."""
    for what, find in _STORED.items():
        here, there = find(piece), find(first)
        if here != there:
            refuse(array, piece, f"{what} {_shown(here)} where {first.uri} has {_shown(there)}")


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value)) or "none"
    return f"{value.name}{list(value.parameters)}" if isinstance(value, Filter) else str(value)


def _missing(piece: GridPiece) -> str:
    encoding = piece.template.encoding
    return repr((*map(str, encoding.missing), encoding.missing_nan, str(encoding.valid), str(encoding.valid_unpacked)))


_STORED: Mapping[str, Any] = {
    "stored values of": lambda p: p.table.dtype.str,
    "codecs": lambda p: p.table.filters,
    "a packing with scale_factor and add_offset": lambda p: (p.template.encoding.scale_factor, p.template.encoding.add_offset),
    "missing values and valid bounds": _missing,
    "values seen as": lambda p: p.template.encoding.viewed.str,
}


def _chunk_of(array: MasterArray, pieces: Sequence[GridPiece]) -> tuple[int, ...]:
    """Return the shape of the chunks, cut smaller where there are no codecs; AggregationError where there is none."""
    first = pieces[0]
    problem = next((found for piece in pieces if (found := _misfit(array, first, piece)) is not None), None)
    if problem is None:
        return first.sides
    if any(piece.table.filters for piece in pieces) or any(piece.table.inline for piece in pieces):
        refuse(array, *problem)
    chunk = _cut(array, pieces)
    count = math.prod(grid_of(array.shape, chunk))
    if count > _MOST:
        refuse(array, problem[0], f"{problem[1]}; cut to fit, that would be {count} chunks of {chunk}")
    return chunk


def _misfit(array: MasterArray, first: GridPiece, piece: GridPiece) -> tuple[GridPiece, str] | None:
    """Return in what a piece does not lie on the grid of chunks of the first, None where it does."""
    if piece.sides != first.sides:
        return piece, f"chunks of {piece.sides} where {first.uri} has {first.sides}"
    for d, name in enumerate(array.dimensions):
        side, end = piece.sides[d], piece.at[d] + piece.shape[d]
        if piece.at[d] % side or piece.start[d] % side:
            return piece, f"it begins at {piece.at[d]} of {name!r} (at {piece.start[d]} of the file's) with chunks of {side}"
        if end % side and end != array.shape[d]:
            return piece, f"it ends at {end} of {name!r} with chunks of {side}"
    return None


def _cut(array: MasterArray, pieces: Sequence[GridPiece]) -> tuple[int, ...]:
    """Return the largest chunk that divides all pieces, and the chunks that these have, into contiguous ranges of bytes."""
    columns = zip(*((p.at, p.start, p.shape, p.sides) for p in pieces), strict=True)
    common = [[math.gcd(*numbers) for numbers in zip(*rows, strict=True)] for rows in columns]
    steps = [max(1, math.gcd(*each)) for each in zip(*common, strict=True)] if array.ndim else []
    # Padding at the edges of stored chunks is no part of what the array shows: the array's end must be one of a chunk.
    axis = len(steps)
    while axis and all(piece.sides[axis - 1] == steps[axis - 1] for piece in pieces):
        axis -= 1
    kept = tuple(steps[axis:])
    return (*(1,) * max(0, axis - 1), *steps[max(0, axis - 1) : axis], *kept)


def _fill_of(array: MasterArray, pieces: Sequence[GridPiece]) -> Any:
    """Return what chunks that are not stored hold, None where all are; it has to mean missing, or readers take it so."""
    encoding = pieces[0].template.encoding
    declared = encoding.missing[0] if encoding.missing else None
    if declared is None and (encoding.missing_nan or encoding.stored.kind == "f"):
        declared = encoding.stored.type(np.nan)
    if declared is not None:
        declared = np.asarray(declared).view(encoding.stored)[()]
    stated = bool(encoding.missing) or encoding.missing_nan
    if (array._matrix.refs < 0).any():
        if declared is None:
            text = "some of its partitions are missing, and no stored value means that"
            raise AggregationError(f"{array.name}: {text}: no kerchunk reference; {_WAY_OUT}")
        stated = True
    for piece in pieces:
        if len(piece.table.offsets) and (piece.table.offsets < 0).any():
            if not _same(piece.table.fill, declared):
                refuse(array, piece, f"chunks that are not stored, so {piece.table.fill}, where {declared} means missing")
            stated = True
        # Which chunks of a store are there is seen when they are referred to: see `check_missing_pieces`.
        stated = stated or (piece.table.names is not None and _same(piece.table.fill, declared))
    return declared if stated else None


def check_missing_pieces(array: MasterArray, layout: ChunkGrid, piece: GridPiece) -> None:
    """Refuse a chunk of a store that was never written, unless it reads as the same through the references.

    Without a fill value, which would mean missing, it reads as 0.
    """
    fill, written = piece.table.fill, layout.fill
    if not (fill == 0 if written is None else _same(fill, written)):
        shown = "0 is read" if written is None else f"{written} means missing"
        refuse(array, piece, f"chunks that are not stored, so {fill}, where {shown}")


def _same(fill: Any, declared: Any) -> bool:
    return declared is not None and bool(fill == declared or (fill != fill and declared != declared))
