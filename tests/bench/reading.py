"""How long does it take to open an archive and read a variable of it whole?

Every contestant ends with one array in memory, missing values NaN.
"""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.bench.archives import write_archive
from tests.bench.harness import Benchmark, Contestant, Size
from tests.bench.opening import TUNED, with_aggarray, with_netcdf4, with_xarray


def _aggarray(given: SimpleNamespace) -> Any:
    return given.library.open(given.paths)["tas"][...]


def _xarray(given: SimpleNamespace, **arguments: Any) -> Any:
    with given.library.open_mfdataset(given.paths, **arguments) as dataset:
        return dataset["tas"].values


def _netcdf4(given: SimpleNamespace) -> Any:
    pieces = []
    for path in given.paths:
        with given.library.Dataset(path) as file:
            pieces.append(np.ma.filled(file["tas"][...], np.nan))
    return np.concatenate(pieces)


def _values(_given: Any, result: np.ndarray) -> dict[str, np.ndarray]:
    return {"tas": result}


CONTESTANTS = (
    Contestant("aggarray", with_aggarray, _aggarray, _values),
    Contestant("xarray.open_mfdataset", with_xarray, _xarray, _values),
    Contestant("xarray.open_mfdataset, tuned", with_xarray, partial(_xarray, **TUNED), _values),
    Contestant("netCDF4, a loop", with_netcdf4, _netcdf4, _values),
)


def _make(folder: Path, size: Size, deflate: bool) -> None:
    write_archive(folder, size, deflate=deflate)


BENCHMARKS = (
    Benchmark(
        "read-small",
        "many small files, stored plainly",
        {"full": {"files": 1000, "steps": 10, "lat": 18, "lon": 36}, "tiny": {"files": 5, "steps": 10, "lat": 2, "lon": 4}},
        partial(_make, deflate=False),
        CONTESTANTS,
    ),
    Benchmark(
        "read-deflated",
        "few large files, shuffled and deflated",
        {"full": {"files": 12, "steps": 365, "lat": 90, "lon": 180}, "tiny": {"files": 2, "steps": 3, "lat": 4, "lon": 6}},
        partial(_make, deflate=True),
        CONTESTANTS,
    ),
)
