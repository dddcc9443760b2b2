"""Accumulators of reductions: a row per group, an element per kept cell.

Each folds a `Part` into a row, and merges with the accumulator of the next segment. None reads files.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Protocol

import numpy as np

from aggarray.dataclass import NamedTuple
from aggarray.reduce.part import Part

#: Elements that are merged at once.
_TOGETHER = 1 << 16


class Shape(NamedTuple):
    """Number of groups, shape of the kept cells, position of the groups.

    ``position``: where the groups are among the dimensions of the result; None: without groups, there is one row.
    """

    groups: int
    cells: tuple[int, ...]
    position: int | None = None

    def full(self, value: Any, dtype: Any) -> np.ndarray:
        """Return rows, whose memory has the order of the result."""
        if self.position is None:
            return np.full((1, *self.cells), value, dtype)
        stored = (*self.cells[: self.position], self.groups, *self.cells[self.position :])
        return np.moveaxis(np.full(stored, value, dtype), self.position, 0)

    def result(self, rows: np.ndarray) -> np.ndarray:
        """Return rows in the shape of the result, without a copy."""
        return rows[0] if self.position is None else np.moveaxis(rows, 0, self.position)

    def column(self, numbers: np.ndarray) -> np.ndarray:
        """Return a number per group, to be broadcast with rows."""
        return numbers.reshape(-1, *(1,) * len(self.cells))

    def pieces(self) -> Iterator[tuple[slice, ...]]:
        """Yield keys of rows, and of the first dimension of large cells."""
        size = prod(self.cells)
        if size <= _TOGETHER:
            step = max(1, _TOGETHER // max(1, size))
            yield from ((slice(row, row + step),) for row in range(0, self.groups, step))
            return
        step = max(1, self.cells[0] * _TOGETHER // size)
        for row in range(self.groups):
            yield from ((slice(row, row + 1), slice(at, at + step)) for at in range(0, self.cells[0], step))


class Accumulator(Protocol):
    """What a segment collects of its parts."""

    def add(self, row: int, part: Part) -> None:
        """Fold a part into a row."""

    def merge(self, rows: np.ndarray, other: Any) -> None:
        """Add what a later segment collected; ``rows``: where its rows go."""


class Counts:
    """Numbers of values: positions per group, and missing ones per cell."""

    def __init__(self, shape: Shape, limit: int) -> None:
        self.shape, self.seen = shape, np.zeros(shape.groups, np.int64)
        self.missing: np.ndarray | None = None
        self._dtype = np.min_scalar_type(max(1, limit))

    def add(self, row: int, part: Part) -> None:
        """Count the values of a part."""
        self.seen[row] += part.size
        if part.absent is not None:
            self._rows()[row] += part.absent

    def merge(self, rows: np.ndarray, other: Counts) -> None:
        """Add the numbers of a later segment."""
        self.seen[rows] += other.seen
        if other.missing is not None:
            _add_rows(self._rows(), rows, other.missing)

    def _rows(self) -> np.ndarray:
        if self.missing is None:
            self.missing = self.shape.full(0, self._dtype)
        return self.missing

    def at(self, own: tuple[slice, ...]) -> np.ndarray:
        """Return numbers of values that are not missing, which broadcast."""
        seen = self.shape.column(self.seen[own[0]])
        return seen if self.missing is None else seen - self.missing[own]


class Weights:
    """Sums of weights of values that are not missing.

    They are numbers per group until values are missing, or weights differ between cells.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape, self._seen = shape, np.zeros(shape.groups)
        self._rows: np.ndarray | None = None

    def add(self, row: int, part: Part) -> None:
        """Add the weights of a part."""
        self.increase(row, part.weight)

    def merge(self, rows: np.ndarray, other: Weights) -> None:
        """Add the sums of a later segment."""
        for own, its in pieces_of(rows, other.mergeable):
            self.increase(own, other.at(its))

    def at(self, row: Any) -> Any:
        """Return the sums of rows, or of a piece, which broadcast with these."""
        if self._rows is not None:
            return self._rows[row]
        row = row[0] if isinstance(row, tuple) else row
        return self._seen[row] if isinstance(row, int) else self.shape.column(self._seen[row])

    def is_zero(self, row: int) -> bool:
        """Return whether nothing was added to a row."""
        return self._rows is None and not self._seen[row]

    def increase(self, row: Any, weight: Any) -> None:
        """Add to the sums of rows."""
        if self._rows is None:
            if np.size(weight) == np.size(self._seen[row]):
                self._seen[row] += np.reshape(weight, np.shape(self._seen[row]))
                return
            self._rows = self.shape.full(0.0, np.float64)
            self._rows += self.shape.column(self._seen)
        self._rows[row] += weight

    @property
    def mergeable(self) -> np.ndarray:
        """What is merged: one number per group, or one per element."""
        return self._seen if self._rows is None else self._rows


class Sum:
    """Sums, of values or of values times weights."""

    def __init__(self, shape: Shape, dtype: np.dtype[Any]) -> None:
        self.rows = shape.full(0, dtype)

    def add(self, row: int, part: Part) -> None:
        """Add the sum of a part."""
        self.rows[row] += part.total(self.rows.dtype)

    def merge(self, rows: np.ndarray, other: Sum) -> None:
        """Add the sums of a later segment."""
        _add_rows(self.rows, rows, other.rows)


class Moments:
    """Means and sums of squared deviations, merged as Chan et al. (1979)."""

    def __init__(self, shape: Shape) -> None:
        self.weights, self.mean, self.squares = Weights(shape), shape.full(0.0, np.float64), shape.full(0.0, np.float64)

    def add(self, row: int, part: Part) -> None:
        """Fold the moments of a part."""
        self._combine(row, *part.moments)

    def merge(self, rows: np.ndarray, other: Moments) -> None:
        """Fold the moments of a later segment."""
        for own, its in pieces_of(rows, other.mean):
            self._combine(own, other.weights.at(its), other.mean[its], other.squares[its])

    def _combine(self, row: Any, weight: Any, mean: np.ndarray, squares: np.ndarray) -> None:
        if isinstance(row, int) and self.weights.is_zero(row):
            self.mean[row], self.squares[row] = mean, squares
            self.weights.increase(row, weight)
            return
        for key in _strips(mean) if isinstance(row, int) else [()]:
            own = (row, *key)
            added = np.asarray(weight)[key] if np.shape(weight) == mean.shape else weight
            before = np.asarray(self.weights.at(own))
            total = before + added
            share = np.divide(added, total, out=np.zeros(np.shape(total)), where=total != 0)
            change = np.subtract(mean[key], self.mean[own])
            self.mean[own] += change * share
            self.squares[own] += squares[key]
            # Squares of large changes overflow: those of the first values are multiplied by 0 before.
            shared = change * (share * before)
            shared *= change
            self.squares[own] += shared
        self.weights.increase(row, weight)


class Extreme:
    """Smallest or greatest values."""

    def __init__(self, shape: Shape, dtype: np.dtype[Any], least: bool) -> None:
        self._worst = worst_of(dtype, least)
        self._plain: np.ufunc = np.minimum if least else np.maximum
        # NaN in a row means: no value yet.
        self._skipping: np.ufunc = self._plain if dtype.kind != "f" else np.fmin if least else np.fmax
        self.rows = shape.full(np.nan if dtype.kind == "f" else self._worst, dtype)

    def add(self, row: int, part: Part) -> None:
        """Fold the extreme of a part."""
        if part.missing is None:
            own = self._plain.reduce(part.values, axis=part.axes)
        elif part.values.dtype.kind == "f":
            own = self._skipping.reduce(part.values, axis=part.axes)
        else:
            own = self._plain.reduce(part.filled(self._worst), axis=part.axes)
        self.rows[row] = self._skipping(self.rows[row], own)

    def merge(self, rows: np.ndarray, other: Extreme) -> None:
        """Fold the extremes of a later segment."""
        for own, its in pieces_of(rows, other.rows):
            self.rows[own] = self._skipping(self.rows[own], other.rows[its])


class ExtremePosition:
    """Positions of the first smallest or greatest values, -1 without a value."""

    def __init__(self, shape: Shape, dtype: np.dtype[Any], least: bool) -> None:
        self._worst, self._least = worst_of(dtype, least), least
        self.best, self.rows = shape.full(self._worst, dtype), shape.full(-1, np.int64)

    def add(self, row: int, part: Part) -> None:
        """Fold the extreme of a part."""
        axis = part.axes[0]
        values = part.filled(self._worst)
        index = np.expand_dims(values.argmin(axis=axis) if self._least else values.argmax(axis=axis), axis)
        if part.missing is not None:
            # A missing value stands for the worst, which may itself occur.
            wrong = np.take_along_axis(part.missing, index, axis)
            index = np.where(wrong, np.expand_dims(np.argmin(part.missing, axis=axis), axis), index)
        best = np.take_along_axis(values, index, axis).squeeze(axis)
        positions = np.asarray(part.positions, np.int64)[index].squeeze(axis)
        if part.missing is not None:
            positions = np.where(np.asarray(part.count) > 0, positions, -1)
        self._combine(row, best, positions)

    def merge(self, rows: np.ndarray, other: ExtremePosition) -> None:
        """Fold the extremes of a later segment."""
        for own, its in pieces_of(rows, other.rows):
            self._combine(own, other.best[its], other.rows[its])

    def _combine(self, row: int, best: np.ndarray, positions: np.ndarray) -> None:
        better = best < self.best[row] if self._least else best > self.best[row]
        better = (positions >= 0) & (better | (self.rows[row] < 0))
        self.best[row] = np.where(better, best, self.best[row])
        self.rows[row] = np.where(better, positions, self.rows[row])


class End:
    """First or last values that are not missing; any without ``skipna``."""

    def __init__(self, shape: Shape, dtype: np.dtype[Any], first: bool, skipna: bool) -> None:
        self._first, self._skipna = first, skipna
        self.rows, self.present, self.absent = shape.full(0, dtype), shape.full(False, bool), shape.full(False, bool)

    def add(self, row: int, part: Part) -> None:
        """Fold the first or last value of a part."""
        axis = part.axes[0]
        size = part.values.shape[axis]
        if part.missing is None or not self._skipna:
            at = 0 if self._first else size - 1
            values, present = part.values.take(at, axis), np.array(True)
            absent = np.array(False) if part.missing is None else part.missing.take(at, axis)
        else:
            backwards = (slice(None),) * axis + (slice(None, None, 1 if self._first else -1),)
            index = np.expand_dims(np.argmin(part.missing[backwards], axis=axis), axis)
            values = np.take_along_axis(part.values[backwards], index, axis).squeeze(axis)
            present, absent = np.asarray(part.count) > 0, np.array(False)
        self._combine(row, values, present, absent)

    def merge(self, rows: np.ndarray, other: End) -> None:
        """Fold the values of a later segment."""
        for own, its in pieces_of(rows, other.rows):
            self._combine(own, other.rows[its], other.present[its], other.absent[its])

    def _combine(self, row: int, values: np.ndarray, present: np.ndarray, absent: np.ndarray) -> None:
        better = present & ~self.present[row] if self._first else present
        self.rows[row] = np.where(better, values, self.rows[row])
        self.absent[row] = np.where(better, absent, self.absent[row])
        self.present[row] |= better


class Truth:
    """Whether any value, or each, differs from 0; missing ones are ignored."""

    def __init__(self, shape: Shape, every: bool) -> None:
        self._every = every
        self._combine: np.ufunc = np.logical_and if every else np.logical_or
        self.rows = shape.full(every, bool)

    def add(self, row: int, part: Part) -> None:
        """Fold the values of a part."""
        own = self._combine.reduce(part.filled(self._every) != 0, axis=part.axes)
        self.rows[row] = self._combine(self.rows[row], own)

    def merge(self, rows: np.ndarray, other: Truth) -> None:
        """Fold the values of a later segment."""
        for own, its in pieces_of(rows, other.rows):
            self.rows[own] = self._combine(self.rows[own], other.rows[its])


def worst_of(dtype: np.dtype[Any], least: bool) -> Any:
    """Return the value that no other exceeds, or falls below for ``least``."""
    if dtype.kind == "f":
        return np.inf if least else -np.inf
    if dtype.kind == "b":
        return least
    return np.iinfo(dtype).max if least else np.iinfo(dtype).min


def pieces_of(rows: np.ndarray, other: np.ndarray) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of indices, of distinct rows and of those merged into them.

    Few elements are one pair. More are merged row by row, because temporary arrays should remain in the processor's cache.
    """
    if other.size > _TOGETHER:
        yield from zip(rows.tolist(), range(len(rows)), strict=True)
    elif len(rows) and rows[-1] - rows[0] == len(rows) - 1:
        yield slice(int(rows[0]), int(rows[-1]) + 1), slice(None)
    else:
        yield rows, slice(None)


def _strips(cells: np.ndarray) -> Iterator[tuple[slice, ...]]:
    """Yield keys of parts of cells along the first dimension."""
    if cells.size <= _TOGETHER:
        yield ()
        return
    step = max(1, len(cells) * _TOGETHER // cells.size)
    yield from ((slice(at, at + step),) for at in range(0, len(cells), step))


def _add_rows(rows: np.ndarray, numbers: np.ndarray, other: np.ndarray) -> None:
    for own, its in pieces_of(numbers, other):
        rows[own] += other[its]
