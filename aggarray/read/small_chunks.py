"""Batches of small pieces of similar files, decoded together.

Their bytes are gathered file by file, and decoded and conformed together. A piece that is missing, damaged, not stored or
changed is read individually, which reports its error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.errors import AggarrayError
from aggarray.options import get_options
from aggarray.partition.chunk_index import ChunkIndex
from aggarray.partition.chunk_selection import ChunkBlock, chunk_blocks_of
from aggarray.partition.conform import conform
from aggarray.partition.matrix import Matrix, References
from aggarray.partition.plan import Piece
from aggarray.read.chunk_blocks import decode_block, stored_ranges
from aggarray.read.chunk_index import LocatedIndex
from aggarray.read.stored_piece import Outputs, Target, native, seen_as_stored
from aggarray.storage.byte_source import read_ranges, read_stamped

if TYPE_CHECKING:
    from aggarray.partition.chunk_tables import ChunkTables

#: The stored bytes of a chunk.
Part = bytes | memoryview
_SLICES = frozenset((slice,))
#: Limits: decoded bytes of a piece, decoded bytes and pieces of a batch.
SMALL, TOGETHER, MOST = 1 << 18, 1 << 20, 256


class SmallChunkBatch:
    """Pieces that differ only in file and position."""

    def __init__(self, matrix: Matrix, target: Target, piece: Piece, located: LocatedIndex, block: ChunkBlock) -> None:
        self._matrix, self._target, self._block = matrix, target, block
        self._piece, self._table = piece, located[0]
        self._code = matrix.references.template[piece.ref]
        self._members = [(piece, located)]
        # Pieces whose chunks an index locates, with their rows in its tables, and the last layout that matched.
        self._indexed: list[tuple[Piece, int]] = []
        self._tables: ChunkTables | None = None
        self._layout = -1
        #: Decoded bytes of a member.
        self.size = len(block.numbers) * prod(block.chunk) * self._table.dtype.itemsize

    def add(self, piece: Piece, located: LocatedIndex) -> bool:
        """Add a piece if it matches and fits; return whether it was added."""
        matches = is_plain(located) and self._has_room_for(piece) and self._has(layout_of(located[0]))
        if matches:
            self._members.append((piece, located))
        return matches

    def add_indexed(self, piece: Piece, row: int, tables: ChunkTables) -> bool:
        """Add a piece whose chunks a row of an index locates, as `add`."""
        if not self._has_room_for(piece):
            return False
        layout = int(tables.layout[row])
        if layout != self._layout:
            if not self._has(tables.layouts[layout][:4]):
                return False
            self._layout = layout
        self._indexed.append((piece, row))
        self._tables = tables
        return True

    def _has_room_for(self, piece: Piece) -> bool:
        count, first = len(self._members) + len(self._indexed), self._piece
        return (
            count < MOST
            and (count + 1) * self.size <= TOGETHER
            # Before the selections: index arrays do not compare as slices do.
            and fills_rectangle(piece)
            and piece.selection == first.selection
            and self._matrix.references.template[piece.ref] == self._code
            and piece.flip == first.flip
        )

    def _has(self, layout: tuple[Any, ...]) -> bool:
        return layout == layout_of(self._table)

    def read(self, outputs: Outputs, locate: Callable[[Piece], LocatedIndex | None], alone: Callable[[Piece], object]) -> None:
        """Read all pieces into the outputs.

        ``locate``: looks up the chunk index of a piece; ``alone``: reads one individually.
        """
        parts: list[Any] = []
        there = []
        for piece, own in chain(self._parts(), self._indexed_parts(locate)):
            if own is None:
                alone(piece)
                continue
            parts += own
            there.append(piece)
        if not there:
            return
        try:
            raw = native(decode_block(self._table, self._block, parts, len(there)))
            template = self._matrix.references.templates[int(self._code)]
            values, mask = conform(*template.encoding.decode(raw), template, self._target.step)
        except ValueError:  # most errors of aggarray are ValueErrors
            for piece in there:
                alone(piece)
            return
        self._put(outputs, there, values, mask)

    def _parts(self) -> Iterator[tuple[Piece, Sequence[Part] | None]]:
        """Yield the pieces and their stored bytes, None for unreadable ones."""
        for piece, located in self._members:
            yield piece, self._read_located(located)

    def _read_located(self, located: LocatedIndex) -> list[memoryview] | None:
        table, path, state = located
        try:
            return read_ranges(path, stored_ranges(table, self._block.numbers), state)
        except (AggarrayError, OSError):
            return None

    def _indexed_parts(self, locate: Callable[[Piece], LocatedIndex | None]) -> Iterator[tuple[Piece, Sequence[Part] | None]]:
        """Yield those that an index locates, as `_parts`."""
        if self._tables is None:
            return
        references, are_stamped = self._matrix.references, True
        ranges = self._tables.ranges(np.array([row for _, row in self._indexed]), self._block.numbers)
        for (piece, _), own in zip(self._indexed, ranges, strict=True):
            parts: Sequence[Part] | None = None
            if are_stamped:
                with suppress(AggarrayError):
                    uri = str(references.uri_of(piece.ref))
                    self._target.access.check(uri)
                    parts = read_stamped(uri, own, references.stamp_of(piece.ref))
            if parts is None:
                # Copies have other times than the scanned files, and often all files are copies.
                are_stamped, located = False, locate(piece)
                if located is not None and is_plain(located) and self._has(layout_of(located[0])):
                    parts = self._read_located(located)
            yield piece, parts

    def _put(self, outputs: Outputs, pieces: list[Piece], values: np.ndarray, mask: np.ndarray | None) -> None:
        fill, template = self._target.fill_value, self._matrix.references.templates[int(self._code)]
        see = seen_as_stored(template, self._piece.flip, self._matrix.dimensions)
        absent: Any = [] if mask is None else mask.reshape(len(pieces), -1).any(axis=1).tolist()
        for number, piece in enumerate(pieces):
            where = see(outputs[0][(*piece.out, ...)])
            where[...] = values[number]
            if mask is not None and absent[number]:
                np.copyto(where, fill, where=mask[number])
                if outputs[1] is not None:
                    see(outputs[1][(*piece.out, ...)])[...] = mask[number]


def indexed_rows(references: References, groups: Sequence[Sequence[Piece]]) -> tuple[ChunkTables | None, list[int]]:
    """Return chunk tables of an index, and the row of each single piece there.

    The row is -1 for a piece without one; the tables are None if they have no rows or cannot be read.
    """
    none = None, [-1] * len(groups)
    # Pickled arrays and joined indexes have chunk indexes of other classes.
    load = getattr(references.tables, "load", None)
    if load is None or not len(references):
        return none
    try:
        tables: ChunkTables = load()
    except AggarrayError:
        return none  # the read of the first piece raises the error, with file and variable
    if tables.masks is not None:
        return none
    pieces = np.array([group[0].ref if len(group) == 1 else -1 for group in groups])
    return tables, np.where(pieces < 0, -1, tables.rows_of(references, pieces)).tolist()


def small_chunk_batch(matrix: Matrix, target: Target, piece: Piece, located: LocatedIndex) -> SmallChunkBatch | None:
    """Return a batch that starts with a piece; None to read it individually."""
    table = located[0]
    most = SMALL // (prod(table.chunk) * table.dtype.itemsize)
    if not most or not is_plain(located) or not fills_rectangle(piece) or get_options().cache_bytes:
        return None
    blocks = chunk_blocks_of(table, piece.selection, most)
    if not isinstance(blocks, tuple) or len(blocks) != 1:
        return None
    return SmallChunkBatch(matrix, target, piece, located, blocks[0])


def layout_of(table: ChunkIndex) -> tuple[Any, ...]:
    """Return what chunks that are decoded together have in common."""
    return table.shape, table.chunk, table.dtype, table.filters


def is_plain(located: LocatedIndex) -> bool:
    """Return whether all chunks lie in the file itself, complete."""
    table = located[0]
    return table.names is None and table.masks is None and located[2] is not None


def fills_rectangle(piece: Piece) -> bool:
    """Return whether a piece is a rectangle in the file and in the array."""
    # Without generators: this runs for each of thousands of files.
    for taken in piece.take:
        if taken is not None:
            return False
    return _SLICES.issuperset(map(type, (*piece.out, *piece.selection)))
