"""Cyclic distribution: blocks assigned to the processes in turn.

All results are computed from the size, the number of processes and the block size; no tables are stored.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np

from aggarray.dataclass import dataclass
from aggarray.maps.base import Map, MapType, Part, count_of, flag_of
from aggarray.maps.fields import NEWEST, DimDictReader, version_of
from aggarray.maps.unstructured import unstructured_slice
from aggarray.memory.selection import Range


def cyclic_count(size: int, nprocs: int, block_size: int, rank: Any) -> Any:
    """Return the number of elements of one rank or of several.

    >>> [cyclic_count(7, 2, 2, rank) for rank in range(2)]
    [4, 3]
    """
    blocks, rest = divmod(size, block_size)
    full = (blocks - rank + nprocs - 1) // nprocs
    return full * block_size + rest * (rank == blocks % nprocs)


@dataclass(frozen=True, slots=True, eq=False)
class CyclicPart(Part):
    """What one process exports about a cyclic dimension."""

    block_size: int

    @property
    def count(self) -> int:
        """Number of elements that the process owns."""
        return int(cyclic_count(self.size, self.nprocs, self.block_size, self.rank))

    def constants(self) -> dict[str, Any]:
        """Return the values that are equal on all processes, with the block size."""
        return {**Part.constants(self), "block_size": self.block_size}


@dataclass(frozen=True, slots=True, eq=False)
class Cyclic(MapType):
    """Equal blocks assigned in turn (DAP 0.10.0, section 1.6.2, 'c').

    Only 0.9.0 can express ``periodic``. Raises ProtocolError for invalid arguments.

    >>> m = Cyclic(7, 2, block_size=2)
    >>> m.indices(0).tolist(), m.indices(1).tolist(), m.owner([0, 3, 6]).tolist()
    ([0, 1, 4, 5], [2, 3, 6], [0, 1, 1])
    """

    letter: ClassVar[str] = "c"
    one_part_suffices: ClassVar[bool] = True
    size: int
    nprocs: int
    block_size: int = 1
    periodic: bool = False

    def __post_init__(self) -> None:
        for name, least in (("size", 0), ("nprocs", 1), ("block_size", 1)):
            object.__setattr__(self, name, count_of(getattr(self, name), name, least))
        object.__setattr__(self, "periodic", flag_of(self.periodic, "periodic"))

    @property
    def _block(self) -> int:
        # Limited to the size of the dimension, so that products do not overflow.
        return max(min(self.block_size, self.size), 1)

    def extent(self, rank: int) -> int:
        """Return the number of elements of a process: there is no padding."""
        count: int = cyclic_count(self.size, self.nprocs, self.block_size, self._check_rank(rank))
        return count

    def owns(self, rank: int) -> np.ndarray:
        """Return True for each element: there is no padding."""
        return np.ones(self.extent(rank), bool)

    num_owned = extent

    def segments(self, rank: int) -> list[Range | np.ndarray]:
        """Return a strided range, or the ascending indices of larger blocks."""
        rank, block, count = self._check_rank(rank), self._block, self.extent(rank)
        if block == 1 or count <= block:
            return [Range(rank * block, count, self.nprocs if block == 1 else 1)] if count else [Range(0, 0)]
        local = np.arange(count, dtype=np.int64)
        return [(local // block * self.nprocs + rank) * block + local % block]

    def owner(self, g: Any) -> Any:
        """Return the rank that owns each global index."""
        return self._owner(self._check_indices(g))[()]

    def _owner(self, g: np.ndarray) -> np.ndarray:
        turn = g // self._block if self._block > 1 else g
        if self.nprocs & (self.nprocs - 1) == 0:
            return np.asarray(turn & (self.nprocs - 1))
        # NumPy divides by a scalar several times faster than it computes remainders.
        return np.asarray(turn - (turn // self.nprocs) * self.nprocs)

    def _holders(self, g: np.ndarray) -> list[np.ndarray]:
        return list(self._owner(g)[:, np.newaxis])

    def to_local(self, g: Any) -> tuple[Any, Any]:
        """Return the owner of each global index and its position there."""
        g = self._check_indices(g)
        block = self._block
        return self._owner(g)[()], ((g // block // self.nprocs) * block + g % block)[()]

    def to_global(self, rank: Any, local: Any) -> Any:
        """Return the global indices at the given positions."""
        block = self._block
        sizes = partial(cyclic_count, self.size, self.nprocs, block)
        ranks, locals_ = self._check_positions(rank, local, sizes)
        return ((locals_ // block * self.nprocs + ranks) * block + locals_ % block)[()]

    def dim_dict(self, rank: int, version: str = NEWEST) -> dict[str, Any]:
        """Return the dictionary of a process, equal in both versions."""
        version, rank = version_of(version), self._check_rank(rank)
        entry = {**self._common_keys(rank), "start": rank * self.block_size}
        if self.block_size != 1:
            entry["block_size"] = self.block_size
        return entry | self._periodic_key(version)

    def sliced(self, selection: Range) -> Map:
        """Return a cyclic map if the slice begins at rank 0, else unstructured."""
        if selection.is_full(self.size):
            return self
        begins = selection.count == 0 or selection.start % (self._block * self.nprocs) == 0
        if (selection.step == 1 and begins) or (self.nprocs == 1 and selection.step > 0):
            return Cyclic(selection.count, self.nprocs, self.block_size)
        return unstructured_slice(self, selection)

    def _arguments(self) -> tuple[Any, ...]:
        return self.size, self.nprocs, self.block_size, self.periodic

    @classmethod
    def parse(cls, entry: DimDictReader, common: tuple[int, int, int] | None) -> CyclicPart | None:
        """Return the part that a dictionary describes.

        ``start`` is rank * block_size, or the size where the process has no elements.
        """
        start, block = entry.integer("start"), entry.integer("block_size", 1, 1)
        periodic = entry.flag("periodic")
        entry.refuse("padding", *(["periodic"] if entry.version == NEWEST else []))
        if common is None or start is None or block is None:
            return None
        size, nprocs, rank = common
        beyond = start == size and rank * block >= size
        if start != rank * block and not beyond:
            entry.note("start", start, f"must be proc_grid_rank * block_size ({rank * block})")
        part = CyclicPart(*common, periodic, block)
        entry.expect_extent(part.count, f"the share of rank {rank} of {nprocs} in {size} elements, in blocks of {block}")
        return part

    @classmethod
    def from_part(cls, part: CyclicPart) -> Cyclic:
        """Return the map, which every part describes completely."""
        return cls(part.size, part.nprocs, part.block_size, part.periodic)


MAP = Cyclic
