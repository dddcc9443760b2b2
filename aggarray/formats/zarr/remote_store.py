"""zarr-python store of a remote folder, with the credentials of the aggregation."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, TypeVar

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest

from aggarray.errors import MissingFileError
from aggarray.storage.remote import RemoteSource, current_access, fetch_object, join, with_access
from aggarray.storage.state import check_version

_T = TypeVar("_T")

#: Metadata files of a store.
METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
_NOTHING: tuple[str, ...] = ()


class RemoteStore(Store):
    """Read-only store in a remote folder, without listing. ``fetched``: files that were fetched before, by name."""

    supports_writes = supports_deletes = supports_partial_writes = supports_listing = False

    def __init__(self, folder: str, fetched: Mapping[str, bytes]) -> None:
        super().__init__(read_only=True)
        self._folder, self._fetched, self._access = folder, fetched, current_access()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteStore) and (other._folder, other._access) == (self._folder, self._access)

    def __hash__(self) -> int:
        return hash(self._folder)

    async def _run(self, work: Callable[[], _T]) -> _T:
        """Run blocking work in another thread with the credentials of this store."""

        def with_credentials() -> _T:
            with with_access(self._access):
                return work()

        return await asyncio.to_thread(with_credentials)

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Return an object or a range of it, None if it is missing."""
        path = join(self._folder, *key.split("/"))
        if key in self._fetched or key in METADATA:
            data = self._fetched.get(key)
        else:
            data = await self._run(lambda: fetch_object(path) if byte_range is None else _fetch_range(path, byte_range))
        return None if data is None else prototype.buffer.from_bytes(data)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        """Return ranges of objects."""
        return list(await asyncio.gather(*(self.get(key, prototype, byte_range) for key, byte_range in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Return whether an object exists."""
        path = join(self._folder, *key.split("/"))
        return await self._run(lambda: fetch_object(path) is not None)

    async def set(self, key: str, value: Any) -> None:
        """Raise NotImplementedError: the store is read-only."""
        raise NotImplementedError(key)

    async def delete(self, key: str) -> None:
        """Raise NotImplementedError: the store is read-only."""
        raise NotImplementedError(key)

    async def list(self) -> AsyncIterator[str]:
        """Yield nothing: the store is not listed."""
        for key in _NOTHING:
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield nothing: the store is not listed."""
        for key in _NOTHING:
            yield prefix + key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield nothing: the store is not listed."""
        for key in _NOTHING:
            yield prefix + key


def _fetch_range(path: str, request: Any) -> bytes | None:
    """Return a range of an object, None if it is missing."""
    try:
        source = RemoteSource(path)
    except MissingFileError:
        return None
    check_version(path, source.state)
    start, stop = 0, source.size
    if isinstance(request, RangeByteRequest):
        start, stop = request.start, min(request.end, source.size)
    elif isinstance(request, OffsetByteRequest):
        start = request.offset
    elif isinstance(request, SuffixByteRequest):
        start = max(0, source.size - request.suffix)
    return source.pread(max(0, stop - start), start)
