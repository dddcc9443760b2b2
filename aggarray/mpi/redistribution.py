"""Redistribution of an array and exchange of halos."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.errors import ExchangeError
from aggarray.maps import Distribution
from aggarray.mpi.groups import ProcessGrid, ProcessGroup
from aggarray.mpi.movement import Movement, empty_result
from aggarray.mpi.schedule import PlannedMessage, halo_steps, plan_receives, plan_sends
from aggarray.mpi.schedule.halo import Slab
from aggarray.mpi.schedule.overlap import require_same_shape
from aggarray.mpi.text import move_texts
from aggarray.mpi.transport import Message, Part, move


def check_distribution(group: ProcessGroup, distribution: Distribution, what: str) -> None:
    """Raise ExchangeError unless a distribution fits a group or grid."""
    if not isinstance(distribution, Distribution):
        raise ExchangeError(f"{what}: {type(distribution).__name__} is not a Distribution")
    if distribution.nprocs != group.size:
        raise ExchangeError(f"{what}: a distribution over {distribution.nprocs} processes, but a group of {group.size}")
    if isinstance(group, ProcessGrid) and group.dim == len(distribution.maps) and group.shape != distribution.grid:
        raise ExchangeError(f"{what}: a distribution over a grid {distribution.grid}, but a grid of shape {group.shape}")


def describe_distribution(distribution: Any) -> str:
    """Return a short text that is equal for equal distributions only.

    Distributions may be as large as arrays; the text holds a digest.
    """
    if not isinstance(distribution, Distribution):
        return type(distribution).__name__
    digest = hashlib.sha256()
    for map_ in distribution.maps:
        for item in (map_.letter, *map_._arguments()):
            for part in item if isinstance(item, tuple) else (item,):
                digest.update(f"|{type(part).__name__}{np.shape(part)}".encode())
                digest.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    types = "".join(map_.dist_type for map_ in distribution.maps)
    return f"distribution {types!r} of {distribution.shape} over {distribution.grid} [{digest.hexdigest()[:16]}]"


def _shape_check(shape: tuple[int, ...], what: str) -> Callable[[np.ndarray], None]:
    """Return a check that raises ExchangeError for arrays of other shapes."""

    def check(values: np.ndarray) -> None:
        if values.shape != shape:
            raise ExchangeError(f"{what}: an array of shape {values.shape}, but the section of this process has shape {shape}")

    return check


class Repartition(Movement):
    """Move an array from one distribution to another of any type.

    ``P_x``, ``P_y``: the processes of ``source`` and ``target``, by rank; they may be equal, overlap or be disjoint. Each pair
    of processes exchanges at most one message. The padding of the source is ignored and that of the target filled. The adjoint
    sums all copies onto the owner, and sets other elements to zero. Text is sent as lengths and UTF-8 bytes. Collective over
    the root group; raises ExchangeError on all processes.

    >>> with ProcessGroup.serial() as group:
    ...     even = Distribution.regular((3,), "b", (1,))
    ...     move = Repartition(group, group, even, Distribution.regular((3,), "c", (1,)))
    ...     move([1, 2, 3]).tolist()
    [1, 2, 3]
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
        self._sends, self._receives = self._plan_together(
            self._plan, describe_distribution(source), describe_distribution(target)
        )

    def _plan(self) -> tuple[list[PlannedMessage], list[PlannedMessage]]:
        check_distribution(self._from, self.source, "source")
        check_distribution(self._to, self.target, "target")
        require_same_shape(self.source, self.target)
        source_rank, target_rank = self._from.rank, self._to.rank
        sends = [] if source_rank is None else plan_sends(self.source, source_rank, self.target)
        return sends, [] if target_rank is None else plan_receives(self.source, self.target, target_rank)

    def __call__(self, x: Any) -> np.ndarray:
        """Return this process's section of the target, of size 0 outside ``P_y``."""
        rank = self._from.rank
        check = None if rank is None else _shape_check(self.source.local_shape(rank), self._name)
        values, offers = self._exchange_offers("moves", x, check)
        result = self._empty(self._to, self.target, self._dtype(offers))
        sends = [_message(m, self._to, values, "source") for m in self._sends]
        receives = [_message(m, self._from, result, "target") for m in self._receives]
        if result.dtype.kind == "T":
            move_texts(self._link, sends, receives)
        else:
            move(self._link, sends, receives, result.dtype)
        return result

    def adjoint(self, y: Any) -> np.ndarray:
        """Return this process's section of the source, of size 0 outside ``P_x``."""
        rank = self._to.rank
        check = None if rank is None else _shape_check(self.target.local_shape(rank), self._name)
        values, offers = self._exchange_offers("adds", y, check)
        result = self._empty(self._from, self.source, self._dtype(offers))
        result[...] = 0
        sends = [_message(m, self._from, values, "target") for m in self._receives]
        move(self._link, sends, [_message(m, self._to, result, "source") for m in self._sends], result.dtype, add=True)
        return result

    def _empty(self, group: ProcessGroup, distribution: Distribution, dtype: np.dtype[Any]) -> np.ndarray:
        return empty_result(dtype) if group.rank is None else np.empty(distribution.local_shape(group.rank), dtype)


def _message(message: PlannedMessage, group: ProcessGroup, values: np.ndarray, side: str) -> Message:
    """Return a planned message with ranks of the root group and its arrays."""
    return Message(group.ranks[message.rank], tuple(Part(values, getattr(box, side), box.shape) for box in message.boxes))


class HaloExchange(Movement):
    """Fill the communication padding of blocks in place, corners included.

    ``P``: the processes of the distribution, by rank. The padding of a dimension with ``outer="wrap"`` is filled from its other
    end. The adjoint sends padding back, sets it to zero, and adds it to the owned elements. Collective over the root group;
    raises ExchangeError on all processes.

    >>> with ProcessGroup.serial() as group:
    ...     around = Distribution.regular((3,), "b", (1,), padding={0: (1, 1)}, periodic=(0,), outer="wrap")
    ...     HaloExchange(group, around)(np.array([0, 1, 2, 3, 0])).tolist()
    [3, 1, 2, 3, 1]
    """

    def __init__(self, P: ProcessGroup, distribution: Distribution) -> None:  # noqa: N803
        super().__init__(P)
        self._group, self.distribution = P, distribution

        def plan() -> Any:
            check_distribution(P, distribution, "halo exchange")
            return [] if P.rank is None else halo_steps(distribution, P.rank)

        self._steps = self._plan_together(plan, describe_distribution(distribution))

    def __call__(self, x: Any) -> np.ndarray:
        """Fill the padding of an array in place and return the array.

        The result has size 0 outside the group.
        """
        values, dtype = self._prepare("fills", x)
        for step in self._steps:
            move(self._link, self._messages(step.sent, values), self._messages(step.filled, values), dtype)
        return values

    def adjoint(self, y: Any) -> np.ndarray:
        """Add padding to the elements of its owners, set it to zero, in place.

        Returns the array, which has size 0 outside the group.
        """
        values, dtype = self._prepare("adds", y)
        for step in reversed(self._steps):
            move(self._link, self._messages(step.filled, values), self._messages(step.sent, values), dtype, add=True)
            for slab in step.filled:
                values[slab.region] = 0
        return values

    def _prepare(self, operation: str, x: Any) -> tuple[np.ndarray, np.dtype[Any]]:
        """Return the array to change and the common dtype.

        The array has size 0 on a process outside the group.
        """
        rank = self._group.rank

        def check(values: np.ndarray) -> None:
            if not isinstance(x, np.ndarray | LocalArray):
                raise ExchangeError(f"the padding of {type(x).__name__} cannot be filled in place", hint="give an array")
            if not values.flags.writeable:
                raise ExchangeError(
                    "the padding of a read-only array cannot be filled in place", hint="give a copy, or aligned()"
                )
            _shape_check(self.distribution.local_shape(self._group.ranks.index(self._link.rank)), self._name)(values)

        values, offers = self._exchange_offers(operation, x, None if rank is None else check)
        dtype = self._dtype(offers)
        return (empty_result(dtype) if values is None else values), dtype

    def _messages(self, slabs: Sequence[Slab], values: np.ndarray) -> list[Message]:
        return [Message(self._group.ranks[s.rank], (Part(values, s.region, s.shape),), s.direction) for s in slabs]
