"""Assignment of whole partitions to processes, balanced by cost.

Each partition stays on one process, so that few processes read each file. Each dimension is balanced separately: its slabs of
partitions have costs. They become contiguous blocks with the lowest maximum cost, or go one by one, the costliest first, to the
process with the lowest cost so far. The slabs of a ragged array are its instances; the cost of an instance is its number of
samples.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import ceil, prod
from typing import Any

import numpy as np

from aggarray.errors import ProtocolError
from aggarray.maps.base import Map, count_of
from aggarray.maps.block import Block
from aggarray.maps.fields import as_integer, as_integers, short_repr
from aggarray.maps.unstructured import Unstructured

#: Slabs that are assigned one by one at a time, so that no list of all is made.
_BLOCK = 1 << 16
#: Slabs of equal cost per rank from which on they are assigned in rounds.
_ROUNDS = 4
#: Cost and number of slabs of a rank so far, and the rank.
_Load = tuple[int, int, int]


def partition_maps(array: Any, nprocs: Any, assignment: Any, balance: str) -> tuple[Map, ...]:
    """Return one map per dimension for `Distribution.from_partitions`."""
    if balance not in ("contiguous", "cost"):
        raise ProtocolError(f"unknown balance {short_repr(balance)}", hint="give 'contiguous' or 'cost'")
    if not hasattr(array, "partitions"):
        raise ProtocolError(f"{type(array).__name__} has no partitions", hint="give a master array")
    if not isinstance(assignment, Mapping):
        reason = f"assignment {short_repr(assignment)} is not a mapping"
        raise ProtocolError(reason, hint="give the ranks by dimension, such as {'time': [0, 0, 1]}")
    if isinstance(offsets := getattr(array, "offsets", None), np.ndarray):
        if assignment or balance != "contiguous":
            reason = "the instances of a ragged array cannot be reordered"
            raise ProtocolError(reason, hint="give balance='contiguous' and no assignment, or a Block")
        (count,) = _grid(nprocs, [len(offsets) - 1], [0])
        return (_blocks(np.arange(len(offsets)), np.diff(offsets), count),)
    edges = array.partitions.edges
    assigned = {_axis(d, array.dimensions): ranks for d, ranks in assignment.items()}
    grid = _grid(nprocs, [len(e) - 1 for e in edges], sorted(assigned))
    costs = None
    maps = []
    for axis, (cuts, count) in enumerate(zip(edges, grid, strict=True)):
        if axis in assigned:
            ranks = _assigned_ranks(assigned[axis], len(cuts) - 1, count, array.dimensions[axis])
            ascending = (ranks[1:] >= ranks[:-1]).all()
            maps.append(Block(cuts[np.searchsorted(ranks, np.arange(count + 1))]) if ascending else _listed(cuts, ranks, count))
        elif count == 1:
            maps.append(Block(cuts[[0, -1]]))
        else:
            costs = array.partitions.costs() if costs is None else costs
            contiguous = balance == "contiguous"
            maps.append(
                _blocks(cuts, costs[axis], count)
                if contiguous
                else _listed(cuts, assign_longest_first(costs[axis], count), count)
            )
    return tuple(maps)


def _blocks(cuts: np.ndarray, costs: np.ndarray, count: int) -> Map:
    """Return the map of contiguous slabs; ranks beyond their number get none."""
    starts = _contiguous_starts(costs, count)
    return Block(cuts[[*starts, *[len(costs)] * (count + 1 - len(starts))]])


def _listed(cuts: np.ndarray, ranks: np.ndarray, count: int) -> Map:
    """Return the map of slabs by the rank of each."""
    # NumPy sorts integers of two bytes in linear time.
    order = np.argsort(ranks.astype(np.int16) if count <= 1 << 15 else ranks, kind="stable")
    by_rank = np.split(order, np.cumsum(np.bincount(ranks, minlength=count))[:-1])
    sizes = np.diff(cuts)
    if not (sizes == 1).all():
        by_rank = [_positions(cuts[slabs], sizes[slabs]) for slabs in by_rank]
    return Unstructured(int(cuts[-1]), by_rank, one_to_one=True)


def _positions(begins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return several ranges of numbers, concatenated.

    >>> _positions(np.array([7, 2]), np.array([2, 3])).tolist()
    [7, 8, 2, 3, 4]
    """
    before = np.cumsum(sizes) - sizes
    return np.asarray(np.arange(int(sizes.sum())) + np.repeat(begins - before, sizes))


def assign_contiguous(costs: np.ndarray, count: int) -> np.ndarray:
    """Return the rank of each slab, ascending, with the lowest maximum cost.

    Within that limit, the other ranks get equal shares. Every rank gets a slab if there are enough slabs.

    >>> assign_contiguous(np.array([1, 1, 1, 5, 1, 1]), 3).tolist()
    [0, 0, 0, 1, 2, 2]
    """
    starts = _contiguous_starts(costs, count)
    return np.repeat(np.arange(len(starts)), np.diff([*starts, len(costs)]))


def _contiguous_starts(costs: np.ndarray, count: int) -> list[int]:
    """Return the first slab of each rank that gets any."""
    total, slabs = np.concatenate([[0], np.cumsum(costs)]), len(costs)
    maximum, ranks = _lowest_maximum(total, int(costs.max(initial=0)), count), min(count, slabs)
    # enough[n]: the first slab from which on n ranks hold the remaining slabs.
    enough = [slabs]
    for _ in range(1, ranks):
        enough.append(int(np.searchsorted(total, total[enough[-1]] - maximum)))
    starts = [0]
    for others in reversed(range(1, ranks)):
        start = starts[-1]
        share = (int(total[-1]) - int(total[start])) / (others + 1) + int(total[start])
        after = int(np.searchsorted(total, ceil(share)))  # a number of another dtype would convert the column
        after -= int(share - total[after - 1] < total[after] - share)
        last = min(int(np.searchsorted(total, total[start] + maximum, side="right")) - 1, slabs - others)
        starts.append(min(max(after, start + 1, enough[others]), last))
    return starts


def _lowest_maximum(total: np.ndarray, highest: int, count: int) -> int:
    share = -(int(total[-1]) // -count)
    low, high = max(highest, share), min(int(total[-1]), share + highest)
    while low < high:
        middle = (low + high) // 2
        end = 0
        for _ in range(count):
            end = int(np.searchsorted(total, total[end] + middle, side="right")) - 1
            if end == len(total) - 1:
                break
        low, high = (low, middle) if end == len(total) - 1 else (middle + 1, high)
    return low


def assign_longest_first(costs: np.ndarray, count: int) -> np.ndarray:
    """Return the rank of each slab, assigning the costliest slab first.

    Each slab goes to the rank with the lowest cost so far, the lowest rank of several.

    >>> assign_longest_first(np.array([1, 4, 2, 3]), 2).tolist()
    [0, 0, 1, 1]
    """
    order = _descending(costs)
    ordered = costs[order]
    assigned = np.empty(len(costs), np.int32)
    # Ranks of equal cost are ordered by their number of slabs, because slabs may cost nothing.
    least = [(0, 0, rank) for rank in range(count)]
    edges = np.append(0, np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)) + 1) if len(costs) else np.zeros(1, int)
    long = np.flatnonzero((np.diff(edges) >= _ROUNDS * count) & (ordered[edges[:-1]] > 0))
    done = 0
    for first, last in np.stack([edges[long], edges[long + 1]], axis=1).tolist():
        _assign_each(ordered, assigned, done, first, least)
        _assign_equal(int(ordered[first]), assigned[first:last], least)
        done = last
    _assign_each(ordered, assigned, done, len(costs), least)
    ranks = np.empty(len(costs), np.int32)
    ranks[order] = assigned
    return ranks


def _descending(costs: np.ndarray) -> np.ndarray:
    """Return the stable order of descending costs."""
    highest = costs.max(initial=0)
    below = highest - costs
    # NumPy sorts integers of two bytes in linear time.
    return np.argsort(below.astype(np.uint16) if below.max(initial=0) < 1 << 16 else below, kind="stable")


def _assign_each(ordered: np.ndarray, assigned: np.ndarray, first: int, last: int, least: list[_Load]) -> None:
    """Assign the slabs of a part of the order one by one."""
    for at in range(first, last, _BLOCK):
        ranks = []
        for cost in ordered[at : min(at + _BLOCK, last)].tolist():
            total, slabs, rank = least[0]
            ranks.append(rank)
            heapq.heapreplace(least, (total + cost, slabs + 1, rank))
        assigned[at : at + len(ranks)] = ranks


def _assign_equal(cost: int, assigned: np.ndarray, least: list[_Load]) -> None:
    """Assign slabs of equal cost, as `_assign_each` does, in rounds.

    Ranks whose costs differ by less than that of a slab get one slab each in every round, until the next rank joins them.
    """
    done = 0
    while done < len(assigned):
        least.sort()  # a sorted list is a heap
        lowest, highest = least[0][0], least[-1][0]
        active = bisect_left(least, (lowest + cost,)) if highest >= lowest + cost else len(least)
        rounds = max(1, (len(assigned) - done) // active)
        if active < len(least):
            rounds = min(rounds, -((least[active - 1][0] - least[active][0]) // cost))
        chosen = least[: len(assigned) - done][:active]
        assigned[done : done + rounds * len(chosen)] = np.tile([rank for *_, rank in chosen], rounds)
        least[: len(chosen)] = [(total + rounds * cost, slabs + rounds, rank) for total, slabs, rank in chosen]
        done += rounds * len(chosen)
    heapq.heapify(least)


def _assigned_ranks(ranks: Any, slabs: int, count: int, dimension: str) -> np.ndarray:
    assigned = as_integers(ranks, f"assignment of {dimension!r}")
    if assigned.shape != (slabs,) or ((assigned < 0) | (assigned >= count)).any():
        reason = f"invalid assignment of {dimension!r}: {short_repr(ranks)}"
        raise ProtocolError(reason, hint=f"give a rank from 0 to {count - 1} for each of its {slabs} partitions")
    return assigned


def _axis(dimension: Any, names: Sequence[str]) -> int:
    number = as_integer(dimension)
    if dimension in names:
        return names.index(dimension)
    if number is None or not 0 <= number < len(names):
        reason = f"assignment of unknown dimension {short_repr(dimension)}"
        raise ProtocolError(reason, hint=f"the array has {', '.join(names) or 'no dimensions'}")
    return number


def _grid(nprocs: Any, slabs: Sequence[int], assigned: Sequence[int]) -> tuple[int, ...]:
    """Return the number of processes along each dimension.

    A single number is placed along one dimension if that has enough slabs, and is otherwise factorized.
    """
    if as_integer(nprocs) is None:
        counts = as_integers(nprocs, "nprocs")
        if counts.shape != (len(slabs),) or (counts < 1).any():
            reason = f"nprocs {short_repr(nprocs)} is out of range"
            raise ProtocolError(reason, hint=f"give a number of at least 1, or one for each of {len(slabs)} dimensions")
        return tuple(counts.tolist())
    count = count_of(nprocs, "nprocs", 1)
    if not slabs:
        if count > 1:
            raise ProtocolError(f"nprocs {count} is out of range: an array without dimensions has one process only")
        return ()
    candidates = assigned or range(len(slabs))
    if len(assigned) > 1:
        raise ProtocolError(f"nprocs {count} is ambiguous with several assignments", hint="give one number per dimension")
    best = max(candidates, key=lambda d: slabs[d])
    grid = [1] * len(slabs)
    if assigned or slabs[best] >= count or prod(slabs) == slabs[best]:
        grid[best] = count
        return tuple(grid)
    for factor in _factors(count):
        # Divide the dimension with the most partitions per process.
        grid[max(range(len(slabs)), key=lambda d: slabs[d] / grid[d])] *= factor
    return tuple(grid)


def _factors(count: int) -> list[int]:
    """Return the prime factors of a number, the largest first.

    >>> _factors(12)
    [3, 2, 2]
    """
    factors, divisor = [], 2
    while divisor * divisor <= count:
        while count % divisor == 0:
            factors.append(divisor)
            count //= divisor
        divisor += 1
    return sorted([*factors, *([count] if count > 1 else [])], reverse=True)
