"""zarr-python store of one array whose chunks are references."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype

from aggarray.formats.kerchunk.references import ReferenceTable
from aggarray.formats.zarr.chunk_keys import Numbering
from aggarray.formats.zarr.nodes import Node
from aggarray.storage.byte_source import shared_source
from aggarray.storage.state import check_version


class ReferenceStore(Store):
    """Read-only store of one array. A missing file raises an error, it is not a missing chunk."""

    supports_writes = False
    supports_deletes = False
    supports_listing = False

    def __init__(self, node: Node, numbering: Numbering, references: ReferenceTable) -> None:
        super().__init__(read_only=True)
        names = {2: {".zarray": node.meta, ".zattrs": node.attrs}, 3: {"zarr.json": node.meta}}[node.version]
        self._metadata: Mapping[str, bytes] = {name: json.dumps(meta).encode() for name, meta in names.items()}
        self._numbering, self._references = numbering, references

    def __eq__(self, other: object) -> bool:
        return self is other

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return the bytes of a key, None if there are none."""
        number = self._numbering.number(key)
        reference = self._metadata.get(key) if number is None else self._references.find(number)
        if reference is None:
            return None
        if isinstance(reference, bytes):
            start, size = _range(len(reference), byte_range)
            return prototype.buffer.from_bytes(reference[start : start + size])
        return prototype.buffer.from_bytes(_read(*reference, byte_range))

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return the bytes of several keys and ranges."""
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        """Return whether a key has bytes."""
        number = self._numbering.number(key)
        return key in self._metadata if number is None else self._references.find(number) is not None

    async def set(self, key: str, value: Buffer) -> None:
        """Raise NotImplementedError."""
        raise NotImplementedError("references are read-only")

    async def delete(self, key: str) -> None:
        """Raise NotImplementedError."""
        raise NotImplementedError("references are read-only")

    async def list(self) -> AsyncIterator[str]:
        """Yield the keys of the metadata. Keys of chunks are not listed."""
        for key in self._metadata:
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys of the metadata that start with ``prefix``."""
        for key in self._metadata:
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys of the metadata."""
        for key in self._metadata if prefix in ("", "/") else ():
            yield key


def _range(size: int, request: ByteRequest | None) -> tuple[int, int]:
    """Return start and length of a requested range of an object of ``size`` bytes."""
    if isinstance(request, RangeByteRequest):
        return request.start, min(request.end, size) - request.start
    if isinstance(request, OffsetByteRequest):
        return request.offset, size - request.offset
    if isinstance(request, SuffixByteRequest):
        return size - min(request.suffix, size), min(request.suffix, size)
    return 0, size


def _read(path: str, offset: int, size: int, request: ByteRequest | None) -> Any:
    with shared_source(path) as source:
        check_version(path, source.state)
        start, count = _range(size or source.state[1] - offset, request)
        data = bytes(source.read_ranges([(offset + start, count)])[0])
        source.check(source.state)
        return data
