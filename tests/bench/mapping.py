"""Time to find the owners of a million indices, and to write the dim_data of one process.

A dimension of 10**9 elements over 4,096 processes. The peer is what one writes by hand with NumPy: a binary search among the
block boundaries, or a remainder. It checks nothing and supports one type of distribution at a time.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.harness import Benchmark, Contestant, Size

_SIZES = {
    "full": {"size": 10**9, "processes": 4096, "indices": 10**6, "block": 1000},
    "tiny": {"size": 10**4, "processes": 64, "indices": 100, "block": 3},
}
Given = tuple[Any, np.ndarray]


def _asked(size: Size) -> np.ndarray:
    return np.random.default_rng(0).integers(0, size["size"], size["indices"])


def _cuts(size: Size) -> np.ndarray:
    """Return irregular block boundaries."""
    inner = np.random.default_rng(1).integers(0, size["size"], size["processes"] - 1)
    return np.concatenate([[0], np.sort(inner), [size["size"]]])


def _ours(make: Callable[[Size], Any]) -> Contestant:
    def prepare(_folder: Path, size: Size) -> Given:
        from aggarray.dap import Distribution

        return Distribution((make(size),)), _asked(size)

    return Contestant("aggarray", prepare, lambda given: given[0].owner((given[1],)), lambda _, found: {"owner": found})


def _numpy(prepare: Callable[[Size], Any], work: Callable[[Given], np.ndarray]) -> Contestant:
    return Contestant(
        "NumPy by hand", lambda _, size: (prepare(size), _asked(size)), work, lambda _, found: {"owner": np.asarray(found)}
    )


def _uneven(size: Size) -> Any:
    from aggarray.dap import Block

    return Block(_cuts(size))


def _even(size: Size) -> Any:
    from aggarray.dap import Block

    return Block.even(size["size"], size["processes"])


def _cyclic(size: Size) -> Any:
    from aggarray.dap import Cyclic

    return Cyclic(size["size"], size["processes"], size["block"])


def _search(given: Given) -> np.ndarray:
    return np.searchsorted(given[0], given[1], side="right") - 1


def _dealt(given: Given) -> np.ndarray:
    processes, block = given[0]
    return given[1] // block % processes


def _even_cuts(size: Size) -> np.ndarray:
    from aggarray.dap import Block

    return np.asarray(Block.even(size["size"], size["processes"]).bounds)


def _dim_data(_folder: Path, size: Size) -> Any:
    from aggarray.dap import Distribution

    return lambda: Distribution.regular((size["size"],), "b", (size["processes"],), padding={0: (2, 2)}).dim_data(17)


def _nothing(_folder: Path, _size: Size) -> None:
    """Make no files."""


BENCHMARKS = (
    Benchmark(
        "owner-block", "owners in even blocks", _SIZES, _nothing, (_ours(_even), _numpy(_even_cuts, _search)), per="indices"
    ),
    Benchmark(
        "owner-uneven",
        "owners in uneven blocks",
        _SIZES,
        _nothing,
        (_ours(_uneven), _numpy(_cuts, _search)),
        per="indices",
    ),
    Benchmark(
        "owner-cyclic",
        "owners of a cyclic dimension",
        _SIZES,
        _nothing,
        (_ours(_cyclic), _numpy(lambda size: (size["processes"], size["block"]), _dealt)),
        per="indices",
    ),
    Benchmark(
        "dim-data",
        "a distribution made, and the dim_data of one process",
        _SIZES,
        _nothing,
        (
            Contestant(
                "aggarray",
                _dim_data,
                lambda work: work(),
                lambda _, found: {"start": np.array(found[0]["start"])},
            ),
        ),
    ),
)
