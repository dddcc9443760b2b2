"""What if the processes were threads? A back end for tests: the movements of many workers within one process."""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from aggarray.mpi import ProcessGroup
from aggarray.mpi.transport import Link

_T = TypeVar("_T")
_SECONDS = 60


class _Hub:
    """What the threads share."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=_SECONDS)
        self.said: list[Any] = [None] * size
        self.sent: dict[tuple[int, int, int], deque[np.ndarray]] = defaultdict(deque)
        self.changed = threading.Condition()
        self.messages: list[tuple[int, int, int]] = []


class ThreadLink(Link):
    """One thread's end."""

    def __init__(self, hub: _Hub, rank: int, size: int) -> None:
        self.hub, self.rank, self.size = hub, rank, size

    def allgather(self, item: Any) -> list[Any]:
        self.hub.said[self.rank] = item
        self.hub.barrier.wait()
        found = list(self.hub.said)
        self.hub.barrier.wait()
        return found

    def send(self, data: np.ndarray, peer: int, tag: int) -> Any:
        with self.hub.changed:
            self.hub.sent[self.rank, peer, tag].append(data.copy())
            self.hub.messages.append((self.rank, peer, len(data)))
            self.hub.changed.notify_all()

    def receive(self, into: np.ndarray, peer: int, tag: int) -> Any:
        return into, (peer, self.rank, tag)

    def wait_any(self, pending: Sequence[Any]) -> int:
        def done() -> int | None:
            return next((n for n, one in enumerate(pending) if one is None or self.hub.sent[one[1]]), None)

        with self.hub.changed:
            if not self.hub.changed.wait_for(lambda: done() is not None, timeout=_SECONDS):
                raise TimeoutError(f"worker {self.rank} waits for a message that nobody sends")
            number = done()
            assert number is not None
            if pending[number] is not None:
                into, key = pending[number]
                arrived = self.hub.sent[key].popleft()
                assert len(arrived) == len(into)
                into[...] = arrived
            return number

    def close(self) -> None:
        pass


def run(size: int, work: Callable[[ProcessGroup], _T], messages: list[tuple[int, int, int]] | None = None) -> list[_T]:
    """Run the same on so many workers; return what each returns. Nothing may be left unreceived.

    ``messages``: gets (from, to, bytes) of all messages.
    """
    hub = _Hub(size)

    def one(rank: int) -> _T:
        try:
            with ProcessGroup(ThreadLink(hub, rank, size)) as group:
                return work(group)
        except BaseException:
            hub.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(one, rank) for rank in range(size)]
        errors = [f.exception() for f in futures]
    real = [e for e in errors if e is not None and not isinstance(e, threading.BrokenBarrierError)]
    if real:
        raise real[0]
    assert not any(hub.sent.values()), "messages that nobody received"
    if messages is not None:
        messages += hub.messages
    return [f.result() for f in futures]
