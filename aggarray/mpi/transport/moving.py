"""Exchange of boxes of arrays between processes.

All receives are posted first. Messages are then packed and sent, a bounded number of bytes at a time, and unpacked in the order
of arrival. Messages of a process to itself are copied. A contiguous box is sent and received without a copy.
"""

from collections import deque
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from aggarray.mpi.schedule.overlap import Index
from aggarray.mpi.transport.base import MOVE, Link

#: Maximum bytes of packed messages in transit (except a single larger one), and of one MPI message.
_IN_FLIGHT, LARGEST = 64 << 20, 1 << 30
_HUGE = 1 << 22


class Part(NamedTuple):
    """A box of an array: one selector per dimension, and its shape."""

    array: np.ndarray
    selectors: tuple[Index, ...]
    shape: tuple[int, ...]

    @property
    def view(self) -> np.ndarray | None:
        """The box as a view of the array; None where indices are listed."""
        if all(isinstance(s, slice) for s in self.selectors):
            found: np.ndarray = self.array[(*self.selectors, ...)]
            return found
        return None

    def get(self) -> np.ndarray:
        """Return the values, as a view where possible."""
        view = self.view
        return self.array[self._listed] if view is None else view

    def put(self, values: Any, add: bool) -> None:
        """Set the values, or add to them."""
        view = self.view
        array, index = (self.array, self._listed) if view is None else (view, (...,))
        if add:
            values = array[index] + values
        array[index] = values

    @property
    def _listed(self) -> tuple[np.ndarray, ...]:
        return np.ix_(*(np.arange(n)[s] for s, n in zip(self.selectors, self.array.shape, strict=True)))


class Message(NamedTuple):
    """Consecutive boxes to send to, or receive from, a rank.

    ``way``: distinguishes several messages between two ranks.
    """

    peer: int
    parts: tuple[Part, ...]
    way: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return sum(prod(part.shape) for part in self.parts)


def bytes_of(values: np.ndarray) -> np.ndarray:
    """Return the bytes of a contiguous array as uint8, without a copy."""
    return values.reshape(-1).view(np.uint8)


def pieces_of(data: np.ndarray) -> list[np.ndarray]:
    """Cut bytes into pieces of at most the maximum message size."""
    return [data[start : start + LARGEST] for start in range(0, len(data), LARGEST)]


class BufferPool:
    """Pool of uint8 buffers, because new memory costs as much as decoding.

    >>> pool = BufferPool()
    >>> pool.give_back(first := pool.take(100))
    >>> pool.take(50) is first, pool.take(50) is first
    (True, False)
    """

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []

    def take(self, size: int) -> np.ndarray:
        """Return the smallest sufficient free buffer, or a new one."""
        fitting = [n for n, crate in enumerate(self._free) if len(crate) >= size]
        if fitting:
            return self._free.pop(min(fitting, key=lambda n: len(self._free[n])))
        # From this size on NumPy requests huge pages, which fault hundreds of pages at a time.
        return np.empty(max(size, _HUGE) if size > _HUGE // 8 else size, np.uint8)

    def give_back(self, crate: np.ndarray) -> None:
        """Return a buffer to the pool, up to the limit of the pool."""
        if sum(map(len, self._free)) + len(crate) <= _IN_FLIGHT:
            self._free.append(crate)


def move(
    link: Link,
    given: Sequence[Message],
    taken: Sequence[Message],
    dtype: np.dtype[Any],
    add: bool = False,
    crates: BufferPool | None = None,
) -> None:
    """Send and receive messages of elements of ``dtype``.

    ``add``: add to the target's elements instead of replacing them.
    """
    journey = _Exchange(link, dtype, add, BufferPool() if crates is None else crates)
    for parcel in taken:
        if parcel.peer != link.rank:
            journey.expect(parcel)
    home = {p.way: p for p in given if p.peer == link.rank}
    waiting = deque(p for p in given if p.peer != link.rank)
    for parcel in taken:
        if parcel.peer == link.rank:
            for here, there in zip(home[parcel.way].parts, parcel.parts, strict=True):
                there.put(here.get(), add)
    while waiting or journey.pending:
        while waiting and journey.has_room:
            journey.dispatch(waiting.popleft())
        if journey.pending:
            journey.step()


class _Transfer:
    """A message in transit, or a buffer of it."""

    __slots__ = ("crate", "data", "left", "parcel")

    def __init__(self, data: np.ndarray, crate: np.ndarray | None = None, parcel: Message | None = None) -> None:
        self.data, self.crate, self.parcel = data, crate, parcel
        self.left = len(pieces_of(data))


class _Exchange:
    """All messages in transit."""

    def __init__(self, link: Link, dtype: np.dtype[Any], add: bool, crates: BufferPool) -> None:
        self._link, self._dtype, self._add, self._crates = link, dtype, add, crates
        self.pending: list[Any] = []
        self._trips: list[_Transfer] = []
        self._copies = 0

    @property
    def has_room(self) -> bool:
        """Whether another message may be packed."""
        return self._copies < _IN_FLIGHT

    def expect(self, parcel: Message) -> None:
        """Start to receive a message, directly into a contiguous box."""
        place = None if self._add or len(parcel.parts) > 1 else self._plain(parcel.parts[0])
        if place is None:
            size = parcel.size * self._dtype.itemsize
            crate = self._crates.take(size)
            self._begin(_Transfer(crate[:size], crate, parcel), self._link.receive, parcel)
        else:
            self._begin(_Transfer(bytes_of(place)), self._link.receive, parcel)

    def dispatch(self, parcel: Message) -> None:
        """Start to send a message."""
        values = self._plain(parcel.parts[0]) if len(parcel.parts) == 1 else None
        if values is not None:
            self._begin(_Transfer(bytes_of(values)), self._link.send, parcel)
            return
        size = parcel.size * self._dtype.itemsize
        crate = self._crates.take(size)
        packed, start = crate[:size].view(self._dtype), 0
        for part in parcel.parts:
            end = start + prod(part.shape)
            packed[start:end].reshape(part.shape)[...] = part.get()
            start = end
        self._copies += size
        self._begin(_Transfer(crate[:size], crate), self._link.send, parcel)

    def _plain(self, part: Part) -> np.ndarray | None:
        """Return a box as a contiguous view of the dtype, None where impossible."""
        view = part.view
        fits = view is not None and view.dtype == self._dtype and view.flags.c_contiguous and view.flags.aligned
        return view if fits else None

    def _begin(self, trip: _Transfer, how: Any, parcel: Message) -> None:
        for piece in pieces_of(trip.data):
            self.pending.append(how(piece, parcel.peer, MOVE + parcel.way))
            self._trips.append(trip)

    def step(self) -> None:
        """Wait for one request, and unpack a complete message."""
        number = self._link.first(self.pending)
        del self.pending[number]
        trip = self._trips.pop(number)
        trip.left -= 1
        if trip.left:
            return
        if trip.parcel is None:
            self._copies -= 0 if trip.crate is None else len(trip.data)
        else:
            values, start = trip.data.view(self._dtype), 0
            for part in trip.parcel.parts:
                end = start + prod(part.shape)
                part.put(values[start:end].reshape(part.shape), self._add)
                start = end
        if trip.crate is not None:
            self._crates.give_back(trip.crate)
