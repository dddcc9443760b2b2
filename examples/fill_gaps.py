"""Gaps filled with the mean over time, in one netCDF-4 file: mpiexec -n 4 python -m mpi4py examples/fill_gaps.py

Each process reads some rows of the map at all times, fills the gaps, and compresses its part of the file.

    fill_gaps.py [SOURCE [VARIABLE [OUTPUT]]]

OUTPUT ends with .nc. A file that already has the variable raises an error.
"""

import sys

import numpy as np
from mpi4py import MPI

from aggarray import mpi
from aggarray.dap import Distribution


def main(source: str = "sample_data/archive", variable: str = "tas", output: str = "filled.nc") -> None:
    """Read, compute, write."""
    comm = MPI.COMM_WORLD
    array = mpi.open(source, comm)[variable]
    grid = [1] * array.ndim
    grid[-2] = comm.size
    local = mpi.local(array, Distribution.regular(array.shape, "b" * array.ndim, grid), comm)
    mean = mpi.reduce(local, "mean", "time", comm)  # of the same rows
    gaps = np.isnan(local.buffer)
    along_time = np.expand_dims(mean.buffer, array.dimensions.index("time"))
    np.copyto(local.buffer, along_time.astype(local.dtype), where=gaps)
    mpi.write(local, comm, output)
    count = comm.reduce(int(gaps.sum()))
    if comm.rank == 0:
        print(f"{variable}: {count} of {array.size} values filled, written to {output}")


if __name__ == "__main__":
    main(*sys.argv[1:])
