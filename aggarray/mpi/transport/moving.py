"""How do boxes of one process's arrays get into those of others?

All receives are posted, then parcels are packed and sent, a bounded number of bytes at a time, and what arrives is unpacked
in the order of arrival. What a process has for itself is copied without a message. A box that is contiguous as it is, is
neither packed nor unpacked.
"""

from collections import deque
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from aggarray.mpi.schedule.overlap import Index
from aggarray.mpi.transport.base import MOVE, Link

#: Copies that are being sent take no more bytes than this, unless a single one does; a message has at most so many.
_IN_FLIGHT, LARGEST = 64 << 20, 1 << 30
_HUGE = 1 << 22


class Part(NamedTuple):
    """A box of an array, one selector per dimension, and its shape."""

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
        """Return the values, as a view where that can be."""
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
    """What goes to another process, or comes from it: boxes one after the other. ``way`` tells several between two apart."""

    peer: int
    parts: tuple[Part, ...]
    way: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return sum(prod(part.shape) for part in self.parts)


def bytes_of(values: np.ndarray) -> np.ndarray:
    """Return a contiguous array as its bytes, uint8; no copy."""
    return values.reshape(-1).view(np.uint8)


def pieces_of(data: np.ndarray) -> list[np.ndarray]:
    """Cut bytes into messages."""
    return [data[start : start + LARGEST] for start in range(0, len(data), LARGEST)]


class BufferPool:
    """Memory for copies on their way, uint8, used again by later moves: what is new to a process costs as much as decoding.

    >>> crates = Crates()
    >>> crates.give_back(first := crates.take(100))
    >>> crates.take(50) is first, crates.take(50) is first
    (True, False)
    """

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []

    def take(self, size: int) -> np.ndarray:
        """Return so many bytes, or more; the smallest that are free."""
        fitting = [n for n, crate in enumerate(self._free) if len(crate) >= size]
        if fitting:
            return self._free.pop(min(fitting, key=lambda n: len(self._free[n])))
        # Of arrays from this size on NumPy asks for huge pages, of which the system hands out hundreds at a time.
        return np.empty(max(size, _HUGE) if size > _HUGE // 8 else size, np.uint8)

    def give_back(self, crate: np.ndarray) -> None:
        """Keep memory that is no longer used, as long as it is little enough."""
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
    """Send parcels and receive others, of elements of ``dtype``; ``add``: to what is there, instead of replacing it."""
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
    """A parcel under way: its bytes, the crate of a copy, how many messages are not done, and what is unpacked on arrival."""

    __slots__ = ("crate", "data", "left", "parcel")

    def __init__(self, data: np.ndarray, crate: np.ndarray | None = None, parcel: Message | None = None) -> None:
        self.data, self.crate, self.parcel = data, crate, parcel
        self.left = len(pieces_of(data))


class _Exchange:
    """Everything that is under way."""

    def __init__(self, link: Link, dtype: np.dtype[Any], add: bool, crates: BufferPool) -> None:
        self._link, self._dtype, self._add, self._crates = link, dtype, add, crates
        self.pending: list[Any] = []
        self._trips: list[_Transfer] = []
        self._copies = 0

    @property
    def has_room(self) -> bool:
        """Whether another parcel may be packed."""
        return self._copies < _IN_FLIGHT

    def expect(self, parcel: Message) -> None:
        """Begin to receive a parcel, straight to its place where that is contiguous."""
        place = None if self._add or len(parcel.parts) > 1 else self._plain(parcel.parts[0])
        if place is None:
            size = parcel.size * self._dtype.itemsize
            crate = self._crates.take(size)
            self._begin(_Transfer(crate[:size], crate, parcel), self._link.receive, parcel)
        else:
            self._begin(_Transfer(bytes_of(place)), self._link.receive, parcel)

    def dispatch(self, parcel: Message) -> None:
        """Begin to send a parcel."""
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
        """Return a box as a view that can be a message as it is, None where it cannot."""
        view = part.view
        fits = view is not None and view.dtype == self._dtype and view.flags.c_contiguous and view.flags.aligned
        return view if fits else None

    def _begin(self, trip: _Transfer, how: Any, parcel: Message) -> None:
        for piece in pieces_of(trip.data):
            self.pending.append(how(piece, parcel.peer, MOVE + parcel.way))
            self._trips.append(trip)

    def step(self) -> None:
        """Wait for a message; unpack what has arrived."""
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
