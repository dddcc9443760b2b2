"""Full disks: one clear error, the old file stays, no leftovers, and a retry succeeds."""

import contextlib
import errno
import io
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

import aggarray as aa
from aggarray import mpi
from aggarray.dap import Distribution
from aggarray.display import report
from aggarray.export.extract import extract
from aggarray.index.netcdf import updated
from aggarray.mpi import ProcessGroup, zarr_store
from tests.faults.staging import Stage
from tests.faults.works import NEW, OLD, WORKS, Work, prepared, results, rubbish, steps
from tests.support.messages import says
from tests.support.netcdf import write

BY_NAME = [pytest.param(work, id=work.name) for work in WORKS]


@pytest.mark.parametrize("work", BY_NAME)
def test_file_size_limit(work: Work, folder: Path, stage: Stage) -> None:
    """A limit on the file size raises an error at an exact byte, in any library."""
    place = prepared(work, folder)
    assert work.attempt(stage, folder).status == 0
    longest = max(p.stat().st_size for path in results(work, place) for p in [path, *path.rglob("*")] if p.is_file())
    failed = 0
    for size in (0, 20, longest // 2, longest - 1):
        place = prepared(work, folder)
        done = work.attempt(stage, folder, how="limit", at=size)
        assert done.status in (0, 1)
        failed += done.status
        lines = done.err.splitlines()
        told = {line for line in lines if line.startswith("aggarray: ") and "cannot be written: File too large" in line}
        # A job reports each output that could not be written; other commands print one line.
        assert len(told) == len(lines) and (not done.status or lines) and (work.name == "run" or len(lines) == done.status)
        assert all(str(place) in line for line in lines)
        for path in results(work, place):
            assert steps(path) in (OLD, NEW), path
        assert rubbish(work, place, "x.nc.part", "x.zarr.part") == []
        assert work.attempt(stage, folder).status == 0
        assert {steps(path) for path in results(work, place)} == {NEW}
        assert rubbish(work, place) == []
    assert failed > 2


@pytest.mark.parametrize("line", [("distribute", "data", "-n", "2"), ("info", "data"), ("explain", "data", "--json")])
def test_an_output_that_is_full(line: tuple[str, ...], folder: Path, stage: Stage) -> None:
    words = [str(folder / "data") if word == "data" else word for word in line]
    code = "import os, sys\nos.dup2(os.open('/dev/full', os.O_WRONLY), 1)\nfrom aggarray.cli import main\nmain(words)"
    done = stage.attempt(*words, code=code)
    assert (done.status, done.said) == (1, "aggarray: the output cannot be written: No space left on device")


# A small disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Any]:
    """A function that mounts a disk in memory of a number of kB at ``tmp_path / "disk"``."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(size: int) -> Path:
        known = "remount," * place.is_mount()
        command = ["mount", "-t", "tmpfs", "-o", f"{known}size={size}k", "none", str(place)]
        if not shutil.which("mount") or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("a small disk: only root may mount one")
        return place

    yield mount
    if place.is_mount():
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path, rest: int) -> None:
    """Fill a disk up to a remaining number of kB."""
    with open(place / "full", "wb", buffering=0) as full, contextlib.suppress(OSError):
        while full.write(bytes(4096)):
            pass
    os.truncate(place / "full", os.path.getsize(place / "full") - (rest << 10))


def held(below: Path) -> list[str]:
    """Return the open files of a folder, removed ones included, that take space."""
    result = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.fstat(int(name)).st_blocks:
                result.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(name for name in result if name.startswith(str(below)))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> aa.Aggregation:
    """Four files of incompressible values; an index of them takes hundreds of kB."""
    folder = tmp_path_factory.mktemp("large")
    for n in range(4):
        values = np.random.default_rng(n).random((20, 40, 40))
        names = {f"attribute{k}": np.random.default_rng(k).bytes(2000).hex() for k in range(60)}
        time = (("time",), np.arange(20.0) + 20 * n, {"units": "days since 2000-01-01"})
        write(folder / f"{n}.nc", {"time": time, "tas": (("time", "y", "x"), values, names)})
    return aa.open(folder)


WRITERS = {
    "save": ("i.nca", lambda agg, path: agg.save(path)),
    "extract-nc": ("x.nc", lambda agg, path: extract(agg["tas"], path, exists="update")),
    "extract-zarr": ("x.zarr", lambda agg, path: extract(agg["tas"], path, exists="update")),
    "json": ("k.json", lambda agg, path: agg.to_kerchunk(path)),
    "parquet": ("k.parq", lambda agg, path: agg.to_kerchunk(path)),
    "page": ("p.html", lambda agg, path: report.write(report.page(agg), path)),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("rest", [0, 8, 100])
def test_full_disk(name: str, rest: int, disk: Any, large: aa.Aggregation) -> None:
    """With this many kB left, a write that does not fit fails, frees its space, and succeeds once there is space."""
    result, work = WRITERS[name]
    place = disk(1024)
    fill(place, rest)
    large["tas"][0, 0, 0]
    try:
        work(large, place / result)
    except aa.AggarrayError as error:
        assert "No space left on device" in str(error) and str(place / result) in str(error) and "\n" not in str(error)
        assert not (place / result).exists()
        # Extracted chunks are kept for a resumed run.
        assert {p.name for p in place.iterdir()} <= {"full", f"{result}.part"}
        assert held(place) == []
        work(large, disk(64 << 10) / result)
    else:
        assert rest
    assert {p.name for p in place.iterdir()} == {"full", result} and held(place) == []
    if not result.endswith(".html"):
        np.testing.assert_array_equal(aa.open(place / result)["tas"][...], large["tas"][...])


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_full_disk_on_flush(
    name: str, number: int, tmp_path: Path, large: aa.Aggregation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems with delayed allocation report missing space on flush."""
    target, writer = WRITERS[name]
    path = tmp_path / target

    def refuse(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(aa.AggarrayError, match=says(target, f"({os.strerror(number)}|full)")):
            writer(large, path)
    assert not path.exists()
    writer(large, path)
    assert path.exists()


class Full(io.FileIO):
    """A file on which a limited number of writes succeeds."""

    left = 0

    def write(self, content: Any) -> int:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(content) or 0


@pytest.mark.parametrize("count", range(6))
def test_failed_update_closes_the_file(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HDF5 keeps a file open that it fails to close, and writes most of it on closing."""
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(10)
    monkeypatch.setattr(Full, "left", count)
    monkeypatch.setattr("aggarray.index.netcdf.open", lambda path, mode, buffering: Full(path, mode), raising=False)
    before = h5py.h5f.get_obj_count(types=h5py.h5f.OBJ_FILE)
    with pytest.raises(OSError, match="No space left on device"), updated(path) as file:
        file["y"] = np.random.default_rng(0).random(500)
    assert h5py.h5f.get_obj_count(types=h5py.h5f.OBJ_FILE) == before


def test_extract_resumes_once_there_is_space(disk: Any, large: aa.Aggregation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggarray.export.extract.pieces.BLOCK", 100_000)
    monkeypatch.setattr("aggarray.partition.block_shapes._MIN_BYTES", 50_000)
    monkeypatch.setattr("aggarray.partition.block_shapes._MAX_BYTES", 100_000)
    place = disk(700)
    with pytest.raises(aa.AggregationError, match=r"No space left on device.*; make space"):
        extract(large["tas"], place / "x.zarr")
    done = extract(large["tas"], disk(64 << 10) / "x.zarr")
    assert 0 < done.resumed < done.nbytes
    np.testing.assert_array_equal(aa.open(place / "x.zarr")["tas"][...], large["tas"][...])


def test_collective_write_to_a_full_disk(disk: Any, large: aa.Aggregation) -> None:
    """In a store written by several processes, nothing remains of a failed array; other arrays stay."""
    place = disk(64 << 10)
    with ProcessGroup.serial() as group:

        def put(array: aa.MasterArray, name: str) -> None:
            local = mpi.local(array, Distribution.regular(array.shape, "bbb", (1, 1, 1)), group)
            mpi.write(local, group, place / "s.zarr", name)

        put(large["tas"], "first")
        fill(place, 100)
        with pytest.raises(aa.AggarrayError, match="No space left on device") as caught:
            put(large["tas"], "tas")
        assert "\n" not in str(caught.value) and "s.zarr" in str(caught.value)
        (place / "full").unlink()
        assert aa.open(place / "s.zarr").names == ("first",)
        put(large["tas"], "tas")
    np.testing.assert_array_equal(zarr.open_group(place / "s.zarr", mode="r")["tas"][:], large["tas"][:])


def test_collective_write_of_a_file_to_a_full_disk(disk: Any, large: aa.Aggregation) -> None:
    """The file keeps what it had, and no leftovers take space."""
    place = disk(64 << 10)
    with ProcessGroup.serial() as group:
        local = mpi.local(large["tas"], Distribution.regular(large["tas"].shape, "bbb", (1, 1, 1)), group)
        mpi.write(local, group, place / "s.nc", "first")
        for space in (20, 100, 700):
            fill(place, space)
            with pytest.raises(aa.AggarrayError, match="No space left on device") as caught:
                mpi.write(local, group, place / "s.nc", "tas")
            assert "\n" not in str(caught.value) and "s.nc" in str(caught.value)
            (place / "full").unlink()
            assert [p.name for p in place.iterdir()] == ["s.nc"] and aa.open(place / "s.nc").names == ("first",)
        mpi.write(local, group, place / "s.nc", "tas")
    for name in ("first", "tas"):
        np.testing.assert_array_equal(aa.open(place / "s.nc")[name][:], large["tas"][:])


def test_all_writes_end_before_an_error_is_raised(
    tmp_path: Path, large: aa.Aggregation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the concurrent chunk writes fails; the others have ended, so that leftovers can be removed."""
    begun, ended, write_file = list[str](), list[str](), zarr_store._write_file

    def slowly(path: str, content: Any) -> None:
        begun.append(path)
        try:
            if len(begun) == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            time.sleep(0.5)
            write_file(path, content)
        finally:
            ended.append(path)

    monkeypatch.setattr(zarr_store, "_write_file", slowly)
    monkeypatch.setattr("aggarray.mpi.schedule.chunk_grid._MAX_BYTES", 1 << 17)
    with ProcessGroup.serial() as group, aa.set_options(threads=3):
        local = mpi.local(large["tas"], Distribution.regular(large["tas"].shape, "bbb", (1, 1, 1)), group)
        with pytest.raises(aa.AggarrayError, match="No space left on device"):
            mpi.write(local, group, tmp_path / "s.zarr", "tas")
    assert len(begun) > 1 and sorted(begun) == sorted(ended)
    assert list(tmp_path.iterdir()) == []
