"""Process groups and process grids.

A group is a list of ranks in its root group, known to all processes of the parent group. Only the root group holds a resource
of the communication library: a duplicate of its communicator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np

from aggarray.errors import AggarrayError, ExchangeError
from aggarray.maps.fields import as_bool, as_integer, short_repr
from aggarray.mpi.schedule.groups import as_grid, neighbours
from aggarray.mpi.transport import link_over
from aggarray.mpi.transport.agreement import agree
from aggarray.mpi.transport.base import Link, Section
from aggarray.mpi.transport.serial import SerialLink

_T = TypeVar("_T")


class _Root:
    __slots__ = ("closed", "link", "movements")

    def __init__(self, link: Link) -> None:
        self.link, self.closed = link, False
        #: Number of movements so far. Each has its number, by which processes verify that they run the same one.
        self.movements = 0


class ProcessGroup:
    """Ordered group of processes; a context manager that closes it.

    ``comm``: a communicator of mpi4py; the group uses a duplicate. A process outside the group has an inactive group, with
    ``rank`` None; it takes part in operations that are collective over a parent group of which it is a member. Raises
    ExchangeError if ``comm`` is not a communicator.

    >>> with ProcessGroup.serial() as group:
    ...     group.active, group.rank, group.size, group.include([]).active
    (True, 0, 1, False)
    """

    def __init__(self, comm: Any) -> None:
        self._root = _Root(link_over(comm))
        self.ranks: tuple[int, ...] = tuple(range(self._root.link.size))
        self._is_root, self._closed = True, False

    @classmethod
    def serial(cls) -> ProcessGroup:
        """Return the root group of this process alone, without an MPI library."""
        return ProcessGroup(SerialLink())

    @classmethod
    def _from_ranks(cls, parent: ProcessGroup, ranks: Iterable[int]) -> Self:
        group = cls.__new__(cls)
        group._root, group.ranks = parent._root, tuple(ranks)
        group._is_root = group._closed = False
        return group

    @property
    def link(self) -> Link:
        """The link of the root group; ExchangeError if either group is closed."""
        if self._closed or self._root.closed:
            raise ExchangeError("the process group is closed", hint="use it inside its with block, or before close()")
        return self._root.link

    @property
    def active(self) -> bool:
        """Whether this process is a member."""
        return self._root.link.rank in self.ranks

    @property
    def rank(self) -> int | None:
        """Rank of this process in the group; None where it is inactive."""
        return self.ranks.index(self._root.link.rank) if self.active else None

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.ranks)

    @cached_property
    def section(self) -> Link:
        """Link between the members; ExchangeError in an inactive group."""
        if not self.active:
            raise ExchangeError(f"process {self._root.link.rank} is inactive in the group {short_repr(list(self.ranks))}")
        return self.link if self.ranks == tuple(range(self.link.size)) else Section(self.link, self.ranks)

    def _agree_on(self, what: str, check: Callable[[], _T]) -> _T:
        """Return the result of a check, equal on all members. Collective."""
        self.link  # noqa: B018 (raises if it is closed)
        if not self.active:
            return convert_errors(check)
        results = agree(self.section, check, (what,))
        for rank, other in enumerate(results):
            if other != results[0]:
                reason = f"{what}: {short_repr(results[0])} on process 0, {short_repr(other)} on process {rank}"
                raise ExchangeError(reason, hint="give the same values on all processes")
        return results[0]

    def include(self, ranks: Sequence[int]) -> ProcessGroup:
        """Return the group of some members, by ranks here in order. Collective."""

        def check() -> list[int]:
            numbers = [n for r in as_list(ranks, "include") if (n := as_integer(r)) is not None and 0 <= n < self.size]
            if len(numbers) < len(as_list(ranks, "include")) or len(set(numbers)) < len(numbers):
                hint = f"give each rank once, from 0 to {self.size - 1}"
                raise ExchangeError(f"include: invalid ranks {short_repr(ranks)}", hint=hint)
            return numbers

        return ProcessGroup._from_ranks(self, (self.ranks[n] for n in self._agree_on("include", check)))

    def union(self, other: ProcessGroup) -> ProcessGroup:
        """Return the group of the members of both groups, this one's first.

        Raises ExchangeError unless both have the same root group.
        """
        if not isinstance(other, ProcessGroup) or other._root is not self._root:
            raise ExchangeError("union of groups of two root groups", hint="give groups of one root group")
        self.link  # noqa: B018
        return ProcessGroup._from_ranks(self, dict.fromkeys((*self.ranks, *other.ranks)))

    def grid(self, shape: Sequence[int], periodic: Sequence[bool] | None = None) -> ProcessGrid:
        """Return all members as a grid of a shape, in C order.

        ``periodic``: for each dimension, whether its ends are neighbours; None for no dimension. Collective over this group.
        Raises ExchangeError unless the shape has as many elements as the group has members.
        """

        def check() -> tuple[tuple[int, ...], tuple[bool, ...]]:
            sizes = tuple(as_integer(n) or 0 for n in as_list(shape, "shape"))
            wraps = (False,) * len(sizes) if periodic is None else tuple(as_bool(p) for p in as_list(periodic, "periodic"))
            if len(wraps) != len(sizes) or None in wraps:
                reason = f"invalid periodic {short_repr(periodic)}"
                raise ExchangeError(reason, hint=f"give True or False for each of {len(sizes)} dimensions")
            as_grid(self.ranks, sizes, "grid")
            return sizes, tuple(bool(p) for p in wraps)

        return ProcessGrid._shaped(self, self.ranks, *self._agree_on("grid", check))

    def close(self) -> None:
        """Close the group; closing the root group closes all groups made from it.

        Closing the root group frees its communicator and is collective.
        """
        if self._is_root and not self._root.closed:
            self._root.closed = True
            self._root.link.close()
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"rank {self.rank}" if self.active else "inactive"
        return f"<aggarray.mpi.{type(self).__name__} of {short_repr(list(self.ranks))}, {state}>"


class ProcessGrid(ProcessGroup):
    """Group whose members form a grid in C order.

    Inactive processes know the shape as well; their ``index`` is None.

    >>> with ProcessGroup.serial() as group:
    ...     grid = group.grid((1, 1), periodic=(False, True))
    ...     grid.shape, grid.index, grid.neighbor_ranks()
    ((1, 1), (0, 0), [(None, None), (0, 0)])
    """

    shape: tuple[int, ...]
    periodic: tuple[bool, ...]

    @classmethod
    def _shaped(
        cls, parent: ProcessGroup, ranks: Iterable[int], shape: tuple[int, ...], periodic: tuple[bool, ...]
    ) -> ProcessGrid:
        group = cls._from_ranks(parent, ranks)
        group.shape, group.periodic = shape, periodic
        return group

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def index(self) -> tuple[int, ...] | None:
        """Coordinates of this process; None where it is inactive."""
        return None if self.rank is None else tuple(map(int, np.unravel_index(self.rank, self.shape)))

    def neighbor_ranks(self) -> list[tuple[int | None, int | None]] | None:
        """Return the left and right neighbour's rank in the grid per dimension.

        None stands for a neighbour beyond an edge. An inactive process gets None.
        """
        index = self.index
        return None if index is None else neighbours(self.shape, self.periodic, index)

    def subgrid(self, keep: Sequence[int]) -> ProcessGrid:
        """Return the grid of the processes with this one's other coordinates.

        ``keep``: the dimensions of the new grid, by number (negative ones count from the end) or as a truth value for each;
        they keep their order. An inactive process gets a grid without members. Raises ExchangeError for dimensions out of
        range.
        """
        self.link  # noqa: B018
        kept = as_dimensions(keep, self.dim, "keep")
        shape, periodic = tuple(self.shape[d] for d in kept), tuple(self.periodic[d] for d in kept)
        index = self.index
        if index is None:
            return ProcessGrid._shaped(self, (), shape, periodic)
        selection = tuple(slice(None) if d in kept else index[d] for d in range(self.dim))
        members = as_grid(self.ranks, self.shape, "grid")[selection]
        return ProcessGrid._shaped(self, members.ravel().tolist(), shape, periodic)


def convert_errors(call: Callable[[], _T]) -> _T:
    """Return the result of a call, with its errors as ExchangeErrors."""
    try:
        return call()
    except ExchangeError:
        raise
    except AggarrayError as error:
        raise ExchangeError(*error.args, path=error.path, variable=error.variable, hint=error.hint) from error
    except (TypeError, ValueError) as error:
        raise ExchangeError(str(error)) from error


def as_list(items: Any, what: str) -> list[Any]:
    """Return the items of an argument; ExchangeError if it is not iterable."""
    try:
        return list(items)
    except TypeError as error:
        raise ExchangeError(f"invalid {what} {short_repr(items)}", hint="give a list") from error


def as_dimensions(dimensions: Any, count: int, what: str) -> tuple[int, ...]:
    """Return dimensions, given as numbers or flags, as ascending numbers."""
    items = [dimensions] if as_integer(dimensions) is not None else as_list(dimensions, what)
    if items and all(as_bool(i) is not None for i in items):
        if len(items) == count:
            return tuple(d for d, is_kept in enumerate(items) if is_kept)
    else:
        numbers = [None if (n := as_integer(i)) is None or not -count <= n < count else n % count for i in items]
        if None not in numbers and len(set(numbers)) == len(numbers):
            return tuple(sorted(n for n in numbers if n is not None))
    raise ExchangeError(f"invalid {what} {short_repr(dimensions)}", hint=f"give dimensions from 0 to {count - 1}, each once")
