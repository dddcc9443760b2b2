"""How does a program run without MPI? As one process, which sends messages to itself alone."""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.mpi.transport.base import Link


class SerialLink(Link):
    """One process and no library."""

    def __init__(self) -> None:
        self.rank, self.size = 0, 1
        self._sent: dict[int, deque[np.ndarray]] = defaultdict(deque)

    def allgather(self, item: Any) -> list[Any]:
        """Return what this one says."""
        return [item]

    def send(self, data: np.ndarray, peer: int, tag: int) -> Any:
        """Keep a copy until it is received."""
        self._sent[tag].append(data.copy())
        return None

    def receive(self, into: np.ndarray, peer: int, tag: int) -> Any:
        """Note where the next message goes."""
        return into, tag

    def first(self, pending: Sequence[Any]) -> int:
        """Take the first that is done: sends are at once, receives once something was sent."""
        for number, one in enumerate(pending):
            if one is None:
                return number
            into, tag = one
            if self._sent[tag]:
                into[...] = self._sent[tag].popleft()
                return number
        raise RuntimeError("a single process waits for a message that it has not sent")

    def close(self) -> None:
        """Do nothing."""


LINK = SerialLink
