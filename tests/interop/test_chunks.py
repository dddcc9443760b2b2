"""Chunks of dask and xarray: stored chunks merged to a size, never cut."""

from math import ceil
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

pytest.importorskip("xarray", reason="the engine needs xarray: install the extra 'xarray'")
pytest.importorskip("dask.array", reason="chunks need dask: install the extra 'xarray'")

import dask
import xarray as xr

import aggarray as aa
from aggarray.interop import chunk_sizes
from aggarray.xarray_engine import AggarrayBackendEntrypoint as Engine

pytestmark = pytest.mark.quick

DAY = 40 * 50 * 4


def write(path: Path, start: int, steps: int, side: int) -> None:
    """Write days of 8,000 bytes in chunks of ``side`` days, with bounds of times."""
    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("time", None), ("lat", 40), ("lon", 50), ("bnds", 2)):
            file.createDimension(name, size)
        days = start + np.arange(steps)
        file.createVariable("time", "f8", ("time",))[:] = days
        file["time"].setncatts({"units": "days since 2001-01-01", "standard_name": "time", "bounds": "time_bnds"})
        file.createVariable("time_bnds", "f8", ("time", "bnds"))[:] = np.stack([days, days + 1], axis=1)
        tas = file.createVariable("tas", "f4", ("time", "lat", "lon"), chunksizes=(side, 40, 50), zlib=True)
        tas[:] = np.arange(steps * 2000).reshape(steps, 40, 50) % 89 + start


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an index of files of 60, 60, 31 and 4 days; chunks are merged to 20 days instead of 100 MB."""
    monkeypatch.setattr(chunk_sizes, "PREFERRED", 20 * DAY)
    start = 0
    for number, (steps, side) in enumerate(((60, 1), (60, 3), (31, 31), (4, 4))):
        write(tmp_path / f"{number}.nc", start, steps, side)
        start += steps
    aa.open(tmp_path / "*.nc").save(tmp_path / "index.nca")
    return tmp_path / "index.nca"


def chunks(source: Any, how: Any) -> Any:
    return xr.open_dataset(source, engine=Engine, chunks=how)["tas"].chunks


MERGED = (20, 20, 20, 15, 15, 15, 15, 31, 4)


def test_stored_chunks_merged(index: Path) -> None:
    agg = aa.open(index)
    for source in (index, str(index.parent / "*.nc")):
        assert chunks(source, {}) == (MERGED, (40,), (50,))
    for made in (agg["tas"].to_dask(), agg["tas"].to_dask({}), agg["tas"].to_xarray({}), agg.to_xarray({})["tas"]):
        assert made.chunks == (MERGED, (40,), (50,))
    assert chunks(index, -1) == agg["tas"].to_dask(-1).chunks == ((155,), (40,), (50,))
    with pytest.warns(UserWarning, match="separate the stored chunks"):
        assert chunks(index, {"lat": 20}) == agg["tas"].to_dask({"lat": 20}).chunks == (MERGED, (20, 20), (50,))
    assert chunks(index, {"time": (120, 35)}) == ((120, 35), (40,), (50,))
    assert agg["tas"].to_xarray().chunks is None and chunks(index, None) is None


def test_variables_agree_on_chunks(index: Path) -> None:
    dataset = xr.open_dataset(index, engine=Engine, chunks={})
    assert dataset["time_bnds"].chunks == (MERGED, (2,)) and dataset.chunks["time"] == MERGED
    xr.testing.assert_identical(dataset.compute(), xr.open_dataset(index, engine=Engine).load())


@pytest.mark.parametrize("size", [5, 15, 20, 40, 100, 1000])
def test_auto_ends_chunks_where_stored_ones_end(index: Path, size: int) -> None:
    stored = {*range(60), *range(60, 120, 3), 120, 151, 155}
    with dask.config.set({"array.chunk-size": size * DAY}):
        array = aa.open(index)["tas"]
        made = [array.to_dask("auto").chunks, array.to_xarray("auto").chunks]
        if size > 31:  # xarray cuts stored chunks larger than dask's size
            made.append(chunks(index, "auto"))
            assert len(made[-1][0]) < len(MERGED)
    for sizes, *others in made:
        assert {*np.cumsum(sizes).tolist()} <= stored and others == [(40,), (50,)]
        assert max(sizes) <= max(31, 1.25 * size)


def test_auto_keeps_a_chunk_larger_than_the_size_of_dask(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", 0, 60, 60)
    array = aa.open(tmp_path / "a.nc")["tas"]
    with dask.config.set({"array.chunk-size": 20 * DAY}):
        assert array.to_dask("auto").chunks == array.to_xarray("auto").chunks == ((60,), (40,), (50,))


def test_number_of_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for files, steps, side in ((1, 365, 1), (3, 120, 7), (2, 61, 20), (4, 30, 30), (1, 300, 2)):
        folder = tmp_path / f"{files}-{steps}-{side}"
        folder.mkdir()
        for number in range(files):
            write(folder / f"{number}.nc", number * steps, steps, side)
        for days in (1, 10, 25, 70, 1000):
            monkeypatch.setattr(chunk_sizes, "PREFERRED", days * DAY)
            whole = max(1, days // side) * side
            made = chunks(str(folder / "*.nc"), {})
            assert len(made[0]) <= 1.5 * files * ceil(steps / whole)
            assert made[1:] == ((40,), (50,)) and (max(made[0]) <= max(days, side))
            assert {*np.cumsum(made[0]).tolist()} <= {
                n * steps + i for n in range(files) for i in (*range(0, steps, side), steps)
            }


def test_one_hundred_megabytes(tmp_path: Path) -> None:
    assert chunk_sizes.PREFERRED == 100_000_000
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for name, size in (("time", 500), ("y", 1000), ("x", 1000)):
            file.createDimension(name, size)
        file.createVariable("a", "f4", ("time", "y", "x"), chunksizes=(1, 500, 500), zlib=True)
    assert xr.open_dataset(tmp_path / "a.nc", engine=Engine, chunks={})["a"].chunks == ((100,) * 5, (500, 500), (500, 500))


def test_tasks_read_with_one_thread(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[Any] = []
    true = aa.MasterArray.read
    monkeypatch.setattr(
        aa.MasterArray, "read", lambda self, *a, **how: threads.append(how.get("threads")) or true(self, *a, **how)
    )
    for lazy in (xr.open_dataset(index, engine=Engine, chunks={})["tas"].data, aa.open(index)["tas"].to_dask()):
        threads.clear()
        values = lazy.compute(scheduler="threads")
        assert threads == [1] * len(MERGED)
        assert np.array_equal(values, lazy.compute(scheduler="sync")) and threads[len(MERGED) :] == [None] * len(MERGED)
