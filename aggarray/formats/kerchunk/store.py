"""zarr-python store of one array whose chunks are references."""

from __future__ import annotations

from typing import Any

from aggarray.formats.kerchunk.references import ReferenceTable
from aggarray.formats.zarr.chunk_keys import Numbering
from aggarray.formats.zarr.nodes import Node, files_of
from aggarray.formats.zarr.stores import ReadOnlyStore, requested_range
from aggarray.storage.byte_source import shared_source
from aggarray.storage.state import check_version


class ReferenceStore(ReadOnlyStore):
    """Array of references; a missing file raises an error."""

    def __init__(self, node: Node, numbering: Numbering, references: ReferenceTable) -> None:
        super().__init__(files_of(node))
        self._numbering, self._references = numbering, references

    async def chunk(self, key: str, byte_range: Any) -> bytes | None:
        """Return bytes of a chunk or a range, None if there is no reference."""
        number = self._numbering.number(key)
        reference = None if number is None else self._references.find(number)
        if reference is None:
            return None
        if isinstance(reference, bytes):
            start, count = requested_range(len(reference), byte_range)
            return reference[start : start + count]
        path, offset, size = reference
        with shared_source(path) as source:
            check_version(path, source.state)
            start, count = requested_range(size or source.state[1] - offset, byte_range)
            data = bytes(source.read_ranges([(offset + start, count)])[0])
            source.check(source.state)
            return data
