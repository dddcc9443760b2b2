"""Time to open a Zarr store and read a variable of it, complete or the time series of one point.

Libraries are imported before the clock starts, opening is included, and every contestant ends with one array in memory. Missing
values are stored as NaN, which needs no decoding.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.bench.harness import Benchmark, Contestant, Size
from tests.bench.layouts import cut, eighths, shape_of
from tests.bench.opening import load_aggarray
from tests.bench.peers import INDEX, Key, point, whole

STORE = "tas.zarr"
_CHUNKS, _SHARDS = (24, 90, 120), (96, 180, 360)
_SIZES = {"full": {"steps": 960, "lat": 180, "lon": 360}, "tiny": {"steps": 5, "lat": 8, "lon": 10}}


@dataclass(frozen=True, slots=True)
class Stored:
    """A Zarr format, 2 or 3, a codec by name, and whether chunks are in shards."""

    version: int
    codec: str
    sharded: bool = False


def _compressor(stored: Stored) -> Any:
    if stored.version == 2:
        import numcodecs

        return numcodecs.Zstd(level=3) if stored.codec == "zstd" else numcodecs.Blosc(cname="lz4", shuffle=1)
    from zarr.codecs import BloscCodec, ZstdCodec

    return ZstdCodec(level=3) if stored.codec == "zstd" else BloscCodec(cname="lz4", shuffle="shuffle")


def write_store(folder: Path, size: Size, stored: Stored) -> None:
    """Write a store, and an index of it next to it."""
    import zarr

    shape = shape_of(size)
    group = zarr.create_group(folder / STORE, zarr_format=stored.version)
    axes = {
        "time": (np.arange(shape[0]) + 0.5, "days since 1990-01-01"),
        "lat": ((np.arange(shape[1]) + 0.5) * 180 / shape[1] - 90, "degrees_north"),
        "lon": ((np.arange(shape[2]) + 0.5) * 360 / shape[2], "degrees_east"),
    }
    for name, (points, units) in axes.items():
        _array(group, name, (name,), points, {"units": units}, chunks=points.shape)
    options: dict[str, Any] = {"chunks": cut(_CHUNKS, shape), "compressors": [_compressor(stored)], "fill_value": np.nan}
    if stored.sharded:
        options["shards"] = tuple(
            n * -(-min(s, whole) // n) for n, s, whole in zip(options["chunks"], _SHARDS, shape, strict=True)
        )
    about = {"units": "K", "standard_name": "air_temperature"}
    _array(group, "tas", tuple(axes), eighths(shape) + np.float32(280), about, **options)
    load_aggarray().open(folder / STORE).save(folder / INDEX)


def _array(
    group: Any, name: str, dimensions: tuple[str, ...], values: np.ndarray, attrs: Mapping[str, str], **options: Any
) -> None:
    if group.metadata.zarr_format == 2:
        attrs = {**attrs, "_ARRAY_DIMENSIONS": list(dimensions)}
    else:
        options["dimension_names"] = dimensions
    made = group.create_array(name, shape=values.shape, dtype=values.dtype, attributes=attrs, **options)
    made[...] = values


def _given(folder: Path, size: Size, modules: tuple[str, ...], key: Key, stored: Stored) -> SimpleNamespace:
    library, *_ = [load_aggarray() if name == "aggarray" else import_module(name) for name in modules]
    places = {"index": str(folder / INDEX), "store": str(folder / STORE)}
    return SimpleNamespace(library=library, key=key(size), version=stored.version, **places)


def _index(given: SimpleNamespace) -> np.ndarray:
    return given.library.open(given.index)["tas"][given.key]


def _store(given: SimpleNamespace) -> np.ndarray:
    return given.library.open(given.store)["tas"][given.key]


def _zarr(given: SimpleNamespace) -> np.ndarray:
    return given.library.open_array(f"{given.store}/tas", mode="r", zarr_format=given.version)[given.key]


def _tensorstore(given: SimpleNamespace) -> np.ndarray:
    driver = {2: "zarr", 3: "zarr3"}[given.version]
    place = {"driver": "file", "path": f"{given.store}/tas/"}
    return given.library.open({"driver": driver, "kvstore": place}).result()[given.key].read().result()


def _xarray(given: SimpleNamespace) -> np.ndarray:
    with given.library.open_zarr(given.store, chunks={}, consolidated=False) as dataset:
        return dataset["tas"][given.key].values


def _values(_given: Any, result: np.ndarray) -> dict[str, np.ndarray]:
    return {"tas": result}


_PEERS: dict[str, tuple[tuple[str, ...], Callable[[SimpleNamespace], np.ndarray]]] = {
    "aggarray, a saved index": (("aggarray",), _index),
    "aggarray": (("aggarray", "zarr"), _store),
    "zarr-python": (("zarr",), _zarr),
    "tensorstore": (("tensorstore",), _tensorstore),
    "xarray with dask": (("xarray", "dask.array", "zarr"), _xarray),
}


def _contestants(key: Key, stored: Stored) -> tuple[Contestant, ...]:
    result = []
    for name, (modules, work) in _PEERS.items():
        given = partial(_given, modules=modules, key=key, stored=stored)
        result.append(Contestant(name, given, work, _values, tuple(module.partition(".")[0] for module in modules)))
    return tuple(result)


_STORED = {
    "zarr2-zstd": ("Zarr 2, zstd", Stored(2, "zstd")),
    "zarr2-blosc": ("Zarr 2, blosc of lz4", Stored(2, "blosc")),
    "zarr3-zstd": ("Zarr 3, zstd", Stored(3, "zstd")),
    "zarr3-blosc": ("Zarr 3, blosc of lz4", Stored(3, "blosc")),
    "zarr3-shards": ("Zarr 3, zstd in shards", Stored(3, "zstd", sharded=True)),
}

BENCHMARKS = tuple(
    Benchmark(f"{name}{suffix}", f"{title}, {what}", _SIZES, partial(write_store, stored=stored), _contestants(key, stored))
    for name, (title, stored) in _STORED.items()
    for suffix, what, key in (("", "read whole", whole), ("-point", "a point's series", point))
    if key is whole or stored.codec == "zstd"
)
