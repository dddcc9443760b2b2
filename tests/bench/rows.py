"""Time to read some of the rows of a ragged array: a slice, a mask, all.

A million samples over 10,000 instances, deflated, stored row by row or in any order. The peers read all samples with xarray and
netCDF4, and split or select them with NumPy. Files are opened, and row offsets read, before the clock starts.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.harness import Benchmark, Contestant, Size

_SIZES = {"full": {"instances": 10_000, "samples": 1_000_000}, "tiny": {"instances": 20, "samples": 200}}


def _owners(size: Size) -> np.ndarray:
    return np.sort(np.random.default_rng(0).integers(0, size["instances"], size["samples"]))


def _make(indexed: bool) -> Callable[[Path, Size], None]:
    def make(folder: Path, size: Size) -> None:
        import netCDF4

        owners = _owners(size)
        with netCDF4.Dataset(folder / "rows.nc", "w") as file:
            file.createDimension("instance", size["instances"])
            file.createDimension("obs", size["samples"])
            if indexed:
                index = file.createVariable("index", "i4", ("obs",))
                index.instance_dimension = "instance"
                index[:] = np.random.default_rng(1).permutation(owners)
            else:
                counts = file.createVariable("counts", "i4", ("instance",))
                counts.sample_dimension = "obs"
                counts[:] = np.bincount(owners, minlength=size["instances"])
            chunks = (max(1, size["samples"] // 50),)
            values = file.createVariable("value", "f4", ("obs",), compression="zlib", chunksizes=chunks)
            values[:] = np.random.default_rng(2).random(size["samples"])

    return make


def _keys(size: Size) -> dict[str, Any]:
    count = size["instances"]
    return {"slice": slice(count // 2, count // 2 + count // 100 + 1), "mask": np.arange(count) % 97 == 0}


def _ours(key: str) -> Contestant:
    def prepare(folder: Path, size: Size) -> Any:
        import aggarray as aa

        array = aa.open(folder / "rows.nc")["value"]
        return array, _keys(size)[key], array.offsets

    return Contestant(
        "aggarray", prepare, lambda given: given[0][given[1]], lambda _, found: {"flat": found.flat, "offsets": found.offsets}
    )


def _by_hand(library: str, key: str) -> Contestant:
    def prepare(folder: Path, size: Size) -> Any:
        if library == "xarray":
            import xarray as xr

            data: Any = xr.open_dataset(folder / "rows.nc")
        else:
            import netCDF4

            data = netCDF4.Dataset(folder / "rows.nc")
        names = data.variables
        told = np.asarray(names["counts" if "counts" in names else "index"][:])
        rows = np.repeat(np.arange(size["instances"]), told) if "counts" in names else told
        return names["value"], rows, np.isin(rows, np.arange(size["instances"])[_keys(size)[key]])

    def work(given: Any) -> tuple[np.ndarray, np.ndarray]:
        variable, rows, expected = given
        chosen = rows[expected]
        return np.asarray(variable[:])[expected][np.argsort(chosen, kind="stable")], chosen

    return Contestant(library, prepare, work, lambda _, found: {"flat": found[0]}, (library,))


BENCHMARKS = tuple(
    Benchmark(
        f"rows-{kind}-{key}",
        f"a {key} of the rows of a million samples, {kind}",
        _SIZES,
        _make(kind == "indexed"),
        (_ours(key), _by_hand("xarray", key), _by_hand("netCDF4", key)),
    )
    for kind in ("contiguous", "indexed")
    for key in ("slice", "mask")
)
