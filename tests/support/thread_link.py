"""Back end over threads, for tests of many ranks in request process."""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from aggarray.mpi import ProcessGroup
from aggarray.mpi.transport.base import Link

_T = TypeVar("_T")
_SECONDS = 60


class _Hub:
    """State shared by the threads."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=_SECONDS)
        self.items: list[Any] = [None] * size
        self.sent: dict[tuple[int, int, int], deque[np.ndarray]] = defaultdict(deque)
        self.changed = threading.Condition()
        self.messages: list[tuple[int, int, int]] = []


class ThreadLink(Link):
    """Link of one thread."""

    def __init__(self, hub: _Hub, rank: int, size: int) -> None:
        self.hub, self.rank, self.size = hub, rank, size

    def allgather(self, item: Any) -> list[Any]:
        self.hub.items[self.rank] = item
        self.hub.barrier.wait()
        gathered = list(self.hub.items)
        self.hub.barrier.wait()
        return gathered

    def send(self, data: np.ndarray, other: int, tag: int) -> Any:
        with self.hub.changed:
            self.hub.sent[self.rank, other, tag].append(data.copy())
            self.hub.messages.append((self.rank, other, len(data)))
            self.hub.changed.notify_all()

    def receive(self, into: np.ndarray, other: int, tag: int) -> Any:
        return into, (other, self.rank, tag)

    def wait_any(self, requests: Sequence[Any]) -> int:
        with self.hub.changed:
            if not self.hub.changed.wait_for(lambda: self._done(requests) is not None, timeout=_SECONDS):
                raise TimeoutError(f"rank {self.rank} waits for a message that no rank sends")
            number = self.test_any(requests)
            assert number is not None
            return number

    def _done(self, requests: Sequence[Any]) -> int | None:
        return next((n for n, request in enumerate(requests) if request is None or self.hub.sent[request[1]]), None)

    def test_any(self, requests: Sequence[Any]) -> int | None:
        with self.hub.changed:
            number = self._done(requests)
            if number is not None and requests[number] is not None:
                into, key = requests[number]
                arrived = self.hub.sent[key].popleft()
                assert len(arrived) == len(into)
                into[...] = arrived
            return number

    def close(self) -> None:
        pass


def run(size: int, work: Callable[[ProcessGroup], _T], messages: list[tuple[int, int, int]] | None = None) -> list[_T]:
    """Run a function on ``size`` ranks and return the result of each.

    All messages must be received. ``messages``: collects (from, to, bytes) of all messages.
    """
    hub = _Hub(size)

    def run_rank(rank: int) -> _T:
        try:
            with ProcessGroup(ThreadLink(hub, rank, size)) as group:
                return work(group)
        except BaseException:
            hub.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run_rank, rank) for rank in range(size)]
        errors = [f.exception() for f in futures]
    real = [e for e in errors if e is not None and not isinstance(e, threading.BrokenBarrierError)]
    if real:
        raise real[0]
    assert not any(hub.sent.values()), "some messages were not received"
    if messages is not None:
        messages += hub.messages
    return [f.result() for f in futures]
