"""How do rows of different lengths get from one distribution to another? Their sizes, and then their samples as blocks."""

from typing import Any

import numpy as np

from aggarray.arrays.ragged_local import LocalRagged, sample_distribution
from aggarray.errors import ExchangeError
from aggarray.maps import Block, Distribution
from aggarray.memory.ragged import Ragged
from aggarray.memory.rows import offsets_of
from aggarray.mpi.groups import ProcessGroup
from aggarray.mpi.movement import Movement
from aggarray.mpi.redistribution import Repartition, described
from aggarray.mpi.transport import agree


class RaggedRepartition(Movement):
    """Brings the rows of a ragged array from one distribution of its instances to another, both in blocks.

    ``P_x``, ``P_y``: the workers of ``source`` and ``target``, by rank, as those of `Repartition`. What is moved are a count
    per row, and the flat samples. The adjoint is the way back. Collective over the root group; ExchangeError on all workers.

    >>> with ProcessGroup.serial() as group:
    ...     whole = Distribution.regular((2,), "b", (1,))
    ...     RaggedRepartition(group, group, whole, whole)(Ragged([1.0, 2.0, 3.0], [0, 1, 3])).tolist()
    [[1.0], [2.0, 3.0]]
    """

    def __init__(
        self,
        P_x: ProcessGroup,  # noqa: N803
        P_y: ProcessGroup,  # noqa: N803
        source: Distribution,
        target: Distribution,
    ) -> None:
        super().__init__(P_x, P_y)
        self._from, self._to = P_x, P_y
        self.source, self.target = source, target

        def plan() -> None:
            for one in (source, target):
                sample_distribution(one, np.arange(one.shape[0] + 1 if isinstance(one, Distribution) and one.maps else 1))

        self._planned(plan, described(source), described(target))
        self._counts = Repartition(P_x, P_y, source, target)

    def __call__(self, x: Any) -> Ragged:
        """Return this worker's rows of the target; no rows outside ``P_y``."""
        return _moved(self, self._counts, (self._from, self._to), x)

    def adjoint(self, y: Any) -> Ragged:
        """Return this worker's rows of the source; no rows outside ``P_x``."""
        back = Repartition(self._to, self._from, self.target, self.source)
        return _moved(self, back, (self._to, self._from), y)


def _moved(movement: Movement, counts: Repartition, groups: tuple[ProcessGroup, ProcessGroup], x: Any) -> Ragged:
    here, there = (group.rank for group in groups)
    rows = x.ragged if isinstance(x, LocalRagged) else x

    def check() -> tuple[int | None, int]:
        if here is None:
            return None, 0
        if not isinstance(rows, Ragged):
            raise ExchangeError(f"{type(x).__name__} from a worker that takes part: give an aggarray.memory.Ragged")
        return here, len(rows.flat)

    given = agree(movement._link, check, (movement._name, movement._counted))
    sizes = counts(rows.counts if here is not None else None)
    taken = agree(movement._link, lambda: (there, 0 if there is None else int(sizes.sum())))
    source, target = (
        Distribution((Block(offsets_of(np.array([n for rank, n in sorted(pairs) if rank is not None]))),))
        for pairs in ([p for p in found if p[0] is not None] for found in (given, taken))
    )
    flat = Repartition(*groups, source, target)(rows.flat if here is not None else None)
    if there is None:
        return Ragged(flat, [0])
    return Ragged(flat, offsets_of(sizes))
