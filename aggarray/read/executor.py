"""Threads of a read, with a bound on the memory in flight."""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING

from aggarray.dataclass import NamedTuple
from aggarray.errors import SelectionError

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

#: Bytes that all threads together may need while they run, without the output.
IN_FLIGHT = 48 << 20
#: Limits of small tasks submitted together: bytes and tasks.
_TOGETHER, _PIECES = 1 << 18, 16


class ReadTask(NamedTuple):
    """Unit of work for one thread; ``size``: bytes that it needs."""

    run: Callable[[], object]
    size: int


class BoundedExecutor:
    """Executor with a limited number of threads.

    It starts none for work that one thread does as fast.

    >>> done = []
    >>> with BoundedExecutor(2) as executor:
    ...     for n in range(3):
    ...         executor.do(ReadTask(lambda n=n: done.append(n), 1 << 20))
    >>> sorted(done)
    [0, 1, 2]
    """

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise SelectionError(f"invalid threads={threads}", hint="give an integer of at least 1, or None to use the option")
        self.threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[tuple[Future[int], int]] = deque()
        self._bytes = 0
        self._gathered: list[ReadTask] = []
        self._gathered_bytes = 0

    def __enter__(self) -> BoundedExecutor:
        return self

    def do(self, task: ReadTask) -> None:
        """Run a task now or later."""
        if self.threads == 1:
            task.run()
            return
        if self._gathered and (self._gathered_bytes + task.size > _TOGETHER or len(self._gathered) >= _PIECES):
            self._hand_over()
        self._gathered.append(task)
        self._gathered_bytes += task.size

    def _hand_over(self) -> None:
        tasks, size = self._gathered, self._gathered_bytes
        self._gathered, self._gathered_bytes = [], 0
        while self._waiting and (self._bytes + size > IN_FLIGHT or len(self._waiting) > 2 * self.threads):
            self._finish()
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self.threads)
        self._waiting.append((self._pool.submit(contextvars.copy_context().run, run_all, tasks), size))
        self._bytes += size

    def _finish(self) -> None:
        future, size = self._waiting.popleft()
        self._bytes -= size
        future.result()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None and self._pool is None:
                run_all(self._gathered)  # so little needs no threads
            elif kind is None:
                self._hand_over()
            while kind is None and self._waiting:
                self._finish()
        finally:
            if self._pool is not None:
                # After an error the rest is dropped.
                self._pool.shutdown(cancel_futures=True)


def run_all(tasks: Iterable[ReadTask]) -> int:
    """Run tasks one after the other; return the bytes that they needed."""
    total = 0
    for task in tasks:
        task.run()
        total += task.size
    return total
