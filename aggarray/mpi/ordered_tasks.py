"""Work in threads whose results come in order, a bounded number ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

_T = TypeVar("_T")


class OrderedTasks(Generic[_T]):
    """Results of calls, which threads make.

    A context manager: at its end no call runs.

    >>> with OrderedTasks([lambda: 1, lambda: 2], 2) as tasks:
    ...     tasks.next(), tasks.next(), tasks.remain
    (1, 2, False)
    """

    def __init__(self, calls: Iterable[Callable[[], _T]], threads: int) -> None:
        self._calls, self._ahead = iter(calls), 2 * threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="aggarray-write")
        self._waiting: deque[Future[_T]] = deque()

    def __enter__(self) -> OrderedTasks[_T]:
        self._submit()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # promise: mpi-store-error-after-writes
        self._pool.shutdown(cancel_futures=True)

    def _submit(self) -> None:
        while len(self._waiting) <= self._ahead and (call := next(self._calls, None)) is not None:
            try:
                self._waiting.append(self._pool.submit(call))
            except RuntimeError as error:  # no thread starts: `next` raises it
                self._waiting.append(Future())
                self._waiting[-1].set_exception(error)

    @property
    def remain(self) -> bool:
        """Whether there are more results."""
        return bool(self._waiting)

    @property
    def is_ready(self) -> bool:
        """Whether the next result exists."""
        return self.remain and self._waiting[0].done()

    def next(self) -> _T:
        """Wait for the next result, or raise its error."""
        future = self._waiting.popleft()
        self._submit()
        return future.result()

    def run(self) -> None:
        """Wait for all calls; raise the first error."""
        while self.remain:
            self.next()
