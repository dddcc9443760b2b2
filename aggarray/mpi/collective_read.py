"""Execution of a collective read.

A rank reads boxes, a turn at a time, into a slot of its window. The ranks of its node copy what they require from there into
their sections. Each other node gets one message per turn with what its ranks require: one of them receives it in a slot of its
own window, from which its node copies. A slot is used again when all have copied and all messages are sent. No rank waits as
long as it can read, copy or receive.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.dataclass import NamedTuple
from aggarray.maps import Distribution
from aggarray.memory.selection import Range
from aggarray.mpi.schedule.overlap import Box, Indices
from aggarray.mpi.schedule.read_schedule import BoxEnds, Demand, Turn
from aggarray.mpi.transport.agreement import agree
from aggarray.mpi.transport.base import MOVE, Link, wait_until
from aggarray.mpi.transport.moving import Part, pieces_of
from aggarray.mpi.transport.shared import Window, open_windows

#: Bytes of the slots of a ring, which has at least two, and the most slots.
_RING_BYTES, _MAX_SLOTS = 12 << 20, 8
_ALIGNMENT = 64
#: Counters of a window: turns read, messages received, and whether a read failed; then those copied, by kind and producer.
_READ, _RECEIVED, _FAILED, _COPIED = range(4)

#: A turn of a reader.
Item = tuple[int, int]


class Ring(NamedTuple):
    """Slots of a window, used one after the other."""

    start: int
    size: int
    slots: int

    @classmethod
    def of(cls, start: int, sizes: Sequence[int]) -> Ring:
        """Return a ring for items of these sizes in bytes."""
        size = -(-max(sizes, default=0) // _ALIGNMENT) * _ALIGNMENT
        return cls(start, size, max(1, min(max(_RING_BYTES // max(size, 1), 2), _MAX_SLOTS, len(sizes))))

    @property
    def end(self) -> int:
        """End of the last slot."""
        return self.start + self.size * self.slots

    def slot(self, data: np.ndarray, number: int) -> np.ndarray:
        """Return the slot of an item, as bytes."""
        start = self.start + number % self.slots * self.size
        return data[start : start + self.size]


class Layout:
    """Items that each rank has in its window, and the boxes in them.

    ``turns``: by number and reader; ``nodes``: the ranks of each node.
    """

    def __init__(self, turns: list[list[Turn]], target: Distribution, nodes: list[list[int]], dtype: np.dtype[Any]) -> None:
        self.turns, self.nodes, self.dtype = turns, nodes, dtype
        self.demand = Demand(target, nodes)

    def node_of(self, rank: int) -> int:
        """Return the number of the node of a rank."""
        return next(number for number, ranks in enumerate(self.nodes) if rank in ranks)

    def receiver(self, reader: int, node: int) -> int:
        """Return the rank of another node that receives from a reader."""
        own, ranks = self.nodes[self.node_of(reader)], self.nodes[node]
        return ranks[own.index(reader) % len(ranks)]

    def received(self, rank: int) -> list[Item]:
        """Return the items that a rank receives from other nodes, in order."""
        node = self.node_of(rank)
        others = [r for ranks in self.nodes if rank not in ranks for r in ranks if self.receiver(r, node) == rank]
        return [(reader, turn) for turn in range(len(self.turns)) for reader in others if self.size((reader, turn), node)]

    def size(self, item: Item, node: int | None) -> int:
        """Return the bytes of an item; of what a node requires, if it is given."""
        return sum(prod(map(len, indices)) for _, indices in self._boxes(item, node)) * self.dtype.itemsize

    def _boxes(self, item: Item, node: int | None) -> Iterator[tuple[BoxEnds, list[Indices]]]:
        reader, turn = item
        for box in self.turns[turn][reader].boxes.tolist():
            yield box, self.demand.indices(box, node)

    def arrays(self, item: Item, node: int | None, slot: np.ndarray) -> Iterator[tuple[BoxEnds, np.ndarray]]:
        """Yield the boxes of an item, each with its values in a slot."""
        start = 0
        for box, indices in self._boxes(item, node):
            shape = tuple(map(len, indices))
            stop = start + prod(shape) * self.dtype.itemsize
            yield box, slot[start:stop].view(self.dtype).reshape(shape)
            start = stop

    def rings(self, rank: int) -> tuple[Ring, Ring]:
        """Return the rings of a rank: of turns read, of messages received."""
        read = Ring.of(0, [self.size((rank, turn), None) for turn in range(len(self.turns))])
        node = self.node_of(rank)
        return read, Ring.of(read.end, [self.size(item, node) for item in self.received(rank)])


def read_collectively(
    link: Link, a: MasterArray, target: Distribution, turns: list[list[Turn]], nodes: list[list[int]], threads: int
) -> np.ndarray:
    """Return the section of this rank.

    ``nodes``: ranks that may share memory; ranks that do not reach each other's windows exchange messages. Collective; an error
    of one rank is raised on all.
    """
    while True:
        layout = Layout(turns, target, nodes, a.dtype)
        windows: dict[int, Window] = {}
        try:
            section, rings, reached = _allocate(link, layout, windows)
            if reached == nodes:
                agree(link, _CollectiveRead(link, a, layout, windows, rings, section, threads).run)
                return section
        finally:
            for window in windows.values():
                window.close()
        nodes = reached


def _allocate(
    link: Link, layout: Layout, windows: dict[int, Window]
) -> tuple[np.ndarray, list[tuple[Ring, Ring]], list[list[int]]]:
    """Return the own section, the rings of all ranks, and the nodes reached.

    A node whose ranks do not reach each other is split. Adds the windows of the own node to ``windows``. Collective.
    """
    node = layout.nodes[layout.node_of(link.rank)]
    counters = _COPIED + 2 * len(node)
    sections: list[np.ndarray] = []

    def allocate() -> Any:
        rings = layout.rings(link.rank)
        sections.append(np.empty(layout.demand.target.local_shape(link.rank), layout.dtype))
        windows[link.rank] = Window.create(rings[1].end, counters, len(node) > 1)
        return windows[link.rank].handle, rings

    allocated = agree(link, allocate)
    reached = open_windows(link, windows, [handle for handle, _ in allocated], layout.nodes, counters)
    return sections[0], [rings for _, rings in allocated], reached


class _Send(NamedTuple):
    """Message of a turn to another node; ``buffers``: those it is packed in."""

    turn: int
    requests: list[Any]
    buffers: list[np.ndarray]


class _CollectiveRead:
    """Progress of a collective read on one rank."""

    def __init__(
        self,
        link: Link,
        a: MasterArray,
        layout: Layout,
        windows: dict[int, Window],
        rings: Sequence[tuple[Ring, Ring]],
        section: np.ndarray,
        threads: int,
    ) -> None:
        self._link, self._array, self._layout, self._windows, self._rings = link, a, layout, windows, rings
        self._section, self._threads = section, threads
        self._number = layout.node_of(link.rank)
        self._node = layout.nodes[self._number]
        turns = range(len(layout.turns))
        #: Items in the windows of the node, by producer and kind.
        self._items = {rank: ([(rank, turn) for turn in turns], layout.received(rank)) for rank in self._node}
        #: Items copied by this rank; its own turns are copied when they are read.
        self._copied = {(kind, rank): 0 for kind in (_READ, _RECEIVED) for rank in self._node}
        #: Items complete in the own window, by kind.
        self._complete = [0, 0]
        self._sends: deque[_Send] = deque()
        self._receives: deque[list[Any]] = deque()
        self._counters: dict[int, np.ndarray] = {}
        self._error: Exception | None = None
        self._is_stopped = False

    def run(self) -> None:
        """Read, copy, send and receive until this rank has all of its section."""
        while not self._is_done():
            wait_until(self._progress, 0)
        if self._error is not None:
            raise self._error

    def _is_done(self) -> bool:
        copied = all(self._copied[kind, rank] == len(items[kind]) for rank, items in self._items.items() for kind in (0, 1))
        return copied and not self._sends

    def _progress(self) -> bool:
        """Do what is possible without waiting; return whether that is anything."""
        own = self._link.rank
        self._counters = {rank: self._windows[rank].counters() for rank in self._node if rank != own}
        self._is_stopped |= any(counters[_FAILED] for counters in self._counters.values())
        done = [self._finish_sends(), self._receive(), self._copy(), self._read_turn()]
        return any(done)

    def _is_free(self, kind: int, number: int) -> bool:
        """Return whether the slot of an item in the own window is free."""
        own = self._link.rank
        required = number - self._rings[own][kind].slots + 1
        position = _COPIED + kind * len(self._node) + self._node.index(own)
        return required <= self._copied[kind, own] and all(required <= c[position] for c in self._counters.values())

    def _slot(self, kind: int, rank: int, number: int) -> np.ndarray:
        return self._rings[rank][kind].slot(self._windows[rank].data, number)

    def _set_counter(self, number: int, value: int) -> None:
        self._windows[self._link.rank].set_counter(number, value)

    def _attempt(self, step: Callable[[], object]) -> None:
        """Run a step unless one failed; all ranks raise the error at the end."""
        if not self._is_stopped:
            try:
                step()
            except Exception as error:
                self._error, self._is_stopped = error, True
                self._set_counter(_FAILED, 1)

    def _read_turn(self) -> bool:
        """Read a turn, copy the own part, send the parts of other nodes."""
        own, turn = self._link.rank, self._complete[_READ]
        is_sent = not self._sends or self._sends[0].turn > turn - self._rings[own][_READ].slots
        if turn == len(self._layout.turns) or not is_sent or not self._is_free(_READ, turn):
            return False
        slot = self._slot(_READ, own, turn)
        self._attempt(lambda: self._read_boxes((own, turn), slot))
        self._complete[_READ] = self._copied[_READ, own] = turn + 1
        self._set_counter(_READ, turn + 1)
        for node in range(len(self._layout.nodes)):
            if node != self._number:
                self._send(turn, node, slot)
        return True

    def _read_boxes(self, item: Item, slot: np.ndarray) -> None:
        own, holders = self._link.rank, self._layout.turns[item[1]][item[0]].holders.tolist()
        for (box, values), count in zip(self._layout.arrays(item, None, slot), holders, strict=True):
            key = tuple(slice(low, high) for low, high in box)
            copies = self._layout.demand.copies(box, None, own)
            target = Part(self._section, copies[0].target, copies[0].shape).view if count == len(copies) == 1 else None
            if target is not None and target.shape == values.shape and Part(values, *copies[0][::2]).view is not None:
                self._array.read(key, out=target, threads=self._threads)  # no other rank requires it
                continue
            self._array.read(key, out=values, threads=self._threads)
            self._put(values, copies)

    def _put(self, values: np.ndarray, copies: Sequence[Box]) -> None:
        for box in copies:
            Part(self._section, box.target, box.shape).put(Part(values, box.source, box.shape).get(), add=False)

    def _send(self, turn: int, node: int, slot: np.ndarray) -> None:
        """Start to send what a node requires of a turn."""
        item = self._link.rank, turn
        size = self._layout.size(item, node)
        if not size:
            return
        buffers: list[np.ndarray] = []
        if size < self._layout.size(item, None):
            self._attempt(lambda: buffers.append(self._packed(item, node, size, slot)))
        # After an error the values do not matter, but the receiver waits for them.
        data = (buffers or [slot])[0][:size]
        receiver = self._layout.receiver(self._link.rank, node)
        self._sends.append(_Send(turn, [self._link.send(piece, receiver, MOVE) for piece in pieces_of(data)], buffers))

    def _packed(self, item: Item, node: int, size: int, slot: np.ndarray) -> np.ndarray:
        """Return a buffer that begins with what a node requires."""
        buffer = self._link.buffers.acquire(size)
        packed = self._layout.arrays(item, node, buffer[:size])
        for (box, values), (_, out) in zip(self._layout.arrays(item, None, slot), packed, strict=True):
            selectors = tuple(i.as_slice() if isinstance(i, Range) else i for i in self._layout.demand.indices(box, node))
            out[...] = Part(values, selectors, out.shape).get()
        return buffer

    def _finish_sends(self) -> bool:
        finished = False
        while self._sends and _complete(self._link, self._sends[0].requests):
            for buffer in self._sends.popleft().buffers:
                self._link.buffers.release(buffer)
            finished = True
        return finished

    def _receive(self) -> bool:
        """Start to receive into free slots, and count messages received."""
        own, items = self._link.rank, self._items[self._link.rank][_RECEIVED]
        first = self._complete[_RECEIVED]
        while (number := self._complete[_RECEIVED] + len(self._receives)) < len(items) and self._is_free(_RECEIVED, number):
            data = self._slot(_RECEIVED, own, number)[: self._layout.size(items[number], self._number)]
            self._receives.append([self._link.receive(piece, items[number][0], MOVE) for piece in pieces_of(data)])
        while self._receives and _complete(self._link, self._receives[0]):
            self._receives.popleft()
            self._complete[_RECEIVED] += 1
            self._set_counter(_RECEIVED, self._complete[_RECEIVED])
        return self._complete[_RECEIVED] > first

    def _copy(self) -> bool:
        """Copy what this rank requires of complete items of its node."""
        before = sum(self._copied.values())
        for (kind, producer), first in list(self._copied.items()):
            complete = self._complete if producer == self._link.rank else self._counters[producer]
            for number in range(first, int(complete[kind])):
                self._attempt(functools.partial(self._copy_item, kind, producer, number))
                self._copied[kind, producer] = number + 1
                self._set_counter(_COPIED + kind * len(self._node) + self._node.index(producer), number + 1)
        return sum(self._copied.values()) > before

    def _copy_item(self, kind: int, producer: int, number: int) -> None:
        node = None if kind == _READ else self._number
        for box, values in self._layout.arrays(self._items[producer][kind][number], node, self._slot(kind, producer, number)):
            self._put(values, self._layout.demand.copies(box, node, self._link.rank))


def _complete(link: Link, requests: list[Any]) -> bool:
    """Return whether all requests are done; remove those that are."""
    while requests and (number := link.test_any(requests)) is not None:
        del requests[number]
    return not requests
