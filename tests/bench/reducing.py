"""Reductions while reading: a mean over time, a monthly climatology and area means.

CDO is a program of its own; its memory is not measured. Sums of eighths are exact in double precision, so that results are
compared with those of the formula of the data, within the precision of single-precision results.
"""

import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.bench.archives import paths_in
from tests.bench.harness import Benchmark, Contestant, Size
from tests.bench.layouts import Layout, eighths, shape_of
from tests.bench.opening import load_aggarray, with_xarray
from tests.bench.peers import INDEX, write_with_index

_LAYOUT = Layout((1, 180, 360), options={"zlib": True, "shuffle": True})
_DAYS = {
    "full": {"files": 24, "steps": 120, "lat": 180, "lon": 360},
    "tiny": {"files": 2, "steps": 40, "lat": 8, "lon": 10},
}
#: Modules of the bare loop.
_BARE = ("deflate", "h5py", "numcodecs")
_YEARS = {
    "full": {"files": 10, "steps": 365, "lat": 180, "lon": 360},
    "tiny": {"files": 2, "steps": 365, "lat": 8, "lon": 10},
}


def _aggarray(folder: Path, size: Size) -> SimpleNamespace:
    return SimpleNamespace(library=load_aggarray(), index=str(folder / INDEX), size=size)


def _xarray(folder: Path, size: Size) -> SimpleNamespace:
    given = with_xarray(folder, size)
    given.size = size
    return given


def _files(folder: Path, size: Size) -> SimpleNamespace:
    return SimpleNamespace(paths=paths_in(folder), folder=folder, size=size)


def _array(given: SimpleNamespace) -> Any:
    return given.library.open(given.index)["tas"]


def _whole(given: SimpleNamespace) -> np.ndarray:
    return _array(given)[...]


def _by_xarray(given: SimpleNamespace, reduce: Callable[[Any], Any]) -> np.ndarray:
    with given.library.open_mfdataset(given.paths) as dataset:
        return reduce(dataset["tas"]).values


def _by_cdo(given: SimpleNamespace, operator: str) -> np.ndarray:
    import netCDF4

    out = given.folder / f"{operator}.nc.cdo"
    subprocess.run(["cdo", "-s", "-O", "-f", "nc4", f"-{operator}", "-mergetime", *given.paths, out], check=True)
    with netCDF4.Dataset(out) as file:
        return np.ma.filled(file["tas"][...].astype("f8"), np.nan).squeeze()


def _known_chunks(folder: Path, size: Size) -> SimpleNamespace:
    """Return the fill value, and for each file offset and size of its chunks."""
    import deflate
    import h5py

    from aggarray.codecs.shuffle import unshuffle_into

    chunks, fill = [], None
    for path in paths_in(folder):
        with h5py.File(path) as file:
            tas, fill = file["tas"], file["tas"].attrs["_FillValue"][0]
            infos = [tas.id.get_chunk_info(number) for number in range(tas.id.get_num_chunks())]
            chunks.append((path, [(info.byte_offset, info.size) for info in infos]))
    return SimpleNamespace(inflate=deflate.zlib_decompress, unshuffle=unshuffle_into, chunks=chunks, fill=fill, size=size)


def _bare_mean(given: SimpleNamespace) -> np.ndarray:
    """Sum and count the chunks of each thread's files, eight at a time."""
    shape = shape_of(given.size)[1:]

    def folded(files: Any) -> tuple[np.ndarray, np.ndarray]:
        total, absent = np.zeros(shape), np.zeros(shape, np.int64)
        block = np.empty((8, *shape), "f4")
        for path, chunks in files:
            with open(path, "rb") as file:
                for at in range(0, len(chunks), 8):
                    values = block[: len(chunks[at : at + 8])]
                    for step, (offset, count) in zip(values, chunks[at : at + 8], strict=True):
                        planes = given.inflate(os.pread(file.fileno(), count, offset), step.nbytes)
                        given.unshuffle(np.frombuffer(planes, "u1"), 4, step.reshape(-1).view("u1"))
                    missing = values == given.fill
                    absent += np.add.reduce(missing.view("u1"), axis=0, dtype="u1")
                    np.copyto(values, 0, where=missing)
                    total += np.add.reduce(values, axis=0, dtype="f8")
        return total, absent

    threads = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(threads) as pool:
        totals, absents = zip(*pool.map(folded, [given.chunks[n::threads] for n in range(threads)]), strict=True)
    with np.errstate(invalid="ignore"):
        return np.sum(totals, axis=0) / (shape_of(given.size)[0] * len(given.chunks) - np.sum(absents, axis=0))


def _month_numbers(size: Size) -> np.ndarray:
    """Return the month of each step of each file, from 0 on."""
    days = np.datetime64("1990-01-01") + np.arange(size["files"] * size["steps"])
    return (days.astype("M8[M]").astype(int) % 12).reshape(size["files"], size["steps"])


def _area_weights(latitudes: Any) -> Any:
    """Return the areas of latitudes of equal width, in any unit."""
    width = np.radians(180 / len(latitudes)) / 2
    return np.sin(np.radians(latitudes) + width) - np.sin(np.radians(latitudes) - width)


def _time_mean(size: Size) -> np.ndarray:
    return eighths(shape_of(size)).mean(axis=0, dtype="f8") + (size["files"] - 1) / 16 + 280


def _climatology(size: Size) -> np.ndarray:
    numbers, values = _month_numbers(size), eighths(shape_of(size)).astype("f8")
    result = []
    for month in range(12):
        own = numbers == month
        days = own.sum(axis=0)
        offsets = (own * np.arange(size["files"])[:, None]).sum() / 8
        result.append((np.einsum("t,tyx->yx", days, values) + offsets) / days.sum() + 280)
    return np.array(result)


def _area_means(size: Size) -> np.ndarray:
    values = eighths(shape_of(size)).astype("f8")
    weights = _area_weights((np.arange(size["lat"]) + 0.5) * 180 / size["lat"] - 90)[:, None] * np.ones(size["lon"])
    valid = ~np.isnan(values)
    means = (np.where(valid, values, 0) * weights).sum(axis=(1, 2)) / (valid * weights).sum(axis=(1, 2))
    return np.concatenate([means + number / 8 + 280 for number in range(size["files"])])


def _xarray_area_means(tas: Any) -> Any:
    return tas.weighted(_area_weights(tas["lat"])).mean(["lat", "lon"])


def _close(expected: Callable[[Size], np.ndarray], given: SimpleNamespace, result: np.ndarray) -> dict[str, np.ndarray]:
    """Return that the result is right; raise an error otherwise."""
    # The cells of CDO have great circles as edges.
    np.testing.assert_allclose(result, expected(given.size), rtol=1e-3 if expected is _area_means else 2e-6)
    return {"right": np.array(True)}


def _contestants(
    ours: Callable[[Any], Any],
    theirs: Callable[[Any], Any],
    operator: str,
    of_whole: Callable[[np.ndarray], np.ndarray] | None,
    expected: Callable[[Size], np.ndarray],
) -> tuple[Contestant, ...]:
    """Return the contestants; ``of_whole``: the reduction by NumPy, after the clock has stopped."""

    def whole_values(given: SimpleNamespace, result: np.ndarray) -> dict[str, np.ndarray]:
        return {"right": np.array(True)} if of_whole is None else _close(expected, given, of_whole(result))

    close = partial(_close, expected)
    dask, cdo = ("xarray", "dask.array", "netCDF4"), ("program:cdo", "netCDF4")
    return (
        Contestant("aggarray", _aggarray, lambda given: ours(_array(given)).values, close),
        Contestant("aggarray, reading the array whole, without a reduction", _aggarray, _whole, whole_values),
        Contestant("xarray with dask", _xarray, partial(_by_xarray, reduce=theirs), close, dask),
        Contestant(f"cdo -{operator} -mergetime", _files, partial(_by_cdo, operator=operator), close, cdo),
    )


BENCHMARKS = (
    Benchmark(
        "reduce",
        "a mean over time of 746 MB in 24 files",
        _DAYS,
        partial(write_with_index, layout=_LAYOUT),
        (
            *_contestants(
                lambda a: a.mean("time"),
                lambda tas: tas.mean("time"),
                "timmean",
                lambda values: values.mean(axis=0, dtype="f8"),
                _time_mean,
            ),
            Contestant("a bare loop over known chunks", _known_chunks, _bare_mean, partial(_close, _time_mean), _BARE),
        ),
        ("netCDF4",),
    ),
    Benchmark(
        "reduce-climatology",
        "monthly means over ten years of days",
        _YEARS,
        partial(write_with_index, layout=_LAYOUT),
        _contestants(
            lambda a: a.climatology("month"),
            lambda tas: tas.groupby("time.month").mean("time"),
            "ymonmean",
            None,
            _climatology,
        ),
        ("netCDF4",),
    ),
    Benchmark(
        "reduce-area",
        "area means of each step of 746 MB in 24 files",
        _DAYS,
        partial(write_with_index, layout=_LAYOUT),
        _contestants(lambda a: a.mean(("lat", "lon"), weights="area"), _xarray_area_means, "fldmean", None, _area_means),
        ("netCDF4",),
    ),
)
