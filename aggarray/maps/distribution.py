"""Distribution of an array: one map per dimension over a process grid."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.dataclass import dataclass
from aggarray.errors import ProtocolError, SelectionError
from aggarray.maps.balance import partition_maps
from aggarray.maps.base import Map, check_rank
from aggarray.maps.block import Block
from aggarray.maps.cyclic import Cyclic
from aggarray.maps.fields import NEWEST, as_integer, as_sizes, short_repr, version_of
from aggarray.maps.validation import maps_of_all
from aggarray.memory.selection import Range, normalise


@dataclass(frozen=True, slots=True)
class Distribution:
    """Distribution of an array over processes: one map per dimension.

    Raises ProtocolError if an argument is not a map.

    >>> d = Distribution.regular((5, 9), "bc", (2, 2))
    >>> d.nprocs, d.coords(3), d.local_shape(3), [i.tolist() for i in d.indices(3)]
    (4, (1, 1), (2, 4), [[3, 4], [1, 3, 5, 7]])
    >>> d[1:].local_shape(0), d.owner((4, 0)).tolist()
    ((2, 5), 2)
    """

    maps: tuple[Map, ...]

    if TYPE_CHECKING:

        def __init__(self, maps: Iterable[Map]) -> None: ...

    def __post_init__(self) -> None:
        candidates: Any = self.maps
        maps = tuple(candidates) if isinstance(candidates, Iterable) else (candidates,)
        for number, map_ in enumerate(maps):
            if not isinstance(map_, Map):
                reason = f"dimension {number}: {type(map_).__name__} is not a map"
                raise ProtocolError(reason, hint="give a Block, Cyclic or Unstructured")
        object.__setattr__(self, "maps", maps)

    @classmethod
    def regular(
        cls,
        shape: Sequence[int],
        dist_types: str | Sequence[str],
        grid: Sequence[int],
        block_size: Mapping[int, int] = {},
        padding: Mapping[int, Any] = {},
        periodic: Collection[int] = (),
        outer: str = "boundary",
    ) -> Distribution:
        """Return a distribution of even blocks and cyclic dimensions.

        ``dist_types``: 'b' or 'c' for each dimension, as text ("bc", "b,c") or a sequence; ``grid``: the number of processes
        along each dimension; ``block_size``, ``padding``: by dimension number, of cyclic and of block dimensions; ``periodic``:
        numbers of block dimensions; ``outer``: the meaning of their outer padding. Raises ProtocolError for invalid arguments.
        """
        sizes, counts = as_sizes(shape, "shape"), as_sizes(grid, "grid")
        letters: Any = dist_types
        if not isinstance(letters, Sequence):
            hint = "give 'b' or 'c' for each dimension, as text or a sequence"
            raise ProtocolError(f"invalid dist_types {short_repr(dist_types)}", hint=hint)
        types = letters.replace(",", "").replace(" ", "") if isinstance(letters, str) else list(letters)
        if not len(sizes) == len(counts) == len(types):
            reason = f"shape {sizes}, dist_types {short_repr(dist_types)} and grid {counts} differ in length"
            raise ProtocolError(reason, hint="give one of each per dimension")
        _check_dimensions("block_size", block_size, Mapping, types, "c")
        _check_dimensions("padding", padding, Mapping, types, "b")
        _check_dimensions("periodic", periodic, Collection, types, "b")
        if outer != "boundary" and not periodic:
            raise ProtocolError(f"outer={short_repr(outer)} without periodic dimensions", hint="give these in periodic")
        maps: list[Map] = []
        for d, letter in enumerate(types):
            if letter == "c":
                maps.append(Cyclic(sizes[d], counts[d], block_size.get(d, 1)))
            elif letter == "b":
                is_periodic = d in periodic
                maps.append(Block.even(sizes[d], counts[d], padding.get(d), is_periodic, outer if is_periodic else "boundary"))
            else:
                raise ProtocolError(f"unknown dist_type {short_repr(letter)} of dimension {d}", hint="give 'b' or 'c'")
        return cls(tuple(maps))

    @classmethod
    def from_partitions(
        cls,
        array: Any,
        nprocs: int | Sequence[int],
        assignment: Mapping[Any, Sequence[int]] | None = None,
        balance: str = "contiguous",
    ) -> Distribution:
        """Return a distribution that gives each partition to one process.

        ``nprocs``: a number, or one per dimension; ``balance``: "contiguous" (irregular blocks with the lowest maximum cost) or
        "cost" (the costliest slab of partitions first, to the process with the lowest cost so far: unstructured). A slab costs
        the stored bytes of its files if an index has them, and the bytes of its values otherwise. ``assignment``: by dimension
        (name or number), the rank of each slab of partitions along it. Processes without slabs get no elements.
        """
        return cls(partition_maps(array, nprocs, assignment or {}, balance))

    @classmethod
    def from_dim_data(
        cls, dim_data_of_every_rank: Sequence[Any], version: str = NEWEST, shapes: Sequence[Sequence[int]] | None = None
    ) -> Distribution:
        """Return the distribution that the dim_data of all ranks describe.

        ``shapes``: the local shapes, required for {}. Raises ProtocolError with every fault, including 0.9.0 padding that
        wraps.
        """
        return cls(maps_of_all(dim_data_of_every_rank, version_of(version), shapes))

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape."""
        return tuple(m.size for m in self.maps)

    @property
    def grid(self) -> tuple[int, ...]:
        """The number of processes along each dimension."""
        return tuple(m.nprocs for m in self.maps)

    @property
    def nprocs(self) -> int:
        """The number of processes."""
        return prod(self.grid)

    def coords(self, rank: int) -> tuple[int, ...]:
        """Return the grid coordinates of a rank; ProtocolError for others."""
        number, coords = check_rank(rank, self.nprocs), []
        for count in reversed(self.grid):
            number, coordinate = divmod(number, count)
            coords.append(coordinate)
        return tuple(coords[::-1])

    def _along(self, rank: int) -> list[tuple[Map, int]]:
        return list(zip(self.maps, self.coords(rank), strict=True))

    def dim_data(self, rank: int, version: str = NEWEST) -> tuple[dict[str, Any], ...]:
        """Return the dimension dictionaries of a process, as `Map.dim_dict`."""
        return tuple(m.dim_dict(coordinate, version) for m, coordinate in self._along(rank))

    def indices(self, rank: int) -> tuple[np.ndarray, ...]:
        """Return the indices of a process along each dimension, with padding."""
        return tuple(m.indices(coordinate) for m, coordinate in self._along(rank))

    def local_shape(self, rank: int) -> tuple[int, ...]:
        """Return the shape of a process's buffer, padding included."""
        return tuple(m.extent(coordinate) for m, coordinate in self._along(rank))

    def owned_slices(self, rank: int) -> tuple[slice, ...]:
        """Return the slices of a process's buffer that the process owns."""
        return tuple(m.owned_slice(coordinate) for m, coordinate in self._along(rank))

    def segments(self, rank: int) -> tuple[list[Range | np.ndarray], ...]:
        """Return the selectors of a process's buffer along each dimension."""
        return tuple(m.segments(coordinate) for m, coordinate in self._along(rank))

    def owner(self, index: Any) -> Any:
        """Return the rank that owns each element.

        ``index``: an integer, or an array of integers, per dimension. Raises SelectionError, an IndexError, if out of range.
        """
        indices = index if isinstance(index, tuple | list) else (index,)
        if len(indices) != len(self.maps):
            raise SelectionError(f"{len(indices)} indices for {len(self.maps)} dimensions", hint="give one per dimension")
        flat_ranks: Any = np.int64(0)
        for map_, positions in zip(self.maps, indices, strict=True):
            ranks = map_.owner(positions)
            try:
                flat_ranks = flat_ranks * map_.nprocs + ranks
            except ValueError as error:
                raise SelectionError(f"indices of shapes {[np.shape(g) for g in indices]} do not broadcast") from error
        return flat_ranks

    def __getitem__(self, key: Any) -> Distribution:
        """Return the distribution of a slice; elements stay on their process."""
        selections = normalise(key, self.shape)
        if not all(isinstance(c, Range) for c in selections):
            raise SelectionError(f"a distribution cannot be indexed by {short_repr(key)}", hint="give slices")
        return Distribution(tuple(m.sliced(c) for m, c in zip(self.maps, selections, strict=True) if isinstance(c, Range)))


def _check_dimensions(what: str, numbers: Any, required: Any, types: Sequence[str], letter: str) -> None:
    if not isinstance(numbers, required):
        hint = "give the numbers of the dimensions, such as (0,)"
        if required is Mapping:
            hint = "give a mapping by dimension number, such as {0: ...}"
        raise ProtocolError(f"invalid {what} {short_repr(numbers)}", hint=hint)
    for d in numbers:
        if (number := as_integer(d)) is None or not 0 <= number < len(types) or types[number] != letter:
            hint = f"give numbers of dimensions with dist_type {letter!r}"
            raise ProtocolError(f"{what} of invalid dimension {short_repr(d)}", hint=hint)
