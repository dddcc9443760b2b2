"""What does a back end have to be able to do? Pass bytes between numbered processes, and show everybody what everybody says.

Messages between two processes with one tag arrive in the order in which they were sent. All else is built on this.
"""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

#: Tags of messages: of trees, of moves (one more for each way), and of what sections say.
TREE, MOVE, SAID = 1, 2, 8


class Link(ABC):
    """One process's end of the connections between ``size`` processes, itself being number ``rank``."""

    rank: int
    size: int

    @classmethod
    def accepts(cls, comm: Any) -> bool:
        """Tell whether the back end makes links over such a communicator."""
        return False

    @classmethod
    def over(cls, comm: Any) -> Self:
        """Return a link over a communicator, whose messages nobody else sees. Collective."""
        raise NotImplementedError

    @abstractmethod
    def allgather(self, item: Any) -> list[Any]:
        """Return what all processes give, by rank; small objects. Collective."""

    @abstractmethod
    def send(self, data: np.ndarray, peer: int, tag: int) -> Any:
        """Begin to send contiguous bytes (uint8, at most 1 GiB), which must not change before `first` has returned this."""

    @abstractmethod
    def receive(self, into: np.ndarray, peer: int, tag: int) -> Any:
        """Begin to receive exactly so many bytes."""

    @abstractmethod
    def first(self, pending: Sequence[Any]) -> int:
        """Wait until one of some sends and receives is done; return which."""

    @abstractmethod
    def close(self) -> None:
        """Free what the link holds. Collective."""

    def wait(self, pending: Sequence[Any]) -> None:
        """Wait until all are done."""
        left = list(pending)
        while left:
            del left[self.first(left)]


class Section(Link):
    """A link between some of the processes of another, numbered in the order given; nothing of its own to free."""

    def __init__(self, link: Link, ranks: Sequence[int]) -> None:
        self._link, self._ranks = link, tuple(ranks)
        self.rank, self.size = self._ranks.index(link.rank), len(self._ranks)

    def send(self, data: np.ndarray, peer: int, tag: int) -> Any:
        """Begin to send."""
        return self._link.send(data, self._ranks[peer], tag)

    def receive(self, into: np.ndarray, peer: int, tag: int) -> Any:
        """Begin to receive."""
        return self._link.receive(into, self._ranks[peer], tag)

    def first(self, pending: Sequence[Any]) -> int:
        """Wait for one."""
        return self._link.first(pending)

    def allgather(self, item: Any) -> list[Any]:
        """Return what all say: told to the first, who tells the others."""
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
        """Do nothing: the link belongs to others."""
