"""Values by a chunk index whose chunks lie in several files.

The chunks that a box touches are read, decoded by `aggarray.codecs` and placed, without the library of the format. Chunks that
are not stored have the fill value.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from aggarray.codecs import decode
from aggarray.errors import AggarrayError, FormatError, MissingFileError
from aggarray.formats.base import Box, counts
from aggarray.partition.chunk_index import ChunkIndex, read_parts
from aggarray.partition.chunk_selection import chunk_blocks_of
from aggarray.storage.byte_source import stat_file
from aggarray.storage.state import FileState, Versions, changed, check_version, one_version
from aggarray.storage.urls import is_remote

#: Largest number of chunks, and bytes of their values, that are read at once.
_MOST, _AT_ONCE = 1 << 10, 1 << 24


def read_box(path: str, table: ChunkIndex, box: Box) -> np.ndarray:
    """Return the values of a box in native byte order.

    ``path``: of the store. The box is cut at the end of the array. Raises FormatError, which names the chunk, for a damaged
    chunk, ChangedFileError for a file that changes meanwhile, and MissingFileError for a file that must exist.
    """
    box = tuple([slice(*s.indices(n)) for s, n in zip(box, table.shape, strict=True)])
    values = np.empty(counts(box), table.dtype.newbyteorder("="))
    size = prod(table.chunk) * table.dtype.itemsize
    with one_version() as versions:
        if table.versions is not None:
            versions.extend(table.versions)
        for block in chunk_blocks_of(table, box, max(1, min(_MOST, _AT_ONCE // size))):
            parts = _unchanged_parts(path, table, block.numbers, versions)
            for number, part, runs in zip(block.numbers, parts, product(*block.runs), strict=True):
                out = tuple([run.out for run in runs])
                if part is None:
                    values[out] = table.fill
                    continue
                try:
                    decoded = decode(table.filters, part, size)
                except AggarrayError:  # some of them are ValueErrors
                    raise
                except ValueError as error:
                    text = f"{error}, in {table.describe(path, number)}"
                    raise FormatError(text, path=path, hint="restore the file") from error
                values[out] = decoded.view(table.dtype).reshape(table.chunk)[tuple([run.local for run in runs])]
    return values


def _unchanged_parts(path: str, table: ChunkIndex, numbers: Sequence[int], versions: Versions) -> list[memoryview | None]:
    """Return the stored bytes of chunks; ChangedFileError for a changed file."""
    files = {table.file_of(path, n)[0] for n in numbers if n not in (table.inline or {}) and table.offsets[n] >= 0}
    before = {file: _state(file) for file in files if not is_remote(file)}
    parts = read_parts(path, table, numbers, versions)
    for file, state in before.items():
        if state != _state(file):
            raise changed(file)
        if state is not None:
            check_version(file, state)
    return parts


def _state(file: str) -> FileState | None:
    try:
        return stat_file(file)
    except MissingFileError:
        return None
