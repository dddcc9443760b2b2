"""kerchunk references in a folder of Parquet tables.

The folder holds the metadata, and a subfolder of tables per array.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from aggarray.errors import FormatError, install_command
from aggarray.formats.kerchunk.references import MOST_BYTES, Reference, References, ReferenceTable, build_table
from aggarray.formats.zarr.chunk_keys import Numbering
from aggarray.formats.zarr.nodes import json_in, nodes_in

#: Largest numbers of rows and of decoded bytes of a table.
_ROWS, _BYTES = 10_000_000, 1 << 30
_TABLE = re.compile(r"refs\.(\d{1,18})\.parq")


class ParquetReferences(References):
    """References in a folder of Parquet files, read array by array."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        metadata = json_in(path, ".zmetadata") or {}
        size, entries = metadata.get("record_size"), metadata.get("metadata")
        if type(size) is not int or not 0 < size <= _ROWS or not isinstance(entries, dict):
            what = f"damaged .zmetadata: record_size {size!r:.20} or its metadata"
            raise FormatError(what, path=path, hint="write the references again")
        self._size = size
        self.nodes = nodes_in(entries, path)

    def table(self, name: str, numbering: Numbering) -> ReferenceTable:
        """Return the references of an array."""
        if {"", ".", ".."} & set(name.split("/")):
            raise self.error(name, "not a name of an array")
        folder, count = os.path.join(self.path, *name.split("/")), math.prod(numbering.grid)
        matches = map(_TABLE.fullmatch, sorted(os.listdir(folder)) if os.path.isdir(folder) else ())
        tables = [(int(match[1]) * self._size, os.path.join(folder, match[0])) for match in matches if match is not None]
        return build_table(row for first, path in tables if first < count for row in self._rows(name, path, first, count))

    def _rows(self, array: str, path: str, first: int, count: int) -> Iterator[tuple[int, Reference]]:
        columns = self._columns(path)
        most = min(self._size, count - first)
        offsets, sizes = (_numbers(columns.get(column), most) for column in ("offset", "size"))
        raws, names = (_items(columns.get(column), most) for column in ("raw", "path"))
        bad = (offsets < 0) | (sizes < 0) | (offsets > MOST_BYTES - np.maximum(sizes, 0))
        try:
            if bad.any():
                row = int(bad.argmax())
                raise self.error(array, f"{sizes[row]} bytes at offset {offsets[row]} are not a byte range")
            for i in range(most):
                key, raw, name = f"{array}/{first + i}", raws[i], names[i]
                if raw is not None:
                    yield first + i, self.decode_inline(key, raw.encode() if isinstance(raw, str) else raw)
                elif name is not None:
                    yield first + i, (self.resolve_name(key, name), int(offsets[i]), int(sizes[i]))
        except FormatError as error:
            error.path = path
            raise

    def _columns(self, path: str) -> dict[str, Any]:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            hint = f"{install_command('kerchunk')}, or write the references as JSON"
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
    numbers = np.zeros(most, np.int64)
    if column is not None:
        stored = column.fill_null(0).to_numpy()[:most]
        numbers[: len(stored)] = stored
    return numbers


def _items(column: Any, most: int) -> list[Any]:
    items = [] if column is None else [v if isinstance(v, str | bytes) else None for v in column.slice(0, most).to_pylist()]
    return items + [None] * (most - len(items))
