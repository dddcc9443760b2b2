"""Where are the chunks of a sub-array stored? Asked of its file once, and kept as long as the file stays what it is."""

import os
from math import prod

from aggarray.access import Access
from aggarray.codecs import known
from aggarray.formats.base import Chunks
from aggarray.read.cache import chunk_tables
from aggarray.read.files import file_state, opened
from aggarray.table import References

#: Chunks of fewer bytes than this are read quicker by their library, which has less to do for each.
SMALL = 1 << 13

Found = tuple[Chunks, str, tuple[int, ...]]


def find_table(references: References, row: int, access: Access) -> Found | None:
    """Return (chunks, path, state of the file, () of a store) of a sub-array; None where it is read through its library.

    Raises MissingFileError, FormatError or IndexFileError where the file is gone, may not be read or has changed.
    """
    uri = references.uri_of(row)
    if uri is None:
        return None
    access.check(uri)
    state = file_state(uri, references.stamp_of(row))
    variable = references.variables[int(references.variable[row])]
    key = (uri, variable)
    # The chunks of a Zarr store change without a sign in its metadata: they are looked up for every read.
    folder = os.path.isdir(uri)
    held = None if folder else chunk_tables.get(key)
    if held is None or held[0] != state:
        with opened(references, row, access) as handle:
            # Handles of other packages may not know.
            held = (state, getattr(handle, "chunks", lambda name: None)(variable))
        if not folder:
            chunk_tables.keep(key, held)
    table: Chunks | None = held[1]
    template = references.template_of(row)
    stored = template.encoding.stored
    if table is None or table.shape != template.shape or not known(table.filters) or table.dtype.newbyteorder("=") != stored:
        return None
    if not folder and len(table.offsets) > 1 and prod(table.chunk) * table.dtype.itemsize < SMALL:
        return None
    return table, uri, () if folder else state
