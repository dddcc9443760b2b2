"""Index of an archive, scanned by a pool of MPI processes: mpiexec -n 4 python -m mpi4py.futures examples/mpi_pool_scan.py

Process 0 runs this program and joins the files; the others scan them.

    mpi_pool_scan.py [SOURCE [INDEX]]

INDEX is created, or replaced if it is an index.
"""

import sys

from mpi4py.futures import MPIPoolExecutor

import aggarray as aa


def main(source: str = "sample_data/archive", index: str = "archive.nca") -> None:
    """Scan, join, save."""
    with MPIPoolExecutor() as pool:
        archive = aa.open(source, executor=pool)
        # The workers also look up where the chunks of each file lie.
        archive.save(index, executor=pool)
        files = {partition.data.uri for array in archive for partition in array.partitions if partition.data is not None}
        print(f"{len(archive)} arrays of {len(files)} files, scanned by {pool.num_workers} workers; index in {index}")
    for file, _, reason in archive.skipped:
        print(f"skipped {file}: {reason}")


if __name__ == "__main__":
    main(*sys.argv[1:])
