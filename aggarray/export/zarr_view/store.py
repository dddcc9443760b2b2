"""The store that zarr-python reads."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from aggarray.arrays.master import MasterArray
from aggarray.export.zarr_view.contents import ViewContents
from aggarray.options import get_options
from aggarray.output.chunk_sizes import ChunkSizes
from aggarray.output.compression import NONE, Compression, parse_compression
from aggarray.read import DISTANT

_SCHEME = "aggarray-view"


class ZarrView(Store):
    """Read-only Zarr store of arrays: see `Aggregation.to_zarr_store`.

    Chunks are read in threads, without blocking the event loop.
    """

    supports_writes = supports_deletes = supports_partial_writes = False
    supports_listing = True

    def __init__(self, arrays: Sequence[MasterArray], chunks: ChunkSizes | None, compression: Compression) -> None:
        super().__init__(read_only=True)
        self._given = (tuple(arrays), chunks, compression)
        self._lock = Lock()
        self._made: ViewContents | None = None
        # The keys of both versions are for readers of either.
        warnings.filterwarnings("ignore", rf"Both zarr.json .* exist at {_SCHEME}:")

    @property
    def contents(self) -> ViewContents:
        """Documents and chunks by key, made at the first use."""
        with self._lock:
            if self._made is None:
                self._made = ViewContents(*self._given)
            return self._made

    def __reduce__(self) -> tuple[Any, ...]:
        return ZarrView, self._given

    def __str__(self) -> str:
        return f"{_SCHEME}://{','.join(array.name or '' for array in self._given[0][:3])}"

    def __repr__(self) -> str:
        return f"<Zarr view of {len(self._given[0])} arrays, read-only>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZarrView) and self._given == other._given

    __hash__ = object.__hash__

    def with_read_only(self, read_only: bool = False) -> ZarrView:
        """Return the store; ValueError for a writable one."""
        if not read_only:
            raise ValueError("a Zarr view is read-only")
        return self

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the content of a key, None if there is none."""
        content: bytes | memoryview | None = self.contents.document(key)
        if content is None:
            located = self.contents.chunk(key)
            if located is None:
                return None
            array, position = located
            # More threads than processors contend with the event loop, which places the values.
            threads = _threads(DISTANT if array.is_remote else get_options().threads + 1)
            content = await asyncio.get_running_loop().run_in_executor(threads, array.read, position, 1)
        view = memoryview(content).cast("B")[_slice_of(byte_range, len(content))]
        return (prototype or default_buffer_prototype()).buffer.from_array_like(np.frombuffer(view, np.uint8))

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return parts of the contents of keys."""
        return list(await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Return whether there is a document or chunk of a key."""
        return key in self.contents.documents or self.contents.chunk(key) is not None

    async def list(self) -> AsyncIterator[str]:
        """Yield all keys: documents of both versions, chunks as Zarr 3 names them."""
        for key in self.contents.all_keys():
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys that begin with a text."""
        for key in self.contents.all_keys():
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names directly below a path."""
        for name in self.contents.members(prefix.rstrip("/")):
            yield name

    async def set(self, key: str, value: Buffer) -> None:
        """Raise ValueError."""
        self._check_writable()

    async def delete(self, key: str) -> None:
        """Raise ValueError."""
        self._check_writable()


@lru_cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "aggarray-view")


# A child process has none of the threads of its parent.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)


def view_of(arrays: Sequence[MasterArray], chunks: ChunkSizes | None, compressor: str | None) -> ZarrView:
    """Return the store of `Aggregation.to_zarr_store`."""
    store = ZarrView(arrays, chunks, parse_compression(NONE if compressor is None else compressor, ".zarr"))
    store.contents  # noqa: B018 - raises its errors now
    return store


def _slice_of(part: ByteRequest | None, size: int) -> slice:
    """Return the bytes that a request asks for."""
    if isinstance(part, RangeByteRequest):
        return slice(part.start, part.end)
    if isinstance(part, OffsetByteRequest):
        return slice(part.offset, None)
    if isinstance(part, SuffixByteRequest):
        return slice(max(0, size - part.suffix), None)
    return slice(None)
