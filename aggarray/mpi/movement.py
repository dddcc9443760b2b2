"""Base of all movements: planning and agreement before any message."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.errors import ExchangeError
from aggarray.maps.fields import short_repr
from aggarray.mpi.groups import ProcessGrid, ProcessGroup, exchange_errors
from aggarray.mpi.transport import Link, agree

_T = TypeVar("_T")
#: Kinds of dtypes that can be summed.
_NUMBERS = "iufc"
#: Operations that do not change values, and accept text.
_COPIED = ("moves", "copies")


class Offer(NamedTuple):
    """The array that a process contributes to a movement; None for both: none."""

    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] | None = None


class Movement:
    """A movement over the root group of some process groups."""

    def __init__(self, *groups: ProcessGroup) -> None:
        real = [group for group in groups if isinstance(group, ProcessGroup)]
        if not real:
            raise ExchangeError(f"{type(groups[0]).__name__} is no process group: give a ProcessGroup or ProcessGrid")
        # A valid group reaches the other processes, which raise the error too.
        self._root = real[0]._root
        self._root.movements += 1
        self._groups, self._number = groups, self._root.movements

    @property
    def _link(self) -> Link:
        for group in self._groups:
            if isinstance(group, ProcessGroup):
                group.link  # noqa: B018 (raises if it is closed)
        return self._root.link

    def _check_groups(self) -> None:
        for group in self._groups:
            if not isinstance(group, ProcessGroup):
                raise ExchangeError(f"{type(group).__name__} is no process group: give a ProcessGroup or ProcessGrid")
            if group._root is not self._root:
                raise ExchangeError("process groups of two root groups: give groups that descend from one")

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def _counted(self) -> str:
        return f"the movement made as number {self._number}"

    def _planned(self, plan: Callable[[], _T], *same: Any) -> _T:
        """Return the plan of this process after all have compared theirs.

        Raises ExchangeError where a plan fails or differs. Collective.
        """
        made: list[_T] = []

        def say() -> list[tuple[int, ...]]:
            self._check_groups()
            made.append(exchange_errors(plan))
            return [g.ranks for g in self._groups if g.active]

        shapes = tuple(g.shape for g in self._groups if isinstance(g, ProcessGrid))
        said = agree(self._link, say, (self._name, self._counted, shapes, *same))
        # All members of a group must list the same members.
        for rank, teams in enumerate(said):
            for member in {m for team in teams for m in team}:
                if not {t for t in teams if member in t} <= set(said[member]):
                    raise ExchangeError(
                        f"{self._name}: process {rank} has it between {short_repr(teams)}, process {member} "
                        f"between {short_repr(said[member])}: give the same groups everywhere"
                    )
        return made[0]

    def _agreed(self, way: str, x: Any, expected: Callable[[np.ndarray], None] | None) -> tuple[Any, list[Offer]]:
        """Return the argument as an array, and the offers of all processes.

        The array is None where none is expected. ``expected`` raises ExchangeError for an invalid array; None: the argument is
        ignored. Collective.
        """
        mine: list[np.ndarray] = []

        def say() -> Offer:
            if expected is None:
                return Offer()
            mine.append(array_of(x, text=way in _COPIED))
            expected(mine[0])
            if way == "adds" and mine[0].dtype.kind not in _NUMBERS:
                raise ExchangeError(f"{self._name}: values of {mine[0].dtype} cannot be summed: give numbers")
            return Offer(mine[0].dtype, mine[0].shape)

        offers = agree(self._link, say, (f"{self._name}: {way}", self._counted))
        return (mine[0] if mine else None), offers

    def _dtype(self, offers: Sequence[Offer]) -> np.dtype[Any]:
        """Return the common dtype, native where the byte orders differ."""
        found = [(rank, o.dtype) for rank, o in enumerate(offers) if o.dtype is not None]
        if not found:
            return np.dtype(float)
        first, dtype = found[0]
        native = _native(dtype)
        for rank, other in found:
            if _native(other) != native:
                raise ExchangeError(
                    f"{self._name}: dtype {dtype} on process {first}, {other} on process {rank}: give one dtype"
                )
        return dtype if all(other == dtype for _, other in found) else native

    def _shape(self, offers: Sequence[Offer], ranks: Sequence[int]) -> tuple[int, ...]:
        """Return the common shape of the offers of some processes."""
        first = offers[ranks[0]].shape
        for rank in ranks:
            if offers[rank].shape != first:
                raise ExchangeError(
                    f"{self._name}: shape {first} on process {ranks[0]}, {offers[rank].shape} on process {rank}: give one shape"
                )
        return first or ()


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.kind == "T" else dtype.newbyteorder("=")


def array_of(x: Any, text: bool = False) -> np.ndarray:
    """Return an argument as an array without a copy.

    ``text``: accept text of any length, which is sent as UTF-8 bytes. Raises ExchangeError for values that cannot be sent.
    """
    values = x.buffer if isinstance(x, LocalArray) else x
    if values is None or isinstance(values, np.ma.MaskedArray):
        raise ExchangeError(f"{type(values).__name__} from a worker that takes part: give a plain array")
    found = np.asarray(values)
    if text and found.dtype.kind == "T":
        plain = np.dtypes.StringDType()
        if found.dtype != plain and not all(isinstance(one, str) for one in found.ravel().tolist()):
            raise ExchangeError(f"missing text of {found.dtype} cannot be sent: put text in its place, such as ''")
        return found.astype(plain, copy=False)
    if found.dtype.hasobject or not found.dtype.itemsize:
        way = "give numbers, times or fixed-size text, or its bytes, those of aggarray.memory.Ragged.from_text"
        raise ExchangeError(f"values of {found.dtype} cannot be sent: {way}")
    return found


def nothing(dtype: np.dtype[Any]) -> np.ndarray:
    """Return the result of a process outside the receiving group."""
    return np.empty(0, dtype)
