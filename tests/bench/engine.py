"""Time until an archive is an xarray dataset and the time series of a point is read from it.

Every contestant uses xarray, with and without dask; coordinates are decoded within the time.
"""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.bench.archives import paths_in, write_archive
from tests.bench.harness import Benchmark, Contestant, Size
from tests.bench.opening import TUNED, load_aggarray, with_xarray

_INDEX = "index.nca"
_XARRAY = ("xarray", "dask")


def _make(folder: Path, size: Size) -> None:
    import aggarray as aa

    write_archive(folder, size, rich=True)
    aa.open(paths_in(folder)).save(folder / _INDEX)


def _given(folder: Path, size: Size) -> SimpleNamespace:
    from aggarray.xarray_engine import AggarrayBackendEntrypoint

    load_aggarray()
    given = with_xarray(folder, size)
    given.index, given.engine = str(folder / _INDEX), AggarrayBackendEntrypoint
    return given


def _engine(given: SimpleNamespace, indexed: bool, **how: Any) -> Any:
    return given.library.open_dataset(given.index if indexed else given.paths, engine=given.engine, **how)


def _open_mfdataset(given: SimpleNamespace, **how: Any) -> Any:
    return given.library.open_mfdataset(given.paths, **how)


def _with_series(given: SimpleNamespace, opened: Any, **how: Any) -> Any:
    dataset = opened(given, **how)
    return dataset.assign(series=dataset["tas"][:, 1, 2].load())


def _values(_given: Any, dataset: Any) -> dict[str, np.ndarray]:
    result = {"shape": np.array(dataset["tas"].shape), "times": dataset["time"].values.astype("M8[us]")}
    return {**result, "series": dataset["series"].values} if "series" in dataset else result


_WAYS: tuple[tuple[str, Any], ...] = (
    ("engine aggarray, the index", partial(_engine, indexed=True)),
    ("engine aggarray, the index, chunks={}", partial(_engine, indexed=True, chunks={})),
    ("engine aggarray, the files", partial(_engine, indexed=False)),
    ("xarray.open_mfdataset", _open_mfdataset),
    ("xarray.open_mfdataset, tuned", partial(_open_mfdataset, **TUNED)),
)
_SIZES = {"full": {"files": 1000, "steps": 10, "lat": 18, "lon": 36}, "tiny": {"files": 5, "steps": 10, "lat": 2, "lon": 4}}

BENCHMARKS = (
    Benchmark(
        "xarray-engine",
        "an archive opened as a dataset of xarray",
        _SIZES,
        _make,
        tuple(Contestant(name, _given, way, _values, _XARRAY) for name, way in _WAYS),
    ),
    Benchmark(
        "xarray-engine-point",
        "the same, and a point's series read",
        _SIZES,
        _make,
        tuple(Contestant(name, _given, partial(_with_series, opened=way), _values, _XARRAY) for name, way in _WAYS),
    ),
)
