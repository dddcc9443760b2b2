"""Time to write one array that lies in memory: four ranks together, and libraries in one process.

Ranks are started and hold their sections before the clock starts. All compressed files have the same chunks and filters.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.collective import RANKS, ask, start
from tests.bench.harness import Benchmark, Contestant, Size
from tests.bench.layouts import Layout, cut, write_layout
from tests.bench.ranks import FILL, OUT, WRITE_CHUNKS, read_values

_DIMENSIONS = ("time", "lat", "lon")


def _start_ranks(folder: Path, size: Size, way: str) -> Any:
    shutil.rmtree(folder / OUT, ignore_errors=True)
    (folder / OUT).mkdir()
    return start(folder, size, way)


def _end(given: Any) -> Path:
    """End the ranks; return what they wrote last."""
    ranks, folder, pipe = given
    pipe.close()
    ranks.communicate()
    return max((folder / OUT).iterdir(), key=lambda path: path.stat().st_mtime_ns)


def _read_netcdf(path: Path) -> np.ndarray:
    import netCDF4

    with netCDF4.Dataset(path) as file:
        return np.ma.filled(file["tas"][...], np.nan)


def _file_of_ranks(given: Any, _result: None) -> dict[str, np.ndarray]:
    return {"tas": _read_netcdf(_end(given))}


def _store_of_ranks(given: Any, _result: None) -> dict[str, np.ndarray]:
    import zarr

    return {"tas": zarr.open_group(_end(given), mode="r")["tas"][...]}


def _parts_of_ranks(given: Any, _result: None) -> dict[str, np.ndarray]:
    folder = _end(given)
    parts = [folder / f"{rank}.bin" for rank in range(RANKS)]
    if parts[0].exists():
        return {"tas": np.concatenate([np.fromfile(p, np.float32) for p in parts]).reshape(np.load(folder / "shape.npy"))}
    from numcodecs.zstd import Zstd

    names = sorted(folder.glob("*.zst"), key=lambda p: [int(n) for n in p.stem.split("_")])
    decoded = [np.frombuffer(Zstd().decode(p.read_bytes()), np.float32) for p in names]
    return {"tas": np.concatenate(decoded).reshape(np.load(folder / "shape.npy"))}


def _prepare_alone(folder: Path, _size: Size, library: str) -> Any:
    __import__(library)
    paths = sorted(folder.glob("*.nc"))
    return read_values(paths), folder / f"{library}.out"


def _by_netcdf4(given: Any) -> None:
    import netCDF4

    values, path = given
    with netCDF4.Dataset(path, "w") as file:
        for name, size in zip(_DIMENSIONS, values.shape, strict=True):
            file.createDimension(name, size)
        chunks = cut(WRITE_CHUNKS, values.shape)
        compressed = {"zlib": True, "complevel": 4, "shuffle": True, "chunksizes": chunks}
        file.createVariable("tas", "f4", _DIMENSIONS, fill_value=FILL, **compressed)[...] = values


def _by_h5py(given: Any) -> None:
    import h5py

    values, path = given
    with h5py.File(path, "w") as file:
        chunks = cut(WRITE_CHUNKS, values.shape)
        file.create_dataset("tas", data=values, chunks=chunks, compression="gzip", compression_opts=4, shuffle=True)


def _by_xarray(given: Any) -> None:
    import xarray

    values, path = given
    encoding = {"zlib": True, "complevel": 4, "shuffle": True, "chunksizes": cut(WRITE_CHUNKS, values.shape)}
    dataset = xarray.Dataset({"tas": (_DIMENSIONS, values)})
    dataset.to_netcdf(path, encoding={"tas": encoding}, engine="netcdf4")


def _values_alone(given: Any, _result: None) -> dict[str, np.ndarray]:
    return {"tas": _read_netcdf(given[1])}


def _by_ranks(name: str, way: str, values: Callable[[Any, None], dict[str, np.ndarray]]) -> Contestant:
    return Contestant(name, partial(_start_ranks, way=way), partial(ask, line="work"), values, ("mpi4py",))


def _alone(name: str, library: str, work: Callable[[Any], None]) -> Contestant:
    return Contestant(name, partial(_prepare_alone, library=library), work, _values_alone, (library,))


_SIZES = {
    "full": {"files": 8, "steps": 120, "lat": 180, "lon": 360},
    "tiny": {"files": 2, "steps": 10, "lat": 8, "lon": 10},
}
_MAKE = partial(write_layout, layout=Layout((1, 180, 360), "f4", {"zlib": True, "shuffle": True}))

BENCHMARKS = (
    Benchmark(
        "mpi-write",
        f"a netCDF-4 file, shuffled and deflated at level 4: {RANKS} ranks, or one process of a library",
        _SIZES,
        _MAKE,
        (
            _by_ranks("aggarray.mpi.write", "write-netcdf", _file_of_ranks),
            _alone("netCDF4", "netCDF4", _by_netcdf4),
            _alone("h5py", "h5py", _by_h5py),
            _alone("xarray", "xarray", _by_xarray),
        ),
    ),
    Benchmark(
        "mpi-write-zarr",
        f"a Zarr store by {RANKS} ranks, without a codec, against a file of each rank by numpy.tofile",
        _SIZES,
        _MAKE,
        (
            _by_ranks("aggarray.mpi.write", "write-zarr-none", _store_of_ranks),
            _by_ranks("each rank by tofile", "write-raw", _parts_of_ranks),
        ),
    ),
    Benchmark(
        "mpi-write-zarr-zstd",
        f"a Zarr store by {RANKS} ranks, zstd, against numcodecs and a file for each chunk",
        _SIZES,
        _MAKE,
        (
            _by_ranks("aggarray.mpi.write", "write-zarr", _store_of_ranks),
            _by_ranks("each rank by numcodecs", "write-raw-zstd", _parts_of_ranks),
        ),
    ),
)
