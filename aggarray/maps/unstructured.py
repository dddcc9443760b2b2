"""Unstructured distribution: each process lists its global indices.

Global indices are labels: int64 of any order and sign, or uint64 where some are 2**63 or more. All labels are sorted once;
queries use binary search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from aggarray.dataclass import dataclass
from aggarray.errors import ProtocolError, SelectionError
from aggarray.maps.base import Conflict, Map, MapType, Part, count_of, flag_of
from aggarray.maps.fields import NEWEST, DimDictReader, as_integers, concatenate_labels, short_repr, version_of
from aggarray.memory.selection import Range


@dataclass(frozen=True, slots=True, eq=False)
class UnstructuredPart(Part):
    """What one process exports about an unstructured dimension."""

    labels: np.ndarray
    one_to_one: bool

    @property
    def count(self) -> int:
        """Number of elements of the process."""
        return len(self.labels)

    def constants(self) -> dict[str, Any]:
        """Return the values that are equal on all processes, with one_to_one."""
        return {**Part.constants(self), "one_to_one": self.one_to_one}

    def rank_constants(self) -> dict[str, Any]:
        """Return the labels."""
        return {"indices": self.labels}


class Unstructured(MapType):
    """Listed global indices per process (DAP 0.10.0, section 1.6.2, 'u').

    ``indices``: one integer array per process, each without repeats; ``one_to_one``: no two processes share an index. ``size``
    is the number of distinct labels. Only 0.9.0 can express ``periodic``. Raises ProtocolError for invalid arguments.

    >>> m = Unstructured(4, [[30, -1], [7, 30, 2]])
    >>> m.owner([2, 30]).tolist(), m.holders(30).tolist(), m.indices(0).tolist()
    ([1, 0], [0, 1], [30, -1])
    """

    __slots__ = ("_lists", "_ordered", "_owns", "nprocs", "one_to_one", "periodic", "size")
    letter: ClassVar[str] = "u"
    _owns: tuple[np.ndarray, ...]

    def __init__(self, size: int, indices: Sequence[Any], one_to_one: bool = False, periodic: bool = False) -> None:
        # No dataclass: the argument has the name of a method.
        self.size, self.periodic = count_of(size, "size", 0), flag_of(periodic, "periodic")
        self.one_to_one = flag_of(one_to_one, "one_to_one")
        try:
            lists = [as_integers(one, f"indices of rank {rank}", labels=True) for rank, one in enumerate(indices)]
        except TypeError as error:
            reason = f"invalid indices {short_repr(indices)}"
            raise ProtocolError(reason, hint="give one array of integers for each process") from error
        for rank, one in enumerate(lists):
            if one.ndim != 1:
                raise ProtocolError(f"indices of rank {rank} have shape {one.shape}", hint="give one-dimensional arrays")
        self.nprocs = count_of(len(lists), "number of index arrays", 1)
        labels = concatenate_labels(lists)
        if labels.dtype == object:
            raise ProtocolError("indices below 0 beside indices of 2**63 or more: no 64-bit integer type holds both")
        self._lists = tuple(one.astype(labels.dtype, copy=False) for one in lists)
        for one in self._lists:
            one.flags.writeable = False
        if self.size != len(labels) or not _are_positions(self._lists, self.size):
            self._ordered = _by_label(labels, list(map(len, lists)))
            self._check()

    @property
    def _columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The sorted labels, and the rank and position there of each."""
        if not hasattr(self, "_ordered"):
            object.__setattr__(self, "_ordered", _by_position(self._lists, self.size))
        return self._ordered

    @property
    def _labels(self) -> np.ndarray:
        return self._columns[0]

    @property
    def _ranks(self) -> np.ndarray:
        return self._columns[1]

    @property
    def _positions(self) -> np.ndarray:
        return self._columns[2]

    def _check(self) -> None:
        same = self._labels[1:] == self._labels[:-1]
        within = np.flatnonzero(same & (self._ranks[1:] == self._ranks[:-1]))
        if within.size:
            i = int(within[0])
            raise ProtocolError(f"indices of rank {self._ranks[i]} repeat {self._labels[i]}", hint="give each index once")
        if self.one_to_one and same.any():
            i = int(np.flatnonzero(same)[0])
            reason = f"one_to_one, but ranks {self._ranks[i]} and {self._ranks[i + 1]} both have index {self._labels[i]}"
            raise ProtocolError(reason, hint="give it to one rank, or one_to_one=False")
        distinct = len(self._labels) - int(same.sum())
        if distinct != self.size:
            raise ProtocolError(f"{distinct} distinct indices for a dimension of size {self.size}", hint="give equal numbers")

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, name):
            raise AttributeError(f"maps are immutable: cannot set {name!r}")
        object.__setattr__(self, name, value)

    def fits(self, size: int) -> bool:
        """Return whether all labels are positions of a dimension of a size."""
        if not hasattr(self, "_ordered"):  # they are the positions of its own size
            return self.size <= size
        return not len(self._labels) or (int(self._labels[0]) >= 0 and int(self._labels[-1]) < size)

    def segments(self, rank: int) -> list[Range | np.ndarray]:
        """Return the labels of a process, in its order."""
        return [self._lists[self._check_rank(rank)]]

    def extent(self, rank: int) -> int:
        """Return the number of elements of a process."""
        return len(self._lists[self._check_rank(rank)])

    def owns(self, rank: int) -> np.ndarray:
        """Return for each element whether no lower rank has it."""
        if not hasattr(self, "_owns"):
            # Computed from the sorted labels: searching millions of labels takes seconds.
            repeats = np.flatnonzero(self._labels[1:] == self._labels[:-1]) + 1
            starts = np.cumsum([0, *map(len, self._lists)])
            firsts = np.ones(len(self._labels), bool)
            firsts[starts[self._ranks[repeats]] + self._positions[repeats]] = False
            # Threads may compute it at the same time, with equal results.
            object.__setattr__(self, "_owns", tuple(firsts[a:b] for a, b in pairwise(starts)))
        return self._owns[self._check_rank(rank)]

    def _check_indices(self, g: Any) -> np.ndarray:
        labels = self._as_labels(g)
        self._first(labels)
        return labels

    def _first(self, labels: np.ndarray) -> Any:
        """Return the first position of each label; SelectionError for others."""
        first = np.searchsorted(self._labels, labels)
        last = len(self._labels) - 1
        is_present = (first <= last) & (self._labels[np.minimum(first, last)] == labels if last >= 0 else False)
        if not is_present.all():
            raise SelectionError(f"global index {labels.ravel()[~is_present.ravel()][0]} is on no process")
        return first

    def _as_labels(self, g: Any) -> np.ndarray:
        dtype = np.uint64 if self._labels.dtype == np.uint64 else np.int64
        if type(g) is np.ndarray and g.dtype == dtype:
            return g
        try:
            labels = as_integers(g, "global index", labels=True)
        except ProtocolError as error:
            raise SelectionError(*error.args, hint=error.hint) from error
        if labels.dtype != dtype:
            absent = labels < 0 if dtype is np.uint64 else labels > np.uint64(np.iinfo(np.int64).max)
            if absent.any():
                raise SelectionError(f"global index {labels[absent][0]} is on no process")
        return labels.astype(dtype, copy=False)

    def owner(self, g: Any) -> Any:
        """Return the lowest rank that has each label."""
        return self._ranks[self._first(self._as_labels(g))].astype(np.int64)

    def _holders(self, g: np.ndarray) -> list[np.ndarray]:
        ends = zip(np.searchsorted(self._labels, g), np.searchsorted(self._labels, g, side="right"), strict=True)
        return [self._ranks[low:high].astype(np.int64) for low, high in ends]

    def to_local(self, g: Any) -> tuple[Any, Any]:
        """Return the lowest rank that has each label, and the position there."""
        first = self._first(self._as_labels(g))
        return self._ranks[first].astype(np.int64), self._positions[first].astype(np.int64)

    def to_global(self, rank: Any, local: Any) -> Any:
        """Return the labels at the given positions."""
        sizes = np.array([len(one) for one in self._lists])
        starts = np.concatenate([[0], np.cumsum(sizes)])
        ranks, locals_ = self._check_positions(rank, local, lambda r: sizes[r])
        return np.concatenate(self._lists)[starts[ranks] + locals_]

    def dim_dict(self, rank: int, version: str = NEWEST) -> dict[str, Any]:
        """Return the dictionary of a process, equal in both versions."""
        version = version_of(version)
        entry = {**self._common_keys(self._check_rank(rank)), "indices": self._lists[rank]}
        if self.one_to_one:
            entry["one_to_one"] = True
        return entry | self._periodic_key(version)

    def sliced(self, selection: Range) -> Map:
        """Return the map of a slice; ProtocolError unless labels are positions."""
        if selection.is_full(self.size):
            return self
        if self.size and (self._labels[0] < 0 or self._labels[-1] >= self.size):
            raise ProtocolError(f"indices from {self._labels[0]} to {self._labels[-1]} are labels, which cannot be sliced")
        lists = []
        for labels in self._lists:
            positions, remainders = np.divmod(labels - selection.start, selection.step)
            lists.append(positions[(remainders == 0) & (positions >= 0) & (positions < selection.count)])
        return Unstructured(selection.count, lists, self.one_to_one)

    def _arguments(self) -> tuple[Any, ...]:
        return self.size, self._lists, self.one_to_one, self.periodic

    def __repr__(self) -> str:
        counts = ", ".join(str(len(one)) for one in self._lists[:4]) + (", ..." if self.nprocs > 4 else "")
        return f"Unstructured(size={self.size}, indices of {counts}, one_to_one={self.one_to_one})"

    @classmethod
    def parse(cls, entry: DimDictReader, common: tuple[int, int, int] | None) -> UnstructuredPart | None:
        """Return the part that a dictionary describes; labels do not repeat."""
        labels, one_to_one, periodic = entry.labels("indices"), entry.flag("one_to_one"), entry.flag("periodic")
        entry.refuse("padding", *(["periodic"] if entry.version == NEWEST else []))
        if common is None or labels is None:
            return None
        distinct, counts = np.unique(labels, return_counts=True)
        if len(distinct) < len(labels):
            entry.note("indices", int(distinct[counts > 1][0]), "must not repeat within a process")
        if len(distinct) > common[0]:
            entry.note("indices", labels, f"must not be more than size ({common[0]})")
        elif common[1] == 1 and len(distinct) < common[0]:
            entry.note("indices", labels, f"must be as many as size ({common[0]}): there is one process")
        entry.expect_extent(len(labels), "the number of indices")
        return UnstructuredPart(*common, periodic, labels, one_to_one)

    @classmethod
    def conflicts(cls, parts: Sequence[UnstructuredPart | None], version: str) -> Iterator[Conflict]:
        """Yield labels that violate one_to_one, and a wrong size."""
        valid = [p for p in parts if p is not None]
        if len(valid) < len(parts):
            return
        labels = concatenate_labels([np.unique(p.labels) for p in valid])
        ranks = np.repeat([p.rank for p in valid], [len(np.unique(p.labels)) for p in valid])
        order = np.argsort(labels, kind="stable")
        repeats = np.flatnonzero(labels[order][1:] == labels[order][:-1])
        if valid[0].one_to_one and repeats.size:
            i = int(repeats[0])
            first, second = int(ranks[order[i]]), int(ranks[order[i + 1]])
            yield Conflict(second, "indices", int(labels[order[i]]), f"rank {first} has it too, but one_to_one is True")
        distinct = len(labels) - len(repeats)
        if distinct != valid[0].size:
            yield Conflict(0, "size", valid[0].size, f"the processes have {distinct} distinct indices")

    @classmethod
    def from_parts(cls, parts: Sequence[UnstructuredPart]) -> Unstructured:
        """Return the map."""
        first = parts[0]
        return cls(first.size, [p.labels for p in parts], first.one_to_one, first.periodic)

    @classmethod
    def from_part(cls, part: UnstructuredPart) -> Unstructured:
        """Return a map in which the other processes have no elements."""
        lists = [np.zeros(0, np.int64)] * part.nprocs
        lists[part.rank] = part.labels
        map_ = cls(part.count, lists, part.one_to_one, part.periodic)
        object.__setattr__(map_, "size", part.size)
        return map_


def _by_label(labels: np.ndarray, counts: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sorted labels, and the rank and position there of each.

    ``labels``: of all ranks; ``counts``: their number on each.
    """
    # A stable sort puts the lowest rank first among equal labels.
    order = np.argsort(labels, kind="stable")
    ranks = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return labels[order], ranks[order], np.concatenate([np.arange(n) for n in counts])[order]


def _are_positions(lists: Sequence[np.ndarray], size: int) -> bool:
    """Return whether each number from 0 to ``size - 1`` is a label.

    The lists have as many labels. They need no sorting then.
    """
    if any(len(one) and (one.min() < 0 or one.max() >= size) for one in lists):
        return False
    present = np.zeros(size, bool)
    for one in lists:
        present[one] = True
    return bool(present.all())


def _by_position(lists: Sequence[np.ndarray], size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the same as `_by_label` for labels from 0 to ``size - 1``."""
    ranks, positions = np.empty(size, np.int32), np.empty(size, np.int32 if size < 1 << 31 else np.int64)
    for rank, one in enumerate(lists):
        ranks[one] = rank
        positions[one] = np.arange(len(one), dtype=positions.dtype)
    return np.arange(size), ranks, positions


def unstructured_slice(map_: Map, selection: Range) -> Unstructured:
    """Return the unstructured map of a slice, with positions in it as labels."""
    old, new = selection.indices(), np.arange(selection.count, dtype=np.int64)
    if selection.step < 0:
        old, new = old[::-1], new[::-1]
    owners = map_.owner(old)
    order = np.argsort(owners, kind="stable")
    lists = np.split(new[order], np.searchsorted(owners[order], np.arange(1, map_.nprocs)))
    return Unstructured(selection.count, lists, one_to_one=True)


MAP = Unstructured
