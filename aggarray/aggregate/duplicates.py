"""Exact duplicates: arrays that repeat others and are left out.

A duplicate has equal positions, coordinates and values, missing values included, after conforming. Values are read in
blocks, each once, up to the first difference: each block is reduced to a digest that is the same for equal values.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from math import prod
from typing import Any

import numpy as np

from aggarray.aggregate.candidate import Candidate
from aggarray.aggregate.equality import difference
from aggarray.aggregate.join import match_coordinates
from aggarray.aggregate.orientation import oriented
from aggarray.aggregate.view import View
from aggarray.arrays import MasterArray
from aggarray.errors import AggarrayError

#: Values are compared in blocks of about this many elements.
BLOCK = 4 << 20
#: Maximum number of different coordinates, at the same positions, that an array is compared with.
MOST = 4

Note = Callable[[Candidate, Candidate], None]
#: The form in which values are compared: (axis, increasing) of each dimension, units, calendar.
Frame = tuple[tuple[tuple[str, bool], ...], str | None, str | None]


class Chain:
    """Digests of the blocks of an array, read lazily."""

    def __init__(self, array: MasterArray) -> None:
        self.array = array
        self._digests: list[object] = []
        self._rest: Iterator[object] = map(digest, _blocks(array))

    def digest(self, number: int) -> object:
        """Return the digest of a block, None after the last.

        The digest of an unreadable block equals no other.
        """
        while number >= len(self._digests):
            try:
                self._digests.append(next(self._rest, None))
            except AggarrayError:
                self._digests.append(object())
        return self._digests[number]

    def equals(self, other: "Chain") -> bool:
        """Return whether all values are equal."""
        if self is other:
            return True
        for number in count():
            mine = self.digest(number)
            if mine != other.digest(number):
                return False
            if mine is None:
                return True
        return False


@dataclass(slots=True)
class Chains:
    """Digests by array and by conformed frame.

    A file under two names is read once.
    """

    found: dict[object, tuple[MasterArray, Chain | None]] = field(default_factory=dict)
    stored: dict[object, Chain] = field(default_factory=dict)

    def of(self, one: Candidate, first: Candidate) -> Chain | None:
        """Return the digests of an array conformed to another.

        None where it does not convert or has another shape.
        """
        frame = _frame(first)
        known = self.found.get((one.number, frame))
        # Unwrapped longitudes make another array with the same number.
        if known is None or known[0] is not one.array:
            known = self.found[one.number, frame] = (one.array, self._new(one, first, frame))
        chain = known[1]
        return chain if chain is not None and chain.array.shape == first.array.shape else None

    def _new(self, one: Candidate, first: Candidate, frame: Frame) -> Chain | None:
        try:
            conformed = _conformed(one, first)
        except AggarrayError:
            return None
        source = _source(one.array)
        return Chain(conformed) if source is None else self.stored.setdefault((source, frame), Chain(conformed))


class _Alike:
    """Distinct arrays at the same position with the coordinates of the first."""

    def __init__(self, first: Candidate) -> None:
        self.first = first
        self._kept: dict[int, Candidate] = {}
        self._beginnings: dict[object, list[tuple[Candidate, Chain]]] = {}

    def twin(self, one: Candidate, chains: Chains, fraction: float) -> Candidate | None:
        """Return the array that ``one`` repeats; without one, add the array."""
        own, chain = chains.of(self.first, self.first), chains.of(one, self.first)
        if own is None or chain is None:
            return None
        found = self._kept.setdefault(id(own), self.first) if chain is own else self._kept.get(id(chain))
        here: list[tuple[Candidate, Chain]] = []
        if found is None:
            self._beginnings = self._beginnings or {own.digest(0): [(self.first, own)]}
            here = self._beginnings.setdefault(chain.digest(0), [])
            found = next((other for other, known in here if chain.equals(known)), None)
        if found is not None and self._confirmed(one, found, chains, fraction):
            return found
        self._kept[id(chain)] = one
        here.append((one, chain))
        return None

    def _confirmed(self, one: Candidate, found: Candidate, chains: Chains, fraction: float) -> bool:
        """Return whether two arrays are equal when compared directly.

        Both have equal values when conformed to the first array.
        """
        if one.number == found.number:
            return False
        if found is self.first:
            return True
        mine, other = chains.of(one, found), chains.of(found, found)
        return mine is not None and other is not None and mine.equals(other) and _same_coordinates(found, one, fraction)


def without_duplicates(view: View, note: Note, chains: Chains) -> list[Candidate] | None:
    """Return the group without exact duplicates, None if it has none.

    Each is reported as ``note(duplicate, kept)``. ``chains``: digests read before; new ones are added.
    """
    if any(view.group[0].places[k].name in view.rules.order for k in view.layouts):
        return None
    here: dict[tuple[int, ...], list[_Alike]] = {}
    kept = []
    for row, one in enumerate(view.group):
        known = here.setdefault(tuple(layout.classes[row] for layout in view.layouts.values()), [])
        fraction = view.rules.tolerance
        alike = next((a for a in known[:MOST] if _same_coordinates(a.first, one, fraction)), None)
        twin = None if alike is None else alike.twin(one, chains, fraction)
        if alike is None:
            known.append(_Alike(one))
        if twin is None:
            kept.append(one)
        else:
            note(one, twin)
    return kept if len(kept) < len(view.group) else None


def _same_coordinates(one: Candidate, other: Candidate, fraction: float) -> bool:
    placed = {p.name for p in one.places.values()}
    matches = match_coordinates(one, other)
    return all(difference(one, other, (n, matches[n]), fraction) is None for n in one.array.coords if n not in placed)


def _frame(first: Candidate) -> Frame:
    """Return the dimensions, directions, units and calendar to conform to."""
    keys = first.place_names()
    order = [keys[d] for d in first.array.dimensions]
    return tuple((k, not first.places[k].flipped) for k in order), first.array.units, first.array.calendar


def _conformed(one: Candidate, first: Candidate) -> MasterArray:
    """Return an array in the order, directions and units of another."""
    if one is first:
        return one.array
    names = {p.name: first.places[key].name for key, p in one.places.items()}
    upwards = {p.name: not p.flipped for p in first.places.values() if not p.scalar}
    found = oriented(one, names, [d for d in first.array.dimensions if d in names.values()], upwards)
    units, calendar = first.array.units, first.array.calendar
    if (found.units, found.calendar) == (units, calendar) or found.units is None or units is None:
        return found
    return found.to_units(units, calendar)


def _source(array: MasterArray) -> object:
    """Return a key of the stored values that an array shows, None if unknown.

    Arrays that show the same variable of the same local file in the same way have equal keys.
    """
    matrix = array._matrix
    if len(matrix.refs) != 1 or matrix.refs[0] < 0 or matrix.parts.starts or matrix.parts.steps:
        return None
    ref = int(matrix.refs[0])
    uri = matrix.references.uri_of(ref)
    if uri is None:
        return None
    try:
        status = os.stat(uri)
    except (OSError, ValueError):  # not local, or missing
        return None
    name = matrix.references.variables[int(matrix.references.variable[ref])]
    shown = matrix.references.template_of(ref), matrix.dimensions, matrix.directions, array.shape
    return status.st_dev, status.st_ino, name, shown, array.dtype, array.units, array.calendar


def _blocks(array: MasterArray) -> Iterator[Any]:
    """Yield the values in masked blocks, which depend on the shape alone."""
    return (array.read(key, masked=True) for key in _keys(array.shape))


def _keys(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Yield keys of blocks of about `BLOCK` elements, in C order."""
    if not shape:
        yield ()
        return
    each = prod(shape[1:])
    rows = max(1, BLOCK // max(1, each))
    for start in range(0, shape[0], rows):
        for rest in _keys(shape[1:]) if each > BLOCK else [()]:
            yield (slice(start, start + rows), *rest)


def digest(block: Any) -> bytes:
    """Return a digest of a masked array; equal values give equal digests.

    Dtypes may differ, NaN equals NaN and -0.0 equals 0.0; masked values are ignored.

    >>> digest(np.ma.array([1, 2])) == digest(np.ma.array([1.0, 2.0]))
    True
    """
    mask = np.ma.getmask(block)
    values = np.asarray(np.ma.getdata(block))
    sums = sha256()
    if mask is not np.ma.nomask and mask.any():
        sums.update(np.packbits(mask).tobytes())
        values = values[~mask]
    plain = _plain(values)
    if plain is None:
        sums.update(repr(values.ravel().tolist()).encode())
    else:
        sums.update(plain.dtype.str.encode())
        sums.update(np.ascontiguousarray(plain).data)
    return sums.digest()


def _plain(values: np.ndarray) -> np.ndarray | None:
    """Return numbers in the smallest common dtype that holds them exactly.

    Equal numbers have equal bytes. None for other values.
    """
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind in "biu":
        return _plain_integers(values)
    if kind == "c" and not values.imag.any():
        return _plain(values.real)
    if kind == "c" and size <= 16:
        parts = np.stack([values.real, values.imag])
        return _plain(np.where(np.isnan(values), np.nan, parts) if np.isnan(values).any() else parts)
    if kind != "f" or size > 8:
        return None
    with np.errstate(all="ignore"):
        if size != 4:
            narrow = values.astype(np.float32)
            values = narrow if np.array_equal(narrow, values, equal_nan=True) else values
        values = values + values.dtype.type(0)  # -0.0 becomes 0.0
    absent = np.isnan(values)
    if absent.any():
        values[absent] = np.nan
    return values


def _plain_integers(values: np.ndarray) -> np.ndarray:
    unsigned = values.dtype.kind == "u" and values.dtype.itemsize == 8
    wide = values.astype(np.uint64 if unsigned else np.int64)
    beyond = 2.0**64 if unsigned else 2.0**63  # the largest integers are rounded to this, which is out of range
    for dtype in (np.dtype("f4"), np.dtype("f8")):
        floats = wide.astype(dtype)
        if not np.greater_equal(floats, beyond).any() and np.array_equal(floats.astype(wide.dtype), wide):
            return floats
    return wide if (wide > np.iinfo(np.int64).max).any() else wide.astype(np.int64)
