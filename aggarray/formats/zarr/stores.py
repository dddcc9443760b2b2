"""Read-only zarr-python stores of one array."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest

from aggarray.errors import MissingFileError
from aggarray.storage.credentials import access_in_force, with_access
from aggarray.storage.remote.reader import RemoteSource
from aggarray.storage.remote.requests import fetch_object
from aggarray.storage.state import check_version
from aggarray.storage.urls import join

#: Metadata files of a store.
METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")


class ReadOnlyStore(Store):
    """Read-only store of one array; it lists only ``metadata`` files by name."""

    supports_writes = supports_deletes = supports_partial_writes = supports_listing = False

    def __init__(self, metadata: Mapping[str, bytes]) -> None:
        super().__init__(read_only=True)
        self._metadata = metadata

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    async def chunk(self, key: str, byte_range: Any) -> bytes | None:
        """Return bytes of a chunk or a range of them, None if it is not stored."""
        raise NotImplementedError(key)

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Return the bytes of a key or a range of them, None if it is missing."""
        data = self._metadata.get(key) if key in METADATA else await self.chunk(key, byte_range)
        return None if data is None else prototype.buffer.from_bytes(data)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        """Return ranges of several keys."""
        return list(await asyncio.gather(*(self.get(key, prototype, byte_range) for key, byte_range in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Return whether a key has bytes."""
        return key in self._metadata if key in METADATA else await self.chunk(key, None) is not None

    async def set(self, key: str, value: Any) -> None:
        """Raise NotImplementedError: the store is read-only."""
        raise NotImplementedError(key)

    async def delete(self, key: str) -> None:
        """Raise NotImplementedError: the store is read-only."""
        raise NotImplementedError(key)

    def list(self) -> AsyncIterator[str]:
        """Yield the keys of the metadata."""
        return self.list_prefix("")

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys of the metadata that start with ``prefix``."""
        for key in self._metadata:
            if key.startswith(prefix):
                yield key

    list_dir = list_prefix


class RemoteStore(ReadOnlyStore):
    """Array in a remote folder, read with the credentials of the aggregation."""

    def __init__(self, folder: str, metadata: Mapping[str, bytes]) -> None:
        super().__init__(metadata)
        self._folder, self._access = folder, access_in_force.get()

    async def chunk(self, key: str, byte_range: Any) -> bytes | None:
        """Return bytes of an object, fetched by other threads; None if missing."""
        path = join(self._folder, *key.split("/"))

        def fetch() -> bytes | None:
            with with_access(self._access):
                return fetch_object(path) if byte_range is None else _fetch_range(path, byte_range)

        return await asyncio.to_thread(fetch)


def _fetch_range(path: str, byte_range: Any) -> bytes | None:
    try:
        source = RemoteSource(path)
    except MissingFileError:
        return None
    check_version(path, source.state)
    start, size = requested_range(source.size, byte_range)
    return source.pread(size, start)


def requested_range(size: int, request: Any) -> tuple[int, int]:
    """Return start and length of a requested range of ``size`` bytes.

    >>> requested_range(10, RangeByteRequest(2, 20)), requested_range(10, SuffixByteRequest(3)), requested_range(10, None)
    ((2, 8), (7, 3), (0, 10))
    """
    start, stop = 0, size
    if isinstance(request, RangeByteRequest):
        start, stop = request.start, min(request.end, size)
    elif isinstance(request, OffsetByteRequest):
        start = request.offset
    elif isinstance(request, SuffixByteRequest):
        start = max(0, size - request.suffix)
    return start, max(0, stop - start)
