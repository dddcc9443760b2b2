"""Scans by all ranks."""

from collections.abc import Callable, Sequence

from aggarray.formats import Result, Task
from aggarray.mpi.calls import CALLS, RankExecutor
from aggarray.scan.executors import IN_FLIGHT, ExecutorPool
from aggarray.scan.workers import FEW_FILES, WorkerPool


class RankPool(ExecutorPool):
    """Scanning on ranks; rank 0 alone scans few files."""

    def __init__(self, executor: RankExecutor) -> None:
        super().__init__(executor)
        self._in_flight = max(IN_FLIGHT, 2 * CALLS * executor.size)
        self._is_used = True  # all ranks run the same program

    def run(self, tasks: Sequence[Task], done: Callable[[], None] = lambda: None) -> list[Result]:
        """Return results in order; call ``done`` after each."""
        if len(tasks) < FEW_FILES or self._executor.size == 1:
            with WorkerPool(1) as pool:
                return pool.run(tasks, done)
        return super().run(tasks, done)
