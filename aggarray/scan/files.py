"""Scanning of files, in this process, by workers or on an executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from aggarray.errors import AggarrayError, AggregationError
from aggarray.formats import scan_one
from aggarray.formats.base import Structure

if TYPE_CHECKING:
    from aggarray.formats.partial_scan import Result
    from aggarray.scan.executors import ExecutorPool
    from aggarray.scan.progress import Progress
    from aggarray.scan.workers import Receive, WorkerPool

#: A file and its structure or error.
Scanned = tuple[str, Structure | AggarrayError]

#: Returns the pool that scans in this context; None: worker processes of this machine.
_make_pool: ContextVar[Callable[[], ExecutorPool] | None] = ContextVar("aggarray_pool", default=None)


@contextmanager
def scanning_on(executor: Any) -> Iterator[None]:
    """Scan on an executor for the length of a block; None changes nothing.

    Raises AggregationError for an object without ``submit``.
    """
    if executor is None:
        yield
        return
    if isinstance(executor, type) or not any(callable(getattr(executor, name, None)) for name in ("submit", "get_executor")):
        hint = "give an object with submit(function, *arguments), such as concurrent.futures.ProcessPoolExecutor()"
        raise AggregationError(f"executor={executor!r} is invalid", hint=hint)
    from aggarray.scan.executors import ExecutorPool

    with scanning_in(lambda: ExecutorPool(executor)):
        yield


@contextmanager
def scanning_in(make_pool: Callable[[], ExecutorPool]) -> Iterator[None]:
    """Scan in the pools that a function returns for the length of a block."""
    token = _make_pool.set(make_pool)
    try:
        yield
    finally:
        _make_pool.reset(token)


def start_pool(processes: int | None = None) -> WorkerPool | ExecutorPool:
    """Return the pool of this context; ``processes``: see `WorkerPool`."""
    make_pool = _make_pool.get()
    if make_pool is not None:
        return make_pool()
    from aggarray.scan.workers import WorkerPool

    return WorkerPool(processes)


def scan_each(
    paths: Sequence[str], receive: Receive, processes: int | None = None, progress: Progress | None = None
) -> list[Any]:
    """Scan every file; return what ``receive`` keeps of each, in order."""
    if len(paths) == 1 and progress is None:
        return [receive(0, scan_one((paths[0], None)))]
    from aggarray.scan.progress import reporting

    with start_pool(processes) as pool:
        return pool.run([(path, None) for path in paths], reporting(progress, len(paths), receive))


def scan_files(paths: Sequence[str], processes: int | None = None, progress: Progress | None = None) -> list[Scanned]:
    """Scan every file, in the order given; an unreadable one yields its error."""
    return list(iterate_files(paths, processes, progress))


def iterate_files(paths: Sequence[str], processes: int | None = None, progress: Progress | None = None) -> Iterator[Scanned]:
    """Scan every file, then yield each with its structure or error."""
    from aggarray.scan.structure_table import StructureTable

    table = StructureTable()

    def receive(_number: int, result: Result) -> Any:
        return table.add(result) if isinstance(result, Structure) else result

    for path, kept in zip(paths, scan_each(paths, receive, processes, progress), strict=True):
        yield path, table[kept] if isinstance(kept, int) else kept
