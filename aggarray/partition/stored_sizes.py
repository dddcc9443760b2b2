"""Stored sizes of variables in their files, where an index has them.

They determine how partitions are distributed, so every process must have the same ones. They are pickled with the
sub-arrays; the positions of the chunks are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from aggarray.storage import relocated_all


class ChunkIndexes(Protocol):
    """Chunk positions that are known without opening the files."""

    def find(self, references: Columns, row: int) -> Any:
        """Return the chunks of a sub-array, None if unknown.

        Those of a file in any other state than that of its scan are unknown.
        """

    def stored(self, references: Columns) -> np.ndarray:
        """Return the stored bytes of each sub-array, int64, -1 if unknown."""


#: Sub-arrays as columns: `aggarray.partition.matrix.References`, or `StoredSizes`.
Columns = Any


def stored_bytes(references: Columns) -> np.ndarray:
    """Return stored bytes per sub-array, int64, -1 if unknown; open no file."""
    if references.tables is None or references.stamps is None:
        return np.full(len(references.uri), -1, np.int64)
    sizes: np.ndarray = references.tables.stored(references)
    return sizes


def stored_chunk_shape(references: Columns, row: int) -> tuple[int, ...] | None:
    """Return the shape of the stored chunks of a sub-array, None if unknown."""
    tables = references.tables
    if hasattr(tables, "layouts_of"):  # without the positions of all chunks
        (number,), layouts = tables.layouts_of(references, np.array([row]))
        return layouts[number][1] if number >= 0 else None
    index = None if tables is None else tables.find(references, row)
    return None if index is None else tuple(index.chunk)


def _rows(columns: Columns) -> Iterator[tuple[int, str, str, tuple[int, int]]]:
    if columns.stamps is None:
        return
    stamps = columns.stamps.tolist()
    for row, (code, name) in enumerate(zip(columns.uri.tolist(), columns.variable.tolist(), strict=True)):
        if code >= 0 and stamps[code][0] >= 0:
            yield row, str(columns.uris[code]), columns.variables[name], (stamps[code][1], stamps[code][0])


class StoredSizes:
    """Pickled form of chunk indexes: the stored bytes of each sub-array."""

    __slots__ = ("_known", "sizes", "stamps", "uri", "uris", "variable", "variables")

    def __init__(self, columns: Columns, sizes: np.ndarray) -> None:
        self.uris, self.variables, self.stamps = columns.uris, columns.variables, columns.stamps
        self.uri, self.variable, self.sizes = columns.uri, columns.variable, sizes
        self._known: dict[tuple[str, str], tuple[tuple[int, int], int]] | None = None

    def __getstate__(self) -> tuple[Any, ...]:
        return self.uris, self.variables, self.stamps, self.uri, self.variable, self.sizes

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        uris, self.variables, self.stamps, self.uri, self.variable, self.sizes = state
        self.uris = relocated_all(uris)
        self._known = None

    def find(self, references: Columns, row: int) -> None:
        """Return None: chunk positions are not pickled."""

    def stored(self, references: Columns) -> np.ndarray:
        """Return the stored bytes of each sub-array, -1 if unknown."""
        if self._known is None:
            sizes = self.sizes.tolist()
            self._known = {(u, v): (s, sizes[row]) for row, u, v, s in _rows(self)}
        stored = np.full(len(references.uri), -1, np.int64)
        for row, uri, variable, scanned in _rows(references):
            state, size = self._known.get((uri, variable), (None, -1))
            stored[row] = size if state == scanned else -1
        return stored


def sizes_to_pickle(references: Columns) -> StoredSizes | None:
    """Return the stored sizes of sub-arrays, None if none is known."""
    sizes = stored_bytes(references)
    # promise: stored-sizes-pickled
    return StoredSizes(references, sizes) if (sizes >= 0).any() else None


class JoinedChunkIndexes:
    """Several chunk indexes; the first that contains a variable is used."""

    __slots__ = ("_members",)

    def __init__(self, *members: ChunkIndexes) -> None:
        self._members = members

    @property
    def members(self) -> tuple[ChunkIndexes, ...]:
        """The joined chunk indexes."""
        return self._members

    def find(self, references: Columns, row: int) -> Any:
        """Return the chunks of a sub-array, None if unknown."""
        results = (member.find(references, row) for member in self._members)
        return next((chunks for chunks in results if chunks is not None), None)

    def stored(self, references: Columns) -> np.ndarray:
        """Return the stored bytes of each sub-array, -1 if unknown."""
        sizes = np.full(len(references.uri), -1, np.int64)
        for member in self._members:
            own = member.stored(references)
            sizes = np.where(sizes < 0, own, sizes)
        return sizes

    def layouts_of(self, references: Columns, rows: np.ndarray) -> tuple[np.ndarray, list[Any]]:
        """Return the layouts of sub-arrays, as `ChunkTables.layouts_of` does."""
        numbers, layouts = np.full(len(rows), -1, np.int64), list[Any]()
        for member in self._members:
            if hasattr(member, "layouts_of"):
                own, more = member.layouts_of(references, rows)
                numbers = np.where((numbers < 0) & (own >= 0), own + len(layouts), numbers)
                layouts += more
        return numbers, layouts


def members_of(indexes: ChunkIndexes | None) -> tuple[ChunkIndexes, ...]:
    """Return the chunk indexes that were joined, or the one that was not."""
    if indexes is None:
        return ()
    return indexes.members if isinstance(indexes, JoinedChunkIndexes) else (indexes,)


def join_chunk_indexes(first: ChunkIndexes | None, second: ChunkIndexes | None) -> ChunkIndexes | None:
    """Return a chunk index that combines two, without duplicates."""
    if first is None or second is None or first is second:
        return second if first is None else first
    members, others = members_of(first), members_of(second)
    new = [other for other in others if not any(other is member for member in members)]
    return JoinedChunkIndexes(*members, *new) if new else first
