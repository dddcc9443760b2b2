"""How are values copied to all members of a group, or summed over them? Along a binomial tree whose root is the first member.

Whoever is in several groups has to enter them in ascending order of their roots: then nobody waits in a circle.
"""

import pickle
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from aggarray.mpi.transport.base import TREE, Link
from aggarray.mpi.transport.moving import bytes_of, pieces_of

#: Up to so many bytes messages cost by their number, above by their size.
_LITTLE = 1 << 16


def _above(place: int) -> int:
    """Return the place in a group of whom a member hears.

    >>> [_above(place) for place in (1, 2, 3, 6, 7)]
    [0, 0, 2, 4, 6]
    """
    return place & (place - 1)


def _below(place: int, size: int) -> list[int]:
    """Return the places that a member tells, those with most behind them first.

    >>> _below(0, 7), _below(4, 7), _below(1, 7)
    ([4, 2, 1], [6, 5], [])
    """
    lowest = place & -place if place else 1 << size.bit_length()
    steps = [1 << bit for bit in range(size.bit_length()) if 1 << bit < lowest and place + (1 << bit) < size]
    return [place + step for step in reversed(steps)]


def broadcast_tree(link: Link, group: Sequence[int], values: np.ndarray) -> None:
    """Copy the root's values, C-contiguous, into those of all members. Collective over the group, a list of ranks."""
    data, place = bytes_of(values), group.index(link.rank)
    if place:
        link.wait([link.receive(piece, group[_above(place)], TREE) for piece in pieces_of(data)])
    link.wait([link.send(piece, group[p], TREE) for p in _below(place, len(group)) for piece in pieces_of(data)])


def reduce_tree(link: Link, group: Sequence[int], values: np.ndarray, combine: np.ufunc = np.add) -> None:
    """Add the values of all members, C-contiguous, to those of the root; those of others change too. Collective.

    ``combine``: what is done instead of adding.
    """
    place = group.index(link.rank)
    for p in reversed(_below(place, len(group))):
        more = np.empty_like(values)
        link.wait([link.receive(piece, group[p], TREE) for piece in pieces_of(bytes_of(more))])
        combine(values, more, out=values)
    if place:
        link.wait([link.send(piece, group[_above(place)], TREE) for piece in pieces_of(bytes_of(values))])


def allreduce_tree(link: Link, group: Sequence[int], values: np.ndarray, combine: np.ufunc = np.add) -> None:
    """Give all members what `reduce_tree` gives the root. Collective.

    Large arrays are not added up by one: each member adds up a part, and tells the others.
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
    # In the order of the members: all of them, and all runs, get the same.
    parts[place][...] = heard[0]
    for p in range(1, len(group)):
        combine(parts[place], heard[p], out=parts[place])
    _swap(link, group, {p: parts[p] for p in others}, dict.fromkeys(others, parts[place]))


def _swap(link: Link, group: Sequence[int], heard: dict[int, np.ndarray], told: dict[int, np.ndarray]) -> None:
    """Receive an array of each of some members, and send one to each."""
    pending = [link.receive(piece, group[p], TREE) for p, one in heard.items() for piece in pieces_of(bytes_of(one))]
    pending += [link.send(piece, group[p], TREE) for p, one in told.items() for piece in pieces_of(bytes_of(one))]
    link.wait(pending)


def broadcast_object(link: Link, item: Any, root: int = 0) -> Any:
    """Return an object of one process on all of them; it may be large. Collective."""
    words = np.frombuffer(pickle.dumps(item, protocol=5), np.uint8) if link.rank == root else np.empty(0, np.uint8)
    length = link.allgather(len(words))[root]
    data = words if link.rank == root else np.empty(length, np.uint8)
    group = [root, *(r for r in range(link.size) if r != root)]
    broadcast_tree(link, group, data)
    return item if link.rank == root else pickle.loads(data.tobytes())
