"""A result is always the old or the new one, complete, when its writer is killed or interrupted.

Tested at exact moments: at steps of the writer in the folder (`staging`), and at bytes that it writes.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import zarr

import aggarray as aa
from aggarray.display.report import page
from aggarray.display.report import write as write_page
from aggarray.formats.base import Structure
from aggarray.mpi.zarr_store import _run_in_thread
from aggarray.scan import workers
from aggarray.scan.files import scan_files
from aggarray.storage.atomic import put_in_place
from tests.faults.staging import ROOT, Stage
from tests.faults.works import NEW, OLD, WORKS, Work, moments, prepared, results, rubbish, steps
from tests.support.examples import examples
from tests.support.netcdf import cube, field, write
from tests.support.processes import children

#: Number of moments per work; AGGARRAY_FAULTS=1000 in the environment tests all of them, which takes minutes.
MOMENTS = int(os.environ.get("AGGARRAY_FAULTS") or examples(4, least=2))
BY_NAME = [pytest.param(work, id=work.name) for work in WORKS]


def check_old_or_new(work: Work, place: Path) -> None:
    for path in results(work, place):
        assert steps(path) in (OLD, NEW), path


def check_done(work: Work, place: Path, stage: Stage, folder: Path) -> None:
    """A second attempt succeeds whatever the first left behind, and removes leftovers."""
    again = work.attempt(stage, folder)
    assert (again.status, again.err) == (0, "")
    assert [steps(path) for path in results(work, place)] == [NEW] * len(results(work, place))
    assert rubbish(work, place) == []


@pytest.mark.parametrize("work", BY_NAME)
def test_killed_at_any_step(work: Work, folder: Path, stage: Stage) -> None:
    prepared(work, folder)
    count = work.attempt(stage, folder, how="count").steps
    for at in moments(count, MOMENTS):
        place = prepared(work, folder)
        assert work.attempt(stage, folder, how="kill", at=at).status == -signal.SIGKILL
        check_old_or_new(work, place)
        check_done(work, place, stage, folder)


@pytest.mark.parametrize("work", BY_NAME)
def test_interrupted_at_any_step(work: Work, folder: Path, stage: Stage) -> None:
    prepared(work, folder)
    count = work.attempt(stage, folder, how="count").steps
    for at in moments(count, MOMENTS):
        place = prepared(work, folder)
        done = work.attempt(stage, folder, how="interrupt", at=at)
        assert (done.status, done.err.strip()) == (130, "aggarray: interrupted"), (at, done)
        check_old_or_new(work, place)
        # Extracted chunks stay for a resumed run.
        assert rubbish(work, place, "x.nc.part", "x.zarr.part") == [], at
        check_done(work, place, stage, folder)


@pytest.mark.parametrize("work", BY_NAME)
def test_killed_at_any_byte(work: Work, folder: Path, stage: Stage) -> None:
    """The system kills the writer, C libraries included, when a file exceeds a size."""
    place = prepared(work, folder)
    assert work.attempt(stage, folder).status == 0
    longest = max(p.stat().st_size for path in results(work, place) for p in [path, *path.rglob("*")] if p.is_file())
    died = 0
    for size in (0, 20, *(longest * n // MOMENTS for n in range(1, MOMENTS)), longest - 1):
        place = prepared(work, folder)
        status = work.attempt(stage, folder, how="fatal", at=size).status
        assert status in (0, -signal.SIGXFSZ)
        died += status != 0
        check_old_or_new(work, place)
        check_done(work, place, stage, folder)
    assert died > 2


def test_interrupt_before_a_command_starts(folder: Path, stage: Stage) -> None:
    work = WORKS[0]
    for at in (2, 10, 25):
        place = prepared(work, folder)
        done = work.attempt(stage, folder, how="line", at=at, modules=["/aggarray/cli/__init__.py"])
        assert (done.status, done.err.strip()) == (130, "aggarray: interrupted"), (at, done)
        check_old_or_new(work, place)


# Stores written by several processes

MPI = """
import sys
import aggarray as aa
from aggarray import mpi
from aggarray.dap import Distribution
with mpi.ProcessGroup.serial() as group:
    tas = aa.open(words[0])["tas"]
    mpi.write(mpi.local(tas, Distribution.regular(tas.shape, "bbb", (1, 1, 1)), group), group, words[1], words[2])
"""


def complete_arrays(path: Path, done: bool = False) -> set[str]:
    """Return the names of the arrays of a store or file, whose values must be complete; ``done``: all are consolidated."""
    if not path.exists():
        return set()
    if path.suffix == ".nc":
        with netCDF4.Dataset(path) as file:
            return with_right_values({name: variable[:] for name, variable in file.variables.items()})
    store, consolidated = (zarr.open_group(path, mode="r", use_consolidated=known) for known in (False, None))
    names, known = (with_right_values({n: a[:] for n, a in group.arrays()}) for group in (store, consolidated))
    assert known == names if done else known <= names
    return names


def with_right_values(arrays: dict[str, np.ndarray]) -> set[str]:
    names = arrays.keys() - {"time", "lat", "lon"}
    for name in names:
        np.testing.assert_array_equal(arrays[name], field(range(NEW), (10.0, 20.0, 30.0), (0.0, 5.0)))
    return names


@pytest.mark.parametrize("how", ["kill", "interrupt"])
@pytest.mark.parametrize("name", ["first", "second"])
@pytest.mark.parametrize("file", ["s.zarr", "s.nc"])
def test_arrays_appear_in_a_store_or_file_atomically(file: str, name: str, how: str, folder: Path, stage: Stage) -> None:
    """It has the array, or is as it was, with its other arrays; the next write removes what a killed one left behind."""
    place = folder / "mpi"
    path, before = place / file, {"first"} if name == "second" else set()

    def attempt(name: str, **how: object) -> int:
        return stage.attempt(folder / "data", path, name, code=MPI, below=place, **how).status

    def prepare() -> None:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        assert not before or attempt("first") == 0

    prepare()
    count = stage.attempt(folder / "data", path, name, code=MPI, below=place, how="count").steps
    for at in moments(count, MOMENTS):
        prepare()
        assert attempt(name, how=how, at=at) != 0
        present = complete_arrays(path)
        assert present in (before, {*before, name})
        assert how == "kill" or [p.name for p in place.iterdir()] in ([], [file])
        another = "third" if name in present else name
        assert attempt(another) == 0
        assert complete_arrays(path, done=True) == {*present, another}
        assert [p.name for p in place.iterdir()] == [file]


def test_zarr_writes_end_before_an_interrupt_is_raised() -> None:
    """The handler of the interrupt removes what was written, so that no thread may still write."""
    written: list[str] = []

    def thread() -> None:
        time.sleep(0.5)
        written.append("all")

    def write() -> None:
        other = threading.Thread(target=thread)
        other.start()
        threading.Timer(0.1, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        other.join()

    with pytest.raises(KeyboardInterrupt):
        _run_in_thread(write)
    assert written == ["all"]


# Scans


SCAN = """
import sys
from aggarray.scan import workers
workers.ESTIMATE_SECONDS, workers.WORKER_SECONDS = 0.0, 0.0
from aggarray.scan.files import scan_files
from aggarray.formats.base import Structure
look = workers.scan_one
def slowly(task):
    print("working", flush=True)
    sys.stdin.readline()
    return look(task)
workers.scan_one = slowly
found = scan_files(sys.argv[1:], 3)
print("found", sum(isinstance(s, Structure) and s.uri == p for (p, s), p in zip(found, sys.argv[1:])), flush=True)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSEGV])
def test_killed_workers_lose_no_file(tmp_path: Path, end: signal.Signals) -> None:
    paths = [write(tmp_path / f"{n:03}.nc", cube([n])) for n in range(80)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", SCAN, *paths], text=True, env=environment, **pipes)  # type: ignore[call-overload]
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == "working\n"
    deadline = time.monotonic() + 30
    while len(workers := children(process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    for helper in workers:
        os.kill(helper, end)
    process.stdin.write("go\n" * 200)
    process.stdin.flush()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and out.splitlines()[-1] == "found 80"
    for helper in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(helper, 0)


def test_file_that_kills_workers_is_scanned_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that crashes on every file loses no file."""
    paths = [write(tmp_path / f"{n:03}.nc", cube([n])) for n in range(40)]
    (tmp_path / "python").write_text(
        f'#!/bin/sh\nprintf "\\n\\223aggarray scan 1\\n"; exec "{sys.executable}" -c "import os; os.kill(os.getpid(), 9)"\n'
    )
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    before = children()
    result = scan_files(paths, 3)
    assert [p for p, _ in result] == paths and all(isinstance(s, Structure) for _, s in result)
    assert workers.TIMEOUT < 60 and children() <= before
    assert aa.open(paths)["tas"].shape == (40, 3, 2)


def test_stale_locks_are_removed(tmp_path: Path) -> None:
    lock = tmp_path / ".p.html.lock"
    text = page(aa.open(write(tmp_path / "0.nc", cube([0]))))
    assert write_page(text, tmp_path / "p.html")
    lock.touch()
    with open(lock) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not write_page(text, tmp_path / "p.html") and lock.exists()
    assert not write_page(text, tmp_path / "p.html") and not lock.exists()


def test_folders_are_exchanged_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One system call exchanges the folders; systems without it use two renames."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()

    def rename(*names: object) -> None:
        raise AssertionError("there is a moment without either")

    monkeypatch.setattr(os, "rename", rename)
    put_in_place(str(tmp_path / "new"), str(tmp_path / "old"))
    assert [p.name for p in (tmp_path / "old").iterdir()] == ["new"]
