"""Program that tests start under MPI.

Runs the checks given by name, or all, and prints those that passed on rank 0.
"""

import sys
import time

from mpi4py import MPI

from aggarray.mpi import ProcessGroup
from tests.mpi import (
    checks,
    checks_files,
    checks_mistakes,
    checks_netcdf,
    checks_ragged,
    checks_reduce,
    checks_scan,
    checks_shared,
    checks_start,
)


def main() -> None:
    """Run the checks; an error ends the program on all ranks."""
    comm = MPI.COMM_WORLD
    expected = [name for name in sys.argv[1:] if name.startswith("check_")]
    files = *checks_files.FILE_CHECKS, *checks_netcdf.NETCDF_CHECKS, *checks_reduce.REDUCE_CHECKS, *checks_scan.SCAN_CHECKS
    of_files = *files, *checks_start.START_CHECKS, *checks_shared.SHARED_CHECKS
    for check in (*checks.CHECKS, *of_files, *checks_mistakes.MISTAKE_CHECKS, *checks_ragged.RAGGED_CHECKS):
        if expected and check.__name__ not in expected:
            continue
        start = time.perf_counter()
        with ProcessGroup(comm) as root:
            assert root.size == comm.size and root.rank == comm.rank
            check(root)
        comm.Barrier()
        if comm.rank == 0:
            print(f"passed {check.__name__} {time.perf_counter() - start:.2f} s", flush=True)


if __name__ == "__main__":
    if "hang" in sys.argv:
        time.sleep(1000 if MPI.COMM_WORLD.rank else 0)
        MPI.COMM_WORLD.Barrier()
    main()
