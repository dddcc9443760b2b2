"""Which processes take part, and how do they form grids? `ProcessGroup` and `ProcessGrid`.

A group is a list of ranks in its root group, which all workers of the parent know, members or not. Nothing but the root group
holds anything of the communication library: a duplicate of its communicator.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Self, TypeVar

from aggarray.errors import AggarrayError, ExchangeError
from aggarray.maps.fields import brief, truth, whole
from aggarray.mpi.schedule import neighbours, union
from aggarray.mpi.schedule.groups import as_grid
from aggarray.mpi.transport import Link, Section, agree, link_over
from aggarray.mpi.transport.serial import SerialLink

_T = TypeVar("_T")


class _Root:
    """The link of a root group, and whether it is still there."""

    __slots__ = ("closed", "link", "movements")

    def __init__(self, link: Link) -> None:
        self.link, self.closed = link, False
        #: How many movements there have been: each has its number, by which processes tell whether they mean the same.
        self.movements = 0


class ProcessGroup:
    """Processes in an order: the root group over a communicator, or members of it. A context manager that closes it.

    ``comm``: a communicator of mpi4py, of which a duplicate is made. A worker that is no member has an inactive group, with
    ``rank`` None; it takes part in whatever is collective over a parent group of which it is a member. ExchangeError for what
    is no communicator.

    >>> with ProcessGroup.serial() as group:
    ...     group.active, group.rank, group.size, group.include([]).active
    (True, 0, 1, False)
    """

    def __init__(self, comm: Any) -> None:
        self._root = _Root(link_over(comm))
        self.ranks: tuple[int, ...] = tuple(range(self._root.link.size))
        self._is_root, self._closed = True, False

    @classmethod
    def serial(cls) -> "ProcessGroup":
        """Return the root group of this process alone, without any library."""
        return ProcessGroup(SerialLink())

    @classmethod
    def _of(cls, parent: "ProcessGroup", ranks: Iterable[int]) -> Self:
        found = cls.__new__(cls)
        found._root, found.ranks = parent._root, tuple(ranks)
        found._is_root = found._closed = False
        return found

    @property
    def link(self) -> Link:
        """The link of the root group; ExchangeError where group or root group are closed."""
        if self._closed or self._root.closed:
            raise ExchangeError("a process group that is closed: use it inside its with block, or before close()")
        return self._root.link

    @property
    def active(self) -> bool:
        """Whether this worker is a member."""
        return self._root.link.rank in self.ranks

    @property
    def rank(self) -> int | None:
        """This worker's number in the group; None where it is inactive."""
        return self.ranks.index(self._root.link.rank) if self.active else None

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.ranks)

    @cached_property
    def section(self) -> Link:
        """A link between the members; ExchangeError where this worker is none."""
        if not self.active:
            raise ExchangeError(f"process {self._root.link.rank} is inactive in the group {brief(list(self.ranks))}")
        return self.link if self.ranks == tuple(range(self.link.size)) else Section(self.link, self.ranks)

    def _agreed(self, what: str, ask: Callable[[], _T]) -> _T:
        """Return what all members ask for; ExchangeError unless it is the same. Collective over the group."""
        self.link  # noqa: B018 (raises where it is closed)
        if not self.active:
            return exchange_errors(ask)
        said = agree(self.section, ask, (what,))
        for rank, other in enumerate(said):
            if other != said[0]:
                raise ExchangeError(
                    f"{what}: {brief(said[0])} on process 0, {brief(other)} on process {rank}: give the same everywhere"
                )
        return said[0]

    def include(self, ranks: Sequence[int]) -> "ProcessGroup":
        """Return the group of some members, by their ranks in this one, in the order given. Collective over this group."""

        def ask() -> list[int]:
            numbers = [n for r in listed(ranks, "include") if (n := whole(r)) is not None and 0 <= n < self.size]
            if len(numbers) < len(listed(ranks, "include")) or len(set(numbers)) < len(numbers):
                raise ExchangeError(f"include {brief(ranks)}: give each rank once, of 0 to {self.size - 1}")
            return numbers

        return ProcessGroup._of(self, (self.ranks[n] for n in self._agreed("include", ask)))

    def union(self, other: "ProcessGroup") -> "ProcessGroup":
        """Return the group of this one's members, then the other's that are new; ExchangeError unless both have one root."""
        if not isinstance(other, ProcessGroup) or other._root is not self._root:
            raise ExchangeError("union: give a group that descends from the same root group")
        self.link  # noqa: B018
        return ProcessGroup._of(self, union(self.ranks, other.ranks))

    def grid(self, shape: Sequence[int], periodic: Sequence[bool] | None = None) -> "ProcessGrid":
        """Return all members as a grid of a shape, in C order. Collective over this group.

        ``periodic``: for each dimension, whether its ends are neighbours; None: nowhere. ExchangeError where there are not as
        many members as places.
        """

        def ask() -> tuple[tuple[int, ...], tuple[bool, ...]]:
            sizes = tuple(whole(n) or 0 for n in listed(shape, "shape"))
            around = (False,) * len(sizes) if periodic is None else tuple(truth(p) for p in listed(periodic, "periodic"))
            if len(around) != len(sizes) or None in around:
                raise ExchangeError(f"periodic {brief(periodic)}: give True or False for each of {len(sizes)} dimensions")
            as_grid(self.ranks, sizes, "grid")
            return sizes, tuple(bool(p) for p in around)

        return ProcessGrid._shaped(self, self.ranks, *self._agreed("grid", ask))

    def close(self) -> None:
        """Free what the group holds. Closing the root group ends all groups made from it; collective then."""
        if self._is_root and not self._root.closed:
            self._root.closed = True
            self._root.link.close()
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = f"rank {self.rank}" if self.active else "inactive"
        return f"<aggarray.mpi.{type(self).__name__} of {brief(list(self.ranks))}, {where}>"


class ProcessGrid(ProcessGroup):
    """A group whose members are the places of a grid, in C order. Inactive workers know its shape too, and have no index.

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
    ) -> "ProcessGrid":
        found = cls._of(parent, ranks)
        found.shape, found.periodic = shape, periodic
        return found

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def index(self) -> tuple[int, ...] | None:
        """This worker's place; None where it is inactive."""
        number = self.rank
        if number is None:
            return None
        found = []
        for size in reversed(self.shape):
            number, place = divmod(number, size)
            found.append(place)
        return tuple(found[::-1])

    def neighbor_ranks(self) -> list[tuple[int | None, int | None]] | None:
        """Return, per dimension, the ranks in the grid of the left and right neighbour, None at an edge; None if inactive."""
        index = self.index
        return None if index is None else neighbours(self.shape, self.periodic, index)

    def subgrid(self, keep: Sequence[int]) -> "ProcessGrid":
        """Return the grid of the workers that share this one's places along all other dimensions.

        ``keep``: the dimensions that stay, by number (negative ones from the end) or as a truth value for each; they keep their
        order. An inactive worker's has no members. ExchangeError for dimensions that are not there.
        """
        self.link  # noqa: B018
        kept = dimensions_of(keep, self.dim, "keep")
        shape, periodic = tuple(self.shape[d] for d in kept), tuple(self.periodic[d] for d in kept)
        index = self.index
        if index is None:
            return ProcessGrid._shaped(self, (), shape, periodic)
        chosen = tuple(slice(None) if d in kept else index[d] for d in range(self.dim))
        members = as_grid(self.ranks, self.shape, "grid")[chosen]
        return ProcessGrid._shaped(self, members.ravel().tolist(), shape, periodic)


def exchange_errors(make: Callable[[], _T]) -> _T:
    """Return what is made, its errors as ExchangeErrors."""
    try:
        return make()
    except ExchangeError:
        raise
    except (AggarrayError, TypeError, ValueError) as error:
        raise ExchangeError(str(error)) from error


def listed(given: Any, what: str) -> list[Any]:
    """Return the items of what a user gave; ExchangeError for what has none."""
    try:
        return list(given)
    except TypeError as error:
        raise ExchangeError(f"{what} {brief(given)}: give a list") from error


def dimensions_of(given: Any, count: int, what: str) -> tuple[int, ...]:
    """Return dimensions as ascending numbers, each once, of numbers or a truth value for each; ExchangeError for others."""
    items = [given] if whole(given) is not None else listed(given, what)
    if items and all(truth(i) is not None for i in items):
        if len(items) == count:
            return tuple(d for d, kept in enumerate(items) if kept)
    else:
        numbers = [None if (n := whole(i)) is None or not -count <= n < count else n % count for i in items]
        if None not in numbers and len(set(numbers)) == len(numbers):
            return tuple(sorted(n for n in numbers if n is not None))
    raise ExchangeError(f"{what} {brief(given)}: give dimensions of 0 to {count - 1}, each once")
