"""Redistribution of rows of different lengths: counts, then samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from aggarray.arrays.ragged_local import LocalRagged, sample_distribution
from aggarray.errors import ExchangeError
from aggarray.maps import Block, Distribution
from aggarray.memory.ragged import Ragged
from aggarray.memory.rows import offsets_of
from aggarray.mpi.groups import ProcessGroup
from aggarray.mpi.movement import Movement
from aggarray.mpi.redistribution import Repartition, describe_distribution
from aggarray.mpi.transport.agreement import agree


class RaggedRepartition(Movement):
    """Move the rows of a ragged array from one block distribution to another.

    ``P_x``, ``P_y``: the processes of ``source`` and ``target``, by rank, as in `Repartition`. The movement sends a count per
    row, and the flat samples. The adjoint is the reverse movement. Collective over the root group; raises ExchangeError on all
    processes.

    >>> with ProcessGroup.serial() as group:
    ...     rows = Distribution.regular((2,), "b", (1,))
    ...     RaggedRepartition(group, group, rows, rows)(Ragged([1.0, 2.0, 3.0], [0, 1, 3])).tolist()
    [[1.0], [2.0, 3.0]]
    """

    def __init__(self, P_x: ProcessGroup, P_y: ProcessGroup, source: Distribution, target: Distribution) -> None:
        super().__init__(P_x, P_y)
        self._from, self._to = P_x, P_y
        self.source, self.target = source, target

        def plan() -> None:
            for d in (source, target):
                sample_distribution(d, np.arange(d.shape[0] + 1 if isinstance(d, Distribution) and d.maps else 1))

        self._plan_on_all(plan, describe_distribution(source), describe_distribution(target))
        self._counts = Repartition(P_x, P_y, source, target)

    def __call__(self, x: Any) -> Ragged:
        """Return this process's rows of the target; no rows outside ``P_y``."""
        return self._move_rows(self._counts, x)

    def adjoint(self, y: Any) -> Ragged:
        """Return this process's rows of the source; no rows outside ``P_x``."""
        return self._move_rows(Repartition(self._to, self._from, self.target, self.source), y)

    def _move_rows(self, counts: Repartition, x: Any) -> Ragged:
        groups = counts._from, counts._to
        source_rank, target_rank = (group.rank for group in groups)
        rows = x.ragged if isinstance(x, LocalRagged) else x

        def check() -> tuple[int | None, int]:
            if source_rank is None:
                return None, 0
            if not isinstance(rows, Ragged):
                raise ExchangeError(f"{type(x).__name__} on an active process", hint="give an aggarray.memory.Ragged")
            return source_rank, len(rows.flat)

        source_sizes = agree(self._link, check, (self._name, self._label))
        sizes = counts(rows.counts if source_rank is not None else None)
        target_sizes = agree(self._link, lambda: (target_rank, 0 if target_rank is None else int(sizes.sum())))
        by_rank = (sorted((r, n) for r, n in pairs if r is not None) for pairs in (source_sizes, target_sizes))
        source, target = (Distribution((Block(offsets_of(np.array([n for _, n in sizes]))),)) for sizes in by_rank)
        flat = Repartition(*groups, source, target)(rows.flat if source_rank is not None else None)
        return Ragged(flat, [0] if target_rank is None else offsets_of(sizes))
