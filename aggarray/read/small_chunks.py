"""Batches of small pieces of similar files, for a low cost per file.

Their bytes are gathered file by file, and decoded and conformed together. A piece that is missing, damaged, not stored or
changed is read individually, which reports its error.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from aggarray.errors import AggarrayError
from aggarray.options import get_options
from aggarray.partition.chunk_selection import ChunkBlock, chunk_blocks_of
from aggarray.partition.conform import conform
from aggarray.partition.matrix import Matrix
from aggarray.partition.plan import Piece
from aggarray.read.chunk_blocks import decode_block, stored_ranges
from aggarray.read.chunk_index import LocatedIndex
from aggarray.read.stored_piece import Outputs, Target, native, seen_as_stored
from aggarray.storage.byte_source import read_ranges

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
        #: Decoded bytes of a member.
        self.size = len(block.numbers) * prod(block.chunk) * self._table.dtype.itemsize

    def add(self, piece: Piece, located: LocatedIndex) -> bool:
        """Add a piece if it matches and fits; return whether it was added."""
        first, table, other = self._piece, self._table, located[0]
        # `is_plain` first: index arrays do not compare as slices do.
        matches = (
            is_plain(piece, located)
            and piece.selection == first.selection
            and self._matrix.references.template[piece.ref] == self._code
            and piece.flip == first.flip
            and (other.shape, other.chunk, other.filters, other.dtype) == (table.shape, table.chunk, table.filters, table.dtype)
        )
        if matches and len(self._members) < MOST and (len(self._members) + 1) * self.size <= TOGETHER:
            self._members.append((piece, located))
            return True
        return False

    def read(self, outputs: Outputs, alone: Callable[[Piece, LocatedIndex], Any]) -> None:
        """Read all pieces into the outputs; ``alone`` reads one individually."""
        parts, there = [], []
        for piece, located in self._members:
            try:
                parts += read_ranges(located[1], stored_ranges(located[0], self._block.numbers), located[2])
            except (AggarrayError, OSError):
                alone(piece, located)
                continue
            there.append((piece, located))
        if not there:
            return
        try:
            raw = native(decode_block(self._table, self._block, parts, len(there)))
            template = self._matrix.references.templates[int(self._code)]
            values, mask = conform(*template.encoding.decode(raw), template, self._target.step)
        except ValueError:  # most errors of aggarray are ValueErrors
            for piece, located in there:
                alone(piece, located)
            return
        self._put(outputs, [piece for piece, _ in there], values, mask)

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


def small_chunk_batch(matrix: Matrix, target: Target, piece: Piece, located: LocatedIndex) -> SmallChunkBatch | None:
    """Return a batch that starts with a piece; None to read it individually."""
    table = located[0]
    most = SMALL // (prod(table.chunk) * table.dtype.itemsize)
    if not most or not is_plain(piece, located) or get_options().cache_bytes:
        return None
    blocks = chunk_blocks_of(table, piece.selection, most)
    if not isinstance(blocks, tuple) or len(blocks) != 1:
        return None
    return SmallChunkBatch(matrix, target, piece, located, blocks[0])


def is_plain(piece: Piece, located: LocatedIndex) -> bool:
    """Return whether a piece fills a rectangle from chunks of its own file."""
    table = located[0]
    if table.names is not None or table.masks is not None or located[2] is None:
        return False
    # Without generators: this runs for each of thousands of files.
    for taken in piece.take:
        if taken is not None:
            return False
    return _SLICES.issuperset(map(type, (*piece.out, *piece.selection)))
