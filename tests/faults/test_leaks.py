"""File descriptors, memory and threads stay constant over thousands of reads, errors included."""

import contextlib
import gc
import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import aggarray as aa
from aggarray.export.extract import extract
from aggarray.export.kerchunk import _write_table
from aggarray.storage.byte_source import close_sources
from tests.faults.test_concurrency import KINDS, stored, truth
from tests.support.examples import examples, heavy
from tests.support.netcdf import cube, field, write

#: Tolerance in bytes: caches of libraries and of Python.
SLACK = 1 << 20
READS, OPENINGS = examples(10_000), examples(1_000)


def descriptors() -> list[str]:
    """Return the open descriptors, without files kept open for later reads."""
    close_sources()
    gc.collect()
    result = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            result.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(name for name in result if not name.endswith("/fd"))


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def check_stays(work: Callable[[], object], times: int, slack: int = 8 * SLACK) -> None:
    """Call a function many times and check that it leaves nothing behind."""
    for _ in range(max(times // 10, 3)):
        work()
    before, threads, memory = descriptors(), threading.active_count(), resident()
    for _ in range(times):
        work()
    assert descriptors() == before and threading.active_count() <= threads
    assert resident() - memory < slack


@pytest.mark.parametrize("kind", heavy(KINDS, but=[*KINDS][:2]))
def test_reads_leave_nothing(kind: str, tmp_path: Path) -> None:
    array = stored(kind, tmp_path / "data")
    check_stays(lambda: array[3:9, 5:9, ::7], READS // len(KINDS))


@pytest.mark.heavy
def test_reads_keep_no_python_objects(tmp_path: Path) -> None:
    array = stored("hdf5", tmp_path / "data")
    for _ in range(200):
        array[1:20:3, 4]
    tracemalloc.start()
    try:
        array[1:20:3, 4]
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(1000):
            array[1:20:3, 4]
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", heavy(["file", "index", "kerchunk"], but=["index"]))
def test_openings_leave_nothing(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.nc", cube([0, 1]))
    if kind == "index":
        aa.open(path).save(tmp_path / "i.nca")
        path = str(tmp_path / "i.nca")
    elif kind == "kerchunk":
        aa.open(path).to_kerchunk(tmp_path / "k.json")
        path = str(tmp_path / "k.json")

    def work() -> None:
        np.testing.assert_array_equal(aa.open(path)["tas"][...], field([0, 1], (10.0, 20.0, 30.0), (0.0, 5.0)))

    check_stays(work, OPENINGS // 3)


@pytest.mark.heavy
def test_errors_leave_nothing(tmp_path: Path) -> None:
    """Damaged, missing and changed files, files that are not data, invalid keys, unwritable paths."""
    good = write(tmp_path / "a.nc", cube([0]))
    gone = aa.open(write(tmp_path / "gone.nc", cube([1])))["tas"]
    whole = Path(good).read_bytes()
    for number, length in enumerate((0, 10, 600, 3000, len(whole) - 50)):
        (tmp_path / f"cut{number}.nc").write_bytes(whole[:length])
    (tmp_path / "flipped.nc").write_bytes(bytes(b ^ 0xFF if n % 97 == 50 else b for n, b in enumerate(whole)))
    os.unlink(tmp_path / "gone.nc")
    agg = aa.open(good)
    bad = [str(p) for p in tmp_path.iterdir() if p.name != "a.nc"]

    def work() -> None:
        for path in bad:
            with contextlib.suppress(aa.AggarrayError):
                aa.open(path)
        with pytest.raises(aa.MissingFileError):
            gone[...]
        with pytest.raises(aa.SelectionError):
            agg["tas"][7]
        for call in (agg.save, agg.to_kerchunk):
            with pytest.raises(aa.AggarrayError):
                call(tmp_path / "no" / "such.json")
        with pytest.raises(aa.AggregationError):
            extract(agg["tas"], tmp_path / "no" / "x.nc")

    check_stays(work, examples(60))


@pytest.mark.heavy
def test_writes_leave_nothing(tmp_path: Path) -> None:
    agg = aa.open(write(tmp_path / "data" / "a.nc", cube([0, 1])))

    def work() -> None:
        agg.save(tmp_path / "i.nca")
        agg.to_kerchunk(tmp_path / "k.json")
        for name in ("x.nc", "x.zarr"):
            extract(agg["tas"], tmp_path / name, exists="overwrite")

    check_stays(work, 25)


@pytest.mark.heavy
def test_writes_that_fail_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error while an index is written, or an interrupt, netCDF-C has closed the file."""
    agg = aa.open(write(tmp_path / "data" / "a.nc", cube([0, 1])))
    errors = [RuntimeError("NetCDF: HDF error"), KeyboardInterrupt(), OSError(5, "Input/output error")]

    def fail(*arguments: object) -> None:
        raise errors[0]

    monkeypatch.setattr("aggarray.index.store.Writer.write", fail)

    def work() -> None:
        errors.append(errors.pop(0))
        with pytest.raises((RuntimeError, KeyboardInterrupt, aa.IndexFileError)):
            agg.save(tmp_path / "i.nca")

    check_stays(work, 30)
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


def test_parquet_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """The Parquet library keeps its own file open after an error."""
    (tmp_path / "refs.parq").symlink_to("/dev/full")

    def work() -> None:
        with pytest.raises(OSError, match="No space left"):
            _write_table([["a.nc", 0, 8]], str(tmp_path / "refs.parq"))

    check_stays(work, 5)


def test_values_are_right_afterwards(tmp_path: Path) -> None:
    array = stored("hdf5", tmp_path / "data")
    for n in range(200):
        np.testing.assert_array_equal(array[n % 24], truth()[n % 24])
