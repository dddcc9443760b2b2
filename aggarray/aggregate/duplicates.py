"""Exact duplicates: arrays that repeat others and are left out.

A duplicate has equal positions, coordinates and values, missing values included, after conforming. Values are read in
blocks, each once, up to the first difference: each block is reduced to a digest that is the same for equal values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from aggarray.aggregate.candidate import Candidate
from aggarray.aggregate.equality import difference
from aggarray.aggregate.join import match_coordinates
from aggarray.aggregate.orientation import oriented
from aggarray.aggregate.view import View
from aggarray.arrays.master import MasterArray
from aggarray.dataclass import dataclass, field
from aggarray.errors import AggarrayError

#: Values are compared in blocks of about this many elements.
BLOCK = 4 << 20
#: Maximum number of different coordinates, at the same positions, that an array is compared with.
MAX_COMPARED = 4

Note = Callable[[Candidate, Candidate], None]
#: The form in which values are compared: (axis, increasing) of each dimension, units, calendar.
Form = tuple[tuple[tuple[str, bool], ...], str | None, str | None]


class BlockDigests:
    """Digests of the blocks of an array, read lazily."""

    def __init__(self, array: MasterArray) -> None:
        self.array = array
        self._digests: list[object] = []
        self._rest: Iterator[object] = (digest(array.read(key, masked=True)) for key in _keys(array.shape))

    def digest(self, number: int) -> object:
        """Return the digest of a block, unique if unreadable; None after the last."""
        while number >= len(self._digests):
            try:
                self._digests.append(next(self._rest, None))
            except AggarrayError:
                self._digests.append(object())
        return self._digests[number]

    def equals(self, other: BlockDigests) -> bool:
        """Return whether all values are equal."""
        if self is other:
            return True
        number = 0
        while (mine := self.digest(number)) is not None and mine == other.digest(number):
            number += 1
        return mine == other.digest(number)


@dataclass(slots=True)
class DigestCache:
    """Digests by array and conformed form: a file of two names is read once."""

    by_array: dict[object, tuple[MasterArray, BlockDigests | None]] = field(default_factory=dict)
    stored: dict[object, BlockDigests] = field(default_factory=dict)

    def get(self, candidate: Candidate, first: Candidate) -> BlockDigests | None:
        """Return digests of a conformed array, None if it cannot be conformed."""
        keys = first.dimension_keys()
        directions = tuple((keys[d], not first.axes[keys[d]].flipped) for d in first.array.dimensions)
        form: Form = (directions, first.array.units, first.array.calendar)
        entry = self.by_array.get((candidate.number, form))
        # Unwrapped longitudes make another array with the same number.
        if entry is None or entry[0] is not candidate.array:
            blocks = None
            with suppress(AggarrayError):
                blocks = BlockDigests(_conformed(candidate, first))
                source = _source(candidate.array)
                blocks = blocks if source is None else self.stored.setdefault((source, form), blocks)
            entry = self.by_array[candidate.number, form] = (candidate.array, blocks)
        blocks = entry[1]
        return blocks if blocks is not None and blocks.array.shape == first.array.shape else None


class _DistinctArrays:
    """Distinct arrays at the same position with the coordinates of the first."""

    def __init__(self, first: Candidate) -> None:
        self.first = first
        self._kept: dict[int, Candidate] = {}
        self._by_first_digest: dict[object, list[tuple[Candidate, BlockDigests]]] = {}

    def find_or_add(self, candidate: Candidate, digests: DigestCache, fraction: float) -> Candidate | None:
        """Return the array that ``candidate`` repeats; without one, add the array."""
        first_blocks, blocks = digests.get(self.first, self.first), digests.get(candidate, self.first)
        if first_blocks is None or blocks is None:
            return None
        kept = self._kept.setdefault(id(first_blocks), self.first) if blocks is first_blocks else self._kept.get(id(blocks))
        same_start: list[tuple[Candidate, BlockDigests]] = []
        if kept is None:
            self._by_first_digest = self._by_first_digest or {first_blocks.digest(0): [(self.first, first_blocks)]}
            same_start = self._by_first_digest.setdefault(blocks.digest(0), [])
            kept = next((other for other, other_blocks in same_start if blocks.equals(other_blocks)), None)
        if kept is not None and self._is_confirmed(candidate, kept, digests, fraction):
            return kept
        self._kept[id(blocks)] = candidate
        same_start.append((candidate, blocks))
        return None

    def _is_confirmed(self, candidate: Candidate, kept: Candidate, digests: DigestCache, fraction: float) -> bool:
        """Return whether arrays equal in conformed form are also equal directly."""
        if candidate.number == kept.number:
            return False
        if kept is self.first:
            return True
        blocks, kept_blocks = digests.get(candidate, kept), digests.get(kept, kept)
        return (
            blocks is not None
            and kept_blocks is not None
            and blocks.equals(kept_blocks)
            and _same_coordinates(kept, candidate, fraction)
        )


def without_duplicates(view: View, note: Note, digests: DigestCache) -> list[Candidate] | None:
    """Return the group without duplicates, each noted; None if it has none."""
    if any(view.group[0].axes[k].name in view.rules.order for k in view.layouts):
        return None
    by_position: dict[tuple[int, ...], list[_DistinctArrays]] = {}
    kept = []
    for row, candidate in enumerate(view.group):
        groups = by_position.setdefault(tuple(layout.classes[row] for layout in view.layouts.values()), [])
        fraction = view.rules.tolerance
        group = next((a for a in groups[:MAX_COMPARED] if _same_coordinates(a.first, candidate, fraction)), None)
        duplicate_of = None if group is None else group.find_or_add(candidate, digests, fraction)
        if group is None:
            groups.append(_DistinctArrays(candidate))
        if duplicate_of is None:
            kept.append(candidate)
        else:
            note(candidate, duplicate_of)
    return kept if len(kept) < len(view.group) else None


def _same_coordinates(one: Candidate, other: Candidate, fraction: float) -> bool:
    axis_names = {p.name for p in one.axes.values()}
    matches = match_coordinates(one, other)
    return all(difference(one, other, (n, matches[n]), fraction) is None for n in one.array.coords if n not in axis_names)


def _conformed(candidate: Candidate, first: Candidate) -> MasterArray:
    """Return an array in the order, directions and units of another."""
    if candidate is first:
        return candidate.array
    names = {p.name: first.axes[key].name for key, p in candidate.axes.items()}
    increasing = {p.name: not p.flipped for p in first.axes.values() if not p.scalar}
    result = oriented(candidate, names, [d for d in first.array.dimensions if d in names.values()], increasing)
    units, calendar = first.array.units, first.array.calendar
    if (result.units, result.calendar) == (units, calendar) or result.units is None or units is None:
        return result
    return result.to_units(units, calendar)


def _source(array: MasterArray) -> object:
    """Return a key equal for equal views of one local file, None if unknown."""
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


def _keys(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Yield keys of blocks of about `BLOCK` elements, in C order."""
    if not shape:
        yield ()
        return
    row_size = prod(shape[1:])
    rows = max(1, BLOCK // max(1, row_size))
    for start in range(0, shape[0], rows):
        for rest in _keys(shape[1:]) if row_size > BLOCK else [()]:
            yield (slice(start, start + rows), *rest)


def digest(block: Any) -> bytes:
    """Return a digest of a masked array; equal values give equal digests.

    Dtypes may differ, NaN equals NaN and -0.0 equals 0.0; masked values are ignored.

    >>> digest(np.ma.array([1, 2])) == digest(np.ma.array([1.0, 2.0]))
    True
    """
    from hashlib import sha256

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
    """Return numbers in the smallest exact dtype, None for other values."""
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
            single = values.astype(np.float32)
            values = single if np.array_equal(single, values, equal_nan=True) else values
        values = values + values.dtype.type(0)  # -0.0 becomes 0.0
    nan = np.isnan(values)
    if nan.any():
        values[nan] = np.nan
    return values


def _plain_integers(values: np.ndarray) -> np.ndarray:
    unsigned = values.dtype.kind == "u" and values.dtype.itemsize == 8
    wide = values.astype(np.uint64 if unsigned else np.int64)
    limit = 2.0**64 if unsigned else 2.0**63  # the largest integers are rounded to this, which is out of range
    for dtype in (np.dtype("f4"), np.dtype("f8")):
        floats = wide.astype(dtype)
        if not np.greater_equal(floats, limit).any() and np.array_equal(floats.astype(wide.dtype), wide):
            return floats
    return wide if (wide > np.iinfo(np.int64).max).any() else wide.astype(np.int64)
