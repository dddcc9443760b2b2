"""Readers of `tas` of an archive of netCDF files, complete or a part of each file, with aggarray and its peers.

Libraries are imported before the clock starts. Opening is included for every contestant: `aa.open` of the files or of a saved
index, `open_mfdataset`, or opening one file after the other. Every contestant ends with one array in memory. aggarray, xarray
and netCDF4 resolve missing values and packing; h5py and hidefix do not: their results are resolved after the clock has stopped,
to be compared.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.bench.archives import paths_in
from tests.bench.harness import Contestant, Size
from tests.bench.layouts import Layout, write_layout
from tests.bench.opening import TUNED, load_aggarray

INDEX = "index.nca"

#: Returns the part of each file to read: all steps, and integers or slices for latitude and longitude.
Key = Callable[[Size], tuple[Any, ...]]


def whole(_size: Size) -> tuple[Any, ...]:
    """Select everything."""
    return slice(None), slice(None), slice(None)


def point(size: Size) -> tuple[Any, ...]:
    """Select the time series of one point."""
    return slice(None), size["lat"] // 2, size["lon"] // 3


def box(size: Size) -> tuple[Any, ...]:
    """Select the time series of ten by ten points."""
    y, x = size["lat"] // 2, size["lon"] // 3
    return slice(None), slice(y, min(y + 10, size["lat"])), slice(x, min(x + 10, size["lon"]))


def transect(size: Size) -> tuple[Any, ...]:
    """Select the time series of one latitude."""
    return slice(None), size["lat"] // 2, slice(None)


def write_with_index(folder: Path, size: Size, layout: Layout) -> None:
    """Write an archive and an index of it next to it."""
    import aggarray as aa

    write_layout(folder, size, layout)
    aa.open(paths_in(folder)).save(folder / INDEX)


def _given(folder: Path, size: Size, modules: tuple[str, ...], key: Key) -> SimpleNamespace:
    library, *_ = [load_aggarray() if name == "aggarray" else import_module(name) for name in modules]
    index = str(folder / INDEX)
    return SimpleNamespace(library=library, paths=paths_in(folder), index=index, key=key(size))


def _one_after_the_other(pieces: Iterable[np.ndarray], count: int) -> np.ndarray:
    """Copy pieces of one shape into one array, allocated with the first piece."""
    result = np.empty(0)
    for number, piece in enumerate(pieces):
        if number == 0:
            result = np.empty((count * len(piece), *piece.shape[1:]), piece.dtype)
        result[number * len(piece) : (number + 1) * len(piece)] = piece
    return result


def _index(given: SimpleNamespace) -> np.ndarray:
    return given.library.open(given.index)["tas"][given.key]


def _files(given: SimpleNamespace) -> np.ndarray:
    return given.library.open(given.paths)["tas"][given.key]


def _xarray(given: SimpleNamespace) -> np.ndarray:
    with given.library.open_mfdataset(given.paths, chunks={}, **TUNED) as dataset:
        return dataset["tas"][given.key].values


def _netcdf4(given: SimpleNamespace) -> np.ndarray:
    def piece(path: str) -> np.ndarray:
        with given.library.Dataset(path) as file:
            return np.ma.filled(file["tas"][given.key], np.nan)

    return _one_after_the_other(map(piece, given.paths), len(given.paths))


def _h5py(given: SimpleNamespace) -> np.ndarray:
    def piece(path: str) -> np.ndarray:
        with given.library.File(path) as file:
            return file["tas"][given.key]

    return _one_after_the_other(map(piece, given.paths), len(given.paths))


def _hidefix(given: SimpleNamespace) -> np.ndarray:
    pieces = (given.library.Index(path).dataset("tas")[given.key] for path in given.paths)
    return _one_after_the_other(pieces, len(given.paths))


def as_doubles(_given: SimpleNamespace, result: np.ndarray) -> dict[str, np.ndarray]:
    """Return the values in a type that holds those of all contestants."""
    return {"tas": result.astype("f8")}


def _resolved(given: SimpleNamespace, result: np.ndarray) -> dict[str, np.ndarray]:
    """Return stored values after applying the attributes of their variable."""
    import netCDF4

    with netCDF4.Dataset(given.paths[0]) as file:
        return resolved(result, {name: file["tas"].getncattr(name) for name in file["tas"].ncattrs()})


def resolved(stored: np.ndarray, attributes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return stored values with their attributes applied: unpacked, NaN where missing."""
    meant = stored.astype("f8") * float(attributes.get("scale_factor", 1)) + float(attributes.get("add_offset", 0))
    return {"tas": np.where(stored == attributes["_FillValue"], np.nan, meant)}


@dataclass(frozen=True, slots=True)
class _Peer:
    modules: tuple[str, ...]
    work: Callable[[SimpleNamespace], np.ndarray]
    values: Callable[[SimpleNamespace, np.ndarray], dict[str, np.ndarray]] = as_doubles


_PEERS = {
    "aggarray, a saved index": _Peer(("aggarray",), _index),
    "aggarray": _Peer(("aggarray",), _files),
    "xarray with dask": _Peer(("xarray", "dask.array", "netCDF4"), _xarray),
    "netCDF4, a loop": _Peer(("netCDF4",), _netcdf4),
    "h5py, a loop": _Peer(("h5py",), _h5py, _resolved),
    "h5py with hdf5plugin, a loop": _Peer(("h5py", "hdf5plugin"), _h5py, _resolved),
    "hidefix, a loop": _Peer(("hidefix",), _hidefix, _resolved),
}
AGGARRAY, XARRAY, NETCDF4 = ("aggarray, a saved index", "aggarray"), "xarray with dask", "netCDF4, a loop"
H5PY, H5PY_PLUGINS, HIDEFIX = "h5py, a loop", "h5py with hdf5plugin, a loop", "hidefix, a loop"


def readers(key: Key, *peers: str) -> tuple[Contestant, ...]:
    """Return the contestants that read a selection: aggarray from files and from an index, and the named peers."""
    result = []
    for name in (*AGGARRAY, *peers):
        peer = _PEERS[name]
        needs = tuple(dict.fromkeys(module.partition(".")[0] for module in peer.modules))
        result.append(Contestant(name, partial(_given, modules=peer.modules, key=key), peer.work, peer.values, needs))
    return tuple(result)
