"""Time to open a file of many small variables, and to read all of them.

Libraries are imported before the clock starts. Every contestant opens the file once and ends with one array per variable.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.bench.harness import Benchmark, Contestant, Size
from tests.bench.opening import load_aggarray

_FILE, _LENGTH = "variables.nc", 24
_SIZES = {"full": {"variables": 2000}, "tiny": {"variables": 5}}


def _make_netcdf4(folder: Path, size: Size) -> None:
    import netCDF4

    with netCDF4.Dataset(folder / _FILE, "w") as file:
        file.createDimension("time", None)
        time = file.createVariable("time", "f8", ("time",))
        time.units, time[:] = "hours since 2000-01-01", np.arange(_LENGTH)
        for number in range(size["variables"]):
            file.createVariable(f"v{number}", "f4", ("time",))[:] = np.arange(_LENGTH) + number


def _make_hdf5(folder: Path, size: Size, libver: str) -> None:
    import h5py

    with h5py.File(folder / _FILE, "w", libver=libver) as file:
        for number in range(size["variables"]):
            file.create_dataset(f"v{number}", data=np.arange(_LENGTH, dtype="f4") + number)


def _given(folder: Path, size: Size, library: str) -> SimpleNamespace:
    loaded = load_aggarray() if library == "aggarray" else import_module(library)
    names = [f"v{number}" for number in range(size["variables"])]
    return SimpleNamespace(library=loaded, path=str(folder / _FILE), names=names)


def _by_aggarray(given: SimpleNamespace) -> list[Any]:
    archive = given.library.open(given.path, processes=1)
    return [archive[name].read() for name in given.names]


def _by_h5py(given: SimpleNamespace) -> list[Any]:
    with given.library.File(given.path) as file:
        return [file[name][()] for name in given.names]


def _by_netcdf4(given: SimpleNamespace) -> list[Any]:
    with given.library.Dataset(given.path) as file:
        return [file[name][...] for name in given.names]


def _values(_given: SimpleNamespace, found: list[Any]) -> dict[str, np.ndarray]:
    return {"values": np.stack([np.asarray(array) for array in found])}


_READERS = {"aggarray": _by_aggarray, "h5py": _by_h5py, "netCDF4": _by_netcdf4}
_CONTESTANTS = tuple(Contestant(name, partial(_given, library=name), work, _values) for name, work in _READERS.items())

_FORMS: dict[str, tuple[str, Callable[[Path, Size], None]]] = {
    "netcdf4": ("netCDF-4", _make_netcdf4),
    "old-groups": ("HDF5, old groups", partial(_make_hdf5, libver="earliest")),
    "new-groups": ("HDF5, new groups", partial(_make_hdf5, libver="latest")),
}

BENCHMARKS = tuple(
    Benchmark(f"variables-{name}", f"one file of many variables, opened and read whole: {title}", _SIZES, make, _CONTESTANTS)
    for name, (title, make) in _FORMS.items()
)
