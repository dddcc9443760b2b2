"""Broadcast and reduction over a group along a binomial tree.

The root is the first member. A process that is a member of several groups must enter them in ascending order of their roots,
which prevents deadlocks.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from aggarray.mpi.transport.base import TREE, Link
from aggarray.mpi.transport.moving import bytes_of, pieces_of

#: Bytes up to which the number of messages, not their size, determines the cost.
SMALL = 1 << 16


def _parent(position: int) -> int:
    return position & (position - 1)


def _children(position: int, size: int) -> list[int]:
    """Return the positions of a member's children, largest subtree first.

    >>> _children(0, 7), _children(4, 7), _children(1, 7)
    ([4, 2, 1], [6, 5], [])
    """
    lowest = position & -position if position else 1 << size.bit_length()
    steps = [1 << bit for bit in range(size.bit_length()) if 1 << bit < lowest and position + (1 << bit) < size]
    return [position + step for step in reversed(steps)]


def broadcast_tree(link: Link, group: Sequence[int], values: np.ndarray) -> None:
    """Copy the root's values, C-contiguous, into those of a group. Collective."""
    data, position = bytes_of(values), group.index(link.rank)
    if position:
        link.wait_all([link.receive(piece, group[_parent(position)], TREE) for piece in pieces_of(data)])
    link.wait_all([link.send(piece, group[p], TREE) for p in _children(position, len(group)) for piece in pieces_of(data)])


def reduce_tree(link: Link, group: Sequence[int], values: np.ndarray, combine: np.ufunc = np.add) -> None:
    """Combine the values of a group into those of the root; others change too."""
    position = group.index(link.rank)
    for p in reversed(_children(position, len(group))):
        other = np.empty_like(values)
        link.wait_all([link.receive(piece, group[p], TREE) for piece in pieces_of(bytes_of(other))])
        combine(values, other, out=values)
    if position:
        link.wait_all([link.send(piece, group[_parent(position)], TREE) for piece in pieces_of(bytes_of(values))])


def allreduce_tree(link: Link, group: Sequence[int], values: np.ndarray, combine: np.ufunc = np.add) -> None:
    """Combine the values of all members, C-contiguous, on all members.

    Each member combines a part of large arrays and sends it to the others. Collective over the group.
    """
    if values.nbytes <= SMALL or len(group) == 1:
        reduce_tree(link, group, values, combine)
        broadcast_tree(link, group, values)
        return
    position, flat = group.index(link.rank), values.reshape(-1)
    cuts = [flat.size * n // len(group) for n in range(len(group) + 1)]
    parts = [flat[a:b] for a, b in pairwise(cuts)]
    others = [p for p in range(len(group)) if p != position]
    received = {p: np.empty_like(parts[position]) for p in others}
    _exchange(link, group, received, {p: parts[p] for p in others})
    received[position] = parts[position].copy()
    # Combining in the order of the members makes the result deterministic.
    parts[position][...] = received[0]
    for p in range(1, len(group)):
        combine(parts[position], received[p], out=parts[position])
    _exchange(link, group, {p: parts[p] for p in others}, dict.fromkeys(others, parts[position]))


def _exchange(link: Link, group: Sequence[int], received: dict[int, np.ndarray], sent: dict[int, np.ndarray]) -> None:
    """Receive an array from each of some members, and send one to each."""
    pending = [link.receive(piece, group[p], TREE) for p, array in received.items() for piece in pieces_of(bytes_of(array))]
    pending += [link.send(piece, group[p], TREE) for p, array in sent.items() for piece in pieces_of(bytes_of(array))]
    link.wait_all(pending)


def broadcast_object(link: Link, item: Any, root: int = 0) -> Any:
    """Return an object of one process, possibly large, on all. Collective."""
    pickled = np.frombuffer(pickle.dumps(item, protocol=5), np.uint8) if link.rank == root else np.empty(0, np.uint8)
    length = link.allgather(len(pickled))[root]
    data = pickled if link.rank == root else np.empty(length, np.uint8)
    group = [root, *(r for r in range(link.size) if r != root)]
    broadcast_tree(link, group, data)
    return item if link.rank == root else pickle.loads(data.tobytes())
