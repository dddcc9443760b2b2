"""Positions of the stored chunks of many files, as columns.

They are plain data, which processes send to each other; `aggarray.index` stores them.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from aggarray.codecs.base import Filter
from aggarray.dataclass import dataclass
from aggarray.partition.chunk_index import ChunkIndex

#: Shape, chunk shape, dtype, filters and fill value, as `ChunkIndex` has them.
Layout = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any], tuple[Filter, ...], Any]


@dataclass(slots=True, eq=False)
class ChunkTables:
    """Chunk indexes of numbered files, as columns.

    Row i is variable ``names[variable[i]]`` of file ``files[file[i]]``, in the state ``stamps[file[i]]``: size, time, checksum.
    Its chunks have the layout ``layouts[layout[i]]``: positions ``starts[i]`` to ``starts[i + 1]`` of ``offsets`` (-1: not
    stored), ``sizes`` and ``masks`` (None: all zero).
    """

    files: Sequence[str]
    stamps: np.ndarray
    names: list[str]
    layouts: list[Layout]
    file: np.ndarray
    variable: np.ndarray
    layout: np.ndarray
    starts: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray
    masks: np.ndarray | None
    _lookup: "_Lookup | None" = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkTables, tuple(getattr(self, f.name) for f in fields(self) if f.name != "_lookup")

    @property
    def nbytes(self) -> int:
        """Bytes of the columns, without names and states of files."""
        columns = (self.file, self.variable, self.layout, self.starts, self.offsets, self.sizes, self.masks)
        return sum(column.nbytes for column in columns if column is not None)

    def find(self, uri: str, variable: str, scanned: tuple[int, int]) -> ChunkIndex | None:
        """Return the chunk index of a variable, None if the file has changed."""
        if (row := self._row(uri, variable, scanned)) is None:
            return None
        chunks = slice(int(self.starts[row]), int(self.starts[row + 1]))
        masks = None if self.masks is None or not self.masks[chunks].any() else self.masks[chunks].astype(np.uint32)
        offsets, sizes = self.offsets[chunks].astype(np.int64), self.sizes[chunks].astype(np.int64)
        return ChunkIndex(*self.layouts[int(self.layout[row])], offsets, sizes, masks)

    def stored(self, uri: str, variable: str, scanned: tuple[int, int]) -> int:
        """Return the stored bytes of a variable, -1 if the file has changed."""
        if (row := self._row(uri, variable, scanned)) is None:
            return -1
        before = self._looked_up().before
        return int(before[self.starts[row + 1]] - before[self.starts[row]])

    def layouts_of(self, references: Any, rows: np.ndarray) -> tuple[np.ndarray, list[Layout]]:
        """Return the number of the layout of each sub-array, and all layouts.

        ``references``: `References`, of which ``rows`` are in question. The number is -1 for changed and unknown files.
        """
        lookup, codes, names = self._looked_up(), references.uri[rows], references.variable[rows]
        files = np.array([lookup.files.get(str(uri), -1) for uri in references.uris] or [-1], np.int64)[codes]
        variables = np.array([lookup.names.get(name, -1) for name in references.variables] or [-1], np.int64)[names]
        numbers = np.full(len(rows), -1, np.int64)
        if references.stamps is None or not len(lookup.keys):
            return numbers, self.layouts
        keys = files * len(self.names) + variables
        at = np.minimum(lookup.keys.searchsorted(keys), len(lookup.keys) - 1)
        same = (self.stamps[files, :2] == references.stamps[codes, :2]).all(axis=1)
        present = same & (lookup.keys[at] == keys) & (files >= 0) & (variables >= 0)
        numbers[present] = self.layout[lookup.rows[at[present]]]
        return numbers, self.layouts

    def _row(self, uri: str, variable: str, scanned: tuple[int, int]) -> int | None:
        lookup = self._looked_up()
        code, name = lookup.files.get(uri), lookup.names.get(variable)
        if code is None or name is None:
            return None
        key = code * len(self.names) + name
        at = int(lookup.keys.searchsorted(key))
        size, time = self.stamps[code, :2].tolist()
        if at == len(lookup.keys) or lookup.keys[at] != key or (time, size) != scanned:
            return None
        return int(lookup.rows[at])

    def _looked_up(self) -> "_Lookup":
        if self._lookup is None:
            self._lookup = _Lookup(self)
        return self._lookup


class _Lookup:
    """Rows of chunk tables by file and variable.

    ``before``: stored bytes of all chunks before each.
    """

    def __init__(self, tables: ChunkTables) -> None:
        self.files = dict(zip(tables.files, range(len(tables.files)), strict=True))
        self.names = dict(zip(tables.names, range(len(tables.names)), strict=True))
        keys = tables.file.astype(np.int64) * len(tables.names) + tables.variable
        self.rows = np.argsort(keys, kind="stable")
        self.keys = keys[self.rows]
        self.before = np.concatenate([[0], np.cumsum(np.where(tables.offsets >= 0, tables.sizes, 0), dtype=np.int64)])


_NONE = np.zeros(0, np.int64)
NO_TABLES = ChunkTables((), np.zeros((0, 3), np.int64), [], [], _NONE, _NONE, _NONE, np.zeros(1, np.int64), _NONE, _NONE, None)
