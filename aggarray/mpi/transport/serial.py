"""Back end of a single process, which has no other process to send to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from aggarray.mpi.transport.base import Link


class SerialLink(Link):
    """Link of one process without a library."""

    rank, size = 0, 1

    def allgather(self, item: Any) -> list[Any]:
        """Return the object of this process."""
        return [item]

    def send(self, data: np.ndarray, rank: int, tag: int) -> NoReturn:
        """Raise RuntimeError."""
        raise RuntimeError("a single process cannot exchange messages")

    def receive(self, into: np.ndarray, rank: int, tag: int) -> NoReturn:
        """Raise RuntimeError."""
        self.send(into, rank, tag)

    def test_any(self, requests: Sequence[Any]) -> NoReturn:
        """Raise RuntimeError."""
        raise RuntimeError("a single process cannot wait for messages")

    def close(self) -> None:
        """Do nothing."""


LINK = SerialLink
