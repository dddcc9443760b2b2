"""Diffuse the maps of an archive, on many processes: mpiexec -n 4 python -m mpi4py examples/shared_memory.py

The ranks of a node read together: one of them decodes each stored chunk into shared memory, and all copy their parts from
there. Each has some rows of the map at all times, with a halo of one row that the read fills. Each step of the diffusion
exchanges the halos. Reductions compute the mean, which diffusion preserves, and the deviation, which decreases.

    shared_memory.py [SOURCE [VARIABLE [STEPS]]]

AGGARRAY_SHARED_MEMORY=0 makes the ranks exchange messages instead; the results are the same.
"""

import sys
import time

import numpy as np
from mpi4py import MPI

from aggarray import mpi
from aggarray.dap import Block, Distribution


def diffuse(rows: np.ndarray, first: bool, last: bool) -> np.ndarray:
    """Return the rows without halo after a step; nothing flows beyond the ends, or from and to missing points."""
    padded = np.pad(rows, ((0, 0), (int(first), int(last)), (0, 0)), mode="edge")
    flow = 0.25 * np.nan_to_num(np.diff(padded, axis=1))
    result: np.ndarray = padded[:, 1:-1] + flow[:, 1:] - flow[:, :-1]
    return result


def main(source: str = "sample_data/archive", variable: str = "tas", steps: str = "5") -> None:
    """Read, exchange halos, reduce."""
    comm = MPI.COMM_WORLD
    rank, count = comm.rank, comm.size
    array = mpi.open(source, comm)[variable].astype("f8")
    halo = [(int(r > 0), int(r < count - 1)) for r in range(count)]
    rows = Block.even(array.shape[-2], count, padding=halo)
    distribution = Distribution((Block.even(array.shape[0], 1), rows, Block.even(array.shape[-1], 1)))

    start = time.perf_counter()
    local = mpi.local(array, distribution, comm)
    seconds = time.perf_counter() - start
    with mpi.ProcessGroup(comm) as group:
        before = [mpi.reduce(local, operation, None, group).buffer for operation in ("mean", "std")]
        exchange = mpi.HaloExchange(group.grid(distribution.grid), distribution)
        for _ in range(int(steps)):
            local.owned[...] = diffuse(local.buffer, rank == 0, rank == count - 1)
            exchange(local.buffer)
        after = [mpi.reduce(local, operation, None, group).buffer for operation in ("mean", "std")]
    if rank == 0:
        print(f"{variable} {array.shape} read by {count} processes in {seconds:.3f} s")
        for name, (mean, std) in (("before", before), ("after", after)):
            print(f"{name}: mean {mean:.6f}, deviation {std:.6f} {array.units}")


if __name__ == "__main__":
    main(*sys.argv[1:])
