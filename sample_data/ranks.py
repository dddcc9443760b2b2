"""MPI program of the demonstration, and its launcher.

Each rank opens the index, reads its section collectively, and writes the result of `__distarray__` to a file:
``mpiexec -n 4 python -m mpi4py sample_data/ranks.py INDEX VARIABLE FOLDER``.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

_SECONDS = 60


def main(index: str, variable: str, folder: str) -> None:
    """Read a section and write its export."""
    from mpi4py import MPI

    from aggarray import mpi
    from aggarray.dap import Distribution

    comm = MPI.COMM_WORLD
    array = mpi.open(index, comm)[variable]
    across = Distribution.regular(array.shape, "bcb", (1, comm.size, 1))
    export = mpi.local(array, across, comm).__distarray__()
    np.savez(Path(folder) / f"rank_{comm.rank}.npz", **{**export, "dim_data": json.dumps(export["dim_data"])})


def exports(index: str, variable: str, folder: str, count: int = 4) -> list[dict[str, Any]] | None:
    """Return the exports of ``count`` ranks; None without an MPI library."""
    words = launching(count)
    if words is None:
        return None
    command = [*words, "-m", "mpi4py", __file__, index, variable, folder]
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    subprocess.run(command, check=True, timeout=_SECONDS, env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"})
    result = []
    for rank in range(count):
        with np.load(Path(folder) / f"rank_{rank}.npz") as file:
            result.append(
                {
                    "__version__": str(file["__version__"]),
                    "buffer": file["buffer"],
                    "dim_data": tuple(json.loads(str(file["dim_data"]))),
                }
            )
    return result


def launching(count: int) -> list[str] | None:
    """Return the command that starts ``count`` ranks of this interpreter; None without a launcher.

    Prefers the launcher next to the interpreter, where wheels of MPI libraries install it. Permits more ranks than processors,
    and root.
    """
    beside = Path(sys.executable).parent / "mpiexec"
    result = str(beside) if beside.exists() else shutil.which("mpiexec")
    options = ["--oversubscribe", "--bind-to", "none", *(["--allow-run-as-root"] if os.getuid() == 0 else [])]
    return None if result is None else [result, *options, "-n", str(count), sys.executable]


if __name__ == "__main__":
    main(*sys.argv[1:])
