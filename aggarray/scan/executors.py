"""Scans on an executor of the caller, in batches of files.

An executor is any object with ``submit(function, *arguments)`` that returns a future with ``result()``. A batch that fails is
submitted again, three times in all; its files are then scanned one by one, so that a file that ends its workers is found. An
executor that takes no more work is replaced by worker processes of this machine.
"""

from __future__ import annotations

import contextlib
import os
import pkgutil
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from aggarray.dataclass import dataclass, field
from aggarray.errors import AggregationError, FormatError, MissingFileError, printable
from aggarray.formats import scan_one
from aggarray.formats.partial_scan import Result, Task
from aggarray.options import get_options
from aggarray.scan.batch import installed_version, pack_request, scan_batch, unpack_results
from aggarray.scan.pickling import Receiver, Sender, skip_to_mark
from aggarray.scan.workers import Receive, WorkerPool, keep_result, start_process
from aggarray.storage.credentials import access_in_force
from aggarray.storage.urls import is_remote

#: Number of files per batch; smaller towards the end, down to the least.
BATCH, LEAST_BATCH = 32, 4
#: The remaining files are shared among at least this many batches.
SHARES = 16
#: Most batches submitted at the same time. Receiving the results of more would take this process longer than their scan.
IN_FLIGHT = 64
#: Number of submissions of a batch, after which its files are scanned one by one.
TRIES = 3
#: Cancelled futures are noticed within this time.
POLL_SECONDS = 1.0


@dataclass(slots=True)
class _Batch:
    """Numbers of the tasks that are submitted together, and failures so far."""

    numbers: Sequence[int]
    failures: int = 0
    #: Whether its file is scanned alone, after all others.
    alone: bool = False


class _ClosedError(Exception):
    """The executor takes no more work."""


@dataclass(slots=True)
class _Scan:
    """A scan in progress: its batches, submitted and not, and its results."""

    tasks: Sequence[Task]
    receive: Receive
    batches: deque[_Batch]
    results: list[Any]
    #: Futures with their batches, by the id of the future, which need not be hashable.
    pending: dict[int, tuple[Any, _Batch]] = field(default_factory=dict)
    suspects: deque[_Batch] = field(default_factory=deque)

    def put(self, number: int, result: Result) -> None:
        """Store a result and report it."""
        self.results[number] = self.receive(number, result)


class ExecutorPool:
    """Scanning on an executor; a context manager, like `WorkerPool`."""

    def __init__(self, executor: Any) -> None:
        # A client of dask.distributed is no executor, but has one.
        make = getattr(executor, "get_executor", None)
        self._executor = executor if make is None else make()
        self._in_flight = IN_FLIGHT
        self._is_used = self._is_closed = self._is_warned = False

    def __enter__(self) -> ExecutorPool:
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the executor to its owner."""

    def run(self, tasks: Sequence[Task], receive: Receive = keep_result) -> list[Any]:
        """Return, in order, what ``receive`` keeps of each result as it comes.

        Raises AggregationError if the executor takes no work, or if its workers lack this version of the package.
        """
        scan = _Scan(tasks, receive, deque(map(_Batch, cut_batches(len(tasks)))), [None] * len(tasks))
        try:
            if self._is_closed:
                self._scan_here(scan)
            else:
                self._submit_all(scan)
        except _ClosedError as error:
            self._is_closed = True
            self._warn(f"the executor takes no more work ({_text(error.__cause__)}); this machine scans the remaining files")
            self._collect(scan)
            self._scan_here(scan)
        finally:
            for future, _ in scan.pending.values():
                with contextlib.suppress(Exception):  # futures need not have the method
                    future.cancel()
        return scan.results

    def _submit_all(self, scan: _Scan) -> None:
        if not self._is_used and scan.tasks:
            self._check_workers()
        while scan.batches or scan.pending or scan.suspects:
            if not scan.batches and not scan.pending:
                # Alone on the executor, a file that fails is the cause.
                scan.batches.append(scan.suspects.popleft())
            while scan.batches and len(scan.pending) < self._in_flight:
                future = self._submit(scan, scan.batches[0])
                scan.pending[id(future)] = future, scan.batches.popleft()
            for future in completed(future for future, _ in scan.pending.values()):
                self._receive(scan, scan.pending.pop(id(future))[1], future)

    def _check_workers(self) -> None:
        """Raise AggregationError if a worker lacks this version of the package.

        Some schedulers do not report that a worker cannot import a function; that of this call is always there.
        """
        future = self._submit_call(pkgutil.resolve_name, "aggarray:__version__")
        try:
            version = future.result()
        except Exception as error:  # each library has its own for workers that die
            _check_installed(error)
            return
        if not isinstance(version, str):
            what = f"the executor returned {version!r:.100}, not the result of the submitted call"
            raise AggregationError(what, hint="give one whose submit(function, *arguments) calls the function")
        if version != installed_version():
            raise _not_installed(f"it has aggarray {version}")

    def _submit(self, scan: _Scan, batch: _Batch) -> Any:
        try:
            request = pack_request([scan.tasks[n] for n in batch.numbers])
        except Exception as error:  # options of file systems are foreign objects
            what = f"the requests of the scan do not pickle ({_text(error)})"
            raise AggregationError(what, hint="give storage_options that pickle, or leave out executor=") from error
        return self._submit_call(scan_batch, installed_version(), os.urandom(8).hex(), request)

    def _submit_call(self, *call: Any) -> Any:
        try:
            future = self._executor.submit(*call)
        except Exception as error:  # each library has its own
            if self._is_used:
                raise _ClosedError from error
            raise AggregationError(f"the executor takes no work ({_text(error)})", hint="give one that is open") from error
        self._is_used = True
        return future

    def _receive(self, scan: _Scan, batch: _Batch, future: Any) -> None:
        """Store the results of a batch, or queue it again."""
        try:
            results = unpack_results(future.result(), len(batch.numbers))
        except Exception as error:  # each library has its own for workers that die
            _check_installed(error)
            # dask has run it on four workers already; more deaths may end the cluster.
            batch.failures += TRIES if type(error).__name__ == "KilledWorker" else 1
            if batch.alone and (batch.failures >= 2 * TRIES or not _is_transient(error)):
                scan.put(batch.numbers[0], _failure(scan.tasks[batch.numbers[0]], _text(error)))
            elif batch.alone or batch.failures < TRIES:
                scan.batches.append(batch)
            else:
                scan.suspects += [_Batch([n], TRIES, True) for n in batch.numbers]
            return
        for number, result in zip(batch.numbers, results, strict=True):
            scan.put(number, self._checked(scan.tasks[number], result))

    def _checked(self, task: Task, result: Result | None) -> Result:
        """Scan a file here whose result did not pickle or that a worker lacks."""
        if isinstance(result, MissingFileError) and not is_remote(task[0]) and os.path.exists(task[0]):
            self._warn(f"a worker of the executor lacks files of this machine, which scans them: {printable(task[0])}")
            result = None
        return scan_one(task) if result is None else result

    def _warn(self, text: str) -> None:
        if not self._is_warned:
            self._is_warned = True
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _collect(self, scan: _Scan) -> None:
        """Receive what is complete of a closed executor; suspect the rest."""
        for future, batch in list(scan.pending.values()):
            del scan.pending[id(future)]
            batch.failures = TRIES
            is_done = getattr(future, "done", lambda: False)
            if is_done():
                self._receive(scan, batch, future)
            else:
                scan.suspects += [_Batch([n], TRIES, True) for n in batch.numbers]

    def _scan_here(self, scan: _Scan) -> None:
        """Scan the remaining files here, those of failed batches isolated."""
        numbers = [n for batch in scan.batches if not batch.failures for n in batch.numbers]
        suspects = [n for batch in (*scan.batches, *scan.suspects) if batch.failures for n in batch.numbers]
        with WorkerPool() as pool:
            pool.run([scan.tasks[n] for n in numbers], lambda n, result: scan.put(numbers[n], result))
        with contextlib.ExitStack() as stack:
            worker: _IsolatedWorker | None = None
            for number in suspects:
                worker = worker or stack.enter_context(_IsolatedWorker())
                result = worker.scan(scan.tasks[number])
                worker = worker if worker.is_alive else None
                scan.put(number, result)


def cut_batches(count: int) -> Iterator[range]:
    """Yield the numbers of each batch of ``count`` tasks, smaller at the end.

    >>> [len(batch) for batch in cut_batches(100)]
    [6, 5, 5, 5, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3]
    """
    start = 0
    while start < count:
        size = max(LEAST_BATCH, min(BATCH, (count - start) // SHARES))
        yield range(start, min(count, start + size))
        start += size


def completed(futures: Iterable[Any]) -> list[Any]:
    """Return completed futures, at least one; wait for it.

    Futures that are not those of concurrent.futures can only be waited for one by one: the first is returned, whose ``result``
    waits.
    """
    from concurrent.futures import FIRST_COMPLETED, Future, wait

    futures = list(futures)
    if not all(isinstance(future, Future) for future in futures):
        return futures[:1]
    while not (done := [future for future in futures if future.done()]):
        # It does not return for futures that `shutdown` of a thread pool cancels.
        wait(futures, POLL_SECONDS, FIRST_COMPLETED)
    return done


def _check_installed(error: BaseException) -> None:
    """Raise AggregationError if a worker lacks this version of the package."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ImportError):
        cause = cause.__cause__ or cause.__context__
    if cause is not None:
        raise _not_installed(_text(cause)) from error


def _not_installed(reason: str) -> AggregationError:
    what = f"a worker of the executor cannot scan ({reason})"
    return AggregationError(what, hint=f"install aggarray {installed_version()} where it runs")


def _is_transient(error: BaseException) -> bool:
    """Return whether an error says nothing of the file that was scanned."""
    from concurrent.futures import CancelledError

    return isinstance(error, CancelledError | TimeoutError)


def _failure(task: Task, reason: str) -> FormatError:
    hint = "leave it out, or open it by itself to see why"
    return FormatError(f"its scan fails in every worker ({reason})", path=task[0], hint=hint)


def _text(error: BaseException | None) -> str:
    if error is None:
        return "no reason given"
    text = access_in_force.get().storage.masked(str(error).strip())
    return printable(f"{type(error).__name__}: {text}".removesuffix(": "))[:300]


class _IsolatedWorker:
    """Worker process for files that may end it; a context manager."""

    def __enter__(self) -> _IsolatedWorker:
        self._process = start_process()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._sender, self._receiver = Sender(self._process.stdin), Receiver(self._process.stdout)
        self.is_alive = True
        skip_to_mark(self._process.stdout)
        self._sender.send(asdict(get_options()))
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def scan(self, task: Task) -> Result:
        """Return the result of a task; an error if it ends the process."""
        if is_remote(task[0]):  # the process has no access to remote files
            return scan_one(task)
        try:
            self._sender.send([task])
            result: Result | None = self._receiver.receive()
        except (EOFError, OSError):
            self.is_alive = False
            return _failure(task, "the process that scans it ends")
        return scan_one(task) if result is None else result
