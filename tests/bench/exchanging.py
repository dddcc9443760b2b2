"""Time of four ranks to fill halos and to sum arrays, through shared memory and by messages.

Every rank has a slab for each neighbour, or an array to add, of ``bytes``. The slabs lie across the sections, so that libraries
pack and unpack them. A repetition does the exchange ``times`` times. The ranks are started before the clock starts.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.collective import RANKS, ask, start
from tests.bench.harness import Benchmark, Contestant, Size

_KIB = (64, 1024, 4096)


def _make(folder: Path, size: Size) -> None:
    np.save(folder / "exchange.npy", [size["bytes"], size["times"]])


def _values(given: Any, _result: None) -> dict[str, np.ndarray]:
    ranks, folder, pipe = given
    ask(given, "save")
    pipe.close()
    ranks.communicate()
    return {str(rank): np.load(folder / f"section_{rank}.npy") for rank in range(RANKS)}


def _contestant(name: str, way: str) -> Contestant:
    return Contestant(name, partial(start, way=way), partial(ask, line="work"), _values, ("mpi4py",))


def _benchmark(kind: str, title: str, function: str, kib: int) -> Benchmark:
    nbytes = kib << 10
    return Benchmark(
        f"mpi-{kind}-{kib}k",
        f"{RANKS} ranks, {title} of {kib} KiB",
        {
            "full": {"bytes": nbytes, "times": max(5, (40 << 20) // nbytes // 4)},
            "tiny": {"bytes": 16 << 10, "times": 2},
        },
        _make,
        (
            _contestant(f"aggarray.mpi.{'HaloExchange' if kind == 'halo' else 'AllSumReduce'}", f"{kind}-shared"),
            _contestant("the same by messages", f"{kind}-messages"),
            _contestant(f"mpi4py {function}", f"{kind}-mpi4py"),
        ),
    )


BENCHMARKS = (
    *(_benchmark("halo", "slabs", "Sendrecv", kib) for kib in _KIB),
    *(_benchmark("sum", "arrays", "Allreduce", kib) for kib in _KIB),
)
