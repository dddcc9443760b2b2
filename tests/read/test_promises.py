"""What reading promises beside right values: bounded memory, children of forks that go on, changes that are found out."""

import os
import signal
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray.read import close_files
from aggarray.read.chunk_index import chunk_tables
from tests.support.examples import heavy_product
from tests.support.netcdf import NOLEAP, TAS, cube, write

MEGABYTE = 1 << 20


def dataset(path: Path, values: np.ndarray, **how: Any) -> aa.MasterArray:
    with h5py.File(path, "w") as file:
        attrs = how.pop("attrs", {})
        file.create_dataset("v", data=values, **how).attrs.update(attrs)
    return aa.open(path)["v"]


BIG = (400, 200, 300)  # 24 million elements
MEMORY: dict[str, Any] = {
    "through the library": {"chunks": (4, 200, 300), "scaleoffset": 0, "dtype": "i4"},
    "deflated, packed": {"chunks": (4, 200, 300), "compression": "gzip", "dtype": "i2", "attrs": {"scale_factor": 0.5}},
    "contiguous, packed": {"dtype": "i2", "attrs": {"scale_factor": 0.5}},
    "chunked, with missing values": {"chunks": (1, 200, 300), "dtype": "f4", "attrs": {"_FillValue": np.float32(3)}},
    "tiny chunks": {"chunks": (400, 5, 20), "dtype": "f4", "attrs": {"_FillValue": np.float32(3)}},
}


@pytest.mark.parametrize(("kind", "threads"), heavy_product(list(MEMORY), [1, 8]))
def test_memory_is_the_output_and_a_little(tmp_path: Path, kind: str, threads: int) -> None:
    how = dict(MEMORY[kind])
    values = (np.arange(np.prod(BIG), dtype="i4") % 1000).reshape(BIG).astype(how.pop("dtype"))
    a = dataset(tmp_path / "v.h5", values, **how)
    a[:1]
    tracemalloc.start()
    try:
        result = a.read(threads=threads)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - result.nbytes < 64 * MEGABYTE
    assert result[-1, -1, -1] == values[-1, -1, -1] * how.get("attrs", {}).get("scale_factor", 1)


def test_few_elements_far_apart_take_little_memory(tmp_path: Path) -> None:
    values = np.arange(np.prod(BIG), dtype="f4").reshape(BIG)
    a = dataset(tmp_path / "v.h5", values)
    tracemalloc.start()
    try:
        np.testing.assert_array_equal(a[[0, 399]], values[[0, 399]])
        np.testing.assert_array_equal(a[::-133, ::199, [0, 299]], values[::-133, ::199][:, :, [0, 299]])
        assert tracemalloc.get_traced_memory()[1] < 16 * MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_children_of_forks_go_on(tmp_path: Path) -> None:
    slow = dataset(tmp_path / "slow.h5", np.arange(2_000_000, dtype="i4"), chunks=(100_000,), scaleoffset=0)
    other = dataset(tmp_path / "other.h5", np.arange(1000, dtype="i4"), chunks=(100,), scaleoffset=0)
    plain = aa.open(write(tmp_path / "plain.nc", cube([0, 1, 2])))["tas"]
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            slow[:]

    thread = threading.Thread(target=busy)
    thread.start()
    children = []
    try:
        for number in range(6):
            time.sleep(0.02)
            child = os.fork()
            if not child:
                status = 1
                try:
                    right = other[:].sum() == 499500 if number % 2 else plain[:].shape == (3, 3, 2)
                    status = 0 if right else 2
                finally:
                    os._exit(status)
            children.append(child)
        statuses = [_waited(child) for child in children]
    finally:
        stop.set()
        thread.join()
    assert statuses == [0] * 6


def _waited(child: int) -> int | str:
    """Return the status of a child, which is killed when it takes too long."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hangs"


def changed(path: Path, how: str) -> None:
    """Rewrite a file in another way."""
    times, lats = np.arange(3.0), [10.0, 20.0, 30.0]
    given: dict[str, Any] = {}
    if how == "units":
        given["tas"] = (("time", "lat", "lon"), np.zeros((3, 3, 2), "f4"), {**TAS, "units": "degC"})
    elif how == "direction":
        lats = lats[::-1]
    elif how == "packing":
        given["tas"] = (("time", "lat", "lon"), np.zeros((3, 3, 2), "f4"), {**TAS, "scale_factor": 0.5})
    elif how == "times":
        times = times + 1000
    write(path, cube(times, lats, **given))


@pytest.mark.parametrize("read_before", [False, True])
@pytest.mark.parametrize("how", ["units", "direction", "packing", "times"])
@pytest.mark.parametrize("indexed", [False, True])
def test_files_rewritten_while_an_array_is_open(tmp_path: Path, how: str, read_before: bool, indexed: bool) -> None:
    path = tmp_path / "a.nc"
    write(path, cube(np.arange(3.0), time=(("time",), np.arange(3.0), NOLEAP)))
    agg = aa.open(path)
    if indexed:
        agg.save(tmp_path / "index.nca")
        agg = aa.open(tmp_path / "index.nca")
    a = agg["tas"]
    if read_before:
        a[0]
    changed(path, how)
    part = a.partitions[()].data
    for read in (lambda: a[:], lambda: a.read(copy=None), lambda: a.lazy[1:][:], part.read):
        for kind in (aa.IndexFileError, aa.FormatError):
            with pytest.raises(kind, match=r"changed since it was scanned.*variable 'tas' in .*a\.nc.*open the files anew"):
                read()
    assert aa.open(path)["tas"][:].shape == (3, 3, 2)


def test_a_file_that_is_copied_back_is_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "a.nc", cube(np.arange(3.0)))
    a = aa.open(path)["tas"]
    expected = a[:]
    data = Path(path).read_bytes()
    Path(path).unlink()
    with pytest.raises(aa.MissingFileError, match=r"a\.nc"):
        a[:]
    Path(path).write_bytes(data)
    chunk_tables.clear()
    close_files()
    np.testing.assert_array_equal(a[:], expected)


def test_chunks_of_another_size_than_an_index_says(tmp_path: Path) -> None:
    from tests.support.index_files import changed as rewritten

    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 24)
        file.createVariable("v", "f4", ("x",), chunksizes=(12,))[:] = np.arange(24)
    aa.open(path).save(tmp_path / "i.nca")
    rewritten(tmp_path / "i.nca", lambda d: d["chunks"]["columns"].__setitem__(1, {"is": [30, 48]}))
    rewritten(tmp_path / "i.nca", lambda d: d["chunks"]["columns"].__setitem__(0, {"is": [100, 9000]}))
    chunk_tables.clear()
    with pytest.raises(aa.FormatError, match=r"48 expected, in chunk \[0\]|truncated.*variable 'v' in .*a\.nc"):
        aa.open(tmp_path / "i.nca")["v"][:]
