"""Scans on executors: batches, failures, and what remains when an executor takes no more work."""

import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import aggarray as aa
from aggarray.errors import AggarrayError, AggregationError, MissingFileError
from aggarray.formats.base import Structure
from aggarray.formats.partial_scan import Result, Task
from aggarray.options import get_options, set_options
from aggarray.scan import batch, executors
from aggarray.scan.executors import IN_FLIGHT, TRIES, ExecutorPool, cut_batches
from aggarray.scan.files import scan_files, scanning_on
from tests.support.executors import Executor, dask_client, fatal_format, write_fatal
from tests.support.netcdf import cube, write


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("files")
    return [write(folder / f"{n:03}.nc", cube([n])) for n in range(60)]


def scan_on(executor: Any, paths: list[str], progress: Any = None) -> list[Structure | AggarrayError]:
    with scanning_on(executor):
        result = scan_files(paths, progress=progress)
    assert [p for p, _ in result] == paths
    return [s for _, s in result]


def check_all(result: list[Structure | AggarrayError], paths: list[str]) -> None:
    assert [s.uri for s in result if isinstance(s, Structure)] == paths


def test_only_submit_and_result_are_required(paths: list[str]) -> None:
    executor = Executor()
    check_all(scan_on(executor, paths), paths)
    assert executor.count == len(list(cut_batches(len(paths)))) > 3


@pytest.mark.heavy
def test_batches_in_flight_are_bounded(paths: list[str]) -> None:
    executor = Executor()
    check_all(scan_on(executor, paths * 100), paths * 100)
    assert executor.count > 2 * IN_FLIGHT and executor.most_waiting == IN_FLIGHT


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 100, 5000])
def test_batches_hold_each_task_once(count: int) -> None:
    batches = list(cut_batches(count))
    assert [n for numbers in batches for n in numbers] == list(range(count))
    sizes = [len(numbers) for numbers in batches]
    assert sizes == sorted(sizes, reverse=True) and max(sizes, default=0) <= executors.BATCH


def test_failed_batches_are_submitted_again(paths: list[str]) -> None:
    class WorkerLostError(Exception):
        pass

    def before(number: int) -> None:
        if number in (1, 2):
            raise WorkerLostError("the worker died")

    executor = Executor(before)
    check_all(scan_on(executor, paths), paths)
    assert executor.count == len(list(cut_batches(len(paths)))) + 2


def failing(monkeypatch: pytest.MonkeyPatch, culprits: set[str]) -> list[str]:
    """Let the scan of some files raise an error in batches; return the list of all files that batches scan."""
    look, seen = batch.scan_one, []

    def scan_one(task: Task) -> Result:
        seen.append(task[0])
        if task[0] in culprits:
            raise MemoryError("killed")
        return look(task)

    monkeypatch.setattr(batch, "scan_one", scan_one)
    return seen


def test_only_files_that_fail_alone_are_skipped(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    culprits = {paths[7], paths[8], paths[41]}
    seen = failing(monkeypatch, culprits)
    result = scan_on(Executor(), paths)
    for path, one in zip(paths, result, strict=True):
        if path in culprits:
            assert isinstance(one, AggarrayError) and one.path == path and "MemoryError: killed" in str(one)
        else:
            assert isinstance(one, Structure) and one.uri == path
    assert seen.count(paths[41]) == TRIES + 1


def test_skipped_files_have_a_reason(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import aggarray as aa

    failing(monkeypatch, {paths[7]})
    agg = aa.open(paths, executor=Executor())
    assert [s.file for s in agg.skipped] == [paths[7]] and "MemoryError" in agg.skipped[0].reason
    assert agg["tas"].shape[0] == len(paths) - 1


def test_progress_counts_each_file_as_it_arrives(paths: list[str]) -> None:
    seen, threads, lengths = [], set(), []

    def progress(*step: object) -> None:
        seen.append(step)
        threads.add(threading.current_thread())
        lengths.append(executor.waiting)

    executor = Executor()
    scan_on(executor, paths, progress)
    assert seen == [(n + 1, len(paths), "scanning") for n in range(len(paths))]
    assert threads == {threading.current_thread()}
    assert max(lengths) > 0 and lengths[-1] == 0


def test_equal_parts_of_different_batches_are_shared(paths: list[str]) -> None:
    result = [s for s in scan_on(Executor(), paths) if isinstance(s, Structure)]
    for name in ("lat", "lon", "tas"):
        assert len({id(next(v for v in s.variables if v.name == name)) for s in result}) == 1
    assert len({id(s.attrs) for s in result}) == 1


def test_workers_of_another_version(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "installed_version", lambda: "0.0.7")
    with pytest.raises(AggregationError, match=r"cannot scan \(ImportError: aggarray 0\.0\.7 scans for .*\); install aggarray"):
        scan_on(Executor(), paths)


def test_workers_of_an_older_version(paths: list[str]) -> None:
    executor = Executor(version="0.0.7")
    with pytest.raises(AggregationError, match=r"cannot scan \(it has aggarray 0\.0\.7\); install aggarray"):
        scan_on(executor, paths)
    assert executor.count == 0


def test_workers_without_the_package(paths: list[str]) -> None:
    def before(number: int) -> None:
        raise RuntimeError("deserialization") from ModuleNotFoundError("No module named 'aggarray'")

    with pytest.raises(AggregationError, match=r"cannot scan \(ModuleNotFoundError: .*\); install aggarray"):
        scan_on(Executor(before), paths)


def test_closed_executor(paths: list[str]) -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(AggregationError, match=r"takes no work \(RuntimeError: .*shutdown"):
        scan_on(executor, paths)


@pytest.mark.parametrize("executor", [3, ThreadPoolExecutor, object(), get_context("spawn").Pool])
def test_objects_that_are_not_executors(paths: list[str], executor: Any) -> None:
    with pytest.raises(AggregationError, match=r"executor=.* is invalid; give an object with submit"):
        scan_on(executor, paths)


def test_executor_that_closes_in_the_midst(paths: list[str]) -> None:
    class Closing(Executor):
        def submit(self, *call: Any) -> Any:
            if self.count == 5:
                raise RuntimeError("out of order")
            return super().submit(*call)

    with (
        pytest.warns(RuntimeWarning, match=r"takes no more work \(RuntimeError: out of order\); this machine scans"),
        scanning_on(Closing()),
    ):
        seen: list[int] = []
        result = scan_files(paths, progress=lambda done, total, what: seen.append(done))
    check_all([s for _, s in result], paths)
    assert seen == list(range(1, len(paths) + 1))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_broken_process_pool(paths: list[str], tmp_path: Path, method: str) -> None:
    everything = [*paths[:30], write_fatal(tmp_path / "fatal"), *paths[30:]]
    with (
        fatal_format(tmp_path / "plugin"),
        ProcessPoolExecutor(2, mp_context=get_context(method)) as executor,
        pytest.warns(RuntimeWarning, match=r"takes no more work \(BrokenProcessPool: "),
    ):
        result = scan_on(executor, everything)
    assert [s.uri for s in result if isinstance(s, Structure)] == paths
    assert isinstance(result[30], AggarrayError) and result[30].path == everything[30]
    assert "fails in every worker" in str(result[30])


def test_files_that_a_worker_lacks_are_scanned_here(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    look = batch.scan_one

    def scan_one(task: Task) -> Result:
        return MissingFileError("no such file", path=task[0]) if task[0] == paths[3] else look(task)

    monkeypatch.setattr(batch, "scan_one", scan_one)
    with pytest.warns(RuntimeWarning, match=r"lacks files of this machine, which scans them: .*003\.nc"):
        check_all(scan_on(Executor(), paths), paths)


def test_results_that_do_not_pickle_are_scanned_here(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    look = batch.scan_one

    def scan_one(task: Task) -> Result:
        result = look(task)
        unusable = isinstance(result, Structure) and task[0] == paths[3]
        return replace(result, attrs={"made": lambda: None}) if unusable else result  # type: ignore[type-var]

    monkeypatch.setattr(batch, "scan_one", scan_one)
    result = scan_on(Executor(), paths)
    check_all(result, paths)
    assert isinstance(result[3], Structure) and "made" not in result[3].attrs


def test_options_of_the_caller_do_not_reach_workers(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = get_options()
    request = batch.pack_request([(paths[0], None)])
    with set_options(open_files=17):
        assert batch.pack_request([(paths[0], None)]) == request
    batch.scan_batch(batch.installed_version(), "", request)
    assert get_options() == before


def test_an_interrupt_cancels_what_is_queued(paths: list[str]) -> None:
    futures: list[Any] = []

    class Recorded:
        def submit(self, *call: Any) -> Any:
            futures.append(pool.submit(*call))
            return futures[-1]

    def progress(done: int, total: int, what: str) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyboardInterrupt):
            scan_on(Recorded(), paths * 10, progress)
        assert sum(future.cancelled() for future in futures) > IN_FLIGHT / 2
        assert all(future.cancelled() or future.running() or future.done() for future in futures)


def test_a_pool_runs_several_rounds(paths: list[str]) -> None:
    executor = Executor()
    with ExecutorPool(executor) as pool:
        for _ in range(2):
            assert [s.uri for s in pool.run([(path, None) for path in paths]) if isinstance(s, Structure)] == paths


@pytest.mark.heavy
def test_killed_workers_of_dask(paths: list[str], tmp_path: Path) -> None:
    everything = [*paths[:30], write_fatal(tmp_path / "fatal"), *paths[30:]]
    with fatal_format(tmp_path / "plugin"), dask_client() as client:
        result = scan_on(client, everything)
    assert [s.uri for s in result if isinstance(s, Structure)] == paths
    assert isinstance(result[30], AggarrayError) and "KilledWorker" in str(result[30])


_PROGRAM = """
import sys
from distributed.cli.dask_worker import main
sys.modules["aggarray"] = None
main()
"""


def test_workers_of_dask_without_the_package(paths: list[str]) -> None:
    with dask_client(0) as client:
        address = client.scheduler.address
        options = [address, "--no-nanny", "--nthreads", "1", "--no-dashboard"]
        worker = subprocess.Popen([sys.executable, "-c", _PROGRAM, *options], stderr=subprocess.DEVNULL)
        try:
            client.wait_for_workers(1, timeout=60)
            with pytest.raises(AggregationError, match=r"cannot scan \(ModuleNotFoundError: .*aggarray.*\); install aggarray"):
                scan_on(client, paths)
        finally:
            worker.kill()
            worker.wait()


def test_futures_cancelled_by_a_shutdown_are_noticed() -> None:
    from concurrent.futures import Future

    from aggarray.scan.executors import completed

    future: Future[None] = Future()
    future.cancel()  # as the shutdown of a thread pool does, which tells no one who waits
    assert completed([Future(), future]) == [future]


def test_cancelled_scans_of_single_files_are_repeated(tmp_path: Path) -> None:
    from concurrent.futures import CancelledError

    for number in range(3):
        write(tmp_path / f"{number}.nc", cube([float(number)]))

    class Executor:
        calls = 0

        def submit(self, function: Any, *arguments: Any) -> Any:
            self.calls += 1
            return Cancelled() if 1 < self.calls <= 6 else Made(function(*arguments))

    class Made:
        def __init__(self, value: Any) -> None:
            self.result = lambda: value

    class Cancelled:
        def result(self) -> Any:
            raise CancelledError

    agg = aa.open(tmp_path, executor=Executor())
    assert not agg.skipped
    assert agg.arrays[0].shape[0] == 3


@pytest.mark.parametrize("after", [1, 2, 5])
@pytest.mark.parametrize("error", [ValueError("no"), OSError("no"), MemoryError("no")], ids=lambda error: type(error).__name__)
def test_executors_that_raise_on_submit(paths: list[str], after: int, error: Exception) -> None:
    class Raising(Executor):
        submitted = 0

        def submit(self, *call: Any) -> Any:
            self.submitted += 1
            if self.submitted > after:
                raise error
            return super().submit(*call)

    with pytest.warns(RuntimeWarning, match=r"takes no more work \(\w+Error: no\); this machine scans"):
        check_all(scan_on(Raising(), paths), paths)


@pytest.mark.parametrize("every", [2, 3])
def test_executors_whose_futures_are_cancelled(paths: list[str], every: int) -> None:
    from concurrent.futures import Future

    class Cancelling:
        count = 0

        def submit(self, function: Any, *arguments: Any) -> "Future[Any]":
            self.count += 1
            future: Future[Any] = Future()
            if self.count % every == 0:
                future.cancel()
            else:
                future.set_result(function(*arguments))
            return future

    check_all(scan_on(Cancelling(), paths), paths)


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_pools_that_are_shut_down_in_the_midst(paths: list[str], kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "IN_FLIGHT", 4)  # of 15 batches, so that some are not submitted yet
    pool = kind(2)

    def progress(done: int, total: int, what: str) -> None:
        if done == total // 3:
            pool.shutdown(wait=False, cancel_futures=True)

    with pytest.warns(RuntimeWarning, match="takes no more work"), scanning_on(pool):
        check_all([s for _, s in scan_files(paths, progress=progress)], paths)


def test_an_executor_that_returns_something_else(paths: list[str]) -> None:
    class Junk(Executor):
        def submit(self, *_call: Any) -> Any:
            return super().submit(lambda: None)

    with pytest.raises(AggregationError, match=r"returned None, not the result of the submitted call; give one whose submit"):
        scan_on(Junk(), paths)
