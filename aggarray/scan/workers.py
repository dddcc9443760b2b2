"""Worker processes that scan files.

Workers are plain subprocesses that run `scan.worker`. One thread per worker feeds it batches, which shrink towards the end, and
collects the results. This process scans files as well, one at a time, and reports progress. It also scans the files of workers
that die, fail to start or stall: stalled workers time out.
"""

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from aggarray.errors import AggarrayError
from aggarray.formats import locate, scan, scan_partially
from aggarray.formats.base import LIBRARY_ERRORS, Structure
from aggarray.formats.partial_scan import ChunkIndexRequest, PartialScan, PartialScanRequest, ScannedChunkIndexes
from aggarray.options import get_options
from aggarray.scan.pickling import Receiver, Sender, skip_to_mark
from aggarray.storage.remote import in_threads, is_remote, prefetch_states

#: Number of files per batch of a worker; smaller towards the end.
BATCH = 16
#: With fewer files no worker is started.
FEW_FILES = 64
#: Seconds that this process scans alone to estimate the remaining time.
TRIAL = 0.3
#: Estimated remaining seconds above which workers are started, about five times the start of a worker.
WORTH = 1.5
#: Seconds without a result after which workers time out and this process scans the remaining files.
PATIENCE = 10.0

#: A file and what is requested of it; None: everything.
Task = tuple[str, PartialScanRequest | ChunkIndexRequest | None]
Result = Structure | PartialScan | ScannedChunkIndexes | AggarrayError
_MPI_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS")
#: Errors of unpickling a broken or foreign stream.
_BROKEN = (*LIBRARY_ERRORS, pickle.PickleError, ImportError, MemoryError)


def scan_one(task: Task) -> Result:
    """Return the requested part of a file, or its error. Errors are returned, not raised."""
    path, wanted = task
    try:
        if isinstance(wanted, ChunkIndexRequest):
            return locate(path, wanted)
        return scan(path) if wanted is None else scan_partially(path, wanted)
    except AggarrayError as error:
        return error


def usual_processes(files: int) -> int:
    """Return the default number of processes: one for few files and under MPI, otherwise one per core."""
    if files < FEW_FILES or any(name in os.environ for name in _MPI_VARIABLES):
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Work:
    """The tasks of a scan: those not taken yet, those returned by workers, and the results of workers."""

    def __init__(self, tasks: Sequence[Task], workers: int) -> None:
        self.tasks, self._workers = tasks, workers
        self._lock = threading.Lock()
        self._free, self._returned = deque(range(len(tasks))), deque[int]()
        self.answers: queue.SimpleQueue[tuple[int, Result] | None] = queue.SimpleQueue()

    def take_batch(self) -> list[int]:
        """Take the numbers of a batch for a worker; batches shrink towards the end; empty when all are taken."""
        with self._lock:
            count = min(BATCH, max(1, len(self._free) // (2 * self._workers)), len(self._free))
            return [self._free.popleft() for _ in range(count)]

    def take_one(self) -> int | None:
        """Take the number of a task for this process, returned ones first; None when all are taken."""
        with self._lock:
            source = self._returned or self._free
            return source.popleft() if source else None

    def give_back(self, numbers: Sequence[int]) -> None:
        """Return unfinished tasks of a worker to this process."""
        with self._lock:
            self._returned.extend(numbers)
        self.answers.put(None)


class _Trial:
    """Estimate of the time that a scan takes without workers."""

    def __init__(self) -> None:
        self._start: tuple[float, int] | None = None

    def asks_for_help(self, left: int) -> bool:
        """Return whether the remaining files justify starting workers."""
        if self._start is None:
            self._start = time.monotonic(), left  # the first file may have loaded libraries
            return False
        past = time.monotonic() - self._start[0]
        return past > TRIAL and past / (self._start[1] - left) * left > WORTH


class WorkerPool:
    """This process and its workers; a context manager that ends the workers.

    ``processes``: number of processes, this one included; None: the default number, started once a scan takes long enough.
    """

    def __init__(self, processes: int | None = None) -> None:
        self._processes = processes
        self._changed = threading.Condition()
        self._helpers: list[_Worker] = []
        self._work: _Work | None = None
        self._closing = False

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._changed:
            self._closing, self._work = True, None
            self._changed.notify_all()
        for helper in self._helpers:
            helper.end()
        for helper in self._helpers:
            helper.thread.join(1.0)

    def run(self, tasks: Sequence[Task], done: Callable[[], None] = lambda: None) -> list[Result]:
        """Return the result of each task, in order; calls ``done`` after each, in this thread."""
        far = [n for n, task in enumerate(tasks) if is_remote(task[0])]
        if not far:
            return self._run_near(tasks, done)
        near = [n for n, task in enumerate(tasks) if not is_remote(task[0])]
        found = dict(zip(near, self._run_near([tasks[n] for n in near], done), strict=True))
        prefetch_states(tasks[n][0] for n in far)
        for n, result in zip(far, in_threads(scan_one, [tasks[n] for n in far]), strict=True):
            found[n] = result
            done()
        return [found[n] for n in range(len(tasks))]

    def _run_near(self, tasks: Sequence[Task], done: Callable[[], None]) -> list[Result]:
        """Run the tasks of local files with several processes."""
        wanted = usual_processes(len(tasks)) if self._processes is None else self._processes
        count = min(wanted - 1, len(tasks) // BATCH)
        work = _Work(tasks, 1 + max(count, len(self._helpers)))
        with self._changed:
            self._work = work
            self._changed.notify_all()
        trial = _Trial() if self._processes is None else None
        if trial is None:
            self._hire(count)
        results: list[Result | None] = [None] * len(tasks)
        left = len(tasks)
        for number, result in self._results(work, results):
            if results[number] is None:
                results[number] = result
                left -= 1
                done()
            if not left:
                break
            if trial is not None and trial.asks_for_help(left):
                trial = None
                self._hire(count)
        with self._changed:
            self._work = None
        for helper in self._helpers:
            helper.let_go(work)
        return [r for r in results if r is not None]

    def _hire(self, count: int) -> None:
        """Start workers up to a number; none in an embedded Python without an executable."""
        if not sys.executable:
            return
        self._helpers += [_Worker(self._next_batch) for _ in range(count - len(self._helpers))]

    def _results(self, work: _Work, results: Sequence[Result | None]) -> Any:
        """Yield (number of a task, result) from workers and this process until all tasks are done."""
        while work.tasks:
            while (answer := _waiting(work)) is not None:
                yield answer
            number = work.take_one()
            if number is not None:
                yield number, scan_one(work.tasks[number])
                continue
            try:
                answer = work.answers.get(timeout=PATIENCE)
            except queue.Empty:
                work.give_back([n for n, r in enumerate(results) if r is None])
                continue
            if answer is not None:
                yield answer

    def _next_batch(self) -> tuple[_Work, list[int]] | None:
        """Wait for and return the next batch for a worker; None at the end."""
        finished: _Work | None = None
        with self._changed:
            while not self._closing:
                if self._work is not None and self._work is not finished:
                    batch = self._work.take_batch()
                    if batch:
                        return self._work, batch
                    finished = self._work
                self._changed.wait()
        return None


def _waiting(work: _Work) -> tuple[int, Result] | None:
    """Return a result that has arrived; None if there is none."""
    with contextlib.suppress(queue.Empty):
        while True:
            answer = work.answers.get_nowait()
            if answer is not None:
                return answer
    return None


class _Worker:
    """A worker process and the thread that feeds it."""

    def __init__(self, next_batch: Callable[[], tuple[_Work, list[int]] | None]) -> None:
        self._next_batch = next_batch
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        self._doing: tuple[_Work, list[int]] | None = None
        self.thread = threading.Thread(target=self._lead, daemon=True, name="aggarray scan")
        self.thread.start()

    def end(self) -> None:
        """Kill the process; it only reads files."""
        with self._lock:
            self._ended = True
            if self._process is not None:
                self._process.kill()

    def let_go(self, work: _Work) -> None:
        """Kill the process if it still works on finished tasks."""
        doing = self._doing
        if doing is not None and doing[0] is work and doing[1]:
            self.end()

    def _lead(self) -> None:
        try:
            process = self._start()
        except OSError:
            return
        if process is None:
            return
        with contextlib.suppress(*_BROKEN):
            self._serve(process)
        self.end()
        if self._doing is not None:
            work, numbers = self._doing
            self._doing = None
            work.give_back(numbers)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        process.wait()

    def _start(self) -> "subprocess.Popen[bytes] | None":
        """Start the process with the import path of this one, so that it finds the same modules and plugins."""
        root = str(Path(__file__).resolve().parents[2])
        search = [entry for entry in sys.path if isinstance(entry, str)]
        code = f"import sys; sys.path[:] = {[*search, root]!r}; from aggarray.scan.worker import main; main()"
        with self._lock:
            if not self._ended:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", code],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            return self._process

    def _serve(self, process: "subprocess.Popen[bytes]") -> None:
        if process.stdin is None or process.stdout is None:
            return
        # Tasks are sent only to a worker that has started.
        skip_to_mark(process.stdout)
        sender, receiver = Sender(process.stdin), Receiver(process.stdout)
        sender.send(asdict(get_options()))
        while (taken := self._next_batch()) is not None:
            work, numbers = taken
            self._doing = work, list(numbers)
            sender.send([work.tasks[n] for n in numbers])
            for number in numbers:
                found = receiver.receive()
                self._doing[1].remove(number)
                if found is None:  # the result does not pickle
                    work.give_back([number])
                else:
                    work.answers.put((number, found))
            self._doing = None
