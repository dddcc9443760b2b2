"""Scans by all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aggarray.formats.partial_scan import Task
from aggarray.mpi.calls import CALLS, RankExecutor
from aggarray.scan.executors import IN_FLIGHT, ExecutorPool
from aggarray.scan.workers import FEW_FILES, Receive, WorkerPool, keep_result


class RankPool(ExecutorPool):
    """Scanning on ranks; rank 0 alone scans few files."""

    def __init__(self, executor: RankExecutor) -> None:
        super().__init__(executor)
        self._in_flight = max(IN_FLIGHT, 2 * CALLS * executor.size)
        self._is_used = True  # all ranks run the same program

    def run(self, tasks: Sequence[Task], receive: Receive = keep_result) -> list[Any]:
        """Return, in order, what ``receive`` keeps of each result as it comes."""
        if len(tasks) < FEW_FILES or self._executor.size == 1:
            with WorkerPool(1) as pool:
                return pool.run(tasks, receive)
        return super().run(tasks, receive)
