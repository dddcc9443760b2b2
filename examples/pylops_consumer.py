"""Pass sections to pylops-mpi, an MPI array library: mpiexec -n 4 python -m mpi4py examples/pylops_consumer.py

aggarray reads and exports the section of each process; a DistributedArray takes the exported values and applies distributed
linear operators to them. Needs `pip install pylops-mpi`.
"""

from typing import Any

import numpy as np
import pylops_mpi
from mpi4py import MPI

from aggarray import mpi
from aggarray.dap import Distribution


def taken_in(export: dict[str, Any], comm: MPI.Comm) -> pylops_mpi.DistributedArray:
    """Import the data of any exporter of the Distributed Array Protocol, distributed along its first dimension."""
    values = np.asarray(memoryview(export["buffer"]))
    shapes = comm.allgather(values.shape)
    whole = tuple(d["size"] for d in export["dim_data"])
    found = pylops_mpi.DistributedArray(whole, comm, axis=0, local_shapes=shapes, dtype=values.dtype)
    found[:] = values
    return found


def main(source: str = "sample_data/archive", variable: str = "tas") -> None:
    """Compute differences from day to day with pylops-mpi."""
    comm = MPI.COMM_WORLD
    array = mpi.open(source, comm)[variable].lazy[:, 4:9].astype("f8")
    days = Distribution.regular(array.shape, "bbb", (comm.size, 1, 1))
    local = mpi.local(array, days, comm)
    field = taken_in(local.__distarray__(), comm)
    field[:] = np.nan_to_num(field.local_array)
    steps = pylops_mpi.MPIFirstDerivative(array.shape, kind="forward", dtype=np.float64)
    lengths = [(n,) for n in comm.allgather(local.buffer.size)]
    flat = pylops_mpi.DistributedArray(array.size, comm, dtype=np.float64, local_shapes=lengths)
    flat[:] = field.local_array.ravel()
    change = (steps @ flat).norm()
    squares = np.nansum(np.diff(np.nan_to_num(array[:]), axis=0) ** 2) if comm.rank == 0 else 0.0
    if comm.rank == 0:
        assert np.isclose(np.asarray(change).item() ** 2, squares, rtol=1e-12), (change, squares)
        print(f"{variable}: pylops-mpi finds a change of {np.asarray(change).item():.6f} from day to day, as NumPy does")


if __name__ == "__main__":
    main()
