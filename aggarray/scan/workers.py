"""Worker processes that scan files.

Workers are plain subprocesses that run `scan.worker`. One thread per worker feeds it batches, which shrink towards the end, and
collects the results. This process scans files as well, one at a time, and reports progress. It also scans the files of workers
that die, fail to start or stall: stalled workers time out.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from aggarray.errors import LIBRARY_ERRORS
from aggarray.formats import scan_one
from aggarray.formats.partial_scan import Result, Task
from aggarray.options import get_options
from aggarray.scan.pickling import Receiver, Sender, skip_to_mark
from aggarray.storage.credentials import in_threads
from aggarray.storage.files import prefetch_states
from aggarray.storage.urls import is_remote

if TYPE_CHECKING:
    import subprocess

#: Number of files per batch of a worker; smaller towards the end.
BATCH = 16
#: With fewer files no worker is started.
FEW_FILES = 64
#: Seconds that this process scans alone to estimate the remaining time.
ESTIMATE_SECONDS = 0.3
#: Estimated remaining seconds above which workers are started, about five times the start of a worker.
WORKER_SECONDS = 1.5
#: Seconds without a result after which workers time out and this process scans the remaining files.
TIMEOUT = 10.0

_MPI_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS")
#: Errors of unpickling a broken or foreign stream.
_BROKEN = (*LIBRARY_ERRORS, pickle.PickleError, ImportError, MemoryError)

#: Called with the number and the result of a task, in the thread of the scan; returns what is kept of it, never None.
Receive = Callable[[int, Result], Any]


def keep_result(_number: int, result: Result) -> Any:
    """Keep a result as it is."""
    return result


def usual_processes(files: int) -> int:
    """Return the default number of processes: one for few files or under MPI."""
    if files < FEW_FILES or any(name in os.environ for name in _MPI_VARIABLES):
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _TaskQueue:
    """Tasks of a scan that are not done, and the results of workers."""

    def __init__(self, tasks: Sequence[Task], workers: int) -> None:
        self.tasks, self._workers = tasks, workers
        self._lock = threading.Lock()
        self._free, self._returned = deque(range(len(tasks))), deque[int]()
        self.results: queue.SimpleQueue[tuple[int, Result] | None] = queue.SimpleQueue()

    def take_batch(self) -> list[int]:
        """Take a batch for a worker, smaller towards the end; empty when done."""
        with self._lock:
            count = min(BATCH, max(1, len(self._free) // (2 * self._workers)), len(self._free))
            return [self._free.popleft() for _ in range(count)]

    def take_one(self) -> int | None:
        """Take a task for this process, returned ones first; None when done."""
        with self._lock:
            source = self._returned or self._free
            return source.popleft() if source else None

    def return_tasks(self, numbers: Sequence[int]) -> None:
        """Return unfinished tasks of a worker to this process."""
        with self._lock:
            self._returned.extend(numbers)
        self.results.put(None)


class _Estimate:
    """Estimate of the time that a scan takes without workers."""

    def __init__(self) -> None:
        self._start: tuple[float, int] | None = None

    def needs_workers(self, remaining: int) -> bool:
        """Return whether the remaining files justify starting workers."""
        if self._start is None:
            self._start = time.monotonic(), remaining  # the first file may have loaded libraries
            return False
        elapsed = time.monotonic() - self._start[0]
        # Nothing is scanned between two counts if a file occurs twice: no division.
        return elapsed > ESTIMATE_SECONDS and elapsed * remaining > WORKER_SECONDS * (self._start[1] - remaining)


class WorkerPool:
    """This process and its workers; a context manager that ends the workers.

    ``processes``: number of processes, this one included; None: the default number, started once a scan takes long enough.
    """

    def __init__(self, processes: int | None = None) -> None:
        self._processes = processes
        self._changed = threading.Condition()
        self._workers: list[_Worker] = []
        self._tasks: _TaskQueue | None = None
        self._closing = False

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, cls: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._changed:
            self._closing, self._tasks = True, None
            self._changed.notify_all()
        for worker in self._workers:
            worker.end()
        for worker in self._workers:
            worker.thread.join(1.0)

    def run(self, tasks: Sequence[Task], receive: Receive = keep_result) -> list[Any]:
        """Return, in order, what ``receive`` keeps of each result as it comes."""
        remote = [n for n, task in enumerate(tasks) if is_remote(task[0])]
        if not remote:
            return self._run_local(tasks, receive)
        local = [n for n, task in enumerate(tasks) if not is_remote(task[0])]
        kept = self._run_local([tasks[n] for n in local], lambda n, result: receive(local[n], result))
        results = dict(zip(local, kept, strict=True))
        prefetch_states(tasks[n][0] for n in remote)
        for n, result in zip(remote, in_threads(scan_one, [tasks[n] for n in remote]), strict=True):
            results[n] = receive(n, result)
        return [results[n] for n in range(len(tasks))]

    def _run_local(self, tasks: Sequence[Task], receive: Receive) -> list[Any]:
        processes = usual_processes(len(tasks)) if self._processes is None else self._processes
        count = min(processes - 1, len(tasks) // BATCH)
        work = _TaskQueue(tasks, 1 + max(count, len(self._workers)))
        with self._changed:
            self._tasks = work
            self._changed.notify_all()
        estimate = _Estimate() if self._processes is None else None
        if estimate is None:
            self._start_workers(count)
        results: list[Any] = [None] * len(tasks)
        remaining = len(tasks)
        for number, result in self._results(work, results):
            if results[number] is None:
                results[number] = receive(number, result)
                remaining -= 1
            if not remaining:
                break
            if estimate is not None and estimate.needs_workers(remaining):
                estimate = None
                self._start_workers(count)
        with self._changed:
            self._tasks = None
        for worker in self._workers:
            worker.stop_unless_idle(work)
        return results

    def _start_workers(self, count: int) -> None:
        if not sys.executable:
            return
        self._workers += [_Worker(self._next_batch) for _ in range(count - len(self._workers))]

    def _results(self, work: _TaskQueue, results: Sequence[Any]) -> Any:
        while work.tasks:
            number = work.take_one() if work.results.empty() else None
            if number is not None:
                yield number, scan_one(work.tasks[number])
                continue
            try:
                result_of_task = work.results.get(timeout=TIMEOUT)
            except queue.Empty:
                work.return_tasks([n for n, r in enumerate(results) if r is None])
                continue
            if result_of_task is not None:
                yield result_of_task

    def _next_batch(self) -> tuple[_TaskQueue, list[int]] | None:
        finished: _TaskQueue | None = None
        with self._changed:
            while not self._closing:
                if self._tasks is not None and self._tasks is not finished:
                    batch = self._tasks.take_batch()
                    if batch:
                        return self._tasks, batch
                    finished = self._tasks
                self._changed.wait()
        return None


def start_process() -> subprocess.Popen[bytes]:
    """Start a worker with this import path, and so the same plugins."""
    import subprocess

    root = str(Path(__file__).resolve().parents[2])
    search = [entry for entry in sys.path if isinstance(entry, str)]
    code = f"import sys; sys.path[:] = {[*search, root]!r}; from aggarray.scan.worker import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


class _Worker:
    """A worker process and the thread that feeds it."""

    def __init__(self, next_batch: Callable[[], tuple[_TaskQueue, list[int]] | None]) -> None:
        self._next_batch = next_batch
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        self._batch: tuple[_TaskQueue, list[int]] | None = None
        self.thread = threading.Thread(target=self._run, daemon=True, name="aggarray scan")
        self.thread.start()

    def end(self) -> None:
        """Kill the process; it only reads files."""
        with self._lock:
            self._ended = True
            if self._process is not None:
                self._process.kill()

    def stop_unless_idle(self, work: _TaskQueue) -> None:
        """Kill the process if it still works on finished tasks."""
        doing = self._batch
        if doing is not None and doing[0] is work and doing[1]:
            self.end()

    def _run(self) -> None:
        try:
            process = self._start()
        except OSError:
            return
        if process is None:
            return
        with contextlib.suppress(*_BROKEN):
            self._feed(process)
        self.end()
        if self._batch is not None:
            work, numbers = self._batch
            self._batch = None
            work.return_tasks(numbers)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        process.wait()

    def _start(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if not self._ended:
                self._process = start_process()
            return self._process

    def _feed(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdin is None or process.stdout is None:
            return
        # Tasks are sent only to a worker that has started.
        skip_to_mark(process.stdout)
        sender, receiver = Sender(process.stdin), Receiver(process.stdout)
        sender.send(asdict(get_options()))
        while (next_batch := self._next_batch()) is not None:
            work, numbers = next_batch
            self._batch = work, list(numbers)
            sender.send([work.tasks[n] for n in numbers])
            for number in numbers:
                result = receiver.receive()
                self._batch[1].remove(number)
                if result is None:  # the result does not pickle
                    work.return_tasks([number])
                else:
                    work.results.put((number, result))
            self._batch = None
