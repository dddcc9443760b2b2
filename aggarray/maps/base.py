"""What is a map: which process has which elements of one dimension, and where?

A `Map` knows how its elements lie, for arrays of indices at a time. A distribution type is one module of this folder with a
class derived from `MapType` under the name ``MAP``, there is no list to edit: it also knows how its dimension dictionaries
read, parses one into a `Part`, says what is wrong between the parts of all processes, and makes a map of parts.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from aggarray.errors import ProtocolError, SelectionError
from aggarray.maps.fields import NEWEST, DimDictReader, brief, whole
from aggarray.memory.selection import Range


class Clash(NamedTuple):
    """What is wrong between the processes of an axis: found at the process ``rank`` of it."""

    rank: int
    key: str
    value: Any
    rule: str


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What one process says about a dimension: common keys, all checked. Each distribution type adds its own."""

    size: int
    nprocs: int
    rank: int
    periodic: bool

    @property
    def count(self) -> int:
        """How many elements the process owns."""
        raise NotImplementedError

    def constants(self) -> dict[str, Any]:
        """Return what has to be the same on all processes of an axis, by key."""
        return {"size": self.size, "proc_grid_size": self.nprocs, "periodic": self.periodic}

    def own(self) -> dict[str, Any]:
        """Return what has to be the same on all processes that share a rank on the axis, by key."""
        return {}

    def free(self) -> dict[str, Any]:
        """Return what these may have differently, though a map has one value for all of them, by key."""
        return {}


class Map(ABC):
    """One dimension, shared out to ``nprocs`` processes. Global and local indices are int64, ranks count along the axis."""

    __slots__ = ()
    #: The ``dist_type`` of the protocol.
    letter: ClassVar[str] = ""
    size: int
    nprocs: int

    @property
    def dist_type(self) -> str:
        """The distribution type as the protocol names it."""
        return self.letter

    @abstractmethod
    def segments(self, rank: int) -> list[Range | np.ndarray]:
        """Return what the local buffer holds, one part after the other, as selectors of the dimension."""

    @abstractmethod
    def num_owned(self, rank: int) -> int:
        """Return how many elements a process owns: communication padding does not count."""

    @abstractmethod
    def owner(self, g: Any) -> Any:
        """Return the rank that owns each global index (the lowest where there are several); int64, shaped as ``g``.

        Raises SelectionError, an IndexError, for indices that are not there.
        """

    @abstractmethod
    def to_local(self, g: Any) -> tuple[Any, Any]:
        """Return the owner of each global index and the position in its buffer, padding included; errors as `owner`."""

    @abstractmethod
    def to_global(self, rank: Any, local: Any) -> Any:
        """Return the global index at positions of the buffers of processes; SelectionError for positions beyond them."""

    @abstractmethod
    def dim_dict(self, rank: int, version: str = NEWEST) -> dict[str, Any]:
        """Return the dimension dictionary of a process (DAP 0.10.0, section 1.6; 0.9.0, chapter 6).

        ProtocolError where that version cannot say it.
        """

    @abstractmethod
    def sliced(self, chosen: Range) -> "Map":
        """Return the map of a slice of the dimension: every element stays on its process."""

    @abstractmethod
    def _arguments(self) -> tuple[Any, ...]:
        """Return what the map is made of again."""

    @abstractmethod
    def _holders(self, g: np.ndarray) -> list[np.ndarray]:
        """Return the ranks that hold each of some global indices, which are there."""

    # What follows from these

    def extent(self, rank: int) -> int:
        """Return the size of a process's buffer, padding included."""
        return sum(map(len, self.segments(rank)))

    def indices(self, rank: int) -> np.ndarray:
        """Return the global indices of a process's buffer, padding included."""
        found = [s.indices() if isinstance(s, Range) else s for s in self.segments(rank)]
        return np.concatenate([np.zeros(0, np.int64), *found]) if len(found) != 1 else found[0]

    def fits(self, size: int) -> bool:
        """Tell whether the global indices are positions of a dimension of that size."""
        return self.size == size

    def owned_slice(self, rank: int) -> slice:
        """Return which part of its buffer a process owns."""
        return slice(0, self.extent(rank))

    def owns(self, rank: int) -> np.ndarray:
        """Return for each element of a process, padding included, whether it is the owner."""
        return np.asarray(self.owner(self.indices(rank)) == rank)

    def owned(self, rank: int) -> np.ndarray:
        """Return the global indices that a process owns: those of its buffer without communication padding."""
        return self.indices(rank)[self.owned_slice(rank)]

    def holders(self, g: Any) -> Any:
        """Return all ranks that hold a global index, padding included: ascending int64; of an array, an array of these."""
        asked = self._present(g)
        found = self._holders(asked.ravel())
        if asked.ndim == 0:
            return found[0]
        result = np.empty(asked.size, object)
        result[:] = found
        return result.reshape(asked.shape)

    def _present(self, g: Any) -> np.ndarray:
        """Return global indices as int64; SelectionError where one is not in 0 to size - 1."""
        found = positions(g, "global index")
        if found.size and (int(found.min()) < 0 or int(found.max()) >= self.size):
            wrong = found.min() if found.min() < 0 else found.max()
            allowed = f"give 0 to {self.size - 1}" if self.size else "it has no elements"
            raise SelectionError(f"global index {wrong} of a dimension of size {self.size}: {allowed}")
        return found

    def _checked(self, rank: Any) -> int:
        """Return a rank; ProtocolError where there is no such process."""
        found = whole(rank)
        if found is None or not 0 <= found < self.nprocs:
            raise ProtocolError(f"rank {brief(rank)} of {self.nprocs} processes: give 0 to {self.nprocs - 1}")
        return found

    def _local(self, rank: Any, local: Any, extents: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return ranks and local positions as arrays of one shape, after checking them; ``extents(ranks)``: buffer sizes."""
        ranks, places = np.broadcast_arrays(positions(rank, "rank"), positions(local, "local index"))
        if ranks.size and not (int(ranks.min()) >= 0 and int(ranks.max()) < self.nprocs):
            raise ProtocolError(f"ranks {brief(rank)} of {self.nprocs} processes: give 0 to {self.nprocs - 1}")
        beyond = (places < 0) | (places >= extents(ranks))
        if beyond.any():
            where = int(np.flatnonzero(beyond.ravel())[0])
            raise SelectionError(
                f"local index {places.ravel()[where]} of rank {ranks.ravel()[where]}, "
                f"whose buffer has {self.extent(int(ranks.ravel()[where]))} elements: give one of them"
            )
        return ranks, places

    def _common(self, rank: int) -> dict[str, Any]:
        return {
            "dist_type": self.letter,
            "size": int(self.size),
            "proc_grid_size": int(self.nprocs),
            "proc_grid_rank": int(rank),
        }

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        return tuple(map(_hashable, self._arguments()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._again, self._arguments()

    @classmethod
    def _again(cls, *arguments: Any) -> "Map":
        """Make a map of what `_arguments` gave."""
        return cls(*arguments)


class MapType(Map):
    """A distribution type: a map, and how the dimension dictionaries of its type are read."""

    __slots__ = ()
    #: Whether the dictionary of one process says all there is to say.
    told_by_one: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def parse(cls, entry: DimDictReader, common: tuple[int, int, int]) -> Part | None:
        """Return what a dictionary says, ``common``: size, proc_grid_size, proc_grid_rank; None where it cannot be told."""

    @classmethod
    @abstractmethod
    def check_alone(cls, entry: DimDictReader) -> None:
        """Note what is wrong with the keys of the type, each by itself: what is common to all types cannot be told."""

    @classmethod
    @abstractmethod
    def clashes(cls, parts: Sequence[Any], version: str) -> Iterator[Clash]:
        """Yield what is wrong between the parts of the processes of an axis, by rank; those that are not known are None."""

    @classmethod
    @abstractmethod
    def from_parts(cls, parts: Sequence[Any]) -> Self:
        """Return the map that the parts of all processes of an axis describe; there are no clashes."""

    @classmethod
    @abstractmethod
    def from_part(cls, part: Any) -> Self:
        """Return a map in which one process is what its part says; of the others it says what is possible."""


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def positions(values: Any, what: str) -> np.ndarray:
    """Return integers, one or an array of them, as int64; SelectionError for anything else."""
    if type(values) is np.ndarray and values.dtype == np.int64:
        return values
    try:
        found = np.asarray(values)
    except (ValueError, OverflowError):
        found = np.array(None)
    if found.size == 0 and found.dtype.kind == "f":
        found = found.astype(np.int64)  # NumPy takes [] for floats
    large = found.dtype.kind == "u" and found.size and int(found.max()) > np.iinfo(np.int64).max
    if found.dtype.kind not in "iu" or large:
        raise SelectionError(f"{what} {brief(values)} ({found.dtype}): give integers of at most 64 bits")
    return found.astype(np.int64)


def count_of(value: Any, what: str, least: int) -> int:
    """Return an integer of at least ``least``; ProtocolError for anything else."""
    found = whole(value)
    if found is None or found < least:
        raise ProtocolError(f"{what} {brief(value)}: give an integer of at least {least}")
    return found


def flag_of(value: Any, what: str) -> bool:
    """Return a truth value; ProtocolError for anything else."""
    if not isinstance(value, bool | np.bool):
        raise ProtocolError(f"{what} {brief(value)}: give True or False")
    return bool(value)
