"""Interface of a back end: messages of bytes between ranks, and allgather.

Messages between two ranks with one tag arrive in the order in which they were sent.
"""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

#: Tags of messages: of trees, of moves (plus the direction), and of objects in sections.
TREE, MOVE, SAID = 1, 2, 8


class Link(ABC):
    """End of the connections between ``size`` processes, of rank ``rank``."""

    rank: int
    size: int

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
    def send(self, data: np.ndarray, peer: int, tag: int) -> Any:
        """Start to send contiguous uint8, at most 1 GiB; return the request.

        The bytes must not change before the request is done.
        """

    @abstractmethod
    def receive(self, into: np.ndarray, peer: int, tag: int) -> Any:
        """Start to receive exactly as many bytes as ``into`` has.

        Returns the request.
        """

    @abstractmethod
    def first(self, pending: Sequence[Any]) -> int:
        """Wait until one of some requests is done; return its index."""

    @abstractmethod
    def close(self) -> None:
        """Free the resources of the link. Collective."""

    def wait(self, pending: Sequence[Any]) -> None:
        """Wait until all requests are done."""
        left = list(pending)
        while left:
            del left[self.first(left)]


class Section(Link):
    """Link between some of the processes of another link, in the order given.

    It has no resources of its own.
    """

    def __init__(self, link: Link, ranks: Sequence[int]) -> None:
        self._link, self._ranks = link, tuple(ranks)
        self.rank, self.size = self._ranks.index(link.rank), len(self._ranks)

    def send(self, data: np.ndarray, peer: int, tag: int) -> Any:
        """Start to send."""
        return self._link.send(data, self._ranks[peer], tag)

    def receive(self, into: np.ndarray, peer: int, tag: int) -> Any:
        """Start to receive."""
        return self._link.receive(into, self._ranks[peer], tag)

    def first(self, pending: Sequence[Any]) -> int:
        """Wait for one request."""
        return self._link.first(pending)

    def allgather(self, item: Any) -> list[Any]:
        """Return the objects of all processes, gathered on rank 0 and sent back."""
        mine = pickle.dumps(item)
        if self.rank:
            self._say(mine, 0)
            found: list[Any] = pickle.loads(self._hear(0))
            return found
        said = [mine, *(self._hear(peer) for peer in range(1, self.size))]
        items = [pickle.loads(one) for one in said]
        everything = pickle.dumps(items)
        for peer in range(1, self.size):
            self._say(everything, peer)
        return items

    def _say(self, words: bytes, peer: int) -> None:
        length = np.array([len(words)], np.int64).view(np.uint8)
        self.wait([self.send(length, peer, SAID), self.send(np.frombuffer(words, np.uint8), peer, SAID)])

    def _hear(self, peer: int) -> bytes:
        length = np.zeros(1, np.int64)
        self.wait([self.receive(length.view(np.uint8), peer, SAID)])
        words = np.empty(int(length[0]), np.uint8)
        self.wait([self.receive(words, peer, SAID)])
        return words.tobytes()

    def close(self) -> None:
        """Do nothing: the parent link stays open."""
