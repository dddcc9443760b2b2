"""cubed: arrays and datasets on its local executors, in its memory, with small plans."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

import aggarray as aa
from tests.support.netcdf import cube, write
from tests.support.paths import ROOT

pytest.importorskip("cubed", reason="no cubed")
pytest.importorskip("cubed_xarray", reason="no cubed-xarray")

import cloudpickle
import cubed
import xarray as xr

EXECUTORS = ("single-threaded", "threads", "processes")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an index of months of daily values with gaps, each a stored chunk of its own."""
    folder = tmp_path_factory.mktemp("months")
    first = 0
    for number, days in enumerate((31, 28, 31, 30)):
        times = np.arange(first, first + days)
        values = np.sin(np.arange(days * 6)).reshape(days, 3, 2).astype("f4") + first
        values[1] = np.nan
        changes = {"tas": (("time", "lat", "lon"), values, {"units": "K", "_FillValue": np.float32(np.nan)})}
        write(folder / f"{number}.nc", cube(times, **changes))
        first += days
    aa.open(folder).save(folder / "months.nca")
    return folder / "months.nca"


def spec(folder: Path, executor: str = "single-threaded", **given: Any) -> Any:
    return cubed.Spec(
        work_dir=str(folder), executor_name=executor, **({"allowed_mem": "500MB", "reserved_mem": "100MB"} | given)
    )


def operation(array: Any) -> Any:
    """Return the operation of the plan that reads the array."""
    plan = array.plan()
    (found,) = (d["primitive_op"] for name, d in plan.dag.nodes(data=True) if name.startswith("op-") and "primitive_op" in d)
    return found


@pytest.mark.parametrize("executor", EXECUTORS)
def test_from_array(executor: str, index: Path, tmp_path: Path) -> None:
    array = aa.open(index)["tas"]
    arrays = [array, array.flip("lat").lazy[5:, :, 0], aa.open(index.parent / "?.nc")["tas"]]
    for one in arrays[: 1 if executor == "processes" else None]:  # they start slowly
        chunks = one.chunks_for(one.nbytes // 3, regular=True)
        lazy = cubed.from_array(one, chunks=chunks, spec=spec(tmp_path, executor))
        assert lazy.chunks == chunks and lazy.npartitions > 1 and lazy.dtype == one.dtype
        assert np.array_equal(lazy.compute(), one[...], equal_nan=True)
        if executor != "processes":
            assert np.allclose(cubed.nanmean(lazy, axis=0).compute(), np.nanmean(one[...], axis=0))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_datasets(executor: str, index: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = {"chunked_array_type": "cubed", "from_array_kwargs": {"spec": spec(tmp_path, executor)}}
    lazy = xr.open_dataset(index, engine="aggarray", chunks={}, regular_chunks=1500, **how)
    eager = xr.open_dataset(index, engine="aggarray").load()
    assert isinstance(lazy["tas"].data, cubed.Array) and lazy["tas"].data.npartitions > 1
    xr.testing.assert_allclose(lazy.mean("time").compute(), eager.mean("time"))
    if executor == "processes":
        return
    xr.testing.assert_identical(lazy.compute(), eager)
    month = lazy["tas"].sel(time="2000-02").max().compute()
    assert float(month) == float(eager["tas"].sel(time="2000-02").max())


def test_chunks_of_datasets(index: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = {"chunked_array_type": "cubed", "from_array_kwargs": {"spec": spec(tmp_path)}}
    with pytest.raises(ValueError, match="regular chunks"):
        xr.open_dataset(index, engine="aggarray", chunks={}, **how)
    array = aa.open(index)["tas"]
    sizes = dict(zip(array.dimensions, array.chunks_for(2000, regular=True), strict=True))
    assert xr.open_dataset(index, engine="aggarray", chunks={}, regular_chunks=2000, **how).chunks == sizes
    assert xr.open_dataset(index, engine="aggarray", chunks={}, regular_chunks=True, **how).chunks["time"] == (120,)
    dask = pytest.importorskip("dask.array", reason="no dask")
    following = xr.open_dataset(index, engine="aggarray", chunks={}, regular_chunks=False)
    assert isinstance(following["tas"].data, dask.Array) and following.chunks["time"] == (31, 28, 31, 30)
    for wrong in (0, -1, "50MB", 1.5):
        with pytest.raises(aa.AggregationError, match=r"regular_chunks=.* is invalid; give True, or the bytes"):
            xr.open_dataset(index, engine="aggarray", regular_chunks=wrong)


def test_tasks_hold_an_address(index: Path, tmp_path: Path) -> None:
    """The size of a task does not grow with the number of files."""
    for number in range(60):
        write(tmp_path / "files" / f"{number}.nc", cube([number]))
    aa.open(tmp_path / "files").save(tmp_path / "many.nca")
    sizes = []
    for path in (index, tmp_path / "many.nca"):
        array = aa.open(path)["tas"]
        read = operation(cubed.from_array(array, chunks=array.chunks_for(1500, regular=True), spec=spec(tmp_path)))
        pipeline = read.pipeline
        sizes.append(len(cloudpickle.dumps(pipeline.config)) - len(str(path)))
        assert len(pickle.dumps(array)) < 500
        assert max(len(cloudpickle.dumps(item)) for item in pipeline.mappable) < 100
    # Most of it is cubed's own.
    assert max(sizes) < 8000 and abs(sizes[0] - sizes[1]) < 200


def test_holes_and_missing_files(index: Path, tmp_path: Path) -> None:
    """Regular chunks that span partitions, a hole and a missing file."""
    stored = aa.open(index)["tas"]
    parts = [part.data for part in stored.partitions]
    assert parts[0] is not None and parts[2] is not None
    boxes = [[(start, start + 31), (0, 3), (0, 2)] for start in (0, 60)]
    pieces = list(zip(boxes, (parts[0], parts[2]), strict=True))
    holes = aa.MasterArray.from_subarrays(pieces, dimensions=stored.dimensions, shape=(100, 3, 2), units=stored.units)
    (index.parent / "1.nc").rename(tmp_path / "1.nc")
    try:
        filled = aa.open(index, missing="fill")["tas"]
        for array, missing in ((holes, 38), (filled, 28)):
            expected = array[...]
            assert np.isnan(expected).all((1, 2)).sum() == missing + (2 if array is holes else 3)
            for chunks in (array.chunks_for(500, regular=True), (40, 2, 2), (7, 3, 1)):
                lazy = cubed.from_array(array, chunks=chunks, spec=spec(tmp_path))
                assert np.array_equal(lazy.compute(), expected, equal_nan=True)
        lazy = cubed.from_array(aa.open(index)["tas"], chunks=(40, 3, 2), spec=spec(tmp_path))
        with pytest.raises(aa.MissingFileError, match=r"1\.nc"):
            lazy.compute()
    finally:
        (tmp_path / "1.nc").rename(index.parent / "1.nc")


_MEMORY = """
import re, sys
import cubed, numpy as np
import aggarray as aa

def memory(key):
    return int(re.search(rf"{key}:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024

array = aa.open(sys.argv[1])["tas"]
reserved = 100_000_000
spec = cubed.Spec(work_dir=sys.argv[2], allowed_mem="1GB", reserved_mem=reserved, executor_name="single-threaded")
chunks = array.chunks_for(40_000_000, regular=True)
lazy = cubed.from_array(array, chunks=chunks, spec=spec)
cubed.from_array(array.lazy[:1], chunks=(1, -1, -1), spec=spec).compute()  # what is imported and allocated once
(read,) = (d["primitive_op"] for name, d in lazy.plan().dag.nodes(data=True) if name.startswith("op-") and "primitive_op" in d)
before = memory("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
cubed.to_zarr(lazy, sys.argv[2] + "/out.zarr")
print(memory("VmHWM") - before, read.projected_mem - reserved, *(len(c) for c in lazy.chunks))
"""


@pytest.mark.heavy
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="no measurement of peak memory")
def test_memory_is_as_planned(tmp_path: Path) -> None:
    """Reading and decoding need less memory than cubed allows for a task."""
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for name, size in (("time", 16), ("lat", 1000), ("lon", 1000)):
            file.createDimension(name, size)
            file.createVariable(name, "f8", (name,))[:] = np.arange(size)
        tas = file.createVariable("tas", "i2", ("time", "lat", "lon"), zlib=True, complevel=1, chunksizes=(1, 500, 1000))
        tas.scale_factor = 0.5
        tas[:] = np.broadcast_to(np.arange(16.0)[:, None, None], (16, 1000, 1000))
    aa.open(tmp_path / "a.nc").save(tmp_path / "a.nca")
    command = [sys.executable, "-c", _MEMORY, str(tmp_path / "a.nca"), str(tmp_path / "work")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    peak, planned, *counts = map(int, done.stdout.split())
    assert counts == [2, 2, 1] and planned > 4 * 30_000_000
    assert peak < planned


def test_memory_that_does_not_suffice(index: Path, tmp_path: Path) -> None:
    array = aa.open(index)["tas"]
    lazy = cubed.from_array(array, chunks=array.chunks_for(10**6, regular=True), spec=spec(tmp_path, allowed_mem="100.001MB"))
    with pytest.raises(ValueError, match="exceeds allowed_mem"):
        lazy.compute()


@pytest.mark.heavy
def test_real_data(shared_data: Path, tmp_path: Path) -> None:
    aa.open(shared_data / "cmip6").save(tmp_path / "cmip6.nca", relative=False)
    for array in aa.open(tmp_path / "cmip6.nca").arrays[::9]:
        chunks = array.chunks_for(max(1, array.nbytes // 5), regular=True)
        lazy = cubed.from_array(array, chunks=chunks, spec=spec(tmp_path))
        assert np.array_equal(lazy.compute(), array[...], equal_nan=True)
