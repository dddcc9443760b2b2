"""kerchunk references in a folder of Parquet tables.

The folder holds the metadata, and a subfolder of tables per array.
"""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from aggarray.errors import FormatError
from aggarray.formats.kerchunk.references import (
    FileNames,
    ReferenceTable,
    base_folder,
    build_table,
    check_ranges,
    decode_inline,
    reference_error,
    resolve_name,
)
from aggarray.formats.zarr.chunk_keys import Numbering
from aggarray.formats.zarr.nodes import Node, json_in, nodes_in

#: Largest numbers of rows and of decoded bytes of a table.
_ROWS, _BYTES = 10_000_000, 1 << 30
_TABLE = re.compile(r"refs\.(\d{1,18})\.parq")


class ParquetReferences:
    """References in a folder of Parquet files, read array by array. Raises FormatError for invalid references."""

    def __init__(self, path: str) -> None:
        self._path, self._names = path, FileNames(base_folder(path))
        metadata = json_in(path, ".zmetadata") or {}
        size, entries = metadata.get("record_size"), metadata.get("metadata")
        if type(size) is not int or not 0 < size <= _ROWS or not isinstance(entries, dict):
            what = f"damaged .zmetadata: record_size {size!r:.20} or its metadata"
            raise FormatError(what, path=path, hint="write the references again")
        self._size = size
        self.nodes: Mapping[str, Node] = nodes_in(entries, path)

    def table(self, name: str, numbering: Numbering) -> ReferenceTable:
        """Return the references of an array."""
        if {"", ".", ".."} & set(name.split("/")):
            raise reference_error(self._path, name, "not a name of an array")
        return build_table(row for table in self._tables(name) for row in self._rows(name, *table, numbering))

    def _tables(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield the number and path of each table of an array."""
        folder = os.path.join(self._path, *name.split("/"))
        try:
            names = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        for file in names:
            match = _TABLE.fullmatch(file)
            if match is not None:
                yield int(match[1]), os.path.join(folder, file)

    def _rows(self, name: str, record: int, path: str, numbering: Numbering) -> Iterator[tuple[int, Any]]:
        """Yield chunk numbers and references of one table."""
        first, count = record * self._size, int(np.prod(numbering.grid, dtype=object))
        if first >= count:
            return
        columns = self._columns(path)
        most = min(self._size, count - first)
        offsets, sizes = (_numbers(columns.get(column), most) for column in ("offset", "size"))
        check_ranges(path, name, offsets, sizes)
        raws, paths = (_items(columns.get(column), most) for column in ("raw", "path"))
        for i in range(most):
            key = f"{name}/{first + i}"
            if raws[i] is not None:
                raw = raws[i]
                yield first + i, decode_inline(path, key, raw.encode() if isinstance(raw, str) else raw)
            elif paths[i] is not None:
                yield first + i, (resolve_name(path, key, paths[i], self._names), int(offsets[i]), int(sizes[i]))

    def _columns(self, path: str) -> dict[str, Any]:
        """Return the columns of a table. Its size is checked before memory is allocated."""
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            hint = "pip install 'aggarray[kerchunk]', or write the references as JSON"
            raise FormatError("Parquet needs pyarrow", path=path, hint=hint) from error
        try:
            metadata = parquet.read_metadata(path)
            names = [c for c in ("path", "offset", "size", "raw") if c in metadata.schema.names]
            # Repeated file names are decoded once.
            with parquet.ParquetFile(path, read_dictionary=[c for c in names if c == "path"]) as file:
                size = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
                if metadata.num_rows > self._size or size > _BYTES:
                    what = f"{metadata.num_rows} rows of {size} bytes, at most {self._size} rows of {_BYTES} bytes expected"
                    raise FormatError(what, path=path, hint="write the references again")
                table = file.read(names)
                columns = {column: table[column] for column in table.column_names}
                integers = {c: columns[c].cast("int64") for c in ("offset", "size") if c in columns}
        except (pyarrow.ArrowException, OSError) as error:
            if isinstance(error, FormatError):
                raise
            what = f"damaged table of references ({' '.join(str(error).split())})"
            raise FormatError(what, path=path, hint="write the references again") from error
        return {**columns, **integers}


def _numbers(column: Any, most: int) -> np.ndarray:
    """Return the first ``most`` integers of a column, 0 for missing rows."""
    numbers = np.zeros(most, np.int64)
    if column is not None:
        stored = column.fill_null(0).to_numpy()[:most]
        numbers[: len(stored)] = stored
    return numbers


def _items(column: Any, most: int) -> list[Any]:
    """Return the first ``most`` texts or bytes of a column, None for missing rows."""
    items = [] if column is None else [v if isinstance(v, str | bytes) else None for v in column.slice(0, most).to_pylist()]
    return items + [None] * (most - len(items))
