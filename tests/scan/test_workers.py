"""Worker processes: every file gets a result even if workers fail, and workers end with their pool."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aggarray.formats.base import Structure
from aggarray.formats.partial_scan import Result, Task
from aggarray.options import set_options
from aggarray.scan import workers
from aggarray.scan.files import scan_files
from aggarray.scan.workers import BATCH, WorkerPool, _TaskQueue
from tests.support.netcdf import cube, write
from tests.support.paths import ROOT
from tests.support.processes import children


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("files")
    return [write(folder / f"{n:03}.nc", cube([n])) for n in range(40)]


def stub(folder: Path, body: str) -> str:
    """Return an executable that replaces Python."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def all_there(paths: list[str], processes: int = 3) -> bool:
    result = scan_files(paths, processes)
    return [p for p, _ in result] == paths and all(isinstance(s, Structure) and s.uri == p for p, s in result)


@pytest.mark.parametrize(
    "body",
    [
        "exit 3",
        "exec sleep 600",  # hangs on start
        f'exec "{sys.executable}" -c "import time; time.sleep(600)"',
        "exec cat /dev/zero",
        "head -c 2000 /dev/urandom; exec sleep 600",
        f'printf "\\n\\223aggarray scan 1\\n"; exec "{sys.executable}" -c "import sys; sys.stdin.read(300)"',  # dies at work
        'printf "\\n\\223aggarray scan 1\\nnonsense"; exec sleep 600',
    ],
)
def test_failing_workers_lose_no_file(tmp_path: Path, paths: list[str], monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    monkeypatch.setattr(workers, "TIMEOUT", 0.5)
    monkeypatch.setattr("sys.executable", stub(tmp_path, body))
    before = children()
    start = time.monotonic()
    assert all_there(paths)
    assert time.monotonic() - start < 20
    assert children() <= before


def test_missing_executable(tmp_path: Path, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "no-such-python"))
    assert all_there(paths)


@pytest.mark.parametrize("program", [None, ""])
def test_no_workers_without_an_executable(
    program: str | None, paths: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    with WorkerPool(3) as pool:
        result = pool.run([(path, None) for path in paths])
        assert not pool._workers
    assert [s.uri for s in result if isinstance(s, Structure)] == paths
    assert capfd.readouterr().err == ""


def test_stalled_workers_time_out(tmp_path: Path, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # The worker starts, takes a batch and sends no result.
    monkeypatch.setattr(workers, "TIMEOUT", 0.3)
    monkeypatch.setattr("sys.executable", stub(tmp_path, 'printf "\\n\\223aggarray scan 1\\n"; exec sleep 600'))
    slow_here(monkeypatch, 0.01)
    before = children()
    assert all_there(paths)
    assert children() <= before


def slow_here(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[str]:
    """Slow this process down so that workers take tasks; return the list of files that it scans."""
    look, seen = workers.scan_one, []

    def slowly(task: Task) -> Result:
        seen.append(task[0])
        time.sleep(seconds)
        return look(task)

    monkeypatch.setattr(workers, "scan_one", slowly)
    return seen


def test_workers_scan_each_file_once(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = slow_here(monkeypatch, 0.2)  # workers take seconds to start on a loaded machine
    assert all_there(paths, 2)
    assert len(seen) == len(set(seen)) < len(paths) - BATCH / 2


def test_batches_become_smaller_towards_the_end() -> None:
    work = _TaskQueue([("", None)] * 100, 2)
    sizes = []
    while batch := work.take_batch():
        sizes.append(len(batch))
    assert sizes[0] == BATCH and sizes[-1] == 1 and sum(sizes) == 100
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-4:] == [1, 1, 1, 1]


def test_returned_tasks_are_taken_first() -> None:
    work = _TaskQueue([("", None)] * 3, 2)
    assert work.take_batch() == [0]
    work.return_tasks([0])
    assert [work.take_one() for _ in range(4)] == [0, 1, 2, None]


def test_progress_counts_every_file_once_in_the_callers_thread(paths: list[str]) -> None:
    import threading

    seen: list[tuple[int, int, str]] = []
    threads = set()

    def progress(*step: object) -> None:
        seen.append(step)  # type: ignore[arg-type]
        threads.add(threading.current_thread())

    scan_files(paths, 3, progress)
    assert seen == [(n + 1, len(paths), "scanning") for n in range(len(paths))]
    assert threads == {threading.current_thread()}


def test_error_of_the_caller_ends_workers(paths: list[str]) -> None:
    before = children()

    def progress(done: int, total: int, what: str) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scan_files(paths, 3, progress)
    assert children() <= before


def test_workers_run_several_rounds(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = slow_here(monkeypatch, 0.02)
    started: list[int] = []
    start = workers._Worker._start

    def counted(self: workers._Worker) -> object:
        started.append(1)
        return start(self)

    monkeypatch.setattr(workers._Worker, "_start", counted)
    with WorkerPool(2) as pool:
        for _ in range(3):
            assert [s.uri for s in pool.run([(path, None) for path in paths]) if isinstance(s, Structure)] == paths
    assert len(started) == 1
    assert len(seen) < 2 * len(paths)


@pytest.mark.parametrize(("seconds", "helped"), [(0.0, 0), (0.03, 2)])
def test_workers_start_for_long_scans(paths: list[str], monkeypatch: pytest.MonkeyPatch, seconds: float, helped: int) -> None:
    monkeypatch.setattr(workers, "usual_processes", lambda files: 3)
    monkeypatch.setattr(workers, "WORKER_SECONDS", 0.6 if seconds else 60.0)
    slow_here(monkeypatch, seconds)
    with WorkerPool() as pool:
        result = pool.run([(path, None) for path in paths])
        assert len(pool._workers) == helped
    assert [s.uri for s in result if isinstance(s, Structure)] == paths


def test_nothing_to_do() -> None:
    with WorkerPool(4) as pool:
        assert pool.run([]) == []


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package on the import path of this process that registers a format; its files record their readers."""
    code = """
    import os
    from aggarray.formats.base import Structure
    from aggarray.options import get_options

    class Format:
        name = "told"
        def recognises(self, path, head):
            return head.startswith(b"TOLD")
        def scan(self, path):
            print("a library that prints")
            attrs = {"pid": str(os.getpid()), "open_files": str(get_options().open_files)}
            return Structure(path, "told", attrs, (), {})
        def open(self, path):
            raise OSError

    FORMAT = Format()
    """
    place = tmp_path / "elsewhere"
    (place / "told-1.0.dist-info").mkdir(parents=True)
    (place / "told.py").write_text(textwrap.dedent(code))
    (place / "told-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: told\nVersion: 1.0\n")
    (place / "told-1.0.dist-info" / "entry_points.txt").write_text("[aggarray.formats]\ntold = told:FORMAT\n")
    monkeypatch.syspath_prepend(place)
    from aggarray.formats import _foreign_formats

    _foreign_formats.cache_clear()
    yield tmp_path
    monkeypatch.undo()
    _foreign_formats.cache_clear()


def test_workers_have_the_same_formats_and_options(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [plugin / f"{n}.told" for n in range(80)]
    for path in told:
        path.write_bytes(b"TOLD")
    slow_here(monkeypatch, 0.05)
    with set_options(open_files=17):
        result = [s for _, s in scan_files(list(map(str, told)), 2)]
    assert all(isinstance(s, Structure) and s.attrs["open_files"] == "17" for s in result)
    assert len({s.attrs["pid"] for s in result if isinstance(s, Structure)}) == 2


def test_an_interrupt_ends_everything(tmp_path: Path, paths: list[str]) -> None:
    script = f"""
    import sys, time
    from aggarray.scan import workers
    from aggarray.scan.files import scan_files
    look = workers.scan_one
    def slowly(task):
        print("working", flush=True)
        time.sleep(0.2)
        return look(task)
    workers.scan_one = slowly
    scan_files({paths * 400!r}, 3)
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    for _ in range(3):
        process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode != 0 and b"KeyboardInterrupt" in errors
    deadline = time.monotonic() + 5
    while (left := running(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def running(session: int) -> str:
    listed = subprocess.run(["ps", "-o", "pid=,stat=", "-s", str(session)], capture_output=True, text=True, check=False)
    return "".join(line for line in listed.stdout.splitlines() if " Z" not in line)


def test_killed_parent_leaves_no_workers(tmp_path: Path, paths: list[str]) -> None:
    (tmp_path / "script.py").write_text(
        f"from aggarray.scan.files import scan_files\nprint('on', flush=True)\nscan_files({paths * 50!r}, 3)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")], stdout=subprocess.PIPE, env=environment, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.7)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 10
    while (left := running(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


@pytest.mark.parametrize("module", ["worker", "batch"])
def test_processes_that_scan_import_only_what_they_need(module: str) -> None:
    script = f"import sys, aggarray.scan.{module}; print(*sorted(m for m in sys.modules if m.startswith('aggarray.')))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    names = set(done.stdout.split())
    folders = {name.split(".")[1] for name in names}
    assert folders <= {"cf", "codecs", "dataclass", "errors", "formats", "options", "partition", "plugins", "scan", "storage"}
    scan = {"aggarray.scan", f"aggarray.scan.{module}", "aggarray.scan.pickling"}
    assert {name for name in names if name.startswith(("aggarray.scan", "aggarray.partition."))} == {
        *scan,
        "aggarray.partition.chunk_index",
    }
    assert "aggarray.storage.remote" not in names
