"""Writers do not undo each other's work, on file systems with and without locks, even if writers are killed."""

import errno
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray import mpi
from aggarray.cli import main
from aggarray.cli._running import _append
from aggarray.dap import Distribution
from aggarray.display import report
from aggarray.export.extract import extract
from aggarray.mpi.zarr_store import Store
from aggarray.storage import atomic, locks, owners
from aggarray.storage.atomic import replace_atomically
from aggarray.storage.locks import Lock, LockError, _Exclusive, locked, unlock
from aggarray.storage.owners import Owner, lock_of, owner_of, temporary_of, this_process
from tests.faults.staging import ROOT, Stage
from tests.faults.works import NEW, OLD, WORKS, Work, moments, prepared, results, steps
from tests.support.examples import examples
from tests.support.netcdf import cube, field, write

#: Number of killed writers; AGGARRAY_KILLS=200 in the environment kills more.
KILLS = int(os.environ.get("AGGARRAY_KILLS") or examples(20))
BY_NAME = [pytest.param(work, id=work.name) for work in WORKS]
LOCKING = pytest.mark.parametrize("flocks", [True, False], ids=["flock", "no-flock"])

#: Forks a child per line [seed, files, seconds]: it appends the files one after the other and reports each saved one; it is
#: killed after a number of seconds (None: never). A line "wait" waits for all children.
APPENDER = """
import errno, fcntl, json, os, signal, sys, time
import aggarray as aa
index, log, flocks = sys.argv[1:]
def refused(*arguments):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
if flocks != "True":
    fcntl.flock = refused
aa.open(index).save(index + ".warm")
os.unlink(index + ".warm")
children = []
def append(files):
    for file in files:
        while True:
            try:
                aa.open(index).append(file).save(index)
                break
            except aa.IndexFileError as error:
                assert "since it was opened" in str(error), error
        os.write(said, (file + chr(10)).encode())
for line in sys.stdin:
    if line == "wait\\n":
        print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children], flush=True)
        children = []
        continue
    files, seconds = json.loads(line)
    child = os.fork()
    if not child:
        said = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        if seconds is not None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends a process as SIGKILL does
            signal.setitimer(signal.ITIMER_REAL, seconds)
        status = 1
        try:
            append(files)
            status = 0
        finally:
            os._exit(status)
    children.append(child)
"""


@pytest.fixture
def without_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `flock` fail as on file systems without locks."""

    def refused(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)


@pytest.fixture
def appender(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A function that starts `APPENDER`."""
    started = []

    def start(index: Path, flocks: bool) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", APPENDER, str(index), str(tmp_path / "reported"), str(flocks)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.communicate(timeout=60)


def tell(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    print(line, file=process.stdin, flush=True)


def archive(folder: Path, count: int) -> list[str]:
    return [str(write(folder / "data" / f"{t:03}.nc", cube([t]))) for t in range(count)]


def check_index(index: Path, least: int = 0) -> int:
    """Compare all values of an index with those of its files; return the number of steps."""
    tas = aa.open(index)["tas"]
    np.testing.assert_array_equal(tas[...], field(*(tas.coords[name][...] for name in ("time", "lat", "lon"))))
    assert tas.shape[0] >= least
    return int(tas.shape[0])


def files_of(index: Path) -> set[str]:
    return {str(uri) for uri in aa.open(index)["tas"]._matrix.references.uris}


@pytest.mark.heavy
@LOCKING
def test_what_was_saved_is_in_the_index(flocks: bool, tmp_path: Path, appender: Callable[..., Any]) -> None:
    """Four processes append to one index at the same time."""
    files = archive(tmp_path, 21)
    index = tmp_path / "place" / "i.nca"
    index.parent.mkdir()
    aa.open(files[0]).save(index)
    process = appender(index, flocks)
    for n in range(4):
        tell(process, json.dumps([files[1 + n :: 4], None]))
    tell(process, "wait")
    assert json.loads(process.stdout.readline()) == [0] * 4
    assert sorted((tmp_path / "reported").read_text().split()) == files[1:]
    assert files_of(index) == set(files) and check_index(index) == 21
    assert [p.name for p in index.parent.iterdir()] == ["i.nca"]


@pytest.mark.heavy
@LOCKING
def test_writers_are_killed_and_nothing_is_lost(flocks: bool, tmp_path: Path, appender: Callable[..., Any]) -> None:
    """Readers see the old or the new index at every moment, and it contains everything reported as saved."""
    files = archive(tmp_path, 1 + 2 * KILLS)
    index = tmp_path / "place" / "i.nca"
    index.parent.mkdir()
    aa.open(files[0]).save(index)
    process, chance, seen = appender(index, flocks), random.Random(11), 1
    for first in range(0, KILLS, 4):
        for n in range(first, min(first + 4, KILLS)):
            # Each child appends its files repeatedly until it is killed.
            tell(process, json.dumps([files[1 + 2 * n : 3 + 2 * n] * 1000, chance.uniform(0.1, 1.0)]))
        tell(process, "wait")
        for _ in range(4):
            seen = check_index(index, seen)
        assert set(json.loads(process.stdout.readline())) == {-signal.SIGALRM}
    reported = set((tmp_path / "reported").read_text().split())
    assert reported and reported <= files_of(index), reported - files_of(index)
    aa.open(index).append(files[-1]).save(index)
    check_index(index)
    assert [p.name for p in index.parent.iterdir()] == ["i.nca"]


#: Holds the lock for a while, repeatedly; an independent lock of the system detects two simultaneous holders.
HOLDER = """
import errno, fcntl, os, random, signal, sys, time
path, seed, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
from aggarray.storage import locks
real = fcntl.flock
def refused(*arguments):
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
fcntl.flock = refused
while True:
    seed += 100
    if not os.fork():
        chance = random.Random(seed)
        if chance.random() < 0.7:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.001, 0.2))  # killed anywhere, while it takes a lock over too
        try:
            for _ in range(rounds):
                with locks.locked(path), open(path + ".witness", "a") as witness:
                    real(witness, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    time.sleep(chance.uniform(0, 0.002))
                    if chance.random() < 0.1:
                        os.kill(os.getpid(), 9)
            os._exit(0)
        except BaseException as error:
            print("fault", repr(error), flush=True)
            os._exit(1)
    status = os.wait()[1]
    if not os.WIFSIGNALED(status):
        break
"""


def test_one_process_takes_over_a_stale_lock(tmp_path: Path) -> None:
    """Many processes wait for a lock whose holders are killed repeatedly; two never hold it at once."""
    path = tmp_path / "place" / "x"
    path.parent.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HOLDER, str(path)]
    holders = [subprocess.Popen([*command, str(n), "6"], env=environment, stdout=subprocess.PIPE, text=True) for n in range(6)]
    assert [(holder.communicate(timeout=120)[0], holder.returncode) for holder in holders] == [("", 0)] * 6
    with replace_atomically(str(path)) as made:
        Path(made).touch()
    # The second lock of a process killed during a takeover is removed with the next exclusive lock.
    _Exclusive(str(path)).acquire(wait=False)
    Path(lock_of(str(path), "held")).unlink()
    assert sorted(p.name for p in path.parent.iterdir()) == ["x", "x.witness"]


@pytest.mark.usefixtures("without_flock")
def test_second_takeover_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process takes the lock over between the check of the lock and the second lock."""
    path, acquire = str(tmp_path / "x"), _Exclusive.acquire
    held = Path(lock_of(path, "held"))
    held.write_text(json.dumps({"owner": str(Owner(owners.host(), os.getpid(), 1))}))
    taken = json.dumps({"owner": str(this_process())})

    def slowly(self: _Exclusive, wait: bool) -> None:
        if self._path.endswith("~"):
            held.write_text(taken)
        acquire(self, wait)

    monkeypatch.setattr(_Exclusive, "acquire", slowly)
    with pytest.raises(BlockingIOError), locked(path, wait=False):
        pass
    assert held.read_text() == taken and [p.name for p in tmp_path.iterdir()] == [held.name]


@pytest.mark.usefixtures("without_flock")
def test_lock_of_an_ended_process_is_taken_over_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True)
    for owner in (Owner(owners.host(), int(done.stdout), 17), Owner(owners.host(), os.getpid(), 1)):
        Path(lock_of(path, "held")).write_text(json.dumps({"owner": str(owner)}))
        with locked(path, wait=False) as lock:
            lock.check()
        assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_flock")
def test_lock_of_another_host_is_taken_over_after_a_timeout(tmp_path: Path) -> None:
    path, held = str(tmp_path / "x"), Path(lock_of(str(tmp_path / "x"), "held"))
    for content in (json.dumps({"owner": "elsewhere_00000000-1-1"}), "", "no JSON", "[]"):
        held.write_text(content)
        with pytest.raises(BlockingIOError), locked(path, wait=False):
            pass
        unlock(path)
        assert held.read_text() == content
        os.utime(held, (time.time() - locks.STALE - 5,) * 2)
        with locked(path, wait=False):
            assert held.read_text() != content
        assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_flock")
def test_held_lock_is_refreshed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "HEARTBEAT", 0.01)
    path = str(tmp_path / "x")
    held = Path(lock_of(path, "held"))
    with locked(path):
        os.utime(held, (1, 1))
        deadline = time.monotonic() + 30
        while held.stat().st_mtime < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert held.stat().st_mtime > 2


@LOCKING
def test_writer_without_its_lock_replaces_nothing(flocks: bool, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not flocks:
        request.getfixturevalue("without_flock")
    files = archive(tmp_path, 2)
    index, held = tmp_path / "i.nca", Path(lock_of(str(tmp_path / "i.nca"), "lock" if flocks else "held"))
    aa.open(files[0]).save(index)
    before = index.read_bytes()
    with pytest.raises(LockError, match="taken over by another process"), replace_atomically(str(index)) as made:
        Path(made).write_bytes(b"new")
        held.unlink()
        held.write_text("another's")
    assert index.read_bytes() == before and held.read_text() == "another's"


@pytest.mark.parametrize("expected", [True, False], ids=["append", "save"])
def test_the_generation_is_compared_when_the_index_is_replaced(
    expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process saves during this save, as if there were no locks."""
    files = archive(tmp_path, 3)
    index, other = tmp_path / "i.nca", tmp_path / "other.nca"
    aa.open(files[0]).save(index)
    ours = aa.open(index).append(files[1]) if expected else aa.open(files[1])
    aa.open(index).append(files[2]).save(other)
    aa.open(other).save(other)
    keep_mode = atomic.keep_mode

    def meanwhile(old: str, new: str) -> None:
        keep_mode(old, new)
        os.replace(other, index)

    monkeypatch.setattr(atomic, "keep_mode", meanwhile)
    with pytest.raises(aa.IndexFileError, match="modified by another process since it was opened"):
        ours.save(index)
    assert len(files_of(index)) == 2 and files[2] in files_of(index)


def test_temporary_files_of_other_writers_stay(tmp_path: Path) -> None:
    """Those of running processes of this host, recent ones of other hosts, and those of other paths."""
    files = archive(tmp_path, 1)
    (tmp_path / "p").mkdir()
    index = tmp_path / "p" / "i"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        alive = Owner(owners.host(), process.pid, owners._status(process.pid)[1])
        dead = Owner(owners.host(), process.pid, alive.start + 1)
        kept = [f".i.{alive}-00000000.tmp", ".i.elsewhere_0-1-1-00000000.tmp", f".i.nca.{dead}-00000000.tmp"]
        gone = [f".i.{dead}-00000000.tmp", ".i.elsewhere_0-1-1-00000001.tmp"]
        for name in (*kept, *gone):
            (index.parent / name).touch()
        os.utime(index.parent / gone[1], (1, 1))
        aa.open(files[0]).save(index)
        assert {p.name for p in index.parent.iterdir()} == {*kept, "i"}
        process.communicate(b"\n")


def test_names_of_processes() -> None:
    assert owner_of(str(this_process())) == this_process() and this_process().is_gone() is False
    assert Owner("elsewhere", os.getpid(), 1).is_gone() is None
    child = os.fork()
    if not child:
        signal.pause()
    owner = Owner(owners.host(), child, owners._status(child)[1])
    assert owner.is_gone() is False
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert owner.is_gone() is True  # a zombie
    os.waitpid(child, 0)
    assert owner.is_gone() is True
    assert len(os.path.basename(temporary_of("/a/" + "ü" * 127))) <= 255 - len(".old.tmp")


# Every writer

DATA = {"v": (("t", "x"), np.arange(12.0).reshape(3, 4))}


def put(agg: aa.Aggregation, path: Path) -> None:
    with mpi.ProcessGroup.serial() as group:
        local = mpi.local(agg["v"], Distribution.regular((3, 4), "bb", (1, 1)), group)
        mpi.write(local, group, path, f"v{len(aa.open(path)) if path.exists() else 0}")


WRITERS: dict[str, Callable[[aa.Aggregation, Path], object]] = {
    "i.nca": lambda agg, path: agg.save(path),
    "x.nc": lambda agg, path: extract(agg["v"], path, exists="overwrite"),
    "x.zarr": lambda agg, path: extract(agg["v"], path, exists="overwrite"),
    "k.json": lambda agg, path: agg.to_kerchunk(path),
    "k.parq": lambda agg, path: agg.to_kerchunk(path),
    "p.html": lambda agg, path: report.write(report.page(agg, str(path.exists())), path),
    "s.zarr": put,
    "s.nc": put,
    "log": lambda agg, path: _append(str(path), b"2000-01-01T00:00:00+00:00 line\n"),
}


@pytest.mark.usefixtures("without_flock")
@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_locks_without_flock(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No leftovers; an extract does not wait but reports the other one."""
    agg = aa.open(write(tmp_path / "a.nc", DATA))
    place = tmp_path / "place"
    place.mkdir()
    held: list[str] = []
    acquire = locks._Exclusive.acquire

    def noting(self: Any, wait: bool) -> None:
        acquire(self, wait)
        held.append(self._path)

    monkeypatch.setattr(locks._Exclusive, "acquire", noting)
    for _ in range(2):
        WRITERS[name](agg, place / name)
        assert held == [lock_of(str(place / name), "held")]
        held.clear()
        assert [p.name for p in place.iterdir()] == [name]
    if name.startswith("x."):
        with locked(str(place / name)), pytest.raises(aa.AggregationError, match="another process is writing it"):
            WRITERS[name](agg, place / name)


@pytest.mark.parametrize("kind", ["lock", "held"])
@pytest.mark.parametrize("name", [n for n in WRITERS if n != "log"])
def test_a_link_as_a_lock_is_an_error(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agg = aa.open(write(tmp_path / "a.nc", DATA))
    place = tmp_path / "place"
    place.mkdir()
    lock = Path(lock_of(str(place / name), kind))
    lock.symlink_to(tmp_path / "planted")
    with pytest.raises(aa.AggarrayError, match=rf"\.{kind} is a link.*{name}.*; remove it") as error:
        WRITERS[name](agg, place / name)
    assert "\n" not in str(error.value) and not (tmp_path / "planted").exists()
    assert [p.name for p in place.iterdir()] == [lock.name]
    lock.unlink()
    WRITERS[name](agg, place / name)
    assert [p.name for p in place.iterdir()] == [name]


@pytest.mark.parametrize("name", ["x.nc", "x.zarr"])
def test_links_in_the_folder_of_an_extract_are_not_followed(name: str, tmp_path: Path) -> None:
    agg = aa.open(write(tmp_path / "a.nc", DATA))
    other, place, part = tmp_path / "other", tmp_path / "place", tmp_path / "place" / f"{name}.part"
    other.mkdir()
    (other / "extract.json").write_text('{"fingerprint": "')
    place.mkdir()
    part.symlink_to(other)
    with pytest.raises(aa.AggregationError, match=r"is a symbolic link: .*\.part"):
        WRITERS[name](agg, place / name)
    assert [p.name for p in other.iterdir()] == ["extract.json"]
    part.unlink()
    for inside in ("store", "spare", "file.nc", "extract.json"):
        part.mkdir()
        (part / "extract.json").write_text('{"fingerprint": "x"}')
        (part / inside).unlink(missing_ok=True)
        (part / inside).symlink_to(other / "extract.json" if "." in inside else other)
        with pytest.raises(aa.AggregationError, match="is a folder with other content"):
            WRITERS[name](agg, place / name)
        assert (other / "extract.json").read_text() == '{"fingerprint": "'
        for path in part.iterdir():
            path.unlink()
        part.rmdir()


def test_a_log_is_not_created_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "planted")
    with pytest.raises(OSError, match="is a dangling symbolic link"):
        _append(str(tmp_path / "log"), b"line\n")
    (tmp_path / "planted").write_bytes(b"first\n")
    _append(str(tmp_path / "log"), b"line\n")
    assert (tmp_path / "planted").read_bytes() == b"first\nline\n"


def exposed(place: Path) -> list[str]:
    """Return the files in a folder that other users may read, except locks, which contain no data."""
    result = []
    for path in place.rglob("*"):
        above = [p for p in path.parents if place in p.parents]
        closed = any(p.stat().st_mode & 0o077 == 0 for p in above)
        if path.is_file() and not closed and path.stat().st_mode & 0o077 and not path.name.endswith((".lock", ".held", "log")):
            result.append(str(path))
    return result


@pytest.mark.parametrize("work", BY_NAME)
def test_temporary_files_are_as_private_as_the_result(work: Work, folder: Path, stage: Stage) -> None:
    """Whenever the writer is killed, other users cannot read what it wrote."""

    def private() -> Path:
        place = prepared(work, folder)
        for path in (*results(work, place), *place.glob("job.toml")):
            path.chmod(0o700 if path.is_dir() else 0o600)
        return place

    place = private()
    count = work.attempt(stage, folder, how="count").steps
    assert exposed(place) == []
    for at in moments(count, examples(12)):
        place = private()
        assert work.attempt(stage, folder, how="kill", at=at).status == -signal.SIGKILL
        assert exposed(place) == []
    assert {steps(path) for path in results(work, place)} <= {OLD, NEW}


def test_collective_writes_are_as_private_as_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agg = aa.open(write(tmp_path / "a.nc", DATA))
    store, modes, keep = tmp_path / "place" / "s.zarr", list[int](), Store.put
    store.parent.mkdir()
    put(agg, store)
    store.chmod(0o700)

    def noting(self: Store, *arguments: Any) -> None:
        keep(self, *arguments)
        modes.append(os.stat(self.work).st_mode & 0o777)

    monkeypatch.setattr(Store, "put", noting)
    put(agg, store)
    assert modes == [0o700] and store.stat().st_mode & 0o777 == 0o700


def test_cancelled_wait_leaves_the_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    with locked(path) as lock:
        waiting = Lock()
        waiting._path = lock_of(path)
        waiting._descriptor = os.open(waiting._path, os.O_RDWR)  # the state after an interrupt while waiting
        waiting.release()
        lock.check()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_flock")
def test_a_job_runs_once_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.nc", DATA)
    job, held = tmp_path / "job.toml", Path(lock_of(str(tmp_path / "job.toml"), "held"))
    job.write_text('[input]\nsource = "a.nc"\n[index]\npath = "i.nca"\n')
    held.write_text(json.dumps({"owner": str(this_process())}))
    with pytest.raises(SystemExit):
        main(["run", str(job)])
    assert "is running already" in capsys.readouterr().err
    held.write_text(json.dumps({"owner": str(Owner(owners.host(), os.getpid(), 1))}))
    with pytest.raises(SystemExit) as stop:
        main(["run", str(job)])
    assert stop.value.code == 0
    assert {p.name for p in tmp_path.iterdir()} == {"a.nc", "job.toml", "i.nca"}
