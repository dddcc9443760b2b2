"""Mean over time of an archive, computed by xarray and dask in chunks.

Memory counts, too: that of the whole archive against that of one of its files, read by xarray's own engine.
"""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.bench.harness import Benchmark, Contestant, Size
from tests.bench.layouts import Layout
from tests.bench.opening import load_aggarray, with_xarray
from tests.bench.peers import INDEX, write_with_index

_STEP = Layout((1, 180, 360), options={"zlib": True, "shuffle": True})
_TINY = {"files": 2, "steps": 5, "lat": 8, "lon": 10}
_SIZES = {"full": {"files": 24, "steps": 120, "lat": 180, "lon": 360}, "tiny": _TINY}
_LONG = {"full": {"files": 4, "steps": 720, "lat": 180, "lon": 360}, "tiny": _TINY}


def _given(folder: Path, size: Size) -> SimpleNamespace:
    from aggarray.xarray_engine import AggarrayBackendEntrypoint

    load_aggarray()
    given = with_xarray(folder, size)
    given.index, given.engine = str(folder / INDEX), AggarrayBackendEntrypoint
    return given


def _peer(folder: Path, size: Size) -> SimpleNamespace:
    import netCDF4  # noqa: F401

    return with_xarray(folder, size)


def _ours(given: SimpleNamespace, chunks: Any, indexed: bool = True) -> np.ndarray:
    source = given.index if indexed else given.paths
    return given.library.open_dataset(source, engine=given.engine, chunks=chunks)["tas"].mean("time").values


def _open_mfdataset(given: SimpleNamespace) -> np.ndarray:
    with given.library.open_mfdataset(given.paths) as dataset:
        return dataset["tas"].mean("time").values


def _one_file(given: SimpleNamespace, chunks: Any) -> np.ndarray:
    with given.library.open_dataset(given.paths[0], engine="netcdf4", chunks=chunks) as dataset:
        return dataset["tas"].mean("time").values


def _all(_given: Any, mean: np.ndarray) -> dict[str, np.ndarray]:
    """Return the mean of the archive. Sums of eighths are exact, in any order."""
    return {"all": mean.astype("f4")}


def _one(_given: Any, mean: np.ndarray) -> dict[str, np.ndarray]:
    return {"one": mean.astype("f4")}


def _both(given: SimpleNamespace, mean: np.ndarray) -> dict[str, np.ndarray]:
    """Return the mean of the archive, and that of the first file."""
    dataset = given.library.open_dataset(given.paths[0], engine=given.engine)
    return {**_all(given, mean), **_one(given, dataset["tas"].mean("time").values)}


_CONTESTANTS = (
    Contestant("engine aggarray, the index, chunks={}", _given, partial(_ours, chunks={}), _both),
    Contestant("engine aggarray, the files, chunks={}", _given, partial(_ours, chunks={}, indexed=False), _all),
    Contestant('engine aggarray, the index, chunks="auto"', _given, partial(_ours, chunks="auto"), _all),
    Contestant("xarray.open_mfdataset", _peer, _open_mfdataset, _all),
    Contestant("xarray, one of the files", _peer, partial(_one_file, chunks=None), _one),
    Contestant("xarray, one of the files, chunks={}", _peer, partial(_one_file, chunks={}), _one),
)

BENCHMARKS = tuple(
    Benchmark(name, title, sizes, partial(write_with_index, layout=_STEP), _CONTESTANTS, ("xarray", "dask", "netCDF4"))
    for name, title, sizes in (
        ("mean", "a mean over time of 746 MB by xarray, in 24 files", _SIZES),
        ("mean-long", "a mean over time of 746 MB by xarray, in 4 files", _LONG),
    )
)
