"""Chunk indexes of the files of an index, stored to avoid new parsing.

Files of the same layout (shape, chunk shape, dtype, filters) share it. The offsets and sizes of all files are columns, read
on the first request. A chunk index is valid only while its file has the recorded size and time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from aggarray.codecs import Filter
from aggarray.dataclass import replace
from aggarray.errors import IndexFileError, MissingFileError
from aggarray.index.decoder import unplain
from aggarray.index.recognition import stored_generation
from aggarray.index.store import Reader, plain_dtype
from aggarray.partition.chunk_index import ChunkIndex, grid_of
from aggarray.partition.chunk_tables import NO_TABLES, ChunkTables, Layout
from aggarray.partition.matrix import References

#: Largest decoded chunk of HDF5 in bytes.
_LARGEST = (1 << 32) - 1


class StoredChunkIndexes:
    """Chunk indexes of an index, read on the first request."""

    def __init__(self, reader: Reader, specs: Mapping[str, Any], files: Sequence[str], stamps: np.ndarray | None) -> None:
        self._reader, self._specs, self._files, self._stamps = reader, specs, files, stamps
        self._tables: ChunkTables | None = None
        #: The same without positions of chunks.
        self._layouts: ChunkTables | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # pickled sub-arrays keep only the sizes of their chunks

    def find(self, references: References, row: int) -> ChunkIndex | None:
        """Return the chunk index of a sub-array, None if its file has changed."""
        return self.load().find(references, row)

    def stored(self, references: References) -> np.ndarray:
        """Return the stored bytes of each sub-array, -1 if its file has changed."""
        return self.load().stored(references)

    def layouts_of(self, references: References, rows: np.ndarray) -> tuple[np.ndarray, list[Layout]]:
        """Return the layouts of sub-arrays, as `ChunkTables.layouts_of` does."""
        if self._tables is None and self._layouts is None:
            self._layouts = self._read(self._load_layouts)
        return (self._tables or self._layouts or NO_TABLES).layouts_of(references, rows)

    def load(self) -> ChunkTables:
        """Return the tables; IndexFileError if the index is damaged."""
        if self._tables is None:
            self._tables = self._read(self._load)
        return self._tables

    def _read(self, load: Callable[[], ChunkTables]) -> ChunkTables:
        try:
            with self._reader.opened():
                return load()
        except (IndexFileError, MissingFileError):
            if stored_generation(self._reader.path) == self._reader.generation:
                raise
            # The index was removed or saved again: chunk indexes are read from the files.
            return NO_TABLES

    def _load(self) -> ChunkTables:
        tables, column, specs = self._load_layouts(), self._reader.column, self._specs
        count = column(specs["count"])
        offsets, sizes, masks = (column(spec) for spec in specs["columns"])
        if any(len(c) and c.min() < least for c, least in ((offsets, -1), (sizes, 0), (masks, 0))):
            raise ValueError("negative offset or size of a chunk")
        starts = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        grids = np.array([prod(grid_of(shape, chunk)) for shape, chunk, *_ in tables.layouts], np.int64)
        if len(count) != len(tables.file):
            raise ValueError("columns of chunk tables differ in length")
        if any(len(c) != starts[-1] for c in (offsets, sizes, masks)) or (count != grids[tables.layout]).any():
            raise ValueError("size of a chunk table does not match its layout")
        if self._stamps is None:  # an index without files
            return NO_TABLES
        chunks = _narrow(offsets), _narrow(sizes), _narrow(masks) if masks.any() else None
        return replace(tables, starts=_narrow(starts), offsets=chunks[0], sizes=chunks[1], masks=chunks[2], _keys=None)

    def _load_layouts(self) -> ChunkTables:
        specs = self._specs
        file, layout, variable = (_narrow(self._reader.column(specs[name])) for name in ("file", "layout", "variable"))
        layouts, names = [_layout(layout) for layout in specs["layouts"]], [str(name) for name in specs["names"]]
        if not (len(file) == len(layout) == len(variable)):
            raise ValueError("columns of chunk tables differ in length")
        for numbers, items in ((file, self._files), (layout, layouts), (variable, names)):
            if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(items):
                raise ValueError("number of a chunk table is out of range")
        stamps = np.zeros((0, 3), np.int64) if self._stamps is None else self._stamps
        return replace(
            NO_TABLES,
            files=self._files,
            stamps=stamps,
            names=names,
            layouts=layouts,
            file=file,
            variable=variable,
            layout=layout,
            _keys=None,
            _by_uri=None,
        )


def _narrow(column: np.ndarray) -> np.ndarray:
    """Return integers in the smallest signed dtype that holds them."""
    lowest, highest = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    dtypes = (np.int8, np.int16, np.int32, np.int64)
    return column.astype(next(t for t in dtypes if np.iinfo(t).min <= lowest and highest <= np.iinfo(t).max))


def _layout(spec: Any) -> Layout:
    shape, chunk, dtype, fill, filters = spec
    shape, chunk = unplain(shape), unplain(chunk)
    if len(shape) != len(chunk) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"chunks of shape {chunk} in shape {shape}")
    if not all(type(n) is int and n >= 1 for n in chunk):
        raise ValueError(f"chunks of shape {chunk}")
    steps = tuple(Filter(str(name), tuple(map(unplain, parameters))) for name, *parameters in filters)
    dtype_of_values = plain_dtype(dtype)
    if dtype_of_values.kind not in "iuf" or (steps and prod(chunk) * dtype_of_values.itemsize > _LARGEST):
        raise ValueError(f"chunks of shape {chunk} of {dtype_of_values}")
    return tuple(shape), tuple(chunk), dtype_of_values, steps, unplain(fill)
