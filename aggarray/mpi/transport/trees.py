"""Broadcast and reduction over a group along a binomial tree.

The root is the first member. A process that is a member of several groups must enter them in ascending order of their roots,
which prevents deadlocks.
"""

import pickle
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from aggarray.mpi.transport.base import TREE, Link
from aggarray.mpi.transport.moving import bytes_of, pieces_of

#: Bytes up to which the number of messages, not their size, determines the cost.
_LITTLE = 1 << 16


def _above(place: int) -> int:
    """Return the position of the parent of a member of a group.

    >>> [_above(place) for place in (1, 2, 3, 6, 7)]
    [0, 0, 2, 4, 6]
    """
    return place & (place - 1)


def _below(place: int, size: int) -> list[int]:
    """Return the positions of a member's children, largest subtree first.

    >>> _below(0, 7), _below(4, 7), _below(1, 7)
    ([4, 2, 1], [6, 5], [])
    """
    lowest = place & -place if place else 1 << size.bit_length()
    steps = [1 << bit for bit in range(size.bit_length()) if 1 << bit < lowest and place + (1 << bit) < size]
    return [place + step for step in reversed(steps)]


def broadcast_tree(link: Link, group: Sequence[int], values: np.ndarray) -> None:
    """Copy the root's values, C-contiguous, into those of all members.

    ``group``: a list of ranks. Collective over the group.
    """
    data, place = bytes_of(values), group.index(link.rank)
    if place:
        link.wait([link.receive(piece, group[_above(place)], TREE) for piece in pieces_of(data)])
    link.wait([link.send(piece, group[p], TREE) for p in _below(place, len(group)) for piece in pieces_of(data)])


def reduce_tree(link: Link, group: Sequence[int], values: np.ndarray, combine: np.ufunc = np.add) -> None:
    """Combine the values of all members, C-contiguous, into those of the root.

    The values of other members change too. Collective over the group.
    """
    place = group.index(link.rank)
    for p in reversed(_below(place, len(group))):
        more = np.empty_like(values)
        link.wait([link.receive(piece, group[p], TREE) for piece in pieces_of(bytes_of(more))])
        combine(values, more, out=values)
    if place:
        link.wait([link.send(piece, group[_above(place)], TREE) for piece in pieces_of(bytes_of(values))])


def allreduce_tree(link: Link, group: Sequence[int], values: np.ndarray, combine: np.ufunc = np.add) -> None:
    """Combine the values of all members, C-contiguous, on all members.

    Each member combines a part of large arrays and sends it to the others. Collective over the group.
    """
    if values.nbytes <= _LITTLE or len(group) == 1:
        reduce_tree(link, group, values, combine)
        broadcast_tree(link, group, values)
        return
    place, flat = group.index(link.rank), values.reshape(-1)
    cuts = [flat.size * n // len(group) for n in range(len(group) + 1)]
    parts = [flat[a:b] for a, b in pairwise(cuts)]
    others = [p for p in range(len(group)) if p != place]
    heard = {p: np.empty_like(parts[place]) for p in others}
    _swap(link, group, heard, {p: parts[p] for p in others})
    heard[place] = parts[place].copy()
    # Combining in the order of the members makes the result deterministic.
    parts[place][...] = heard[0]
    for p in range(1, len(group)):
        combine(parts[place], heard[p], out=parts[place])
    _swap(link, group, {p: parts[p] for p in others}, dict.fromkeys(others, parts[place]))


def _swap(link: Link, group: Sequence[int], heard: dict[int, np.ndarray], told: dict[int, np.ndarray]) -> None:
    """Receive an array from each of some members, and send one to each."""
    pending = [link.receive(piece, group[p], TREE) for p, one in heard.items() for piece in pieces_of(bytes_of(one))]
    pending += [link.send(piece, group[p], TREE) for p, one in told.items() for piece in pieces_of(bytes_of(one))]
    link.wait(pending)


def broadcast_object(link: Link, item: Any, root: int = 0) -> Any:
    """Return an object of one process, possibly large, on all. Collective."""
    words = np.frombuffer(pickle.dumps(item, protocol=5), np.uint8) if link.rank == root else np.empty(0, np.uint8)
    length = link.allgather(len(words))[root]
    data = words if link.rank == root else np.empty(length, np.uint8)
    group = [root, *(r for r in range(link.size) if r != root)]
    broadcast_tree(link, group, data)
    return item if link.rank == root else pickle.loads(data.tobytes())
