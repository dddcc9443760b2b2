"""How do processes under MPI reach each other? Through a duplicate of their communicator, freed when the link is closed."""

import sys
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from aggarray.errors import ExchangeError
from aggarray.transport.base import Link


class MPILink(Link):
    """Bytes go as MPI_BYTE, contiguous and native as they are: MPI sees no other types."""

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        self._comm, self._byte, self._waitany = comm, MPI.BYTE, MPI.Request.Waitany
        self.rank, self.size = comm.Get_rank(), comm.Get_size()

    @classmethod
    def accepts(cls, comm: Any) -> bool:
        """Tell whether it is a communicator of mpi4py, which then has been imported."""
        mpi = sys.modules.get("mpi4py.MPI")
        return mpi is not None and isinstance(comm, mpi.Comm)

    @classmethod
    def over(cls, comm: Any) -> Self:
        """Return a link over a duplicate of the communicator."""
        if not comm or comm.Is_inter():
            raise ExchangeError("a null communicator or one between two groups: give an intracommunicator")
        return cls(comm.Dup())

    def allgather(self, item: Any) -> list[Any]:
        """Return what all say."""
        found: list[Any] = self._comm.allgather(item)
        return found

    def send(self, data: np.ndarray, peer: int, tag: int) -> Any:
        """Begin to send."""
        return self._comm.Isend([data, self._byte], peer, tag)

    def receive(self, into: np.ndarray, peer: int, tag: int) -> Any:
        """Begin to receive."""
        return self._comm.Irecv([into, self._byte], peer, tag)

    def first(self, pending: Sequence[Any]) -> int:
        """Wait for one."""
        return int(self._waitany(list(pending)))

    def close(self) -> None:
        """Free the duplicate."""
        if self._comm:
            self._comm.Free()


LINK = MPILink
