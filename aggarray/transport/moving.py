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

from aggarray.exchange.overlap import Index
from aggarray.transport.base import MOVE, Link

#: Copies that are being sent take no more bytes than this, unless a single one does; a message has at most so many.
_IN_FLIGHT, LARGEST = 64 << 20, 1 << 30


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


class Parcel(NamedTuple):
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


def move(link: Link, given: Sequence[Parcel], taken: Sequence[Parcel], dtype: np.dtype[Any], add: bool = False) -> None:
    """Send parcels and receive others, of elements of ``dtype``; ``add``: to what is there, instead of replacing it."""
    journey = _Journey(link, dtype, add)
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


class _Trip:
    """A parcel under way: its bytes, how many messages are not done, and where it is unpacked (None: not at all)."""

    __slots__ = ("copied", "data", "left", "parcel")

    def __init__(self, data: np.ndarray, copied: int, parcel: Parcel | None) -> None:
        self.data, self.copied, self.parcel = data, copied, parcel
        self.left = len(pieces_of(data))


class _Journey:
    """Everything that is under way."""

    def __init__(self, link: Link, dtype: np.dtype[Any], add: bool) -> None:
        self._link, self._dtype, self._add = link, dtype, add
        self.pending: list[Any] = []
        self._trips: list[_Trip] = []
        self._copies = 0

    @property
    def has_room(self) -> bool:
        """Whether another parcel may be packed."""
        return self._copies < _IN_FLIGHT

    def expect(self, parcel: Parcel) -> None:
        """Begin to receive a parcel, straight to its place where that is contiguous."""
        place = None if self._add or len(parcel.parts) > 1 else self._plain(parcel.parts[0])
        data = np.empty(parcel.size * self._dtype.itemsize, np.uint8) if place is None else bytes_of(place)
        self._begin(_Trip(data, 0, parcel if place is None else None), self._link.receive, parcel)

    def dispatch(self, parcel: Parcel) -> None:
        """Begin to send a parcel."""
        values = self._plain(parcel.parts[0]) if len(parcel.parts) == 1 else None
        if values is not None:
            self._begin(_Trip(bytes_of(values), 0, None), self._link.send, parcel)
            return
        packed, start = np.empty(parcel.size, self._dtype), 0
        for part in parcel.parts:
            end = start + prod(part.shape)
            packed[start:end].reshape(part.shape)[...] = part.get()
            start = end
        self._copies += packed.nbytes
        self._begin(_Trip(bytes_of(packed), packed.nbytes, None), self._link.send, parcel)

    def _plain(self, part: Part) -> np.ndarray | None:
        """Return a box as a view that can be a message as it is, None where it cannot."""
        view = part.view
        fits = view is not None and view.dtype == self._dtype and view.flags.c_contiguous and view.flags.aligned
        return view if fits else None

    def _begin(self, trip: _Trip, how: Any, parcel: Parcel) -> None:
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
        self._copies -= trip.copied
        if trip.parcel is not None:
            values, start = trip.data.view(self._dtype), 0
            for part in trip.parcel.parts:
                end = start + prod(part.shape)
                part.put(values[start:end].reshape(part.shape), self._add)
                start = end
