"""Slabs of a halo exchange, through windows of the ranks of a node.

The layout of a window is fixed when it is created. A rank copies a slab into its window, counts it and wakes the rank that
copies it out. Every exchange begins with an agreement of all ranks, so that a window is written again only when the slabs of
the exchange before have been copied out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.dataclass import NamedTuple
from aggarray.mpi.node import node_of, open_partners
from aggarray.mpi.transport.agreement import agree
from aggarray.mpi.transport.base import Link
from aggarray.mpi.transport.moving import Message, move
from aggarray.mpi.transport.shared import Window

#: Slabs of fewer bytes are sent in messages.
SHARED_BYTES = 1 << 12
#: Elements to which the positions of slabs are rounded, and more slabs than an exchange has.
_ALIGNMENT, _MAX_SLABS = 64, 256


class Slab(NamedTuple):
    """A slab that a rank sends: step, direction, receiver, size in elements."""

    step: int
    direction: int
    rank: int
    size: int


class _Position(NamedTuple):
    """Position of a slab in a window: its number from 1, its first element."""

    number: int
    start: int


Layout = dict[tuple[int, int], _Position]


def _layout_of(slabs: Sequence[Slab]) -> tuple[Layout, int]:
    """Return positions by step and direction, and the window's elements."""
    layout: Layout = {}
    start = 0
    for number, slab in enumerate(slabs, 1):
        layout[slab.step, slab.direction] = _Position(number, start)
        start += -(-slab.size // _ALIGNMENT) * _ALIGNMENT
    return layout, start


class SharedSlabs:
    """Windows of a halo exchange, with messages for what they do not hold.

    ``sent``: the slabs that this rank sends, in order; ``returned``: those that it sends in the adjoint. Contiguous slabs are
    sent in messages, which copy them once. Collective over the link, as are all methods.
    """

    def __init__(self, link: Link, sent: Sequence[Slab], returned: Sequence[Slab]) -> None:
        self._link, self._node = link, node_of(link)
        kept = [[s for s in slabs if s.rank in self._node.ranks and s.rank != link.rank] for slabs in (sent, returned)]
        self._partners = sorted({slab.rank for slabs in kept for slab in slabs})
        layouts, sizes = zip(*map(_layout_of, kept), strict=True)
        self._size = max(sizes)
        gathered = agree(link, lambda: (layouts, max((slab.size for slabs in kept for slab in slabs), default=0)))
        #: Layouts of each rank: of slabs sent, and of those returned.
        self._layouts: list[tuple[Layout, Layout]] = [own for own, _ in gathered]
        self._largest = max(size for _, size in gathered)
        #: Windows by rank; None: they cannot be shared.
        self._windows: dict[int, Window] | None = {}
        self._itemsize = self._exchanges = 0

    def begin(self, dtype: np.dtype[Any]) -> None:
        """Begin an exchange, with windows that are large enough."""
        self._exchanges += 1
        if self._windows is not None and dtype.itemsize > self._itemsize and self._largest * dtype.itemsize >= SHARED_BYTES:
            self._itemsize, self._windows = dtype.itemsize, {}
            self._windows = open_partners(self._link, self._partners, self._size * dtype.itemsize, 1)
            self._exchanges = 1

    def move(
        self, step: int, outgoing: Sequence[Message], incoming: Sequence[Message], dtype: np.dtype[Any], returned: bool
    ) -> None:
        """Move the slabs of a step; ``returned``: of the adjoint, which adds them."""
        messages: tuple[list[Message], list[Message]] = ([], [])
        for message in outgoing:
            if (slab := self._find(self._link.rank, step, message, dtype, returned)) is None:
                messages[0].append(message)
                continue
            slab.values[...] = message.parts[0].get()
            slab.window.set_counter(0, slab.written)
            self._node.wake([message.rank])
        received = []
        for message in incoming:
            if (slab := self._find(message.rank, step, message, dtype, returned)) is None:
                messages[1].append(message)
            else:
                received.append((message, slab))
        move(self._link, *messages, dtype, add=returned)
        for message, slab in received:
            self._node.wait(slab.is_complete)
            message.parts[0].put(slab.values, add=returned)

    def _find(self, rank: int, step: int, message: Message, dtype: np.dtype[Any], returned: bool) -> _SlabInWindow | None:
        """Return a slab in its sender's window; None if it is sent in a message."""
        position = self._layouts[rank][returned].get((step, message.direction))
        nbytes = message.size * dtype.itemsize
        if not self._windows or position is None or nbytes < SHARED_BYTES:
            return None
        window, start = self._windows[rank], position.start * dtype.itemsize
        values = window.data[start : start + nbytes].view(dtype).reshape(message.parts[0].shape)
        return _SlabInWindow(window, self._exchanges * _MAX_SLABS + position.number, values)


class _SlabInWindow(NamedTuple):
    """A slab in a window; ``written``: the window's counter once complete."""

    window: Window
    written: int
    values: np.ndarray

    def is_complete(self) -> bool:
        """Return whether the sender has copied the slab into its window."""
        return bool(self.window.counters()[0] >= self.written)
