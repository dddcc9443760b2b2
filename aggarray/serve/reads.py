"""Bounded reads of chunks: cached, shared by equal requests, in threads."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from aggarray.dataclass import dataclass
from aggarray.serve.limits import Limits
from aggarray.storage.lru_cache import LRUCache


class ByteBudget:
    """Bytes that several tasks may hold together; more wait in order.

    A task that needs more than all of them waits until no other task holds any.
    """

    def __init__(self, total: int) -> None:
        self._total, self.held = total, 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """Number of tasks that wait."""
        return len(self._queue)

    @asynccontextmanager
    async def hold(self, nbytes: int) -> AsyncIterator[None]:
        """Hold bytes within a block."""
        entry = nbytes, asyncio.get_running_loop().create_future()
        self._queue.append(entry)
        self._admit()
        try:
            await entry[1]
            yield
        finally:
            if entry in self._queue:
                self._queue.remove(entry)
            else:
                self.held -= nbytes
            self._admit()

    def _admit(self) -> None:
        while self._queue and (not self.held or self.held + self._queue[0][0] <= self._total):
            nbytes, turn = self._queue.popleft()
            self.held += nbytes
            if not turn.done():  # a cancelled task gives the bytes back
                turn.set_result(None)


@dataclass(slots=True, eq=False)
class _SharedRead:
    """A read that several requests await."""

    task: asyncio.Task[memoryview]
    requests: int = 0


class ChunkReads:
    """Reads of chunks in a bounded number of threads.

    Equal requests share one read. A read that no request awaits any longer is cancelled unless a thread has begun it.
    """

    def __init__(self, limits: Limits) -> None:
        self._threads = ThreadPoolExecutor(limits.reads, "aggarray-serve")
        self._free = asyncio.Semaphore(limits.reads)
        self._shared: dict[Hashable, _SharedRead] = {}
        self._cache = LRUCache(lambda: limits.cache, len)
        self.waiting = self.reading = 0

    async def read(self, key: Hashable, function: Callable[[], memoryview]) -> memoryview:
        """Return the bytes of a key, from the cache or by a function."""
        cached: memoryview | None = self._cache.get(key)
        if cached is not None:
            return cached
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = _SharedRead(asyncio.create_task(self._run(key, function)))
        shared.requests += 1
        try:
            return await asyncio.shield(shared.task)
        finally:
            shared.requests -= 1
            if not shared.requests and not shared.task.done():
                shared.task.cancel()
                self._shared.pop(key, None)

    async def _run(self, key: Hashable, function: Callable[[], memoryview]) -> memoryview:
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, function)
        self.reading += 1
        # A thread that has begun cannot be interrupted: it counts until it ends, also if nothing awaits it.
        future.add_done_callback(self._end)
        try:
            content = await asyncio.shield(future)
            self._cache.keep(key, content)
            return content
        finally:
            if (shared := self._shared.get(key)) is not None and shared.task is asyncio.current_task():
                del self._shared[key]

    def _end(self, future: asyncio.Future[memoryview]) -> None:
        self.reading -= 1
        self._free.release()
        if not future.cancelled():
            future.exception()  # retrieved: nothing may await it

    def close(self) -> None:
        """End the threads after their reads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
