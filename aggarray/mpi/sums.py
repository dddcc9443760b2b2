"""Sums and other combinations of arrays of a group in windows of nodes.

Each rank copies a block of its array into its window, combines a part of the blocks of its node, and copies the parts of the
others. Between nodes a part goes from one to the next, which adds its own, and the result goes back. Arrays are combined in the
order of the members, so that the result does not depend on the nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

import numpy as np

from aggarray.mpi.node import Node, open_partners
from aggarray.mpi.transport.base import TREE, Link, Section
from aggarray.mpi.transport.moving import bytes_of
from aggarray.mpi.transport.shared import Window
from aggarray.mpi.transport.trees import SMALL, allreduce_tree

#: Bytes of a block. A window has two, used in turn: all have copied the last but one.
_BLOCK_BYTES = 1 << 20
#: Counters of a window: blocks copied in, blocks combined.
_COPIED, _COMBINED = range(2)


class SharedSum:
    """Windows of the members of a group, kept for its next combinations.

    ``members``: those of the own node; ``previous`` and ``next``: those of the nodes before and after it.
    """

    def __init__(self, link: Link, node: Node, runs: Sequence[Sequence[int]], windows: dict[int, Window]) -> None:
        self._link, self._node, self._windows = link, node, windows
        number = next(n for n, ranks in enumerate(runs) if link.rank in ranks)
        self._members = runs[number]
        self._previous = runs[number - 1] if number else ()
        self._next = runs[number + 1] if number + 1 < len(runs) else ()
        self._parts = max(map(len, runs))
        self._others = [rank for rank in self._members if rank != link.rank]
        self._blocks = 0

    def combine(self, values: np.ndarray, combine: np.ufunc) -> None:
        """Combine the arrays of all members, C-contiguous, on all members."""
        flat = values.reshape(-1)
        size = _BLOCK_BYTES // values.dtype.itemsize
        for start in range(0, flat.size, size):
            self._combine_block(flat[start : start + size], combine)

    def _combine_block(self, block: np.ndarray, combine: np.ufunc) -> None:
        own, halves = self._link.rank, {rank: self._half(rank, block) for rank in self._members}
        self._blocks += 1
        halves[own][...] = block
        self._count(_COPIED)
        cuts = [block.size * n // self._parts for n in range(self._parts + 1)]
        parts = [slice(a, b) for a, b in pairwise(cuts)]
        mine = range(self._members.index(own), self._parts, len(self._members))
        self._wait(self._others, _COPIED)
        for part in mine:
            self._combine_part(part, block[parts[part]], [halves[rank][parts[part]] for rank in self._members], combine)
        for part in mine:
            self._return_part(part, block[parts[part]])
            halves[own][parts[part]] = block[parts[part]]
        self._count(_COMBINED)
        for position, rank in enumerate(self._members):
            if rank != own:
                self._wait([rank], _COMBINED)
                for combined in parts[position :: len(self._members)]:
                    block[combined] = halves[rank][combined]

    def _half(self, rank: int, block: np.ndarray) -> np.ndarray:
        start = self._blocks % 2 * _BLOCK_BYTES
        return self._windows[rank].data[start : start + block.nbytes].view(block.dtype)

    def _count(self, counter: int) -> None:
        self._windows[self._link.rank].set_counter(counter, self._blocks)
        self._node.wake(self._others)

    def _wait(self, ranks: Sequence[int], counter: int) -> None:
        for rank in ranks:
            window = self._windows[rank]
            self._node.wait(lambda w=window: w.counters()[counter] >= self._blocks)  # type: ignore[misc]

    def _combine_part(self, number: int, result: np.ndarray, parts: Sequence[np.ndarray], combine: np.ufunc) -> None:
        """Combine a part of the node with that of the nodes before; send it on."""
        if self._previous:
            self._link.wait_all([self._link.receive(bytes_of(result), self._rank(self._previous, number), TREE)])
            parts = [result, *parts]
        first, *others = parts
        if not others:
            result[...] = first
        for part in others:
            combine(first, part, out=result)
            first = result
        if self._next:
            self._link.wait_all([self._link.send(bytes_of(result), self._rank(self._next, number), TREE)])

    def _return_part(self, number: int, result: np.ndarray) -> None:
        """Return a part that all nodes have combined to the nodes before."""
        if self._next:
            self._link.wait_all([self._link.receive(bytes_of(result), self._rank(self._next, number), TREE)])
        if self._previous:
            self._link.wait_all([self._link.send(bytes_of(result), self._rank(self._previous, number), TREE)])

    def _rank(self, members: Sequence[int], number: int) -> int:
        return members[number % len(members)]


def allreduce(link: Link, group: Sequence[int], values: np.ndarray, combine: np.ufunc = np.add) -> None:
    """Combine the values of all members, C-contiguous, on all members.

    Through shared memory where `node_of` has been called for the link and messages do not serve better. Collective over the
    group.
    """
    shared = _sum_of(link, tuple(group)) if values.nbytes > SMALL else None
    if shared is None:
        allreduce_tree(link, group, values, combine)
    else:
        shared.combine(values, combine)


def _sum_of(link: Link, group: tuple[int, ...]) -> SharedSum | None:
    if link.node is not None and group not in link.sums:
        link.sums[group] = _open_sum(link, link.node, group)
    return link.sums.get(group)


def _open_sum(link: Link, node: Node, group: tuple[int, ...]) -> SharedSum | None:
    """Return the windows of a group; collective.

    None unless the members of each node are consecutive.
    """
    number_of = {rank: number for number, ranks in enumerate(node.nodes) for rank in ranks}
    runs = [list(run) for _, run in groupby(group, number_of.__getitem__)]
    if len(runs) > len({number_of[rank] for rank in group}) or all(len(run) == 1 for run in runs):
        return None
    own = next(run for run in runs if link.rank in run)
    opened = open_partners(Section(link, group), [group.index(rank) for rank in own], 2 * _BLOCK_BYTES, 2)
    if opened is None:
        return None
    return SharedSum(link, node, runs, {group[position]: window for position, window in opened.items()})
