"""Program that a test kills while it writes: python killed_program.py PATH [slowly]

Each rank writes its process number to a file beside the output before it writes the array.
"""

import os
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
from mpi4py import MPI

from aggarray import mpi
from aggarray.dap import Distribution
from aggarray.output import netcdf_file, zarr_codecs

SHAPE = (64, 300)


class Export:
    """Section of this rank."""

    def __init__(self, values: np.ndarray, distribution: Distribution, rank: int) -> None:
        self._export = {"__version__": "0.10.0", "buffer": values, "dim_data": distribution.dim_data(rank)}

    def __distarray__(self) -> dict[str, object]:
        return self._export


def main(path: str, slowly: bool) -> None:
    """Write; ``slowly``: 0.1 s for each of many small chunks."""
    comm = MPI.COMM_WORLD
    distribution = Distribution.regular(SHAPE, "bb", (comm.size, 1))
    rows = distribution.indices(comm.rank)[0]
    local = Export(np.arange(64 * 300.0).reshape(SHAPE)[rows], distribution, comm.rank)
    (Path(path).parent.parent / f"rank{comm.rank}").write_text(str(os.getpid()))
    pause = 0.1 * slowly
    encoders = {"aggarray.mpi.netcdf_file.encode": netcdf_file.encode, "aggarray.mpi.zarr_store.encode": zarr_codecs.encode}
    mock.patch.multiple("aggarray.partition.block_shapes", _MIN_BYTES=1 << 8, _MAX_BYTES=1 << 9).start()
    mock.patch("aggarray.mpi.schedule.chunk_grid._MAX_BYTES", 1 << 12).start()
    for name, encode in encoders.items():

        def paused(*arguments, encode=encode):  # type: ignore[no-untyped-def]
            time.sleep(pause)
            return encode(*arguments)

        mock.patch(name, paused).start()
    mpi.write(local, comm, path, "v")


if __name__ == "__main__":
    main(sys.argv[1], len(sys.argv) > 2)
