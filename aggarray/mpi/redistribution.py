"""Redistribution of an array and exchange of halos."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.errors import ExchangeError
from aggarray.maps import Distribution
from aggarray.mpi.groups import ProcessGrid, ProcessGroup
from aggarray.mpi.movement import Movement
from aggarray.mpi.schedule.halo import HaloStep, halo_steps
from aggarray.mpi.schedule.overlap import PlannedMessage, plan_receives, plan_sends, require_same_shape
from aggarray.mpi.text import move_texts
from aggarray.mpi.transport.moving import Message, bind_messages, move


def check_distribution(group: ProcessGroup, distribution: Distribution, what: str) -> None:
    """Raise ExchangeError unless a distribution fits a group or grid."""
    if not isinstance(distribution, Distribution):
        raise ExchangeError(
            f"{what}: {type(distribution).__name__} is not a Distribution", hint="give one, such as Distribution.regular"
        )
    if distribution.nprocs != group.size:
        reason = f"{what}: the distribution has {distribution.nprocs} processes, but the group has {group.size}"
        raise ExchangeError(reason, hint="give a distribution over the processes of the group")
    if isinstance(group, ProcessGrid) and group.dim == len(distribution.maps) and group.shape != distribution.grid:
        reason = f"{what}: the distribution has the grid {distribution.grid}, but the group has {group.shape}"
        raise ExchangeError(reason, hint="give a distribution over the grid of the group")


def describe_distribution(distribution: Any) -> str:
    """Return a short text with a digest, equal for equal distributions only."""
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


def _shape_check(distribution: Distribution, rank: int | None, what: str) -> Callable[[np.ndarray], None]:
    def check(values: np.ndarray) -> None:
        if rank is not None and values.shape != (shape := distribution.local_shape(rank)):
            raise ExchangeError(f"{what}: the array has shape {values.shape}, but the section of this process has {shape}")

    return check


class Repartition(Movement):
    """Move an array from one distribution to any other.

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

    def __init__(self, P_x: ProcessGroup, P_y: ProcessGroup, source: Distribution, target: Distribution) -> None:
        super().__init__(P_x, P_y)
        self._from, self._to = P_x, P_y
        self.source, self.target = source, target

        def plan() -> tuple[list[PlannedMessage], list[PlannedMessage]]:
            check_distribution(P_x, source, "source")
            check_distribution(P_y, target, "target")
            require_same_shape(source, target)
            sends = [] if P_x.rank is None else plan_sends(source, P_x.rank, target)
            return sends, [] if P_y.rank is None else plan_receives(source, target, P_y.rank)

        descriptions = describe_distribution(source), describe_distribution(target)
        self._sends, self._receives = self._plan_on_all(plan, *descriptions)

    def __call__(self, x: Any) -> np.ndarray:
        """Return this process's section of the target, of size 0 outside ``P_y``."""
        values, result = self._prepare("moves", x, (self._from, self.source), (self._to, self.target))
        sends = bind_messages(self._sends, values, "source", self._to.ranks)
        receives = bind_messages(self._receives, result, "target", self._from.ranks)
        if result.dtype.kind == "T":
            move_texts(self._link, sends, receives)
        else:
            move(self._link, sends, receives, result.dtype)
        return result

    def adjoint(self, y: Any) -> np.ndarray:
        """Return this process's section of the source, of size 0 outside ``P_x``."""
        values, result = self._prepare("adds", y, (self._to, self.target), (self._from, self.source))
        result[...] = 0
        sends = bind_messages(self._receives, values, "target", self._from.ranks)
        move(self._link, sends, bind_messages(self._sends, result, "source", self._to.ranks), result.dtype, add=True)
        return result

    def _prepare(
        self, operation: str, x: Any, sent: tuple[ProcessGroup, Distribution], received: tuple[ProcessGroup, Distribution]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of this process, and an array for its result."""
        (senders, source), (receivers, target) = sent, received
        values, _, dtype = self._exchange_offers(operation, x, senders.active, _shape_check(source, senders.rank, self._name))
        return values, np.empty(0, dtype) if receivers.rank is None else np.empty(target.local_shape(receivers.rank), dtype)


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

    def __init__(self, P: ProcessGroup, distribution: Distribution) -> None:
        super().__init__(P)
        self._group, self.distribution = P, distribution

        def plan() -> Any:
            check_distribution(P, distribution, "halo exchange")
            return [] if P.rank is None else halo_steps(distribution, P.rank)

        self._steps: list[HaloStep] = self._plan_on_all(plan, describe_distribution(distribution))
        steps = [(number, step) for number, step in enumerate(self._steps) if not step.is_contiguous]
        from aggarray.mpi.shared_slabs import SharedSlabs, Slab

        sent = [Slab(n, m.direction, P.ranks[m.rank], m.size) for n, step in steps for m in step.sent]
        returned = [Slab(n, m.direction, P.ranks[m.rank], m.size) for n, step in reversed(steps) for m in step.filled]
        self._slabs = SharedSlabs(self._link, sent, returned)

    def __call__(self, x: Any) -> np.ndarray:
        """Fill padding in place; return the array, of size 0 outside ``P``."""
        values, dtype = self._prepare("fills", x)
        for number, step in enumerate(self._steps):
            self._slabs.move(number, *self._bind(step, values), dtype, returned=False)
        return values

    def adjoint(self, y: Any) -> np.ndarray:
        """Add padding to its owners and set it to zero in place."""
        values, dtype = self._prepare("adds", y)
        for number, step in reversed(list(enumerate(self._steps))):
            sent, filled = self._bind(step, values)
            self._slabs.move(number, filled, sent, dtype, returned=True)
            for message in step.filled:
                values[message.boxes[0].source] = 0
        return values

    def _bind(self, step: HaloStep, values: np.ndarray) -> tuple[list[Message], list[Message]]:
        ranks = self._group.ranks
        return bind_messages(step.sent, values, "source", ranks), bind_messages(step.filled, values, "target", ranks)

    def _prepare(self, operation: str, x: Any) -> tuple[np.ndarray, np.dtype[Any]]:
        """Return the array to change, of size 0 outside the group, and the dtype."""

        def check(values: np.ndarray) -> None:
            if not isinstance(x, np.ndarray | LocalArray):
                raise ExchangeError(f"the padding of {type(x).__name__} cannot be filled in place", hint="give an array")
            if not values.flags.writeable:
                reason = "the padding of a read-only array cannot be filled in place"
                raise ExchangeError(reason, hint="give a copy, or aligned()")
            _shape_check(self.distribution, self._group.rank, self._name)(values)

        values, _, dtype = self._exchange_offers(operation, x, self._group.active, check)
        self._slabs.begin(dtype)
        return (np.empty(0, dtype) if values is None else values), dtype
