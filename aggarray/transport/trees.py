"""How are values copied to all members of a group, or summed over them? Along a binomial tree whose root is the first member.

Whoever is in several groups has to enter them in ascending order of their roots: then nobody waits in a circle.
"""

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.transport.base import TREE, Link
from aggarray.transport.moving import bytes_of, pieces_of


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


def copy_down(link: Link, group: Sequence[int], values: np.ndarray) -> None:
    """Copy the root's values, C-contiguous, into those of all members. Collective over the group, a list of ranks."""
    data, place = bytes_of(values), group.index(link.rank)
    if place:
        link.wait([link.receive(piece, group[_above(place)], TREE) for piece in pieces_of(data)])
    link.wait([link.send(piece, group[p], TREE) for p in _below(place, len(group)) for piece in pieces_of(data)])


def add_up(link: Link, group: Sequence[int], values: np.ndarray, combine: np.ufunc = np.add) -> None:
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


def hand_round(link: Link, item: Any, root: int = 0) -> Any:
    """Return an object of one process on all of them; it may be large. Collective."""
    words = np.frombuffer(pickle.dumps(item, protocol=5), np.uint8) if link.rank == root else np.empty(0, np.uint8)
    length = link.allgather(len(words))[root]
    data = words if link.rank == root else np.empty(length, np.uint8)
    group = [root, *(r for r in range(link.size) if r != root)]
    copy_down(link, group, data)
    return item if link.rank == root else pickle.loads(data.tobytes())
