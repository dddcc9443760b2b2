"""How does zarr-python read a store that is remote? Object by object, with the same credentials as all else."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, TypeVar

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest

from aggarray.errors import AggarrayError, MissingFileError
from aggarray.storage.remote import current_access, fetch_object, join, open_object, with_access
from aggarray.storage.versions import check_version

_T = TypeVar("_T")


#: Files of a store that are no chunks.
METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
_NOTHING: tuple[str, ...] = ()


class RemoteStore(Store):
    """A read-only store in a remote folder, of which nothing is listed; ``known``: files that were fetched before."""

    supports_writes = supports_deletes = supports_partial_writes = supports_listing = False

    def __init__(self, folder: str, known: Mapping[str, bytes]) -> None:
        super().__init__(read_only=True)
        self._folder, self._known, self._reach = folder, known, current_access()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteStore) and (other._folder, other._reach) == (self._folder, self._reach)

    def __hash__(self) -> int:
        return hash(self._folder)

    async def _done(self, work: Callable[[], _T]) -> _T:
        """Do what waits in another thread, with what holds for this store."""

        def reaching() -> _T:
            with with_access(self._reach):
                return work()

        return await asyncio.to_thread(reaching)

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Return an object, or a range of it; None where it is not there."""
        path = join(self._folder, *key.split("/"))
        if key in self._known or key in METADATA:
            data = self._known.get(key)
        else:
            data = await self._done(lambda: fetch_object(path) if byte_range is None else _part(path, byte_range))
        return None if data is None else prototype.buffer.from_bytes(data)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        """Return ranges of objects."""
        return list(await asyncio.gather(*(self.get(key, prototype, limits) for key, limits in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Tell whether there is an object."""
        path = join(self._folder, *key.split("/"))
        return await self._done(lambda: fetch_object(path) is not None)

    async def set(self, key: str, value: Any) -> None:
        """Refuse: nothing is written."""
        raise NotImplementedError(key)

    async def delete(self, key: str) -> None:
        """Refuse: nothing is written."""
        raise NotImplementedError(key)

    async def list(self) -> AsyncIterator[str]:
        """List nothing."""
        for key in _NOTHING:
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """List nothing."""
        for key in _NOTHING:
            yield prefix + key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """List nothing."""
        for key in _NOTHING:
            yield prefix + key


def _part(path: str, limits: Any) -> bytes | None:
    """Return a range of an object, None where it is not there."""
    try:
        there = open_object(path)
    except MissingFileError:
        return None
    except AggarrayError:
        raise
    check_version(path, there.status)
    start, stop = 0, there.size
    if isinstance(limits, RangeByteRequest):
        start, stop = limits.start, min(limits.end, there.size)
    elif isinstance(limits, OffsetByteRequest):
        start = limits.offset
    elif isinstance(limits, SuffixByteRequest):
        start = max(0, there.size - limits.suffix)
    return there.pread(max(0, stop - start), start)
