"""Interface of a back end: messages of bytes between ranks, and allgather.

Messages between two ranks with one tag arrive in the order in which they were sent.
"""

from __future__ import annotations

import pickle
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from aggarray.mpi.transport.buffers import BufferPool

if TYPE_CHECKING:
    from aggarray.mpi.node import Node
    from aggarray.mpi.sums import SharedSum

#: Tags of messages: of trees, of moves (plus the direction), of objects in sections, and of calls.
TREE, MOVE, OBJECT, CALL = 1, 2, 8, 9


class Link(ABC):
    """End of the connections between ``size`` processes, of rank ``rank``."""

    rank: int
    size: int
    #: Set by `node.node_of`.
    node: Node | None = None

    @cached_property
    def sums(self) -> dict[tuple[int, ...], SharedSum | None]:
        """Windows of groups for `sums.allreduce`, kept as long as the link."""
        return {}

    @cached_property
    def buffers(self) -> BufferPool:
        """Buffers of messages, kept until the link is no longer used."""
        return BufferPool()

    @classmethod
    def accepts(cls, comm: Any) -> bool:
        """Return whether the back end makes links over a communicator."""
        return False

    @classmethod
    def over(cls, comm: Any) -> Self:
        """Return a link over a private duplicate of a communicator. Collective."""
        raise NotImplementedError

    @abstractmethod
    def allgather(self, item: Any) -> list[Any]:
        """Return the small objects of all processes, by rank. Collective."""

    @abstractmethod
    def send(self, data: np.ndarray, rank: int, tag: int) -> Any:
        """Start to send contiguous uint8, at most 1 GiB; return the request.

        The bytes must not change before the request is done.
        """

    @abstractmethod
    def receive(self, into: np.ndarray, rank: int, tag: int) -> Any:
        """Start to receive as many bytes as ``into`` has; return the request."""

    @abstractmethod
    def test_any(self, requests: Sequence[Any]) -> int | None:
        """Return the index of one of some requests that is done, None if none is."""

    def wait_any(self, requests: Sequence[Any]) -> int:
        """Wait until one of some requests is done; return its index."""
        done: list[int] = []

        def test() -> bool:
            number = self.test_any(requests)
            done.extend([] if number is None else [number])
            return number is not None

        wait_until(test)
        return done[0]

    @abstractmethod
    def close(self) -> None:
        """Free the resources of the link. Collective."""

    def wait_all(self, requests: Sequence[Any]) -> None:
        """Wait until all requests are done."""
        remaining = list(requests)
        while remaining:
            del remaining[self.wait_any(remaining)]


class Section(Link):
    """Link between some of the processes of another link, in the order given."""

    def __init__(self, link: Link, ranks: Sequence[int]) -> None:
        self._link, self._ranks = link, tuple(ranks)
        self.rank, self.size = self._ranks.index(link.rank), len(self._ranks)

    def send(self, data: np.ndarray, rank: int, tag: int) -> Any:
        """Start to send."""
        return self._link.send(data, self._ranks[rank], tag)

    def receive(self, into: np.ndarray, rank: int, tag: int) -> Any:
        """Start to receive."""
        return self._link.receive(into, self._ranks[rank], tag)

    @property
    def buffers(self) -> BufferPool:
        """Those of the parent link."""
        return self._link.buffers

    def test_any(self, requests: Sequence[Any]) -> int | None:
        """Test requests."""
        return self._link.test_any(requests)

    def wait_any(self, requests: Sequence[Any]) -> int:
        """Wait for one request."""
        return self._link.wait_any(requests)

    def allgather(self, item: Any) -> list[Any]:
        """Return the objects of all processes, gathered on rank 0 and sent back."""
        if self.rank:
            self._send_object(pickle.dumps(item), 0)
            received: list[Any] = pickle.loads(self._receive_object(0))
            return received
        # The own item is pickled too, so that all processes get copies.
        pickled = [pickle.dumps(item), *(self._receive_object(rank) for rank in range(1, self.size))]
        items = [pickle.loads(data) for data in pickled]
        gathered = pickle.dumps(items)
        for rank in range(1, self.size):
            self._send_object(gathered, rank)
        return items

    def _send_object(self, pickled: bytes, rank: int) -> None:
        length = np.array([len(pickled)], np.int64).view(np.uint8)
        self.wait_all([self.send(length, rank, OBJECT), self.send(np.frombuffer(pickled, np.uint8), rank, OBJECT)])

    def _receive_object(self, rank: int) -> bytes:
        length = np.zeros(1, np.int64)
        self.wait_all([self.receive(length.view(np.uint8), rank, OBJECT)])
        pickled = np.empty(int(length[0]), np.uint8)
        self.wait_all([self.receive(pickled, rank, OBJECT)])
        return pickled.tobytes()

    def close(self) -> None:
        """Do nothing: the parent link stays open."""


#: Seconds of polling without a pause, and the longest pause.
_POLLING, _MAX_PAUSE = 5e-4, 1e-3


def wait_until(ready: Callable[[], bool], polling: float = _POLLING) -> None:
    """Poll until something is ready, with pauses after ``polling`` seconds.

    Polling takes a processor from busy processes.
    """
    deadline, pause = time.perf_counter() + polling, 2e-5
    while not ready():
        if time.perf_counter() > deadline:
            time.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)
