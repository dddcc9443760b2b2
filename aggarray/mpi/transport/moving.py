"""Exchange of boxes of arrays between processes.

All receives are posted first. Messages are then packed and sent, a bounded number of bytes at a time, and unpacked in the order
of arrival. Messages of a process to itself are copied. A contiguous box is sent and received without a copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from aggarray.dataclass import NamedTuple
from aggarray.mpi.schedule.overlap import Index, PlannedMessage
from aggarray.mpi.transport.base import MOVE, Link

#: Maximum bytes of packed messages in transit (except a single larger one), and of one MPI message.
_IN_FLIGHT, MAX_MESSAGE = 64 << 20, 1 << 30


class Part(NamedTuple):
    """A box of an array: one selector per dimension, and its shape."""

    array: np.ndarray
    selectors: tuple[Index, ...]
    shape: tuple[int, ...]

    @property
    def view(self) -> np.ndarray | None:
        """The box as a view of the array; None where indices are listed."""
        if all(isinstance(s, slice) for s in self.selectors):
            box: np.ndarray = self.array[(*self.selectors, ...)]
            return box
        return None

    def get(self) -> np.ndarray:
        """Return the values, as a view where possible."""
        view = self.view
        return self.array[self._index_arrays] if view is None else view

    def put(self, values: Any, add: bool) -> None:
        """Set the values, or add to them."""
        view = self.view
        array, index = (self.array, self._index_arrays) if view is None else (view, (...,))
        if add:
            values = array[index] + values
        array[index] = values

    @property
    def _index_arrays(self) -> tuple[np.ndarray, ...]:
        return np.ix_(*(np.arange(n)[s] for s, n in zip(self.selectors, self.array.shape, strict=True)))


class Message(NamedTuple):
    """A planned message with its arrays and the rank of the link."""

    rank: int
    parts: tuple[Part, ...]
    direction: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return sum(prod(part.shape) for part in self.parts)

    def split(self, values: np.ndarray) -> Iterator[tuple[Part, np.ndarray]]:
        """Yield each part with its elements of the values of all, laid end to end."""
        start = 0
        for part in self.parts:
            end = start + prod(part.shape)
            yield part, values[start:end].reshape(part.shape)
            start = end


def bind_messages(
    planned: Iterable[PlannedMessage], values: np.ndarray | Sequence[np.ndarray], side: str, ranks: Sequence[int] | None = None
) -> list[Message]:
    """Return planned messages with their arrays.

    ``values``: the array, or the arrays by the number in the boxes; ``side``: "source" or "target", that of this process;
    ``ranks``: the ranks of the link by rank of the distribution, None where they are equal.
    """
    messages = []
    for rank, boxes, direction in planned:
        parts = []
        for box in boxes:
            array = values if isinstance(values, np.ndarray) else values[box.array]
            parts.append(Part(array, box.source if side == "source" else box.target, box.shape))
        messages.append(Message(rank if ranks is None else ranks[rank], tuple(parts), direction))
    return messages


def bytes_of(values: np.ndarray) -> np.ndarray:
    """Return the bytes of a contiguous array as uint8."""
    return values.reshape(-1).view(np.uint8)


def pieces_of(data: np.ndarray) -> list[np.ndarray]:
    """Cut bytes into pieces of at most the maximum message size."""
    return [data[start : start + MAX_MESSAGE] for start in range(0, len(data), MAX_MESSAGE)]


def move(link: Link, outgoing: Sequence[Message], incoming: Sequence[Message], dtype: np.dtype[Any], add: bool = False) -> None:
    """Send and receive messages of elements; ``add``: add to the target."""
    exchange = _Exchange(link, dtype, add)
    for message in incoming:
        if message.rank != link.rank:
            exchange.start_receive(message)
    own_messages = {message.direction: message for message in outgoing if message.rank == link.rank}
    waiting = deque(message for message in outgoing if message.rank != link.rank)
    for message in incoming:
        if message.rank == link.rank:
            for source, target in zip(own_messages[message.direction].parts, message.parts, strict=True):
                target.put(source.get(), add)
    while waiting or exchange.pending:
        while waiting and exchange.packed < _IN_FLIGHT:
            exchange.start_send(waiting.popleft())
        if exchange.pending:
            exchange.complete_one()


class _Transfer:
    """A message in transit, or a buffer of it."""

    __slots__ = ("buffer", "data", "message", "remaining")

    def __init__(self, data: np.ndarray, buffer: np.ndarray | None = None, message: Message | None = None) -> None:
        self.data, self.buffer, self.message = data, buffer, message
        self.remaining = len(pieces_of(data))


class _Exchange:
    def __init__(self, link: Link, dtype: np.dtype[Any], add: bool) -> None:
        self._link, self._dtype, self._add, self._buffers = link, dtype, add, link.buffers
        self.pending: list[Any] = []
        self._transfers: list[_Transfer] = []
        #: Bytes of packed messages in transit.
        self.packed = 0

    def start_receive(self, message: Message) -> None:
        """Start to receive a message, directly into a contiguous box."""
        view = None if self._add or len(message.parts) > 1 else self._contiguous_view(message.parts[0])
        if view is not None:
            self._start(_Transfer(bytes_of(view)), self._link.receive, message)
            return
        size = message.size * self._dtype.itemsize
        buffer = self._buffers.acquire(size)
        self._start(_Transfer(buffer[:size], buffer, message), self._link.receive, message)

    def start_send(self, message: Message) -> None:
        """Start to send a message."""
        values = self._contiguous_view(message.parts[0]) if len(message.parts) == 1 else None
        if values is not None:
            self._start(_Transfer(bytes_of(values)), self._link.send, message)
            return
        size = message.size * self._dtype.itemsize
        buffer = self._buffers.acquire(size)
        for part, packed in message.split(buffer[:size].view(self._dtype)):
            packed[...] = part.get()
        self.packed += size
        self._start(_Transfer(buffer[:size], buffer), self._link.send, message)

    def _contiguous_view(self, part: Part) -> np.ndarray | None:
        """Return a box as a contiguous view of the dtype, None where impossible."""
        view = part.view
        fits = view is not None and view.dtype == self._dtype and view.flags.c_contiguous and view.flags.aligned
        return view if fits else None

    def _start(self, transfer: _Transfer, post: Any, message: Message) -> None:
        for piece in pieces_of(transfer.data):
            self.pending.append(post(piece, message.rank, MOVE + message.direction))
            self._transfers.append(transfer)

    def complete_one(self) -> None:
        """Wait for one request, and unpack a complete message."""
        number = self._link.wait_any(self.pending)
        del self.pending[number]
        transfer = self._transfers.pop(number)
        transfer.remaining -= 1
        if transfer.remaining:
            return
        if transfer.message is None:
            self.packed -= 0 if transfer.buffer is None else len(transfer.data)
        else:
            for part, values in transfer.message.split(transfer.data.view(self._dtype)):
                part.put(values, self._add)
        if transfer.buffer is not None:
            self._buffers.release(transfer.buffer)
