"""Chunk indexes of the files of an index, stored to avoid new parsing.

Files of the same layout (shape, chunk shape, dtype, filters) share it. The offsets and sizes of all files are columns, read
on the first request. A chunk index is valid only while its file has the recorded size and time.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from aggarray.codecs import Filter
from aggarray.errors import IndexFileError, MissingFileError
from aggarray.formats.base import ChunkIndex, grid_of
from aggarray.index.columns import plain, unplain
from aggarray.index.store import Reader, Writer, plain_dtype, stored_generation
from aggarray.read.chunk_index import CachedChunkIndex


def pack_chunk_indexes(
    indexes: Iterable[CachedChunkIndex], files: Mapping[str, int], stamps: Mapping[int, Sequence[int]], writer: Writer
) -> dict[str, Any]:
    """Encode chunk indexes of numbered files unchanged since their stamp."""
    layouts: dict[str, int] = {}
    encoded: list[Any] = []
    rows: dict[tuple[int, str], tuple[int, ChunkIndex]] = {}
    for uri, variable, state, table in indexes:
        code = files.get(uri)
        stamp = None if code is None else stamps.get(code)
        if code is None or stamp is None or (stamp[1], stamp[0]) != state[:2] or table.names is not None:
            continue
        layout = [plain(table.shape), plain(table.chunk), table.dtype.str, plain(table.fill)]
        layout.append([[f.name, *map(plain, f.parameters)] for f in table.filters])
        number = layouts.setdefault(repr(layout), len(encoded))
        if number == len(encoded):
            encoded.append(layout)
        rows[code, variable] = (number, table)
    column, tables = writer.column, [table for _, table in rows.values()]
    names = {name: i for i, name in enumerate(dict.fromkeys(name for _, name in rows))}
    masks = [np.zeros(len(t.offsets), np.int64) if t.masks is None else t.masks for t in tables]
    joined = [[t.offsets for t in tables], [t.sizes for t in tables], masks]
    return {
        "layouts": encoded,
        "names": list(names),
        "variable": column(np.array([names[name] for _, name in rows], np.int64)),
        "file": column(np.array([code for code, _ in rows], np.int64)),
        "layout": column(np.array([number for number, _ in rows.values()], np.int64)),
        "count": column(np.array([len(t.offsets) for t in tables], np.int64)),
        "columns": [column(np.concatenate(c).astype(np.int64) if c else np.zeros(0, np.int64)) for c in joined],
    }


#: Largest decoded chunk of HDF5 in bytes.
_LARGEST = (1 << 32) - 1

#: Shape, chunk shape, dtype, filters and fill value, as `ChunkIndex` has them.
Layout = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any], tuple[Filter, ...], Any]
#: By file and variable: time and size of the file, number of the layout, first chunk, end of the chunks.
_Rows = dict[tuple[str, str], tuple[tuple[int, int], int, int, int]]


class StoredChunkIndexes:
    """Chunk indexes of an index, read on the first request."""

    def __init__(self, reader: Reader, specs: Mapping[str, Any], files: Sequence[str], stamps: np.ndarray | None) -> None:
        self._reader, self._specs, self._files, self._stamps = reader, specs, files, stamps
        self._rows: _Rows | None = None
        self._columns: list[np.ndarray] = []
        self._layouts: list[Layout] = []
        #: Stored bytes of all chunks before each.
        self._before = np.zeros(1, np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # pickled sub-arrays keep only the sizes of their chunks

    def find(self, uri: str, variable: str, scanned: tuple[int, int]) -> ChunkIndex | None:
        """Return the chunk index of a variable, None if the file has changed."""
        row = self._loaded().get((uri, variable))
        if row is None or row[0] != scanned:
            return None
        offsets, sizes, masks = (c[row[2] : row[3]] for c in self._columns)
        return ChunkIndex(*self._layouts[row[1]], offsets, sizes, masks.astype(np.uint32) if masks.any() else None)

    def stored(self, uri: str, variable: str, scanned: tuple[int, int]) -> int:
        """Return the stored bytes of a variable, -1 if the file has changed."""
        row = self._loaded().get((uri, variable))
        return -1 if row is None or row[0] != scanned else int(self._before[row[3]] - self._before[row[2]])

    def _loaded(self) -> _Rows:
        if self._rows is None:
            try:
                with self._reader.opened():
                    self._rows = self._load()
            except (IndexFileError, MissingFileError):
                if stored_generation(self._reader.path) == self._reader.generation:
                    raise
                self._rows = {}  # the index was removed or saved again: chunk indexes are read from the files
        return self._rows

    def _load(self) -> _Rows:
        column, specs = self._reader.column, self._specs
        file, layout, count, variable = (column(specs[name]) for name in ("file", "layout", "count", "variable"))
        offsets, sizes, masks = self._columns = [column(spec) for spec in specs["columns"]]
        if any(len(c) and c.min() < least for c, least in ((offsets, -1), (sizes, 0), (masks, 0))):
            raise ValueError("negative offset or size of a chunk")
        starts = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        self._before = np.concatenate([[0], np.cumsum(np.where(offsets >= 0, sizes, 0))])
        self._layouts = [_layout(layout) for layout in specs["layouts"]]
        grids = [prod(grid_of(shape, chunk)) for shape, chunk, *_ in self._layouts]
        if not (len(file) == len(layout) == len(count) == len(variable)):
            raise ValueError("columns of chunk tables differ in length")
        if any(len(c) != starts[-1] for c in self._columns) or any(n != grids[k] for n, k in zip(count, layout, strict=True)):
            raise ValueError("size of a chunk table does not match its layout")
        if self._stamps is None:  # an index without files
            return {}
        names = [str(name) for name in specs["names"]]
        columns = (c.tolist() for c in (file, variable, self._stamps[file], layout, starts[:-1], starts[1:]))
        return {
            (self._files[code], names[name]): ((time, size), *row)
            for code, name, (size, time, _), *row in zip(*columns, strict=True)
        }


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
