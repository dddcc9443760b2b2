"""Chunk indexes of the files of an index that is being saved, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.index.chunk_tables import StoredChunkIndexes
from aggarray.index.encoder import plain
from aggarray.index.file_numbers import FileNumbers
from aggarray.index.store import Writer
from aggarray.partition.chunk_tables import ChunkTables, Layout
from aggarray.partition.matrix import References
from aggarray.partition.stored_sizes import members_of
from aggarray.read.chunk_index import CachedChunkIndex


class ChunkPacker:
    """Collects chunk indexes of numbered files unchanged since their stamp.

    ``stamps``: int64 (files, 3), the states that the index stores.
    """

    def __init__(self, files: FileNumbers, stamps: np.ndarray) -> None:
        self._files, self._stamps = files, stamps
        self._layouts: dict[str, int] = {}
        self._encoded: list[Any] = []
        self._names: dict[str, int] = {}
        #: Per part: file, variable, layout and count of each index; offset, size and mask of each chunk.
        self._parts: list[tuple[np.ndarray, ...]] = []
        self._single: dict[tuple[int, int], tuple[int, CachedChunkIndex]] = {}

    def add_known(self, references: References, rows: np.ndarray) -> np.ndarray:
        """Add the indexes that sub-arrays have; return the rows of the others."""
        for tables in members_of(references.tables):
            loaded = tables.load() if isinstance(tables, StoredChunkIndexes) else tables
            if len(rows) and references.stamps is not None and isinstance(loaded, ChunkTables):
                rows = self._add_tables(loaded, references, rows)
        return rows

    def _add_tables(self, tables: ChunkTables, references: References, rows: np.ndarray) -> np.ndarray:
        own = tables.rows_of(references, rows)
        files = self._files.of(references.uris)[references.uri[rows]]
        own[(self._stamps[files, :2] != references.stamps[references.uri[rows], :2]).any(axis=1)] = -1  # type: ignore[index]
        known = own >= 0
        kept = own[known]
        if len(kept):
            layouts = np.array([self._layout(layout) for layout in tables.layouts], np.int64)
            names = np.array([self._names.setdefault(name, len(self._names)) for name in tables.names], np.int64)
            starts = tables.starts[kept].astype(np.int64)
            count = tables.starts[kept + 1] - starts
            chunks = np.arange(int(count.sum())) + np.repeat(starts - (np.cumsum(count) - count), count)
            masks = np.zeros(len(chunks), np.int8) if tables.masks is None else tables.masks[chunks]
            columns = files[known], names[tables.variable[kept]], layouts[tables.layout[kept]], count
            self._parts.append((*columns, tables.offsets[chunks], tables.sizes[chunks], masks))
        return rows[~known]

    def add(self, index: CachedChunkIndex) -> None:
        """Add the index of one variable of a file."""
        table = index.chunks
        code = int(self._files.of([index.uri])[0])
        size, time = self._stamps[code, :2].tolist() if code < len(self._stamps) else (-1, -1)
        if size < 0 or (time, size) != index.state[:2] or table.names is not None:
            return
        number = self._layout((table.shape, table.chunk, table.dtype, table.filters, table.fill))
        self._single[code, self._names.setdefault(index.variable, len(self._names))] = (number, index)

    def _layout(self, layout: Layout) -> int:
        shape, chunk, dtype, filters, fill = layout
        encoded = [plain(shape), plain(chunk), dtype.str, plain(fill), [[f.name, *map(plain, f.parameters)] for f in filters]]
        number = self._layouts.setdefault(repr(encoded), len(self._encoded))
        if number == len(self._encoded):
            self._encoded.append(encoded)
        return number

    def _of_single(self) -> tuple[np.ndarray, ...]:
        tables = [index.chunks for _, index in self._single.values()]
        masks = [np.zeros(len(t.offsets), np.int8) if t.masks is None else t.masks for t in tables]
        chunks = [[t.offsets for t in tables], [t.sizes for t in tables], masks]
        files, names = np.array(list(self._single), np.int64).reshape(-1, 2).T
        layouts = np.array([number for number, _ in self._single.values()], np.int64)
        joined = (_joined(parts) if parts else np.zeros(0, np.int64) for parts in chunks)
        return files, names, layouts, np.array([len(t.offsets) for t in tables], np.int64), *joined

    def packed(self, writer: Writer) -> dict[str, Any]:
        """Return the columns, each variable of a file once."""
        parts = [*self._parts, *([self._of_single()] if self._single or not self._parts else [])]
        file, variable, layout, count, *chunks = map(_joined, zip(*parts, strict=True))
        keys = file * (len(self._names) or 1) + variable
        if len(parts) > 1 and len(first := np.unique(keys, return_index=True)[1]) < len(keys):
            kept = np.zeros(len(keys), bool)
            kept[first] = True
            chunks = [column[np.repeat(kept, count)] for column in chunks]
            file, variable, layout, count = (column[kept] for column in (file, variable, layout, count))
        return {
            "layouts": self._encoded,
            "names": list(self._names),
            **{name: writer.column(c) for name, c in (("variable", variable), ("file", file), ("layout", layout))},
            "count": writer.column(count),
            "columns": [writer.column(column) for column in chunks],
        }


def _joined(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return columns in a row; a single one without a copy."""
    return columns[0] if len(columns) == 1 else np.concatenate(columns)
