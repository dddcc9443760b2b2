"""Bytes that variables take in their files, as far as an index knows them.

They decide how partitions are distributed, so every process must have the same ones: they are pickled with the sub-arrays,
while the places of the chunks are not.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np


class ChunkIndexes(Protocol):
    """What knows where chunks are stored without asking the files."""

    def find(self, uri: str, variable: str, scanned: tuple[int, int]) -> Any:
        """Return the chunks of a variable of a file, None unless they are known of it with this time and size."""

    def stored(self, uri: str, variable: str, scanned: tuple[int, int]) -> int:
        """Return the bytes that a variable takes in a file, -1 unless they are known of it with this time and size."""


#: Sub-arrays as columns: `aggarray.partition.matrix.References`, or what is pickled of them here.
Columns = Any


def stored_bytes(references: Columns) -> np.ndarray:
    """Return how many bytes each sub-array takes in its file, int64, -1 where no index has told; no file is opened."""
    sizes = np.full(len(references.uri), -1, np.int64)
    if references.tables is not None:
        for row, uri, variable, scanned in _rows(references):
            sizes[row] = references.tables.stored(uri, variable, scanned)
    return sizes


def _rows(columns: Columns) -> Iterator[tuple[int, str, str, tuple[int, int]]]:
    """Yield the number, file, variable, and time and size of that file, of each sub-array of a file that was scanned."""
    if columns.stamps is None:
        return
    stamps = columns.stamps.tolist()
    for row, (code, name) in enumerate(zip(columns.uri.tolist(), columns.variable.tolist(), strict=True)):
        if code >= 0 and stamps[code][0] >= 0:
            yield row, str(columns.uris[code]), columns.variables[name], (stamps[code][1], stamps[code][0])


class StoredSizes:
    """What is pickled of the chunk tables of an index: the bytes of each sub-array in its file."""

    __slots__ = ("_known", "sizes", "stamps", "uri", "uris", "variable", "variables")

    def __init__(self, columns: Columns, sizes: np.ndarray) -> None:
        self.uris, self.variables, self.stamps = columns.uris, columns.variables, columns.stamps
        self.uri, self.variable, self.sizes = columns.uri, columns.variable, sizes
        self._known: dict[tuple[str, str], tuple[tuple[int, int], int]] | None = None

    def __getstate__(self) -> tuple[Any, ...]:
        return self.uris, self.variables, self.stamps, self.uri, self.variable, self.sizes

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.uris, self.variables, self.stamps, self.uri, self.variable, self.sizes = state
        self._known = None

    def find(self, uri: str, variable: str, scanned: tuple[int, int]) -> None:
        """Return None: the files say where their chunks are."""

    def stored(self, uri: str, variable: str, scanned: tuple[int, int]) -> int:
        """Return the bytes that a variable takes in a file, -1 unless they are known of it with this time and size."""
        if self._known is None:
            sizes = self.sizes.tolist()
            self._known = {(u, v): (s, sizes[row]) for row, u, v, s in _rows(self)}
        known, size = self._known.get((uri, variable), (None, -1))
        return size if known == scanned else -1


def sizes_to_pickle(references: Columns) -> StoredSizes | None:
    """Return what is pickled in place of the chunk tables of sub-arrays, None where nothing is known."""
    sizes = stored_bytes(references)
    # promise: stored-sizes-pickled
    return StoredSizes(references, sizes) if (sizes >= 0).any() else None


class JoinedChunkIndexes:
    """Tables of several indexes: the first that knows a variable answers."""

    __slots__ = ("_members",)

    def __init__(self, *members: ChunkIndexes) -> None:
        self._members = members

    def find(self, uri: str, variable: str, scanned: tuple[int, int]) -> Any:
        """Return the chunks of a variable of a file, None where no member knows them."""
        found = (member.find(uri, variable, scanned) for member in self._members)
        return next((chunks for chunks in found if chunks is not None), None)

    def stored(self, uri: str, variable: str, scanned: tuple[int, int]) -> int:
        """Return the bytes that a variable takes in a file, -1 where no member knows them."""
        return next((n for member in self._members if (n := member.stored(uri, variable, scanned)) >= 0), -1)

    def joined(self, other: ChunkIndexes) -> "JoinedChunkIndexes":
        """Return these tables and others, each once."""
        more = other._members if isinstance(other, JoinedChunkIndexes) else (other,)
        new = [one for one in more if not any(one is member for member in self._members)]
        return JoinedChunkIndexes(*self._members, *new) if new else self


def join_chunk_indexes(one: ChunkIndexes | None, other: ChunkIndexes | None) -> ChunkIndexes | None:
    """Return tables that know what either does."""
    if one is None or other is None or one is other:
        return other if one is None else one
    return (one if isinstance(one, JoinedChunkIndexes) else JoinedChunkIndexes(one)).joined(other)
