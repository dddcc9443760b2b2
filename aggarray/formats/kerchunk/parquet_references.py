"""What references do the Parquet files of kerchunk hold? A folder with metadata, and tables of so many references per array."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from aggarray.errors import FormatError
from aggarray.formats.kerchunk.references import (
    FileNames,
    PlacedChunks,
    checked_columns,
    decoded,
    home_of,
    named,
    placed_of,
    wrong,
)
from aggarray.formats.zarr.chunk_keys import Numbering
from aggarray.formats.zarr.nodes import Node, json_in, nodes_in

#: A table has at most so many rows, and bytes when it is decoded.
_ROWS, _BYTES = 10_000_000, 1 << 30
_TABLE = re.compile(r"refs\.(\d{1,18})\.parq")


class ParquetReferences:
    """The references in a folder of Parquet files, read array by array; FormatError where they make no sense."""

    def __init__(self, path: str) -> None:
        self._path, self._names = path, FileNames(home_of(path))
        found = json_in(path, ".zmetadata") or {}
        size, entries = found.get("record_size"), found.get("metadata")
        if type(size) is not int or not 0 < size <= _ROWS or not isinstance(entries, dict):
            raise FormatError(
                f"{path}: damaged .zmetadata: record_size {size!r:.20} or its metadata; write the references again"
            )
        self._size = size
        self.nodes: Mapping[str, Node] = nodes_in(entries, path)

    def placed(self, name: str, numbering: Numbering) -> PlacedChunks:
        """Return where the chunks of an array are."""
        if {"", ".", ".."} & set(name.split("/")):
            raise wrong(self._path, name, "no name of an array")
        return placed_of(row for table in self._tables(name) for row in self._rows(name, *table, numbering))

    def _tables(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield number and path of each table of an array."""
        folder = os.path.join(self._path, *name.split("/"))
        try:
            names = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        for file in names:
            found = _TABLE.fullmatch(file)
            if found is not None:
                yield int(found[1]), os.path.join(folder, file)

    def _rows(self, name: str, record: int, path: str, numbering: Numbering) -> Iterator[tuple[int, Any]]:
        """Yield the references of one table, by number of the chunk."""
        first, count = record * self._size, int(np.prod(numbering.grid, dtype=object))
        if first >= count:
            return
        columns = self._columns(path)
        most = min(self._size, count - first)
        offsets, sizes = (_numbers(columns.get(column), most) for column in ("offset", "size"))
        checked_columns(path, name, (offsets, sizes))
        raws, paths = (_items(columns.get(column), most) for column in ("raw", "path"))
        for i in range(most):
            key = f"{name}/{first + i}"
            if raws[i] is not None:
                raw = raws[i]
                yield first + i, decoded(path, key, raw.encode() if isinstance(raw, str) else raw)
            elif paths[i] is not None:
                yield first + i, (named(path, key, paths[i], self._names), int(offsets[i]), int(sizes[i]))

    def _columns(self, path: str) -> dict[str, Any]:
        """Return the columns of a table, checked for size before they take memory."""
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            raise FormatError(
                f"{path}: Parquet needs pyarrow: pip install 'aggarray[kerchunk]', or write the references as JSON"
            ) from error
        try:
            about = parquet.read_metadata(path)
            names = [c for c in ("path", "offset", "size", "raw") if c in about.schema.names]
            # Names that come again and again are decoded once.
            with parquet.ParquetFile(path, read_dictionary=[c for c in names if c == "path"]) as file:
                size = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
                if about.num_rows > self._size or size > _BYTES:
                    raise FormatError(f"{path}: {about.num_rows} rows of {size} bytes where {self._size} rows are told of")
                table = file.read(names)
                columns = {column: table[column] for column in table.column_names}
                integers = {c: columns[c].cast("int64") for c in ("offset", "size") if c in columns}
        except (pyarrow.ArrowException, OSError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(
                f"{path}: damaged table of references ({' '.join(str(error).split())}); write the references again"
            ) from error
        return {**columns, **integers}


def _numbers(column: Any, most: int) -> np.ndarray:
    """Return the beginning of a column of integers; rows that are not there are 0."""
    found = np.zeros(most, np.int64)
    if column is not None:
        given = column.fill_null(0).to_numpy()[:most]
        found[: len(given)] = given
    return found


def _items(column: Any, most: int) -> list[Any]:
    """Return the beginning of a column of texts or bytes; what is not there is None."""
    given = [] if column is None else [v if isinstance(v, str | bytes) else None for v in column.slice(0, most).to_pylist()]
    return given + [None] * (most - len(given))
