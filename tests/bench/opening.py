"""Time to open many small files as one array.

Only structure and coordinates are read. The loop over headers is the lower bound for netCDF-C on one core: it reads all
attributes and the times, and compares nothing.
"""

import pkgutil
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.bench.archives import paths_in, write_archive
from tests.bench.harness import Benchmark, Contestant, Size

#: The recommendation of xarray's manual for many similar files.
TUNED: dict[str, Any] = {
    "combine": "nested",
    "concat_dim": "time",
    "data_vars": "minimal",
    "coords": "minimal",
    "compat": "override",
    "parallel": False,
}


def load_aggarray() -> Any:
    """Import aggarray and the modules that it imports lazily, outside the timed work."""
    for package in ("aggarray.formats", "aggarray.codecs", "aggarray.index", "aggarray.reduce"):
        for result in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            import_module(result.name)
    for name in ("aggarray.opening", "h5py", "netCDF4", "numcodecs"):
        import_module(name)
    return import_module("aggarray")


def with_aggarray(folder: Path, _size: Size) -> SimpleNamespace:
    """Import aggarray and list the files."""
    return SimpleNamespace(library=load_aggarray(), paths=paths_in(folder))


def with_xarray(folder: Path, _size: Size) -> SimpleNamespace:
    """Import xarray and list the files."""
    import dask.array  # noqa: F401
    import netCDF4  # noqa: F401
    import xarray

    return SimpleNamespace(library=xarray, paths=paths_in(folder))


def with_netcdf4(folder: Path, _size: Size) -> SimpleNamespace:
    """Import netCDF4 and list the files."""
    import netCDF4

    return SimpleNamespace(library=netCDF4, paths=paths_in(folder))


def _open(given: SimpleNamespace, **arguments: Any) -> Any:
    return given.library.open(given.paths, **arguments)


def _open_mfdataset(given: SimpleNamespace, **arguments: Any) -> Any:
    return given.library.open_mfdataset(given.paths, **arguments)


def _headers(given: SimpleNamespace) -> list[Any]:
    result = []
    for path in given.paths:
        with given.library.Dataset(path) as file:
            attrs = {name: file.getncattr(name) for name in file.ncattrs()}
            variables = {
                name: (v.dtype, v.shape, v.dimensions, {key: v.getncattr(key) for key in v.ncattrs()})
                for name, v in file.variables.items()
            }
            result.append((attrs, variables, file["time"][...]))
    return result


def _values_of_aggarray(_given: Any, aggregation: Any) -> dict[str, np.ndarray]:
    a = aggregation["tas"]
    days = a.coords["time"][...]
    return _values(a.shape, a.coords["time"].datetimes(), days, a[::97, 1, 2])


def _values_of_xarray(_given: Any, dataset: Any) -> dict[str, np.ndarray]:
    a = dataset["tas"]
    moments = a["time"].values.astype("M8[us]")
    return _values(a.shape, moments, None, a[::97, 1, 2].values)


def _values_of_netcdf4(_given: Any, headers: list[Any]) -> dict[str, np.ndarray]:
    return {"days": np.concatenate([np.ma.getdata(times) for _, _, times in headers])}


def _values(shape: tuple[int, ...], moments: np.ndarray, days: np.ndarray | None, some: np.ndarray) -> dict[str, np.ndarray]:
    result = {"shape": np.array(shape), "times": moments, "some": some}
    return result if days is None else {**result, "days": days}


CONTESTANTS = (
    Contestant("aggarray", with_aggarray, _open, _values_of_aggarray),
    Contestant("aggarray, one process", with_aggarray, partial(_open, processes=1), _values_of_aggarray),
    Contestant("xarray.open_mfdataset", with_xarray, _open_mfdataset, _values_of_xarray),
    Contestant("xarray.open_mfdataset, tuned", with_xarray, partial(_open_mfdataset, **TUNED), _values_of_xarray),
    Contestant("netCDF4, a loop over headers", with_netcdf4, _headers, _values_of_netcdf4),
)
_SIZES = {"full": {"files": 1000, "steps": 10, "lat": 18, "lon": 36}, "tiny": {"files": 5, "steps": 10, "lat": 2, "lon": 4}}


def _make(folder: Path, size: Size, rich: bool) -> None:
    write_archive(folder, size, rich=rich)


BENCHMARKS = (
    Benchmark("open", "files with the attributes and bounds of CMIP6", _SIZES, partial(_make, rich=True), CONTESTANTS),
    Benchmark("open-plain", "files with few attributes, no bounds", _SIZES, partial(_make, rich=False), CONTESTANTS),
)
