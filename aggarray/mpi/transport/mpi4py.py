"""Back end over mpi4py: a duplicate of the communicator.

MPI waits by polling, which takes a processor from busy processes. This back end sleeps between polls after a short time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from aggarray.errors import ExchangeError
from aggarray.mpi.transport.base import Link, wait_until


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
            raise ExchangeError("the communicator is null or an intercommunicator", hint="give an intracommunicator")
        return cls(comm.Dup())

    def allgather(self, item: Any) -> list[Any]:
        """Return the objects of all processes, sleeping until all have entered."""
        wait_until(self._comm.Ibarrier().Test)
        items: list[Any] = self._comm.allgather(item)
        return items

    def send(self, data: np.ndarray, rank: int, tag: int) -> Any:
        """Start to send."""
        return self._comm.Isend([data, self._byte], rank, tag)

    def receive(self, into: np.ndarray, rank: int, tag: int) -> Any:
        """Start to receive."""
        return self._comm.Irecv([into, self._byte], rank, tag)

    def test_any(self, requests: Sequence[Any]) -> int | None:
        """Test requests."""
        number, is_done = self._testany(list(requests))
        return int(number) if is_done else None

    def close(self) -> None:
        """Free the duplicate."""
        if self._comm:
            self._comm.Free()


LINK = MPILink
