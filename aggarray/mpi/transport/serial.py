"""Back end of a single process, which sends messages to itself."""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.mpi.transport.base import Link


class SerialLink(Link):
    """Link of one process without a library."""

    def __init__(self) -> None:
        self.rank, self.size = 0, 1
        self._sent: dict[int, deque[np.ndarray]] = defaultdict(deque)

    def allgather(self, item: Any) -> list[Any]:
        """Return the object of this process."""
        return [item]

    def send(self, data: np.ndarray, rank: int, tag: int) -> Any:
        """Keep a copy until it is received."""
        self._sent[tag].append(data.copy())
        return None

    def receive(self, into: np.ndarray, rank: int, tag: int) -> Any:
        """Return the target of the next message as the request."""
        return into, tag

    def wait_any(self, requests: Sequence[Any]) -> int:
        """Return the first request that is done.

        Sends are done at once, receives once a message was sent.
        """
        for number, request in enumerate(requests):
            if request is None:
                return number
            into, tag = request
            if self._sent[tag]:
                into[...] = self._sent[tag].popleft()
                return number
        raise RuntimeError("deadlock: a single process waits for a message that it has not sent")

    def close(self) -> None:
        """Do nothing."""


LINK = SerialLink
