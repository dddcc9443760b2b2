"""Base of all movements: planning and agreement before any message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.dataclass import NamedTuple
from aggarray.errors import ExchangeError
from aggarray.maps.fields import short_repr
from aggarray.mpi.groups import ProcessGrid, ProcessGroup, convert_errors
from aggarray.mpi.transport.agreement import agree
from aggarray.mpi.transport.base import Link

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
        valid = [group for group in groups if isinstance(group, ProcessGroup)]
        if not valid:
            raise _not_a_group(groups[0])
        # A valid group reaches the other processes, which raise the error too.
        self._root = valid[0]._root
        self._root.movements += 1
        self._groups, self._name = groups, type(self).__name__
        self._label = f"movement {self._root.movements}"

    @property
    def _link(self) -> Link:
        for group in self._groups:
            if isinstance(group, ProcessGroup):
                group.link  # noqa: B018 (raises if it is closed)
        return self._root.link

    def _plan_on_all(self, plan: Callable[[], _T], *arguments: Any) -> _T:
        """Return the plan of this process, compared by all. Collective."""
        plans: list[_T] = []

        def produce() -> list[tuple[int, ...]]:
            for group in self._groups:
                if not isinstance(group, ProcessGroup):
                    raise _not_a_group(group)
                if group._root is not self._root:
                    raise ExchangeError("process groups of two root groups", hint="give groups of one root group")
            plans.append(convert_errors(plan))
            return [g.ranks for g in self._groups if g.active]

        shapes = tuple(g.shape for g in self._groups if isinstance(g, ProcessGrid))
        results = agree(self._link, produce, (self._name, self._label, shapes, *arguments))
        # All members of a group must list the same members.
        for rank, groups in enumerate(results):
            for member in {m for team in groups for m in team}:
                if not {g for g in groups if member in g} <= set(results[member]):
                    first, other = short_repr(groups), short_repr(results[member])
                    reason = f"{self._name}: process {rank} has the groups {first}, process {member} {other}"
                    raise ExchangeError(reason, hint="give the same groups on all processes")
        return plans[0]

    def _exchange_offers(
        self, operation: str, x: Any, active: bool, check: Callable[[np.ndarray], None] | None = None
    ) -> tuple[Any, list[Offer], np.dtype[Any]]:
        """Return the argument as an array, the offers of all, and their dtype."""
        arrays: list[np.ndarray] = []

        def produce() -> Offer:
            if not active:
                return Offer()
            arrays.append(as_array(x, text=operation in _COPIED))
            if check is not None:
                check(arrays[0])
            if operation == "adds" and arrays[0].dtype.kind not in _NUMBERS:
                raise ExchangeError(f"{self._name}: values of {arrays[0].dtype} cannot be summed", hint="give numbers")
            return Offer(arrays[0].dtype, arrays[0].shape)

        offers = agree(self._link, produce, (f"{self._name}: {operation}", self._label))
        return (arrays[0] if arrays else None), offers, self._dtype(offers)

    def _dtype(self, offers: Sequence[Offer]) -> np.dtype[Any]:
        """Return the common dtype, native where the byte orders differ."""
        dtypes = [(rank, o.dtype) for rank, o in enumerate(offers) if o.dtype is not None]
        if not dtypes:
            return np.dtype(float)
        first, dtype = dtypes[0]
        native = _native(dtype)
        for rank, other in dtypes:
            if _native(other) != native:
                reason = f"{self._name}: dtype {dtype} on process {first}, {other} on process {rank}"
                raise ExchangeError(reason, hint="give one dtype")
        return dtype if all(other == dtype for _, other in dtypes) else native

    def _shape(self, offers: Sequence[Offer], ranks: Sequence[int]) -> tuple[int, ...]:
        first = offers[ranks[0]].shape
        for rank in ranks:
            if offers[rank].shape != first:
                reason = f"{self._name}: shape {first} on process {ranks[0]}, {offers[rank].shape} on process {rank}"
                raise ExchangeError(reason, hint="give one shape")
        return first or ()


def _not_a_group(group: Any) -> ExchangeError:
    return ExchangeError(f"{type(group).__name__} is not a process group", hint="give a ProcessGroup or ProcessGrid")


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.kind == "T" else dtype.newbyteorder("=")


def as_array(x: Any, text: bool = False) -> np.ndarray:
    """Return an argument as an array without a copy.

    ``text``: accept text of any length, which is sent as UTF-8 bytes. Raises ExchangeError for values that cannot be sent.
    """
    values = x.buffer if isinstance(x, LocalArray) else x
    if values is None or isinstance(values, np.ma.MaskedArray):
        raise ExchangeError(f"{type(values).__name__} on an active process", hint="give a plain array")
    array = np.asarray(values)
    if text and array.dtype.kind == "T":
        dtype = np.dtypes.StringDType()
        if array.dtype != dtype and not all(isinstance(item, str) for item in array.ravel().tolist()):
            raise ExchangeError(f"missing text of {array.dtype} cannot be sent", hint="replace missing text, such as by ''")
        return array.astype(dtype, copy=False)
    if array.dtype.hasobject or not array.dtype.itemsize:
        hint = "give numbers, times or fixed-size text, or its bytes, those of aggarray.memory.Ragged.from_text"
        raise ExchangeError(f"values of {array.dtype} cannot be sent", hint=hint)
    return array
