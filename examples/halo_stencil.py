"""Smooth every map of an archive over its neighbours, on many processes: mpiexec -n 4 python -m mpi4py examples/halo_stencil.py

Each process has a rectangle of the map with a halo of one point, which its neighbours fill; longitudes are periodic. The result
is written to one Zarr store.

    halo_stencil.py [SOURCE [VARIABLE [STORE]]]

STORE is created; a store that has such an array already is refused.
"""

import sys

import numpy as np
from mpi4py import MPI

from aggarray import mpi
from aggarray.dap import Block, Distribution


def smoothed(values: np.ndarray) -> np.ndarray:
    """Return the mean of every point and its four neighbours, without the halo; missing points are ignored."""
    points = np.stack(
        [values[:, 1:-1, 1:-1], values[:, :-2, 1:-1], values[:, 2:, 1:-1], values[:, 1:-1, :-2], values[:, 1:-1, 2:]]
    )
    count = (~np.isnan(points)).sum(axis=0)
    return np.where(count > 0, np.nansum(points, axis=0) / np.maximum(count, 1), np.nan)


def main(source: str = "sample_data/archive", variable: str = "tas", store: str = "smoothed.zarr") -> None:
    """Read, fill halos, smooth, write."""
    comm = MPI.COMM_WORLD
    array = mpi.open(source, comm)[variable].astype("f8")
    rows, columns = MPI.Compute_dims(comm.size, 2)
    grid = (1, rows, columns)
    bare = Distribution.regular(array.shape, "bbb", grid)
    local = mpi.local(array, bare, comm)

    # The same blocks with a halo of one point, none beyond the poles.
    padded = Distribution(
        (
            bare.maps[0],
            Block(bare.maps[1].bounds, padding=halo(rows)),
            Block(bare.maps[2].bounds, padding=(1, 1), periodic=True, outer="wrap"),
        )
    )
    with mpi.ProcessGroup(comm) as group:
        field = np.full(padded.local_shape(comm.rank), np.nan)
        field[padded.owned_slices(comm.rank)] = local.buffer
        mpi.HaloExchange(group.grid(grid, periodic=(False, False, True)), padded)(field)
        top, bottom = (comm.rank // columns == end for end in (0, rows - 1))
        field = np.pad(field, ((0, 0), (int(top), int(bottom)), (0, 0)), constant_values=np.nan)
        # Writing to the buffer of the section keeps names, attributes and coordinates.
        local.buffer[...] = smoothed(field)
        mpi.write(local, group, store, variable)
        mean = mpi.reduce(local, "mean", None, group)
    if comm.rank == 0:
        print(f"{variable} {array.shape} smoothed by {comm.size} processes into {store}: mean {mean.buffer:.6f} {array.units}")


def halo(count: int) -> list[tuple[int, int]]:
    """Return a halo of one point between blocks, none at the ends."""
    return [(int(place > 0), int(place < count - 1)) for place in range(count)]


if __name__ == "__main__":
    main(*sys.argv[1:])
