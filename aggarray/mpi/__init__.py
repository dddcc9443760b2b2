"""How do many processes share the work? Process groups, movements of data between them, collective reading and writing.

Under MPI over a communicator of mpi4py (the extra ``mpi``), or by one process alone (`ProcessGroup.serial`) without a library.
"""

from aggarray.mpi.fans import AllSumReduce, Broadcast, SumReduce
from aggarray.mpi.groups import ProcessGrid, ProcessGroup
from aggarray.mpi.ragged import RaggedRepartition
from aggarray.mpi.reading import local, open
from aggarray.mpi.redistribution import HaloExchange, Repartition
from aggarray.mpi.reducing import reduce
from aggarray.mpi.writing import write

__all__ = [
    "AllSumReduce",
    "Broadcast",
    "HaloExchange",
    "ProcessGrid",
    "ProcessGroup",
    "RaggedRepartition",
    "Repartition",
    "SumReduce",
    "local",
    "open",
    "reduce",
    "write",
]
