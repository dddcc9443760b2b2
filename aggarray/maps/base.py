"""Base classes of maps: which process holds which elements of a dimension.

A `Map` answers for arrays of indices at a time. A distribution type is one module of this folder that defines a class derived
from `MapType` under the name ``MAP``; `dim_data` finds it. The class also reads the dimension dictionaries of its type: it
parses each one into a `Part`, yields the conflicts between the parts of all processes, and builds a map from parts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from aggarray.dataclass import NamedTuple, dataclass
from aggarray.errors import ProtocolError, SelectionError, counted
from aggarray.maps.fields import NEWEST, OLD, DimDictReader, as_integer, short_repr
from aggarray.memory.selection import Range


class Conflict(NamedTuple):
    """A conflict between the processes of an axis, found at one ``rank``."""

    rank: int
    key: str
    value: Any
    rule: str


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What one process exports about a dimension; each type adds keys."""

    size: int
    nprocs: int
    rank: int
    periodic: bool

    @property
    def count(self) -> int:
        """Number of elements that the process owns."""
        raise NotImplementedError

    def constants(self) -> dict[str, Any]:
        """Return the values that all processes of an axis must share, by key."""
        return {"size": self.size, "proc_grid_size": self.nprocs, "periodic": self.periodic}

    def rank_constants(self) -> dict[str, Any]:
        """Return the values that processes of one rank on the axis must share."""
        return {}

    def rank_variables(self) -> dict[str, Any]:
        """Return other values, of which a map has only one for each rank."""
        return {}


class Map(ABC):
    """Distribution of one dimension over ``nprocs`` ranked processes."""

    __slots__ = ()
    #: The ``dist_type`` of the protocol.
    letter: ClassVar[str] = ""
    size: int
    nprocs: int
    periodic: bool

    @property
    def dist_type(self) -> str:
        """The ``dist_type`` of the protocol."""
        return self.letter

    @abstractmethod
    def segments(self, rank: int) -> list[Range | np.ndarray]:
        """Return selectors that cover the local buffer in order."""

    @abstractmethod
    def owner(self, g: Any) -> Any:
        """Return the rank that owns each global index, the lowest of several.

        The result is int64 and has the shape of ``g``. Raises SelectionError, an IndexError, for indices out of range.
        """

    @abstractmethod
    def to_local(self, g: Any) -> tuple[Any, Any]:
        """Return owners of global indices and positions in their buffers."""

    @abstractmethod
    def to_global(self, rank: Any, local: Any) -> Any:
        """Return global indices at buffer positions; SelectionError for others."""

    @abstractmethod
    def dim_dict(self, rank: int, version: str = NEWEST) -> dict[str, Any]:
        """Return the dimension dictionary of a process.

        DAP 0.10.0, section 1.6, or 0.9.0, chapter 6. Raises ProtocolError if the version cannot express the map.
        """

    @abstractmethod
    def sliced(self, selection: Range) -> Map:
        """Return the map of a slice; elements stay on their process."""

    @abstractmethod
    def _arguments(self) -> tuple[Any, ...]:
        """Return the arguments of the constructor that make an equal map."""

    @abstractmethod
    def _holders(self, g: np.ndarray) -> list[np.ndarray]:
        """Return the ranks that hold each of some valid global indices."""

    # Derived from the abstract methods

    def extent(self, rank: int) -> int:
        """Return the size of a process's buffer, padding included."""
        return sum(map(len, self.segments(rank)))

    def indices(self, rank: int) -> np.ndarray:
        """Return the global indices of a process's buffer, padding included."""
        parts = [segment.indices() if isinstance(segment, Range) else segment for segment in self.segments(rank)]
        return np.concatenate([np.zeros(0, np.int64), *parts]) if len(parts) != 1 else parts[0]

    def fits(self, size: int) -> bool:
        """Return whether the indices are positions of a dimension of a size."""
        return self.size == size

    def owned_slice(self, rank: int) -> slice:
        """Return the slice of a process's buffer that the process owns."""
        return slice(0, self.extent(rank))

    def num_owned(self, rank: int) -> int:
        """Return the number of elements that a process owns."""
        owned = self.owned_slice(rank)
        return int(owned.stop - owned.start)

    def owns(self, rank: int) -> np.ndarray:
        """Return for each element of a buffer whether the process is its owner."""
        return np.asarray(self.owner(self.indices(rank)) == rank)

    def owned(self, rank: int) -> np.ndarray:
        """Return the global indices of a process, communication padding excluded."""
        return self.indices(rank)[self.owned_slice(rank)]

    def holders(self, g: Any) -> Any:
        """Return all ranks that hold a global index, padding included.

        The ranks are ascending int64. An array of indices gives an object array of such arrays.
        """
        indices = self._check_indices(g)
        ranks = self._holders(indices.ravel())
        if indices.ndim == 0:
            return ranks[0]
        result = np.empty(indices.size, object)
        result[:] = ranks
        return result.reshape(indices.shape)

    def _check_indices(self, g: Any) -> np.ndarray:
        """Return global indices as int64; SelectionError if out of range."""
        indices = as_positions(g, "global index")
        if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= self.size):
            invalid = indices.min() if indices.min() < 0 else indices.max()
            hint = f"give 0 to {self.size - 1}" if self.size else None
            raise SelectionError(f"global index {invalid} is out of range for a dimension of size {self.size}", hint=hint)
        return indices

    def _check_rank(self, rank: Any) -> int:
        return check_rank(rank, self.nprocs)

    def _check_positions(self, rank: Any, local: Any, extents: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return ranks and local positions as arrays of one shape."""
        ranks, locals_ = np.broadcast_arrays(as_positions(rank, "rank"), as_positions(local, "local index"))
        if ranks.size and not (int(ranks.min()) >= 0 and int(ranks.max()) < self.nprocs):
            reason = f"ranks {short_repr(rank)} are out of range for {counted(self.nprocs, 'process')} (0 to {self.nprocs - 1})"
            raise ProtocolError(reason)
        invalid = (locals_ < 0) | (locals_ >= extents(ranks))
        if invalid.any():
            i = int(np.flatnonzero(invalid.ravel())[0])
            position, number = locals_.ravel()[i], int(ranks.ravel()[i])
            size = self.extent(number)
            raise SelectionError(f"local index {position} is out of range for rank {number}, whose buffer has {size} elements")
        return ranks, locals_

    def _common_keys(self, rank: int) -> dict[str, Any]:
        return {"dist_type": self.letter, "size": self.size, "proc_grid_size": self.nprocs, "proc_grid_rank": rank}

    def _periodic_key(self, version: str) -> dict[str, Any]:
        """Return the key of a periodic dimension without padding (0.9.0 only)."""
        if self.periodic and version != OLD:
            raise ProtocolError(f"0.10.0 cannot express periodic dimensions of dist_type {self.letter!r}", hint="write 0.9.0")
        return {"periodic": True} if self.periodic else {}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        return tuple(map(_hashable, self._arguments()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._again, self._arguments()

    @classmethod
    def _again(cls, *arguments: Any) -> Map:
        return cls(*arguments)


class MapType(Map):
    """A distribution type: a map and the reader of its dimension dictionaries."""

    __slots__ = ()
    #: Whether the dictionary of one process describes the complete map.
    one_part_suffices: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def parse(cls, entry: DimDictReader, common: tuple[int, int, int] | None) -> Part | None:
        """Return the part that a dictionary describes, None if it is incomplete.

        ``common``: size, proc_grid_size, proc_grid_rank; None if one is invalid: other keys are then checked by themselves.
        """

    @classmethod
    def conflicts(cls, parts: Sequence[Any], version: str) -> Iterator[Conflict]:
        """Yield the conflicts between parts by rank, None where unknown."""
        return iter(())

    @classmethod
    def from_parts(cls, parts: Sequence[Any]) -> Self:
        """Return the map of the parts of all processes, without conflicts."""
        return cls.from_part(parts[0])

    @classmethod
    @abstractmethod
    def from_part(cls, part: Any) -> Self:
        """Return a possible map in which one process is as its part describes."""


def check_rank(rank: Any, nprocs: int) -> int:
    """Return a rank; ProtocolError if it is out of range."""
    number = as_integer(rank)
    if number is None or not 0 <= number < nprocs:
        raise ProtocolError(f"rank {short_repr(rank)} is out of range for {counted(nprocs, 'process')} (0 to {nprocs - 1})")
    return number


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def as_positions(values: Any, what: str) -> np.ndarray:
    """Return one or more integers as int64; SelectionError for others."""
    if type(values) is np.ndarray and values.dtype == np.int64:
        return values
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        array = np.array(None)
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)  # NumPy reads [] as floats
    large = array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max
    if array.dtype.kind not in "iu" or large:
        raise SelectionError(f"{what} {short_repr(values)} has dtype {array.dtype}", hint="give integers of at most 64 bits")
    return array.astype(np.int64)


def count_of(value: Any, what: str, least: int) -> int:
    """Return an integer of at least ``least``; ProtocolError for others."""
    number = as_integer(value)
    if number is None or number < least:
        raise ProtocolError(f"invalid {what} {short_repr(value)}", hint=f"give an integer of at least {least}")
    return number


def flag_of(value: Any, what: str) -> bool:
    """Return a truth value; ProtocolError for anything else."""
    if not isinstance(value, bool | np.bool):
        raise ProtocolError(f"invalid {what} {short_repr(value)}", hint="give True or False")
    return bool(value)
