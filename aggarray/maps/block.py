"""Block distribution: one contiguous, padded block per process.

Communication padding repeats elements of the neighbours: a process holds them and does not own them. Boundary padding, at the
two ends of the dimension, is owned like any other element. ``start`` and ``stop`` include all padding in 0.10.0; in 0.9.0 they
exclude communication padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from aggarray.dataclass import dataclass, field
from aggarray.errors import ProtocolError
from aggarray.maps.base import Conflict, Map, MapType, Part, count_of, flag_of
from aggarray.maps.fields import NEWEST, OLD, DimDictReader, as_integers, short_repr, version_of
from aggarray.maps.unstructured import unstructured_slice
from aggarray.memory.selection import Range


@dataclass(frozen=True, slots=True, eq=False)
class BlockPart(Part):
    """The owned range and the padding of one process, None if not exported."""

    start: int
    stop: int
    padding: tuple[int, int] | None
    wraps: bool

    @property
    def count(self) -> int:
        """Number of elements that the process owns."""
        return self.stop - self.start

    @property
    def pads(self) -> tuple[int, int]:
        """Padding at both ends."""
        return self.padding or (0, 0)

    @property
    def halo(self) -> tuple[int, int]:
        """Communication padding at both ends."""
        return _communication_padding(self.pads, self.rank, self.nprocs, self.wraps)

    def rank_constants(self) -> dict[str, Any]:
        """Return the range and the communication padding."""
        return {"start": self.start, "stop": self.stop, "padding": self.halo}

    def rank_variables(self) -> dict[str, Any]:
        """Return the padding, boundary padding included."""
        return {"padding": self.pads}


def _communication_padding(pads: tuple[int, int], rank: int, nprocs: int, wraps: bool) -> tuple[int, int]:
    """Return the padding without boundary padding, which does not wrap."""
    return pads[0] * (rank > 0 or wraps), pads[1] * (rank < nprocs - 1 or wraps)


@dataclass(frozen=True, slots=True, eq=False)
class Block(MapType):
    """One contiguous block per process (DAP 0.10.0, section 1.6.2, 'b').

    ``bounds``: the cuts between the owned blocks, from 0 to the size, one more than processes. ``padding``: one (left, right)
    for all processes, or a list with one per process, outer edges included; None means no padding and no key. ``outer``:
    "boundary", or "wrap" (periodic dimensions and 0.9.0 only): the outer padding repeats the other end. Raises ProtocolError
    for invalid arguments. Padding must not be wider than the block of the neighbour.

    >>> m = Block.even(18, 2, padding=(1, 1))
    >>> m.indices(1)[:3].tolist(), m.owned(1)[:3].tolist(), m.holders(9).tolist()
    ([8, 9, 10], [9, 10, 11], [0, 1])
    >>> m.dim_dict(1)["start"], m.dim_dict(1, "0.9.0")["start"]
    (8, 9)
    """

    letter: ClassVar[str] = "b"
    bounds: Sequence[int] | np.ndarray
    padding: Sequence[Any] | np.ndarray | None = None
    periodic: bool = False
    outer: str = "boundary"
    _edges: np.ndarray = field(init=False, repr=False)
    _pads: np.ndarray = field(init=False, repr=False)
    _halo: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        edges = as_integers(self.bounds, "bounds")
        if edges.ndim != 1 or len(edges) < 2 or edges[0] != 0 or (np.diff(edges) < 0).any():
            reason = f"invalid bounds {short_repr(self.bounds)}"
            raise ProtocolError(reason, hint="give ascending cuts from 0 to the size, one more than processes")
        nprocs = len(edges) - 1
        pads = _padding(self.padding, nprocs)
        periodic = flag_of(self.periodic, "periodic")
        if self.outer not in ("boundary", "wrap") or (self.outer == "wrap" and not periodic):
            reason = f"invalid outer {short_repr(self.outer)}"
            raise ProtocolError(reason, hint="give 'boundary', or 'wrap' for a periodic dimension")
        halo = pads.copy()
        if self.outer == "boundary":
            halo[0, 0] = halo[-1, 1] = 0
        _check_widths(np.diff(edges), pads, halo)
        pads.flags.writeable = halo.flags.writeable = False
        padding = None if self.padding is None else pads
        fields = {"bounds": edges, "padding": padding, "periodic": periodic, "_edges": edges, "_pads": pads, "_halo": halo}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @classmethod
    def even(cls, size: int, nprocs: int, padding: Any = None, periodic: bool = False, outer: str = "boundary") -> Block:
        """Return blocks of equal sizes; the first ``size % nprocs`` have one more.

        >>> Block.even(10, 4).bounds.tolist()
        [0, 3, 6, 8, 10]
        """
        size, nprocs = count_of(size, "size", 0), count_of(nprocs, "nprocs", 1)
        each, more = divmod(size, nprocs)
        ranks = np.arange(nprocs + 1, dtype=np.int64)
        return cls(ranks * each + np.minimum(ranks, more), padding, periodic, outer)

    @property
    def size(self) -> int:  # type: ignore[override]
        """Size of the dimension."""
        return int(self._edges[-1])

    @property
    def nprocs(self) -> int:  # type: ignore[override]
        """Number of processes."""
        return len(self._edges) - 1

    def _bounds_of(self, rank: int) -> tuple[int, int]:
        rank = self._check_rank(rank)
        return int(self._edges[rank] - self._halo[rank, 0]), int(self._edges[rank + 1] + self._halo[rank, 1])

    def extent(self, rank: int) -> int:
        """Return the size of a process's buffer, padding included."""
        low, high = self._bounds_of(rank)
        return high - low

    def segments(self, rank: int) -> list[Range | np.ndarray]:
        """Return the ranges of the buffer: one, or up to three where it wraps."""
        low, high = self._bounds_of(rank)
        segments: list[Range | np.ndarray] = []
        while low < high:
            start = low % self.size
            count = min(high - low, self.size - start)
            segments.append(Range(start, count))
            low += count
        return segments or [Range(0, 0)]

    def owned_slice(self, rank: int) -> slice:
        """Return the buffer without communication padding."""
        left, right = self._halo[self._check_rank(rank)].tolist()
        return slice(left, self.extent(rank) - right)

    def num_owned(self, rank: int) -> int:
        """Return the size of the block."""
        rank = self._check_rank(rank)
        return int(self._edges[rank + 1] - self._edges[rank])

    def owner(self, g: Any) -> Any:
        """Return the ranks whose blocks contain the global indices."""
        return find_intervals(self._edges, self._check_indices(g))[()]

    def _holders(self, g: np.ndarray) -> list[np.ndarray]:
        # Padding is at most as wide as the neighbour's block: only the owner and its neighbours hold an element.
        owner = find_intervals(self._edges, g)
        neighbours = np.stack([(owner - 1) % self.nprocs, owner, (owner + 1) % self.nprocs], axis=-1)
        # Distances to the start and to the end of the block.
        distances = np.stack([g - self._edges[owner], self._edges[owner + 1] - g], axis=-1)
        holds = np.ones(neighbours.shape, bool)
        holds[:, 0] = distances[:, 0] < self._halo[neighbours[:, 0], 1]
        holds[:, 2] = distances[:, 1] <= self._halo[neighbours[:, 2], 0]
        ranks = np.sort(np.where(holds, neighbours, -1), axis=-1)
        distinct = (ranks >= 0) & (np.diff(ranks, axis=-1, prepend=-1) != 0)
        ends = np.cumsum(distinct.sum(axis=-1)).tolist()
        flat = ranks[distinct]
        return [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def to_local(self, g: Any) -> tuple[Any, Any]:
        """Return the owner of each global index and its position there."""
        g = self._check_indices(g)
        owner = find_intervals(self._edges, g)[()]
        return owner, (g - self._edges[owner] + self._halo[owner, 0])[()]

    def to_global(self, rank: Any, local: Any) -> Any:
        """Return global indices; padding that wraps gives those of the other end."""
        sizes = np.diff(self._edges) + self._halo.sum(axis=1)
        ranks, locals_ = self._check_positions(rank, local, lambda r: sizes[r])
        indices = self._edges[ranks] - self._halo[ranks, 0] + locals_
        return (indices % max(self.size, 1) if self.outer == "wrap" else indices)[()]

    def dim_dict(self, rank: int, version: str = NEWEST) -> dict[str, Any]:
        """Return the dictionary of a process; in 0.9.0 one process is 'n'.

        0.10.0 cannot express padding that wraps or that differs on the two sides of a cut. 0.9.0 cannot express boundary
        padding on periodic dimensions. These raise ProtocolError.
        """
        version, rank = version_of(version), self._check_rank(rank)
        self._check_expressible(version)
        entry = self._common_keys(rank)
        if version == OLD and self.nprocs == 1:
            entry = {"dist_type": "n", "size": self.size}
        elif version == OLD:
            entry |= {"start": int(self._edges[rank]), "stop": int(self._edges[rank + 1])}
        else:
            low, high = self._bounds_of(rank)
            entry |= {"start": low, "stop": high}
        if self.padding is not None:
            entry["padding"] = tuple(self._pads[rank].tolist())
        return entry | ({"periodic": True} if self.periodic else {})

    def _check_expressible(self, version: str) -> None:
        outer = self.periodic and bool(self._pads[0, 0] or self._pads[-1, 1])
        if version == OLD and outer and self.outer == "boundary":
            reason = "0.9.0 cannot express boundary padding on a periodic dimension"
            raise ProtocolError(reason, hint="write 0.10.0, or use outer='wrap'")
        if version == OLD:
            return
        if outer and self.outer == "wrap":
            reason = "0.10.0 cannot express padding that wraps (outer='wrap')"
            raise ProtocolError(reason, hint="write 0.9.0, or use outer='boundary'")
        uneven = np.flatnonzero(self._pads[:-1, 1] != self._pads[1:, 0])
        if uneven.size:
            i = int(uneven[0])
            pads = f"padding {self._pads[i].tolist()} and {self._pads[i + 1].tolist()} of ranks {i} and {i + 1}"
            raise ProtocolError(f"{pads}: 0.10.0 requires equal widths at both sides of a cut", hint="write 0.9.0")

    def sliced(self, selection: Range) -> Map:
        """Return the blocks of a slice, unstructured for a negative step."""
        if selection.is_full(self.size):
            return self
        if selection.step < 0:
            return unstructured_slice(self, selection)

        def count_before(positions: np.ndarray) -> np.ndarray:
            """Return the number of selected elements before each position."""
            return np.asarray(np.clip(-((selection.start - positions) // selection.step), 0, selection.count))

        edges = count_before(self._edges)
        if self.padding is None:
            return Block(edges)
        pads = np.zeros_like(self._pads)
        pads[:, 0] = edges[:-1] - count_before(self._edges[:-1] - self._pads[:, 0])
        pads[:, 1] = count_before(self._edges[1:] + self._pads[:, 1]) - edges[1:]
        even = self._pads[:-1, 1] == self._pads[1:, 0]
        least = np.minimum(pads[:-1, 1], pads[1:, 0])
        pads[:-1, 1], pads[1:, 0] = np.where(even, least, pads[:-1, 1]), np.where(even, least, pads[1:, 0])
        ends = np.array([self._pads[0, 0], self.size - self._pads[-1, 1]])
        before, until = count_before(ends).tolist()
        pads[0, 0], pads[-1, 1] = (0, 0) if self.outer == "wrap" else (before, selection.count - until)
        return Block(edges, pads)

    def _arguments(self) -> tuple[Any, ...]:
        return self._edges, self.padding, self.periodic, self.outer

    @classmethod
    def parse(cls, entry: DimDictReader, common: tuple[int, int, int] | None) -> BlockPart | None:
        """Return the part that a dictionary describes, checked by itself."""
        start, stop, pads = entry.integer("start"), entry.integer("stop"), entry.pair("padding")
        periodic = entry.flag("periodic")
        if common is None or start is None or stop is None or pads is None:
            return None
        size, nprocs, rank = common
        wraps = periodic and entry.version == OLD
        halo = _communication_padding(pads, rank, nprocs, wraps)
        extent = stop - start + (sum(halo) if entry.version == OLD else 0)
        if stop < start:
            entry.note("stop", stop, f"must not be less than start ({start})")
        if stop > size:
            entry.note("stop", stop, f"must not be more than size ({size})")
        if rank == 0 and start != 0:
            entry.note("start", start, "the first process must start at 0")
        if rank == nprocs - 1 and stop < size:
            entry.note("stop", stop, f"the last process must stop at size ({size})")
        if stop >= start and sum(pads) > extent:
            entry.note("padding", pads, f"must not be wider than the buffer ({extent})")
        if entry.version == OLD and not wraps and (start < halo[0] or stop + halo[1] > size):
            entry.note("padding", pads, f"must not reach beyond the dimension (0 to {size})")
        entry.expect_extent(max(extent, 0), f"start {start}, stop {stop}, padding {pads}")
        if entry.version == NEWEST:
            start, stop = start + halo[0], stop - halo[1]
        return BlockPart(*common, periodic, start, stop, pads if "padding" in entry.values else None, wraps)

    @classmethod
    def conflicts(cls, parts: Sequence[BlockPart | None], version: str) -> Iterator[Conflict]:
        """Yield gaps, overlaps, and padding that does not fit the neighbour."""
        for left, right in pairwise(parts):
            if left is None or right is None:
                continue
            if left.stop != right.start:
                what = "a gap" if left.stop < right.start else "an overlap"
                rule = f"{what}: rank {left.rank} owns up to {left.stop}, rank {right.rank} from {right.start} on"
                yield Conflict(right.rank, "start", right.start, rule)
            if version == NEWEST and left.pads[1] != right.pads[0]:
                rule = f"rank {left.rank} has {left.pads[1]} at its right, rank {right.rank} has {right.pads[0]} at its left"
                yield Conflict(right.rank, "padding", right.pads, f"widths at a cut must be equal: {rule}")
            yield from _width_conflicts(left, right)
        first, last = parts[0], parts[-1]
        if first is not None and last is not None and first.wraps:
            yield from _width_conflicts(last, first)
        valid = [p for p in parts if p is not None]
        if version == OLD and len({p.padding is None for p in valid}) > 1:
            for part in valid:
                if part.padding is None:
                    yield Conflict(part.rank, "padding", None, "the key is missing, though other processes of the axis have it")

    @classmethod
    def from_parts(cls, parts: Sequence[BlockPart]) -> Block:
        """Return the blocks of all processes."""
        if any(p.wraps and p.halo != _communication_padding(p.pads, p.rank, p.nprocs, False) for p in parts):
            reason = "the padding of 0.9.0 wraps at the ends of a periodic dimension, which 0.10.0 cannot express"
            raise ProtocolError(reason, hint="make a Block(outer='wrap')")
        padding = None if all(p.padding is None for p in parts) else [p.pads for p in parts]
        return cls([0, *(p.stop for p in parts)], padding, parts[0].periodic)

    @classmethod
    def from_part(cls, part: BlockPart) -> Self:
        """Return blocks that include the described one and its neighbours."""
        rank, nprocs, (left, right) = part.rank, part.nprocs, part.halo
        edges = np.zeros(nprocs + 1, np.int64)
        # Padding that wraps repeats elements of the other end.
        edges[1:rank] = right if rank == nprocs - 1 else 0
        edges[rank], edges[rank + 1] = part.start, part.stop
        edges[rank + 2 :] = part.size - (left if rank == 0 else 0)
        edges[0], edges[-1] = 0, part.size
        outer = "wrap" if part.wraps else "boundary"
        if part.padding is None:
            return cls(edges, None, part.periodic, outer)
        pads = np.zeros((nprocs, 2), np.int64)
        if rank > 0:
            pads[rank - 1, 1] = min(left, part.count)
        if rank < nprocs - 1:
            pads[rank + 1, 0] = min(right, part.count)
        pads[rank] = part.pads
        return cls(edges, pads, part.periodic, outer)


#: Buckets per cut; numbers per bucket above which a table is faster; steps up to which it beats a binary search.
_BUCKETS, _WORTH, _STEPS = 16, 4, 4


def find_intervals(edges: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return the index of the interval that contains each number.

    For many numbers a table of buckets gives an approximate interval, and a few comparisons correct it. ``edges``: ascending
    int64 from 0; ``numbers``: int64 from 0 and less than the last edge.

    >>> find_intervals(np.array([0, 2, 2, 5]), np.array([0, 1, 2, 4])).tolist()
    [0, 0, 2, 2]
    """
    buckets = _BUCKETS * len(edges)
    if numbers.size >= _WORTH * buckets:
        width = -(-int(edges[-1]) // buckets)
        first = np.searchsorted(edges, np.arange(buckets) * width, side="right") - 1
        steps = int(np.diff(first, append=len(edges) - 2).max())
        if steps <= _STEPS:
            intervals: np.ndarray = first[numbers // width]
            for _ in range(steps):
                intervals += numbers >= edges[intervals + 1]
            return intervals
    return np.asarray(np.searchsorted(edges, numbers, side="right") - 1)


def _padding(padding: Any, nprocs: int) -> np.ndarray:
    if padding is None:
        return np.zeros((nprocs, 2), np.int64)
    pads = as_integers(padding, "padding")
    if pads.shape not in ((2,), (nprocs, 2)) or (pads < 0).any():
        hint = f"give (left, right), integers of at least 0, or one such pair for each of {nprocs} processes"
        raise ProtocolError(f"invalid padding {short_repr(padding)}", hint=hint)
    return np.broadcast_to(pads, (nprocs, 2)).copy()


def _check_widths(counts: np.ndarray, pads: np.ndarray, halo: np.ndarray) -> None:
    hint = "give narrower padding or wider blocks"
    neighbours = np.stack([np.roll(counts, 1), np.roll(counts, -1)], axis=-1)
    wide = np.flatnonzero((halo > neighbours).any(axis=1))
    if wide.size:
        i = int(wide[0])
        reason = f"padding {pads[i].tolist()} of rank {i} is too wide: the neighbours own {neighbours[i].tolist()} elements"
        raise ProtocolError(reason, hint=hint)
    wide = np.flatnonzero(pads.sum(axis=1) > counts + halo.sum(axis=1))
    if wide.size:
        i = int(wide[0])
        raise ProtocolError(f"padding {pads[i].tolist()} of rank {i} is too wide: it owns {int(counts[i])} elements", hint=hint)


def _width_conflicts(left: BlockPart, right: BlockPart) -> Iterator[Conflict]:
    """Yield padding at a cut that is wider than the block on the other side."""
    if right.halo[0] > left.count:
        rule = f"must not be wider than what rank {left.rank} owns ({left.count})"
        yield Conflict(right.rank, "padding", right.pads, rule)
    if left.halo[1] > right.count:
        yield Conflict(left.rank, "padding", left.pads, f"must not be wider than what rank {right.rank} owns ({right.count})")


MAP = Block
