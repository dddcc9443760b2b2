"""Where are the chunks of a sub-array stored? Asked of its file once, and kept as long as the file stays what it is."""

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from aggarray.codecs import known
from aggarray.errors import AggarrayError
from aggarray.formats.base import ChunkIndex, Stamp
from aggarray.formats.partial_scan import ChunkIndexRequest, ScannedChunkIndexes
from aggarray.partition.matrix import References
from aggarray.read.cache import chunk_tables
from aggarray.read.open_files import file_state, opened
from aggarray.scan.workers import WorkerPool
from aggarray.storage.access import Access
from aggarray.storage.files import is_folder
from aggarray.storage.remote import is_remote, prefetch_states
from aggarray.storage.state import FileState

Found = tuple[ChunkIndex, str, FileState | None]
#: Arrays of chunks, which have twice as many dimensions and one more, are arrays to NumPy up to this.
_RANK = 31


class CachedChunkIndex(NamedTuple):
    """Where the chunks of a variable of a file are stored, and the state (time, size, ...) of the file that this is true of."""

    uri: str
    variable: str
    state: FileState
    chunks: ChunkIndex


def find_chunk_index(references: References, row: int, access: Access) -> Found | None:
    """Return (chunks, path, state of the file, None of a store) of a sub-array; None where it is read through its library.

    Raises MissingFileError, FormatError or IndexFileError where the file is gone, may not be read or has changed.
    """
    uri = references.uri_of(row)
    if uri is None:
        return None
    access.check(uri)
    state, table = _look_up(references, row, uri, access)
    template = references.template_of(row)
    stored = template.encoding.stored
    if table is None or table.shape != template.shape or len(table.shape) > _RANK or not known(table.filters):
        return None
    if table.dtype != stored and table.dtype.newbyteorder("=") != stored:
        return None
    return table, uri, state


def _look_up(references: References, row: int, uri: str, access: Access) -> tuple[FileState | None, ChunkIndex | None]:
    """Return the state of a file and the chunks of a variable: as kept, else as an index has them, else as the file says."""
    variable = references.variables[int(references.variable[row])]
    stamp = references.stamp_of(row)
    state = file_state(uri, stamp)
    known, table = _known(references, uri, variable, state, stamp)
    if known:
        return None if table is not None and table.names is not None else state, table
    with opened(references, row, access) as handle:
        # Handles of other packages may not know.
        table = getattr(handle, "chunks", lambda name: None)(variable)
    if os.path.isdir(uri) or (table is not None and table.names is not None):
        # The chunks of a Zarr store change without a sign in its metadata: they are looked up for every read. Those that lie in
        # other files do not change with the file that names them, and its state says nothing about theirs.
        return None, table
    chunk_tables.keep((uri, variable), (state, table))
    # Those of a remote store are kept, and its chunks have states of their own.
    return None if table is not None and table.names is not None else state, table


def _known(
    references: References, uri: str, variable: str, state: FileState, stamp: Stamp | None
) -> tuple[bool, ChunkIndex | None]:
    """Tell whether it is known where the chunks of a variable are stored, and where: None where its library reads it."""
    held = chunk_tables.get((uri, variable))
    if held is not None and held[0] == state:
        return True, held[1]
    # A file that has its stamp is the one that was scanned, though it may have been copied since, which changes the time.
    table = None if references.tables is None or stamp is None else references.tables.find(uri, variable, (stamp[1], stamp[0]))
    if table is not None:
        chunk_tables.keep((uri, variable), (state, table))
    return table is not None, table


def gather_chunk_indexes(tables: Iterable[tuple[References, Access]]) -> Iterator[CachedChunkIndex]:
    """Yield where the chunks of all sub-arrays are stored, each variable of a file once.

    Files of which nobody knows it are asked, by several processes where they are many. Stores and files that are not there, or
    that only their libraries read, are passed over.
    """
    tables = list(tables)
    prefetch_states(str(uri) for references, _ in tables for uri in references.uris)
    seen: set[tuple[str, str]] = set()
    unknown: dict[str, list[str]] = {}
    there = _Folders()
    for references, access in tables:
        for row in _rows(references):
            uri, variable = references.uri_of(row), references.variables[int(references.variable[row])]
            if uri is None or (uri, variable) in seen or not there.has(uri):
                continue
            seen.add((uri, variable))
            try:
                access.check(uri)
                stamp = references.stamp_of(row)
                state = file_state(uri, stamp)
            except AggarrayError:
                continue  # whoever reads it is told
            known, table = _known(references, uri, variable, state, stamp)
            if table is not None:
                yield CachedChunkIndex(uri, variable, state, table)
            elif not known:
                unknown.setdefault(uri, []).append(variable)
    with WorkerPool() as crew:
        for found in crew.run([(uri, ChunkIndexRequest(tuple(names))) for uri, names in unknown.items()]):
            if isinstance(found, ScannedChunkIndexes):
                for variable, table in found.tables.items():
                    yield CachedChunkIndex(found.uri, variable, found.state, table)


class _Folders:
    """Tells files that are there; of a folder that is gone nothing is looked for, be it a million files."""

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}

    def has(self, path: str) -> bool:
        """Tell whether a path is a file."""
        if is_remote(path):
            return not is_folder(path)
        folder = os.path.dirname(path)
        if folder not in self._known:
            self._known[folder] = os.path.isdir(folder)
        return self._known[folder] and os.path.isfile(path)


def _rows(references: References) -> list[int]:
    """Return a row of each variable of each file; what only an index has told of is left for whoever reads it."""
    declared = np.array([t.declared for t in references.templates], bool)
    rows = np.flatnonzero((references.uri >= 0) & ~declared[references.template])
    pairs = references.uri[rows].astype(np.int64) * (len(references.variables) or 1) + references.variable[rows]
    found: list[int] = rows[np.unique(pairs, return_index=True)[1]].tolist()
    return found
