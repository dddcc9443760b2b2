"""Positions of coordinates along a dimension.

Coordinates are ascending values in common units. `lay_out` finds the positions of each in the union of all; values that are
equal within the tolerance have one position. `clusters` groups those that can share a dimension: no value of one is between
values of another. All functions are pure.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

from aggarray.dataclass import dataclass, field
from aggarray.memory.selection import distinct


@dataclass(frozen=True, slots=True, eq=False)
class PositionLayout:
    """Positions of coordinates in their union.

    ``classes``: per coordinate the number of its class, which equal coordinates share; ``positions``: per class strictly
    increasing int64 positions in the union; ``size``: of the union; ``tolerance``: within which values are equal.
    """

    classes: list[int]
    positions: Sequence[np.ndarray | range]
    size: int
    tolerance: float

    def contiguous(self, number: int) -> bool:
        """Return whether a class has every position of its range."""
        positions = self.positions[number]
        return len(positions) == 0 or int(positions[-1] - positions[0]) + 1 == len(positions)


def smallest_spacing(values: np.ndarray) -> float:
    """Return the smallest step of an ascending coordinate, 0 without any.

    >>> smallest_spacing(np.array([0.0, 2.0, 3.0])), smallest_spacing(np.array([5.0]))
    (1.0, 0.0)
    """
    if len(values) < 2 or values.dtype.kind not in "iuf":
        return 0.0
    return float(np.diff(values).min())


def tolerance_of(spacing: float, fraction: float, rounding: float) -> float:
    """Return the largest difference between equal values.

    It is less than half the spacing, so that values of one coordinate stay different.

    >>> tolerance_of(1.0, 0.25, 0.125), tolerance_of(1.0, 0.25, 10.0), tolerance_of(0.0, 0.25, 0.125)
    (0.375, 0.49, 0.125)
    """
    allowed = fraction * spacing + rounding
    return min(allowed, 0.49 * spacing) if spacing > 0 else allowed


def lay_out(coordinates: Sequence[np.ndarray], fraction: float, rounding: Sequence[float]) -> PositionLayout:
    """Find the positions of ascending coordinates in their union.

    ``fraction``: of the smallest spacing, within which values are equal; ``rounding``: the rounding error of the values of each
    coordinate.

    >>> layout = lay_out([np.array([0.0, 1.0]), np.array([2.0, 3.0]), np.array([2.0, 3.0])], 1e-5, [1e-15] * 3)
    >>> layout.classes, [p.tolist() for p in layout.positions], layout.size
    ([0, 1, 1], [[0, 1], [2, 3]], 4)
    """
    digests: dict[tuple[int, bytes, float], int] = {}
    distinct: list[np.ndarray] = []
    roundings: list[float] = []
    numbers = []
    for values, own in zip(coordinates, rounding, strict=True):
        if values.dtype.kind in "iu":  # differences must fit the dtype
            is_unsigned = values.dtype.kind == "u" and values.dtype.itemsize == 8
            values = values.astype(np.float64 if is_unsigned else np.int64, copy=False)
        key = (len(values), values.tobytes() if values.dtype.kind in "iuf" else repr(values.tolist()).encode(), own)
        number = digests.setdefault(key, len(distinct))
        if number == len(distinct):
            distinct.append(values)
            roundings.append(own)
        numbers.append(number)
    spacing = min((s for s in map(smallest_spacing, distinct) if s > 0), default=0.0)
    tolerances = [tolerance_of(spacing, fraction, own) for own in roundings]
    positions, size = _union(distinct, tolerances)
    classes: dict[bytes, int] = {}
    class_of = [classes.setdefault(p.tobytes(), len(classes)) for p in positions]
    kept = {number: p for p, number in zip(positions, class_of, strict=True)}
    ordered = [kept[n] for n in range(len(classes))]
    return PositionLayout([class_of[n] for n in numbers], ordered, size, max(tolerances, default=0.0))


def _union(distinct: list[np.ndarray], tolerances: list[float]) -> tuple[list[np.ndarray], int]:
    """Number the sorted values of all coordinates.

    Values within the tolerance of a representative share its number. Precise coordinates come first: a coarse value joins a
    precise one, and never makes two precise ones equal.
    """
    if not distinct or not sum(map(len, distinct)):
        return [np.zeros(0, np.int64) for _ in distinct], 0
    if any(v.dtype.kind not in "iuf" for v in distinct):
        # Natural order where each coordinate has one value, else alphabetic.
        single = all(len(v) == 1 for v in distinct)
        texts = {str(v) for values in distinct for v in values.tolist()}
        number = {text: n for n, text in enumerate(sorted(texts, key=natural if single else None))}
        return [np.array([number[str(v)] for v in values.tolist()], np.int64) for values in distinct], len(number)
    known = np.zeros(0)
    for tolerance in sorted(set(tolerances)):
        values = np.concatenate([v for v, own in zip(distinct, tolerances, strict=True) if own == tolerance])
        near = _nearest(known, values)
        new = values if near is None else values[np.abs(known[near] - values) > tolerance]
        known = known if len(known) else known.astype(new.dtype)
        known = np.sort(np.concatenate([known, _representatives(new, tolerance)]))
    nearest = _nearest(known, np.concatenate(distinct))
    ends = np.cumsum([len(v) for v in distinct])[:-1]
    return np.split(np.zeros(0, np.int64) if nearest is None else nearest, ends), len(known)


def _nearest(known: np.ndarray, values: np.ndarray) -> np.ndarray | None:
    """Return the position of the nearest known value, None if none is known."""
    if not len(known):
        return None
    after = np.searchsorted(known, values).clip(1, max(1, len(known) - 1))
    before = after - 1
    after = after.clip(max=len(known) - 1)
    return np.where(np.abs(values - known[before]) <= np.abs(known[after] - values), before, after)


def _representatives(values: np.ndarray, tolerance: float) -> np.ndarray:
    """Return the lowest of values that are equal within the tolerance.

    Chains of such values are divided.

    >>> _representatives(np.array([0.0, 0.9, 1.8, 5.0]), 1.0).tolist()
    [0.0, 1.8, 5.0]
    """
    ordered = distinct(values)
    if len(ordered) < 2:
        return ordered
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] - ordered[:-1] > tolerance]))
    ends = np.concatenate([begins[1:], [len(ordered)]])
    chains = np.flatnonzero(ordered[ends - 1] - ordered[begins] > tolerance)
    kept = [ordered[begins]]
    for chain in chains:
        rest = ordered[begins[chain] : ends[chain]]
        rest = rest[rest - rest[0] > tolerance]
        while len(rest):
            kept.append(rest[:1])
            rest = rest[rest - rest[0] > tolerance]
    return np.sort(np.concatenate(kept))


def natural(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key that orders numbers within text by value: r2, r10."""
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"([0-9]+)", text) if p]


@dataclass(slots=True)
class _Cluster:
    """Classes that share a dimension: sorted positions, disjoint ranges."""

    members: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    known: set[int] = field(default_factory=set)
    lows: list[int] = field(default_factory=list)
    highs: list[int] = field(default_factory=list)

    def accepts(self, positions: list[int]) -> bool:
        """Return whether neither has a position between positions of the other."""
        between = self.values[bisect_left(self.values, positions[0]) : bisect_right(self.values, positions[-1])]
        if between and not set(between) <= set(positions):
            return False
        for position in positions:
            if position not in self.known:
                number = bisect_right(self.lows, position) - 1
                if number >= 0 and self.highs[number] >= position:
                    return False
        return True

    def add(self, number: int, positions: list[int]) -> None:
        self.members.append(number)
        new = [p for p in positions if p not in self.known]
        self.known.update(new)
        at = bisect_left(self.values, positions[0])
        end = bisect_right(self.values, positions[-1])
        self.values[at:end] = sorted({*self.values[at:end], *new})
        low, high = positions[0], positions[-1]
        first, last = bisect_left(self.highs, low), bisect_right(self.lows, high)
        if first < last:
            low, high = min(low, self.lows[first]), max(high, self.highs[last - 1])
        self.lows[first:last], self.highs[first:last] = [low], [high]


def clusters(layout: PositionLayout) -> list[list[int]]:
    """Return the classes in groups that can share the dimension.

    Classes of most arrays come first.

    >>> thirds = [np.array([0.0, 3.0]), np.array([1.0, 4.0]), np.array([5.0])]
    >>> clusters(lay_out(thirds, 1e-5, [1e-16] * 3))
    [[0, 2], [1]]
    """
    if all(layout.contiguous(n) for n in range(len(layout.positions))):
        return [list(range(len(layout.positions)))]
    uses = np.bincount(layout.classes, minlength=len(layout.positions))
    order = sorted(range(len(layout.positions)), key=lambda n: (-uses[n], list(layout.positions[n][:1])))
    results: list[_Cluster] = []
    for number in order:
        positions = list(map(int, layout.positions[number]))
        if not positions:
            continue
        cluster = next((c for c in results if c.accepts(positions)), None)
        if cluster is None:
            cluster = _Cluster()
            results.append(cluster)
        cluster.add(number, positions)
    empty = [n for n in order if not len(layout.positions[n])]
    if results:
        results[0].members.extend(empty)
    return [sorted(c.members) for c in results] or [empty]
