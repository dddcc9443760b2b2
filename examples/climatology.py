"""Mean and standard deviation over time, on many processes: mpiexec -n 4 python -m mpi4py examples/climatology.py

One process decodes each stored chunk, whatever the layout of the files. Afterwards every process has some rows of the map at
all times.

    climatology.py [SOURCE [VARIABLE [STORE]]]

STORE is created; a store that has such arrays already is refused.
"""

import sys

from mpi4py import MPI

from aggarray import mpi
from aggarray.dap import Distribution


def main(source: str = "sample_data/archive", variable: str = "tas", store: str = "climatology.zarr") -> None:
    """Read, reduce, write."""
    comm = MPI.COMM_WORLD
    array = mpi.open(source, comm)[variable]
    grid = [1] * array.ndim
    grid[-2] = comm.size
    local = mpi.local(array, Distribution.regular(array.shape, "b" * array.ndim, grid), comm)
    for operation in ("mean", "std"):
        result = mpi.reduce(local, operation, "time", comm)
        mpi.write(result, comm, store, f"{variable}_{operation}")
    lowest = mpi.reduce(local, "min", None, comm)
    highest = mpi.reduce(local, "max", None, comm)
    if comm.rank == 0:
        steps = array.shape[array.dimensions.index("time")]
        print(
            f"{variable}: {steps} steps from {lowest.buffer:.2f} to {highest.buffer:.2f} {array.units}; climatology in {store}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
