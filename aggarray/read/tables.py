"""Where are the chunks of a sub-array stored? Asked of its file once, and kept as long as the file stays what it is."""

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from aggarray.access import Access
from aggarray.codecs import known
from aggarray.errors import AggarrayError
from aggarray.formats.base import Chunks
from aggarray.read.cache import chunk_tables
from aggarray.read.files import file_state, opened
from aggarray.source import State
from aggarray.table import References

Found = tuple[Chunks, str, State | None]


class Entry(NamedTuple):
    """Where the chunks of a variable of a file are stored, and the state (time, size, ...) of the file that this is true of."""

    uri: str
    variable: str
    state: State
    chunks: Chunks


def find_table(references: References, row: int, access: Access) -> Found | None:
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
    if table is None or table.shape != template.shape or not known(table.filters):
        return None
    if table.dtype != stored and table.dtype.newbyteorder("=") != stored:
        return None
    return table, uri, state


def _look_up(references: References, row: int, uri: str, access: Access) -> tuple[State | None, Chunks | None]:
    """Return the state of a file and the chunks of a variable: as kept, else as an index has them, else as the file says."""
    variable = references.variables[int(references.variable[row])]
    state = file_state(uri, references.stamp_of(row))
    key = (uri, variable)
    held = chunk_tables.get(key)
    if held is not None and held[0] == state:
        return state, held[1]
    table = None if references.tables is None else references.tables.find(uri, variable, state)
    if table is None:
        with opened(references, row, access) as handle:
            # Handles of other packages may not know.
            table = getattr(handle, "chunks", lambda name: None)(variable)
        if os.path.isdir(uri):
            # The chunks of a Zarr store change without a sign in its metadata: they are looked up for every read.
            return None, table
    chunk_tables.keep(key, (state, table))
    return state, table


def gather(tables: Iterable[tuple[References, Access]]) -> Iterator[Entry]:
    """Yield where the chunks of all sub-arrays are stored, each variable of a file once, asking the files that nobody has.

    Stores and files that are not there, or that only their libraries read, are passed over.
    """
    seen: set[tuple[str, str]] = set()
    there = _Folders()
    for references, access in tables:
        for row in _rows(references):
            uri, variable = references.uri_of(row), references.variables[int(references.variable[row])]
            if uri is None or (uri, variable) in seen or not there.has(uri):
                continue
            seen.add((uri, variable))
            try:
                access.check(uri)
                state, table = _look_up(references, row, uri, access)
            except AggarrayError:
                continue  # whoever reads it is told
            if table is not None and state is not None:
                yield Entry(uri, variable, state, table)


class _Folders:
    """Tells files that are there; of a folder that is gone nothing is looked for, be it a million files."""

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}

    def has(self, path: str) -> bool:
        """Tell whether a path is a file."""
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
