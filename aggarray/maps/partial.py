"""Map of a dimension of which only one process is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from aggarray.errors import ProtocolError
from aggarray.maps.base import Map, MapType, Part
from aggarray.maps.fields import NEWEST
from aggarray.memory.selection import Range

#: Limit of the number of processes; a dictionary with more is invalid.
MAX_PROCESSES = 1 << 22


class Partial(Map):
    """Map of the part of one process; ProtocolError for other ranks."""

    __slots__ = ("_map", "map_type", "nprocs", "part", "periodic", "rank", "size")

    def __init__(self, map_type: type[MapType], part: Part) -> None:
        if part.nprocs > MAX_PROCESSES:
            raise ProtocolError(f"proc_grid_size {part.nprocs} is more than the limit of {MAX_PROCESSES} processes")
        self.map_type, self.part = map_type, part
        self.size, self.nprocs, self.rank, self.periodic = part.size, part.nprocs, part.rank, part.periodic
        self._map = map_type.from_part(part)

    @property
    def dist_type(self) -> str:
        """The ``dist_type`` of the protocol."""
        return self.map_type.letter

    def _own_rank(self, rank: int) -> int:
        if self._check_rank(rank) != self.rank:
            raise self._unknown(f"rank {rank}")
        return self.rank

    def _unknown(self, what: str) -> ProtocolError:
        reason = f"{what}: only the part of rank {self.rank} is known"
        return ProtocolError(reason, hint="give the parts of all ranks to Distribution.from_dim_data")

    def fits(self, size: int) -> bool:
        """Return whether the indices are positions of a dimension of a size."""
        return self._map.fits(size)

    def segments(self, rank: int) -> list[Range | np.ndarray]:
        """Return the elements of the buffer of the process."""
        return self._map.segments(self._own_rank(rank))

    def owned_slice(self, rank: int) -> slice:
        """Return the slice of its buffer that the process owns."""
        return self._map.owned_slice(self._own_rank(rank))

    def dim_dict(self, rank: int, version: str = NEWEST) -> dict[str, Any]:
        """Return the dimension dictionary of the process."""
        return self._map.dim_dict(self._own_rank(rank), version)

    def owner(self, g: Any) -> Any:
        """Raise ProtocolError: the other parts are unknown."""
        raise self._unknown("owner")

    def to_local(self, g: Any) -> tuple[Any, Any]:
        """Raise ProtocolError: the other parts are unknown."""
        raise self._unknown("to_local")

    def holders(self, g: Any) -> Any:
        """Raise ProtocolError: the other parts are unknown."""
        raise self._unknown("holders")

    def _holders(self, g: np.ndarray) -> list[np.ndarray]:
        raise self._unknown("holders")

    def to_global(self, rank: Any, local: Any) -> Any:
        """Return the global index at positions of the buffer of the process."""
        for other in np.unique(rank).tolist():
            self._own_rank(other)
        return self._map.to_global(rank, local)

    def sliced(self, selection: Range) -> Map:
        """Return this map if the slice is complete; ProtocolError otherwise."""
        if selection.is_full(self.size):
            return self
        raise self._unknown("a slice")

    def _arguments(self) -> tuple[Any, ...]:
        return self.map_type, self.part

    def _identity(self) -> tuple[Any, ...]:
        return self.map_type, self.size, self.nprocs, self.rank, self._map._identity()

    def __repr__(self) -> str:
        return f"Partial({self.dist_type!r}, size={self.size}, rank {self.rank} of {self.nprocs})"
