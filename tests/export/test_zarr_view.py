"""Zarr view: zarr-python, xarray, dask and cubed read the conformed values, of versions 3 and 2."""

import asyncio
import faulthandler
import json
import os
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype

import aggarray as aa
from aggarray.arrays.ragged import RaggedMasterArray
from aggarray.export.zarr_view.contents import ViewArray
from tests.support.decoding import decoded
from tests.support.netcdf import cube, write
from tests.support.paths import ROOT

SAMPLES = ROOT / "sample_data"


def content(store: Any, key: str, part: Any = None) -> bytes | None:
    buffer = asyncio.run(store.get(key, default_buffer_prototype(), part))
    return None if buffer is None else buffer.to_bytes()


def listed(names: Any) -> list[str]:
    async def gather() -> list[str]:
        return [name async for name in names]

    return asyncio.run(gather())


def variables_of(agg: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arrays and their coordinates by name, where all arrays share one grid."""
    for array in agg:
        yield array.name, array
        yield from array.coords.items()


@pytest.fixture(scope="module")
def months(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return two months, one packed and with a gap: floats, integers, flags, texts and a scalar."""
    folder = tmp_path_factory.mktemp("months")
    for number in range(2):
        times = np.arange(3) + 3 * number
        tas = np.arange(18).reshape(3, 3, 2).astype("f4") + number
        tas[0, 0, 0] = 1e20
        flags = np.arange(18).reshape(3, 3, 2).astype("i2")
        flags[1, 1, 1] = -9
        changes = {
            "tas": (("time", "lat", "lon"), tas, {"units": "K", "_FillValue": np.float32(1e20)}),
            "flags": (("time", "lat", "lon"), flags, {"_FillValue": np.int16(-9)}),
            "count": (("time",), times.astype("i8"), {}),
            "region": (("lat",), np.array(["tropics", "", "nördlich"]), {}),
            "crs": ((), np.int32(7), {"grid_mapping_name": "latitude_longitude"}),
        }
        write(folder / f"{number}.nc", cube(times, **changes))
    return aa.open(folder)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("sample", ["archive", "tiles", "stations"])
def test_values_of_the_samples(sample: str, version: Any) -> None:
    agg = aa.open(SAMPLES / sample)
    group = zarr.open_group(agg.to_zarr_store(), mode="r", zarr_format=version)
    for array in agg:
        if not isinstance(array, RaggedMasterArray):  # its samples are in the order of the files
            np.testing.assert_array_equal(group[array.name][...], array[...])
        assert group[array.name].dtype == array.dtype
    opened = xr.open_zarr(agg.to_zarr_store(), zarr_format=version, chunks=None)
    xr.testing.assert_equal(opened.compute(), agg.to_xarray().compute())


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("compressor", [None, "zstd:3", "zlib:1", "blosc:5"])
def test_values_of_every_type(months: Any, compressor: str | None, version: Any) -> None:
    store = months.to_zarr_store(compressor=compressor)
    group = zarr.open_group(store, mode="r", zarr_format=version)
    for name, array in variables_of(months):
        stored = group[name]
        assert stored.shape == array.shape
        assert list(stored[...].ravel()) == list(array[...].ravel()) or array.dtype.kind == "f"
        if array.dtype.kind == "f":
            np.testing.assert_array_equal(stored[...], array[...])
    assert ("compressor" in stored.metadata.to_dict()) == (version == 2)
    xr.testing.assert_equal(xr.open_zarr(store, zarr_format=version).compute(), months.to_xarray().compute())


def test_what_a_reader_without_xarray_sees(months: Any) -> None:
    group = zarr.open_group(months.to_zarr_store(), mode="r")
    assert group.metadata.consolidated_metadata is not None
    assert group["tas"].metadata.dimension_names == ("time", "lat", "lon")
    assert group["tas"].attrs["units"] == "K" and np.isnan(group["tas"].fill_value)
    assert group["flags"].fill_value == -9 == group["flags"].attrs["_FillValue"]
    # No value of these can be missing: no reader masks zeros.
    assert "_FillValue" not in group["count"].attrs
    assert zarr.open_array(months.to_zarr_store(), path="count", mode="r", zarr_format=2).fill_value is None


def test_arrays_of_one_name_are_in_groups(tmp_path: Path) -> None:
    for model, shift in (("A", 0), ("B", 50)):
        for number in range(2):
            tas = (("time", "lat", "lon"), np.full((3, 3, 2), shift + number, "f4"), {"units": "K"})
            attrs = {"source_id": model, "mip_era": "CMIP6"}
            write(tmp_path / f"{model}{number}.nc", cube(np.arange(3) + 3 * number, tas=tas), attrs)
    agg = aa.open(tmp_path)
    store = agg.to_zarr_store()
    group = zarr.open_group(store, mode="r")
    assert sorted(group.group_keys()) == ["A", "B"] and not list(group.array_keys())
    for array in agg:
        np.testing.assert_array_equal(group[f"{array.file_attrs['source_id']}/tas"][...], array[...])
    tree = xr.open_datatree(store, engine="zarr")
    xr.testing.assert_equal(tree.compute(), agg.to_xarray().compute())
    xr.testing.assert_equal(xr.open_zarr(store, group="B", zarr_format=2).compute(), tree["B"].to_dataset().compute())


@pytest.mark.heavy
def test_real_data(shared_data: Path) -> None:
    agg = aa.open(shared_data / "cmip6")
    tree = xr.open_datatree(agg.to_zarr_store(), engine="zarr")
    truth = agg.to_xarray()
    assert sorted(node.path for node in tree.leaves) == sorted(node.path for node in truth.leaves)
    for node in tree.leaves:
        xr.testing.assert_equal(node.to_dataset().compute(), truth[node.path].to_dataset().compute())


# Chunks


def test_chunks_follow_stored_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggarray.export.zarr_view.layout.MOST_BYTES", 2000)
    values = np.random.default_rng(1).random((120, 3, 2)).astype("f4")
    for first in range(0, 120, 30):
        path = write(tmp_path / f"{first:03}.nc", cube(np.arange(30) + first, tas=None))
        with netCDF4.Dataset(path, "a") as file:
            variable = file.createVariable("tas", "f4", ("time", "lat", "lon"), chunksizes=(10, 3, 2), zlib=True)
            variable[:] = values[first : first + 30]
    agg = aa.open(tmp_path)
    with aa.set_options(cache_bytes=0), decoded() as decodes:
        chunked = zarr.open_array(agg.to_zarr_store(), path="tas", mode="r")
        np.testing.assert_array_equal(chunked[...], values)
    assert chunked.chunks == (60, 3, 2) and decodes[0] == 12


def test_given_chunks(months: Any) -> None:
    store = months.to_zarr_store(chunks={"time": 4, "lon": -1})
    group = zarr.open_group(store, mode="r")
    assert group["tas"].chunks == (4, 3, 2) and group["count"].chunks == (4,)
    np.testing.assert_array_equal(group["tas"][...], months["tas"][...])
    assert zarr.open_group(months.to_zarr_store(chunks={"time": 99}), mode="r")["tas"].chunks == (6, 3, 2)


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ({"tme": 4}, "no dimension 'tme'; did you mean 'time'"),
        ({"time": 0}, "0 is not a chunk size; give a positive integer, or -1"),
        ({"time": 1.5}, "1.5 is not a chunk size"),
        ({"time": True}, "True is not a chunk size"),
    ],
)
def test_invalid_chunks(months: Any, chunks: Any, message: str) -> None:
    with pytest.raises(aa.SelectionError, match=message):
        months.to_zarr_store(chunks=chunks)


def test_invalid_compressor(months: Any) -> None:
    with pytest.raises(aa.AggregationError, match="compress='lzma' is invalid"):
        months.to_zarr_store(compressor="lzma")


# The store


def test_keys(months: Any) -> None:
    store = months.to_zarr_store(chunks={"time": 4})
    keys = listed(store.list())
    assert {"zarr.json", ".zmetadata", "tas/zarr.json", "tas/.zarray", "tas/c/0/0/0", "tas/c/1/0/0", "crs/c"} <= set(keys)
    assert len(set(keys)) == len(keys)
    assert all(asyncio.run(store.exists(key)) and content(store, key) for key in keys)
    assert listed(store.list_prefix("tas/c/1")) == ["tas/c/1/0/0"]
    assert {"tas", "zarr.json", ".zgroup"} <= set(listed(store.list_dir("")))
    assert sorted(listed(store.list_dir("tas/"))) == [".zarray", ".zattrs", "c", "zarr.json"]
    assert listed(store.list_dir("tas/c")) == ["0", "1"] and listed(store.list_dir("tas/c/0/0")) == ["0"]
    assert listed(store.list_dir("tas/c/7")) == listed(store.list_dir("tas/c/0/0/0")) == listed(store.list_dir("none")) == []
    assert json.loads(content(store, "tas/zarr.json") or b"")["shape"] == [6, 3, 2]
    assert content(store, "tas/c/1/0/0") == content(store, "tas/1.0.0") and content(store, "crs/c") == content(store, "crs/0")


@pytest.mark.parametrize(
    "key",
    [
        *(
            "tas/c/2/0/0",
            "tas/c/0/0",
            "tas/c/0/0/0/0",
            "tas/c/-1/0/0",
            "tas/c/00/0/0",
            "tas/c/0/0/0/",
            "tas/c/\u0660/0/0",
            f"tas/c/{'9' * 5000}/0/0",
            "tas/c",
        ),
        *(
            "tas/c",
            "tas/2.0.0",
            "tas/0.0",
            "tas/0",
            "tas/",
            "tas",
            "",
            "/",
            "../0.nc",
            "tas/../tas/zarr.json",
            "/etc/passwd",
            "tas\0/c",
        ),
        *("none/zarr.json", "none/c/0", "crs/c/0", "crs/1", "zarr.json/c", "tas/c/0/0/1e0", "c/0/0/0", "tas//0/0/0"),
    ],
)
def test_unknown_keys(months: Any, key: str) -> None:
    store = months.to_zarr_store(chunks={"time": 4})
    assert content(store, key) is None and not asyncio.run(store.exists(key))


@given(
    key=st.lists(st.sampled_from(["tas", "c", "0", "1", "2", ".", "..", "zarr.json", ".zarray", "0.0.0", "1.0.0"]), max_size=6)
)
def test_keys_are_those_that_are_listed(months: Any, key: list[str]) -> None:
    store = months.to_zarr_store(chunks={"time": 4})
    second = {"tas/0.0.0", "tas/1.0.0"}  # the chunks of Zarr 2
    assert (content(store, "/".join(key)) is not None) == ("/".join(key) in {*listed(store.list()), *second})


def test_parts_of_contents(months: Any) -> None:
    store = months.to_zarr_store()
    whole = content(store, "tas/c/0/0/0")
    assert whole is not None
    assert content(store, "tas/c/0/0/0", RangeByteRequest(3, 9)) == whole[3:9]
    assert content(store, "tas/c/0/0/0", OffsetByteRequest(5)) == whole[5:]
    assert content(store, "tas/c/0/0/0", SuffixByteRequest(7)) == whole[-7:]
    parts = [("tas/c/0/0/0", RangeByteRequest(0, 2)), ("none", None), ("zarr.json", SuffixByteRequest(10**9))]
    first, missing, document = asyncio.run(store.get_partial_values(default_buffer_prototype(), parts))
    assert missing is None and first is not None and document is not None
    assert first.to_bytes() == whole[:2] and document.to_bytes() == content(store, "zarr.json")


def test_read_only(months: Any) -> None:
    store = months.to_zarr_store()
    assert store.read_only and not store.supports_writes and not store.supports_deletes
    assert store.with_read_only(True) is store
    with pytest.raises(ValueError, match="read-only"):
        store.with_read_only(False)
    with pytest.raises(ValueError, match="read-only"):
        zarr.open_group(store, mode="r+")["tas"][0] = 1
    for change in (store.set("tas/c/0/0/0", None), store.delete("zarr.json")):
        with pytest.raises(ValueError, match="read-only"):
            asyncio.run(change)


def test_pickles_small(months: Any, tmp_path: Path) -> None:
    months.save(tmp_path / "months.nca")
    store = aa.open(tmp_path / "months.nca").to_zarr_store(chunks={"time": 4}, compressor="zstd:1")
    pickled = pickle.dumps(store)
    assert len(pickled) < 5000
    again = pickle.loads(pickled)
    assert repr(again) == repr(store) == f"<Zarr view of {len(months)} arrays, read-only>"
    for key in ("zarr.json", "tas/c/1/0/0"):
        assert content(again, key) == content(store, key)
    assert store == store and store != again and hash(store) == hash(store)


def test_threads(months: Any) -> None:
    store = months.to_zarr_store(chunks={"time": 1})
    keys = listed(store.list_prefix("tas/c")) * 8
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda key: content(store, key), keys)) == [content(store, key) for key in keys]


def test_the_event_loop_runs_while_chunks_are_read(months: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    free, read = threading.Event(), ViewArray.read

    def wait(*arguments: Any) -> Any:
        assert free.wait(30)
        return read(*arguments)

    monkeypatch.setattr(ViewArray, "read", wait)

    async def two() -> tuple[Any, Any]:
        slow = asyncio.ensure_future(store.get("tas/c/0/0/0"))
        await asyncio.sleep(0)
        document = await store.get("zarr.json")
        free.set()
        return await slow, document

    store = months.to_zarr_store()
    assert all(asyncio.run(two()))


def test_number_of_reads_at_once(months: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, most, read, lock = 0, 0, ViewArray.read, threading.Lock()

    def count(*arguments: Any) -> Any:
        nonlocal reading, most
        with lock:
            reading += 1
            most = max(most, reading)
        time.sleep(0.01)
        with lock:
            reading -= 1
        return read(*arguments)

    monkeypatch.setattr(ViewArray, "read", count)
    with aa.set_options(threads=1):
        zarr.open_array(months.to_zarr_store(chunks={"time": 1}), path="tas", mode="r")[...]
    assert most == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_child_process_reads_on(months: Any) -> None:
    store = months.to_zarr_store()
    expected = content(store, "tas/c/0/0/0")
    child = os.fork()
    if not child:
        faulthandler.dump_traceback_later(30, exit=True)
        os._exit(0 if content(store, "tas/c/0/0/0") == expected else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_dask_and_cubed(months: Any, tmp_path: Path) -> None:
    import dask.array as da

    store = months.to_zarr_store(chunks={"time": 2})
    lazy = da.from_zarr(zarr.open_array(store, path="tas", mode="r"))
    assert lazy.chunks[0] == (2, 2, 2)
    np.testing.assert_array_equal(lazy.compute(), months["tas"][...])
    cubed = pytest.importorskip("cubed", reason="no cubed")
    spec = cubed.Spec(work_dir=str(tmp_path), allowed_mem="200MB", reserved_mem="100MB")
    array = cubed.from_zarr(store, path="tas", spec=spec)
    np.testing.assert_array_equal(np.asarray(array.compute()), months["tas"][...])


def test_lost_file(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / f"{number}.nc", cube(np.arange(3) + 3 * number))
    agg = aa.open(tmp_path)
    store = agg.to_zarr_store(chunks={"time": 3})
    (tmp_path / "1.nc").unlink()
    np.testing.assert_array_equal(zarr.open_array(store, path="tas", mode="r")[:3], agg["tas"][:3])
    with pytest.raises(aa.MissingFileError, match=r"1\.nc"):
        zarr.open_array(store, path="tas", mode="r")[3:]
