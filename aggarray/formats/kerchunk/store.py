"""How does zarr-python read arrays whose chunks lie where references say? Through a store that can do nothing else."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype

from aggarray.formats.kerchunk.references import PlacedChunks
from aggarray.formats.zarr.chunk_keys import Numbering
from aggarray.formats.zarr.nodes import Node
from aggarray.storage.byte_source import shared_source
from aggarray.storage.versions import check_version


class ReferenceStore(Store):
    """One array: its metadata, and where its chunks are. Read-only; a file that is gone is an error, not a missing chunk."""

    supports_writes = False
    supports_deletes = False
    supports_listing = False

    def __init__(self, node: Node, numbering: Numbering, placed: PlacedChunks) -> None:
        super().__init__(read_only=True)
        names = {2: {".zarray": node.meta, ".zattrs": node.attrs}, 3: {"zarr.json": node.meta}}[node.version]
        self._metadata: Mapping[str, bytes] = {name: json.dumps(meta).encode() for name, meta in names.items()}
        self._numbering, self._placed = numbering, placed

    def __eq__(self, other: object) -> bool:
        return self is other

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return the bytes under a key, None where there are none."""
        number = self._numbering.number(key)
        found = self._metadata.get(key) if number is None else self._placed.find(number)
        if found is None:
            return None
        data = _part(found, byte_range) if isinstance(found, bytes) else _read(*found, byte_range)
        return prototype.buffer.from_bytes(data)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return the bytes of several ranges."""
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        """Tell whether there is something under a key."""
        number = self._numbering.number(key)
        return key in self._metadata if number is None else self._placed.find(number) is not None

    async def set(self, key: str, value: Buffer) -> None:
        """Refuse to write."""
        raise NotImplementedError("references are read only")

    async def delete(self, key: str) -> None:
        """Refuse to delete."""
        raise NotImplementedError("references are read only")

    async def list(self) -> AsyncIterator[str]:
        """Yield the names of the metadata: chunks are asked for one by one."""
        for key in self._metadata:
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names of the metadata that begin so."""
        for key in self._metadata:
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names of the metadata."""
        for key in self._metadata if prefix in ("", "/") else ():
            yield key


def _ends(size: int, wanted: ByteRequest | None) -> tuple[int, int]:
    """Return where a range of an object of so many bytes begins, and its size."""
    if isinstance(wanted, RangeByteRequest):
        return wanted.start, min(wanted.end, size) - wanted.start
    if isinstance(wanted, OffsetByteRequest):
        return wanted.offset, size - wanted.offset
    if isinstance(wanted, SuffixByteRequest):
        return size - min(wanted.suffix, size), min(wanted.suffix, size)
    return 0, size


def _part(data: bytes, wanted: ByteRequest | None) -> bytes:
    start, size = _ends(len(data), wanted)
    return data[start : start + size]


def _read(path: str, offset: int, size: int, wanted: ByteRequest | None) -> Any:
    with shared_source(path) as source:
        check_version(path, source.state)
        start, count = _ends(size or source.state[1] - offset, wanted)
        data = bytes(source.read_ranges([(offset + start, count)])[0])
        source.check(source.state)
        return data
