"""Positions of the stored chunks of many files, as columns.

Processes send these columns to each other; `aggarray.index` stores them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.codecs.base import Filter
from aggarray.dataclass import dataclass, fields
from aggarray.partition.chunk_index import ChunkIndex
from aggarray.partition.matrix import BLOCK, References

#: Shape, chunk shape, dtype, filters and fill value, as `ChunkIndex` has them.
Layout = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any], tuple[Filter, ...], Any]


@dataclass(slots=True, eq=False)
class ChunkTables:
    """Chunk indexes of many files and variables, as columns.

    Row i describes variable ``names[variable[i]]`` of file ``files[file[i]]``, whose state at the scan was ``stamps[file[i]]``:
    size, time, checksum. Its layout is ``layouts[layout[i]]``. Its chunks are elements ``starts[i]`` to ``starts[i + 1]`` of
    ``offsets`` (-1: not stored), ``sizes`` and ``masks`` (None: all zero).
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
    _keys: tuple[np.ndarray, np.ndarray | None] | None = None
    _by_uri: dict[str, int] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkTables, tuple(getattr(self, f.name) for f in fields(self) if not f.name.startswith("_"))

    @property
    def nbytes(self) -> int:
        """Bytes of the columns, except names and states of files."""
        columns = (self.file, self.variable, self.layout, self.starts, self.offsets, self.sizes, self.masks)
        return sum(column.nbytes for column in columns if column is not None)

    def load(self) -> ChunkTables:
        """Return these: those of an index are read on the first request."""
        return self

    def find(self, references: References, row: int) -> ChunkIndex | None:
        """Return the chunk index of a sub-array, None if its file has changed."""
        row = self._row(references, row)
        if row < 0:
            return None
        chunks = slice(int(self.starts[row]), int(self.starts[row + 1]))
        masks = None if self.masks is None or not self.masks[chunks].any() else self.masks[chunks].astype(np.uint32)
        offsets, sizes = self.offsets[chunks].astype(np.int64), self.sizes[chunks].astype(np.int64)
        return ChunkIndex(*self.layouts[int(self.layout[row])], offsets, sizes, masks)

    def ranges(self, rows: np.ndarray, numbers: Sequence[int]) -> list[list[tuple[int, int]]]:
        """Return offset and size of some chunks of several rows of one layout."""
        at = self.starts[rows].astype(np.int64)[:, np.newaxis] + numbers
        both = zip(self.offsets[at].tolist(), self.sizes[at].tolist(), strict=True)
        return [list(zip(offsets, sizes, strict=True)) for offsets, sizes in both]

    def stored(self, references: References) -> np.ndarray:
        """Return the stored bytes of each sub-array, -1 if its file has changed."""
        by_row = np.full(len(self.file) + 1, -1, np.int64)  # the last one is for -1
        for at in range(0, len(self.file), BLOCK):
            starts = self.starts[at : at + BLOCK + 1].astype(np.int64)
            chunks = slice(int(starts[0]), int(starts[-1]))
            ends = np.cumsum(np.where(self.offsets[chunks] >= 0, self.sizes[chunks], 0), dtype=np.int64)
            by_row[at : at + len(starts) - 1] = np.diff(np.append(0, ends)[starts - starts[0]])
        sizes = np.empty(len(references), np.int64)
        for at in range(0, len(references), BLOCK):
            rows = np.arange(at, min(at + BLOCK, len(references)))
            sizes[at : at + BLOCK] = by_row[self._rows_of(references, rows)]
        return sizes

    def layouts_of(self, references: References, rows: np.ndarray) -> tuple[np.ndarray, list[Layout]]:
        """Return the layouts of some sub-arrays, as numbers, and all layouts.

        Changed and unknown files have the number -1.
        """
        numbers = np.full(len(rows), -1, np.int32)
        for at in range(0, len(rows), BLOCK) if len(self.layout) else ():
            found = self._rows_of(references, rows[at : at + BLOCK])
            numbers[at : at + BLOCK] = np.where(found < 0, -1, self.layout[found])
        return numbers, self.layouts

    def _row(self, references: References, row: int) -> int:
        """Return the row of one sub-array, -1 for a changed or unknown file."""
        code, (keys, order) = int(references.uri[row]), self._ordered()
        name = references.variables[int(references.variable[row])]
        if code < 0 or references.stamps is None or name not in self.names:
            return -1
        file = self._number(references.uris, code)
        key = file * len(self.names) + self.names.index(name)
        # Where each file has one variable, the keys are the numbers of the files.
        at = key if 0 <= key < len(keys) and keys[key] == key else int(keys.searchsorted(key))
        if file < 0 or at == len(keys) or keys[at] != key:
            return -1
        if self.stamps[file, :2].tolist() != references.stamps[code, :2].tolist():
            return -1
        return at if order is None else int(order[at])

    def rows_of(self, references: References, rows: np.ndarray) -> np.ndarray:
        """Return the rows of sub-arrays, -1 for changed and unknown files."""
        result = np.empty(len(rows), np.int64)
        for at in range(0, len(rows), BLOCK):
            result[at : at + BLOCK] = self._rows_of(references, rows[at : at + BLOCK])
        return result

    def _rows_of(self, references: References, rows: np.ndarray) -> np.ndarray:
        """Return a block of `rows_of`."""
        codes, keys, order = references.uri[rows], *self._ordered()
        result = np.full(len(rows), -1, np.int64)
        if references.stamps is None or not len(keys):
            return result
        variables = np.array([self.names.index(name) if name in self.names else -1 for name in references.variables] or [-1])
        names = variables[references.variable[rows]]
        files = self._numbers(references.uris, codes)
        wanted = files * len(self.names) + names
        # The keys of files of one variable are often all numbers, in order.
        at = wanted - keys[0] if keys[-1] - keys[0] == len(keys) - 1 else keys.searchsorted(wanted)
        at = np.clip(at, 0, len(keys) - 1)
        present = (codes >= 0) & (files >= 0) & (names >= 0) & (keys[at] == wanted)
        if references.stamps is not self.stamps or files is not codes:
            for column in (0, 1):
                present &= self.stamps[files, column] == references.stamps[codes, column]
        result[present] = at[present] if order is None else order[at[present]]
        return result

    def _number(self, uris: Any, code: int) -> int:
        """Return the number of a URI among the files, -1 for other files."""
        number_in = getattr(uris, "number_in", None)
        number = None if number_in is None else number_in(self.files, code)
        return self._files().get(str(uris[code]), -1) if number is None else int(number)

    def _files(self) -> dict[str, int]:
        """Return the numbers of the files by URI."""
        if self._by_uri is None:
            self._by_uri = dict(zip(self.files, range(len(self.files)), strict=True))
        return self._by_uri

    def _numbers(self, uris: Any, codes: np.ndarray) -> np.ndarray:
        """Return the numbers of some URIs among the files, -1 for other files."""
        if getattr(uris, "base", None) is self.files:
            return np.asarray(uris.numbers_of(codes))
        numbers_in = getattr(uris, "numbers_in", None)
        numbers = None if numbers_in is None else numbers_in(self.files)
        if numbers is not None:  # of files that extend those of an index
            return np.where(codes < 0, -1, np.asarray(numbers)[codes])
        used, number = np.unique(codes, return_inverse=True)
        found = [-1 if code < 0 else self._files().get(str(uris[code]), -1) for code in used.tolist()]
        return np.array(found, np.int64)[number]

    def _ordered(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the sorted keys of the rows, and their order.

        A key combines the numbers of file and variable. The order is None if the rows are sorted.
        """
        if self._keys is None:
            single = len(self.names) == 1
            keys = self.file if single else self.file.astype(np.int64) * len(self.names) + self.variable
            order = None if (keys[1:] > keys[:-1]).all() else np.argsort(keys, kind="stable")
            self._keys = keys if order is None else keys[order], order
        return self._keys


_NONE = np.zeros(0, np.int64)
NO_TABLES = ChunkTables((), np.zeros((0, 3), np.int64), [], [], _NONE, _NONE, _NONE, np.zeros(1, np.int64), _NONE, _NONE, None)
