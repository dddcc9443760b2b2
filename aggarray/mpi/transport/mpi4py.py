"""Back end over mpi4py: a duplicate of the communicator.

MPI waits by polling, which takes a processor from busy processes. This back end sleeps between polls after a short time.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from aggarray.errors import ExchangeError
from aggarray.mpi.transport.base import Link


class MPILink(Link):
    """Link over MPI; messages have the type MPI_BYTE."""

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        self._comm, self._byte, self._testany = comm, MPI.BYTE, MPI.Request.Testany
        self.rank, self.size = comm.Get_rank(), comm.Get_size()

    @classmethod
    def accepts(cls, comm: Any) -> bool:
        """Return whether ``comm`` is a communicator of mpi4py."""
        mpi = sys.modules.get("mpi4py.MPI")
        return mpi is not None and isinstance(comm, mpi.Comm)

    @classmethod
    def over(cls, comm: Any) -> Self:
        """Return a link over a duplicate of the communicator."""
        if not comm or comm.Is_inter():
            raise ExchangeError("a null communicator or one between two groups: give an intracommunicator")
        return cls(comm.Dup())

    def allgather(self, item: Any) -> list[Any]:
        """Return the objects of all processes, sleeping until all have entered."""
        _wait_for(self._comm.Ibarrier().Test)
        found: list[Any] = self._comm.allgather(item)
        return found

    def send(self, data: np.ndarray, peer: int, tag: int) -> Any:
        """Start to send."""
        return self._comm.Isend([data, self._byte], peer, tag)

    def receive(self, into: np.ndarray, peer: int, tag: int) -> Any:
        """Start to receive."""
        return self._comm.Irecv([into, self._byte], peer, tag)

    def first(self, pending: Sequence[Any]) -> int:
        """Wait for one request."""
        requests, done = list(pending), [0]

        def ready() -> bool:
            done[0], found = self._testany(requests)
            return bool(found)

        _wait_for(ready)
        return int(done[0])

    def close(self) -> None:
        """Free the duplicate."""
        if self._comm:
            self._comm.Free()


#: Seconds of polling without a pause, and the longest pause.
_BUSY, _BREAK = 5e-4, 1e-3


def _wait_for(ready: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    until, pause = time.perf_counter() + _BUSY, 2e-5
    while not ready():
        if time.perf_counter() > until:
            time.sleep(pause)
            pause = min(2 * pause, _BREAK)


LINK = MPILink
