"""Threads, forked and spawned processes, and concurrent writers get the results of a single one."""

import importlib
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import zarr

import aggarray as aa
from aggarray.errors import MissingFileError
from aggarray.index.store import Reader
from tests.faults.staging import ROOT
from tests.faults.works import NEW, OLD, make_data, steps
from tests.support.examples import heavy
from tests.support.netcdf import cube, write

THREADS = 64
SHAPE = (24, 30, 40)
TIME = {"units": "days since 2000-01-01", "standard_name": "time"}


def cubes(folder: Path, **how: Any) -> aa.MasterArray:
    """Write `truth` to files in a storage layout and open them."""
    folder.mkdir()
    for n in range(4):
        with netCDF4.Dataset(folder / f"{n}.nc", "w", format=how.get("format", "NETCDF4")) as file:
            for name, size in zip(("time", "y", "x"), (6, *SHAPE[1:]), strict=True):
                file.createDimension(name, size)
            file.createVariable("time", "f8", ("time",)).setncatts(TIME)
            file["time"][:] = np.arange(6 * n, 6 * n + 6)
            more = {k: v for k, v in how.items() if k != "format"}
            file.createVariable("tas", "f4", ("time", "y", "x"), **more)[:] = truth()[6 * n : 6 * n + 6]
    return aa.open(folder)["tas"]


def truth() -> np.ndarray:
    return np.arange(np.prod(SHAPE), dtype="f4").reshape(SHAPE)


def stored(kind: str, folder: Path) -> aa.MasterArray:
    """Return an array of the values of `truth` in a storage layout."""
    chunked = {"compression": "zlib", "chunksizes": (2, 7, 40)}
    if kind == "netcdf3":
        return cubes(folder, format="NETCDF3_64BIT_OFFSET")
    if kind == "hdf5":
        return cubes(folder, **chunked)
    if kind == "index":
        cubes(folder, **chunked)
        aa.open(folder).save(folder / "i.nca")
        return aa.open(folder / "i.nca")["tas"]
    if kind == "kerchunk":
        cubes(folder, **chunked)
        aa.open(folder).to_kerchunk(folder / "k.json")
        return aa.open(folder / "k.json")["tas"]
    folder.mkdir()
    if kind == "zarr":
        group = zarr.open_group(folder / "a.zarr", mode="w")
        group.create_array("tas", data=truth(), chunks=(5, 7, 11), dimension_names=("time", "y", "x"))
        return aa.open(folder / "a.zarr")["tas"]
    assert kind == "library"  # a filter that only HDF5 decodes
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("tas", data=truth(), chunks=(2, 7, 40), scaleoffset=4)
    return aa.open(folder / "a.h5")["tas"]


KINDS = ("netcdf3", "hdf5", "library", "zarr", "kerchunk", "index")


def random_key(chance: random.Random) -> tuple[Any, ...]:
    def one(size: int) -> Any:
        low, high = sorted(chance.sample(range(size + 1), 2))
        return chance.choice([slice(low, high), slice(low, high, 3), slice(None, None, -1), chance.randrange(size)])

    return tuple(map(one, SHAPE))


def check_reads(array: aa.MasterArray, seed: int, count: int = 5) -> None:
    chance, expected = random.Random(seed), expected_of(array)
    for _ in range(count):
        key = random_key(chance)
        np.testing.assert_array_equal(array[key], expected[key])


def expected_of(array: aa.MasterArray) -> np.ndarray:
    """Return the values of an array; for "library" after its lossy filter."""
    uri = next(str(p.data.uri) for p in array.partitions if p.data is not None)
    return lossy(uri) if uri.endswith(".h5") else truth()


@lru_cache
def lossy(path: str) -> np.ndarray:
    """Return what h5py reads, cached: a fork during its own read is not under test."""
    with h5py.File(path, locking=False) as file:
        return np.asarray(file["tas"][...])


def all_at_once(works: list[Callable[[], None]]) -> None:
    """Run functions in threads that start together; raise the first error."""
    gate = threading.Barrier(len(works))

    def begun(work: Callable[[], None]) -> None:
        gate.wait()
        work()

    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(begun, work) for work in works]:
            done.result(timeout=120)


@pytest.mark.parametrize("kind", heavy(KINDS, but=[*KINDS][::2]))
def test_many_threads_read_one_array(kind: str, tmp_path: Path) -> None:
    array = stored(kind, tmp_path / "data")
    # Read by h5py first: it cannot open a file while the threads have it open with other settings.
    expected_of(array)
    with aa.set_options(open_files=2, cache_bytes=20_000):
        all_at_once([lambda n=n: check_reads(array, n) for n in range(THREADS)])  # type: ignore[misc]


def test_many_threads_read_rows(sample_stations: Path) -> None:
    agg = aa.open(sample_stations)
    array = next(iter(agg))
    rows = [np.asarray(array[n]) for n in range(len(array))]

    def check(seed: int) -> None:
        fresh, chance = next(iter(aa.open(sample_stations))), random.Random(seed)
        for n in chance.sample(range(len(rows)), min(10, len(rows))):
            np.testing.assert_array_equal(np.asarray((array if seed % 2 else fresh)[n]), rows[n])

    all_at_once([lambda n=n: check(n) for n in range(16)])  # type: ignore[misc]


def test_threads_open_and_read_while_others_close(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    cubes(folder, compression="zlib", chunksizes=(2, 7, 40))
    from aggarray.storage.byte_source import close_sources

    def work(n: int) -> None:
        for turn in range(3):
            check_reads(aa.open(folder)["tas"], n + turn, 2)
            close_sources()

    all_at_once([lambda n=n: work(n) for n in range(12)])  # type: ignore[misc]


# Processes


def _read_in_child(array: aa.MasterArray, seed: int, answers: Any) -> None:
    try:
        with aa.set_options(threads=4):
            check_reads(array, seed)
        answers.put("right")
    except BaseException as error:
        answers.put(repr(error))


def ended(children: list[Any], answers: Any) -> list[str]:
    """Return the answers of children; kill and report those that hang."""
    said = []
    for child in children:
        child.join(60)
        if child.is_alive():
            child.kill()
            child.join()
            said.append("hung")
    while len(said) < len(children):
        said.append(answers.get(timeout=10))
    return said


@pytest.mark.parametrize(("kind", "method"), [*((kind, "fork") for kind in KINDS), ("hdf5", "spawn")])
def test_children_read_what_was_opened_before(kind: str, method: str, tmp_path: Path) -> None:
    array = stored(kind, tmp_path / "data")
    check_reads(array, 0)  # fills file handles and caches
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    children = [context.Process(target=_read_in_child, args=(array, n, answers)) for n in range(2)]
    for child in children:
        child.start()
    check_reads(array, 9)
    assert ended(children, answers) == ["right"] * len(children)
    check_reads(array, 10)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["hdf5", "library", "zarr"])
def test_forks_while_threads_read(kind: str, tmp_path: Path) -> None:
    """Locks held by threads at the moment of a fork do not block a child."""
    array = stored(kind, tmp_path / "data")
    check_reads(array, 0)  # a fork during an import blocks imports in the child
    stop, faults = threading.Event(), list[BaseException]()

    def read(seed: int) -> None:
        try:
            while not stop.is_set():
                check_reads(array, seed, 1)
                aa.open(tmp_path / "data")
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    context = multiprocessing.get_context("fork")
    try:
        for turn in range(6):
            answers = context.Queue()
            child = context.Process(target=_read_in_child, args=(array, turn, answers))
            child.start()
            assert ended([child], answers) == ["right"]
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert faults == []


FORK = """
import faulthandler, os, sys, threading
faulthandler.dump_traceback_later(30, exit=True)
import aggarray.formats.hdf5.format
from aggarray.formats.base import LIBRARY_LOCK, h5py_file
h5py_file("none", "w", driver="core", backing_store=False).close()
from h5py._objects import phil
held, forking = threading.Event(), threading.Event()
os.register_at_fork(before=forking.set)
def read():
    with LIBRARY_LOCK:
        held.set()
        forking.wait()
        forking.wait(1)
        with phil:
            pass
thread = threading.Thread(target=read)
thread.start()
held.wait()
child = os.fork()
if not child:
    os._exit(0 if LIBRARY_LOCK.acquire(timeout=5) and phil.acquire() else 1)
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_while_a_library_reads() -> None:
    """Deterministic: at the fork, another thread is about to call h5py, which takes its own lock before a fork."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_h5py_open_takes_the_lock() -> None:
    """The code that opens the first file has to establish the order of the locks."""
    result = [path.name for path in (ROOT / "aggarray").rglob("*.py") if "h5py.File(" in path.read_text()]
    assert result == []


@pytest.mark.parametrize(
    "name",
    [
        "aggarray.read.open_files._files._lock",
        "aggarray.read.chunk_blocks.decoded_chunks._lock",
        "aggarray.scan.resolution._descriptions._cache._lock",
        "aggarray.storage.byte_source._sources._lock",
        "aggarray.storage.remote.objects._states._lock",
        "aggarray.storage.remote.filesystems.systems._lock",
    ],
)
def test_locks_held_by_threads_are_free_in_a_child(name: str, tmp_path: Path) -> None:
    """Deterministic: a child does not wait for a thread of its parent."""
    check_reads(stored("hdf5", tmp_path / "data"), 0, 1)
    place = name.split(".")
    level = 4 if place[2] == "remote" else 3
    module = importlib.import_module(".".join(place[:level]))
    find = attrgetter(".".join(place[level:]))
    with find(module):
        child = os.fork()
        if not child:
            os._exit(0 if find(module).acquire(timeout=5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_fork_while_units_are_converted() -> None:
    """Deterministic: at the fork, another thread holds the lock of UDUNITS."""
    from aggarray.cf.units import udunits

    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with udunits._lock:
            held.set()
            go.wait(1)  # the fork waits for this thread

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        os._exit(0 if udunits._lock.acquire(timeout=5) else 1)
    go.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_fork_while_a_thread_reads_an_index(tmp_path: Path) -> None:
    """A thread of the child, which may get the identifier of the thread that reads, opens the index itself."""
    write(tmp_path / "a.nc", cube([1]))
    aa.open(tmp_path / "a.nc").save(tmp_path / "i.nca")
    reader, held, go = Reader(str(tmp_path / "i.nca")), threading.Event(), threading.Event()

    def hold() -> None:
        with reader.opened():
            held.set()
            go.wait(10)

    def read() -> None:
        with pytest.raises(MissingFileError, match="no such index"), reader.opened():
            pass
        refused.append(True)

    refused = list[bool]()
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        (tmp_path / "i.nca").unlink()
        other = threading.Thread(target=read)
        other.start()
        other.join()
        os._exit(0 if refused else 1)
    go.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Writers


def test_threads_append_to_one_index(tmp_path: Path) -> None:
    """One append succeeds, the others raise an error; retries lose nothing."""
    for t in range(8):
        write(tmp_path / f"{t}.nc", cube([t]))
    index = tmp_path / "i.nca"
    aa.open(tmp_path / "0.nc").save(index)
    refused, first = list[str](), threading.Barrier(7)

    def append(t: int) -> None:
        for turn in range(60):
            try:
                grown = aa.open(index).append(tmp_path / f"{t}.nc")
                if not turn:
                    first.wait()  # all threads have opened the same generation
                grown.save(index)
                return
            except aa.IndexFileError as error:
                refused.append(str(error))
        raise AssertionError("never had its turn")

    all_at_once([lambda t=t: append(t) for t in range(1, 8)])  # type: ignore[misc]
    assert len(refused) >= 6 and all("open it again" in text and "\n" not in text for text in refused)
    assert aa.open(index)["tas"].coords["time"][...].tolist() == list(range(8))
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*(f"{t}.nc" for t in range(8)), "i.nca"])


@pytest.mark.heavy
def test_readers_see_the_old_index_or_the_new_one(tmp_path: Path) -> None:
    make_data(tmp_path)
    index = tmp_path / "i.nca"
    states = [aa.open(tmp_path / "data" / "0.nc"), aa.open(tmp_path / "data")]
    states[0].save(index)
    seen, stop = set[int](), threading.Event()

    def read() -> None:
        while not stop.is_set() or len(seen) < 2:
            seen.add(steps(index))

    def save() -> None:
        deadline = time.monotonic() + 60
        for turn in range(1000):
            states[turn % 2]._provenance.saved.clear()
            states[turn % 2].save(index)
            if (turn > 30 and len(seen) == 2) or time.monotonic() > deadline:
                break
        stop.set()

    all_at_once([save, read, read, read])
    assert seen == {OLD, NEW}


def _extract_in_child(folder: Path, gate: Any, answers: Any) -> None:
    from aggarray.export.extract import extract

    tas = aa.open(folder / "data")["tas"]
    gate.wait(60)
    try:
        extract(tas, folder / "x.zarr", exists="overwrite")
        answers.put("done")
    except aa.AggregationError as error:
        answers.put(str(error))


def test_concurrent_extracts_to_one_path(tmp_path: Path) -> None:
    make_data(tmp_path)
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        gate, answers = context.Barrier(4), context.Queue()
        children = [context.Process(target=_extract_in_child, args=(tmp_path, gate, answers)) for _ in range(4)]
        for child in children:
            child.start()
        said = ended(children, answers)
        assert "done" in said and all(s == "done" or "another process is writing it" in s for s in said), said
        assert steps(tmp_path / "x.zarr") == NEW and sorted(p.name for p in tmp_path.iterdir()) == ["data", "x.zarr"]
