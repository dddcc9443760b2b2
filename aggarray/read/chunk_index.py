"""Chunk indexes of sub-arrays, cached while their file stays unchanged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import numpy as np

from aggarray.codecs import known
from aggarray.dataclass import NamedTuple
from aggarray.errors import AggarrayError
from aggarray.partition.chunk_index import ChunkIndex
from aggarray.partition.matrix import References
from aggarray.read.open_files import file_state, opened
from aggarray.storage.access import Access
from aggarray.storage.files import is_folder, prefetch_states
from aggarray.storage.lru_cache import LRUCache
from aggarray.storage.state import FileState, Stamp
from aggarray.storage.urls import is_remote

#: Bytes of cached chunk indexes.
TABLE_BYTES = 1 << 26
#: (state of the file, chunk index or None) by file and variable.
chunk_tables = LRUCache(
    lambda: TABLE_BYTES, lambda item: 1000 + (item[1].offsets.nbytes + item[1].sizes.nbytes if item[1] else 0)
)
#: Chunk index, path, and state of the file (None for a store).
LocatedIndex = tuple[ChunkIndex, str, FileState | None]
#: NumPy's limit on dimensions allows this many: an array of chunks has twice as many, and one more.
_RANK = 31


class CachedChunkIndex(NamedTuple):
    """Chunk index of a variable of a file, and the file state it holds for."""

    uri: str
    variable: str
    state: FileState
    chunks: ChunkIndex


def find_chunk_index(references: References, row: int, access: Access) -> LocatedIndex | None:
    """Return chunk index, path and file state (None: a store) of a sub-array.

    The result is None if the library reads the variable. MissingFileError, FormatError or IndexFileError if the file is
    missing, has changed or must not be read.
    """
    uri = references.uri_of(row)
    if uri is None:
        return None
    access.check(uri)
    variable, stamp = references.variables[int(references.variable[row])], references.stamp_of(row)
    state = file_state(uri, stamp)
    is_known, table = _cached(references, row, uri, variable, state, stamp)
    if not is_known:
        with opened(references, row, access) as handle:
            # Handles of other packages may lack the method.
            table = getattr(handle, "chunks", lambda name: None)(variable)
        # The chunks of a local Zarr store change without its metadata: they are looked up for every read.
        if not os.path.isdir(uri) and (table is None or table.names is None):
            chunk_tables.keep((uri, variable), (state, table))
    template = references.template_of(row)
    stored = template.encoding.stored
    if table is None or table.shape != template.shape or len(table.shape) > _RANK or not known(table.filters):
        return None
    if table.dtype != stored and table.dtype.newbyteorder("=") != stored:
        return None
    # Chunks in other files do not change with the file that names them, whose state says nothing about theirs.
    return table, uri, state if table.names is None else None


def _cached(
    references: References, row: int, uri: str, variable: str, state: FileState, stamp: Stamp | None
) -> tuple[bool, ChunkIndex | None]:
    """Return whether the result is cached, and the chunk index or None."""
    held = chunk_tables.get((uri, variable))
    if held is not None and held[0] == state:
        return True, held[1]
    # A file with this stamp is the scanned one; a copy has another modification time.
    tables = None if stamp is None else references.tables
    table = None if tables is None else tables.find(references, row)
    if table is not None:
        chunk_tables.keep((uri, variable), (state, table))
    return table is not None, table


def gather_chunk_indexes(
    tables: Iterable[tuple[References, Access]], unknown_of: Callable[[References, np.ndarray], np.ndarray] | None = None
) -> Iterator[CachedChunkIndex]:
    """Yield the chunk indexes of all sub-arrays, each variable of a file once.

    ``unknown_of``: returns those of some rows of a table that are to be looked up, None for all. Files whose index is not known
    are opened, many of them by worker processes. Stores, missing files and files that only their libraries read are left out.
    """
    wanted = [(references, access, _rows(references)) for references, access in tables]
    if unknown_of is not None:
        wanted = [(references, access, unknown_of(references, rows)) for references, access, rows in wanted]
    prefetch_states(str(references.uri_of(row)) for references, _, rows in wanted for row in rows.tolist())
    seen: set[tuple[str, str]] = set()
    unknown: dict[str, list[str]] = {}
    has_folder = lru_cache(maxsize=None)(os.path.isdir)  # no look into folders that do not exist
    for references, access, rows in wanted:
        for row in rows.tolist():
            uri, variable = references.uri_of(row), references.variables[int(references.variable[row])]
            if uri is None or (uri, variable) in seen:
                continue
            # Of a million paths, few are in the cache of `is_remote`.
            local = "://" not in uri or not is_remote(uri)
            if not (has_folder(os.path.dirname(uri)) and os.path.isfile(uri) if local else not is_folder(uri)):
                continue
            seen.add((uri, variable))
            try:
                access.check(uri)
                stamp = references.stamp_of(row)
                state = file_state(uri, stamp)
            except AggarrayError:
                continue  # reading the file raises the error
            is_known, table = _cached(references, row, uri, variable, state, stamp)
            if table is not None:
                yield CachedChunkIndex(uri, variable, state, table)
            elif not is_known:
                unknown.setdefault(uri, []).append(variable)
    yield from _looked_up(unknown)


def _looked_up(unknown: dict[str, list[str]]) -> Iterator[CachedChunkIndex]:
    """Yield the chunk indexes of variables by file, from the files."""
    from aggarray.formats.partial_scan import ChunkIndexRequest, ScannedChunkIndexes
    from aggarray.scan.files import start_pool

    with start_pool() as pool:
        for scanned in pool.run([(uri, ChunkIndexRequest(tuple(names))) for uri, names in unknown.items()]):
            if isinstance(scanned, ScannedChunkIndexes):
                for variable, table in scanned.tables.items():
                    yield CachedChunkIndex(scanned.uri, variable, scanned.state, table)


def _rows(references: References) -> np.ndarray:
    """Return one row per variable of each file whose template is resolved."""
    declared = np.array([t.declared for t in references.templates], bool)
    rows = np.flatnonzero((references.uri >= 0) & ~declared[references.template])
    pairs = references.uri[rows].astype(np.int64) * (len(references.variables) or 1) + references.variable[rows]
    if (np.diff(pairs) > 0).all():
        return rows
    return np.asarray(rows[np.unique(pairs, return_index=True)[1]])
