"""Sums that follow a window: values are added in front and removed behind.

Sums are pairs of float64 numbers, whose rounding errors are caught by each other, so that a large value leaves no error when it
is removed.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class SlidingSum:
    """Sum of arrays of one shape, each of which can be removed again.

    >>> total = SlidingSum((1,))
    >>> for value in (1e16, 0.1, -1e16):
    ...     total.add(np.array([value]))
    >>> total.value().tolist()
    [0.1]
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._high, self._low, self._sum, self._part = (np.zeros(shape) for _ in range(4))

    def add(self, values: np.ndarray) -> None:
        """Add float64 values; infinite ones cannot be removed."""
        np.add(self._high, values, out=self._sum)
        # The error of the rounded sum (Knuth): (high - (sum - part)) + (values - part), part = sum - high.
        np.subtract(self._sum, self._high, out=self._part)
        self._low += values - self._part
        np.subtract(self._sum, self._part, out=self._part)
        np.subtract(self._high, self._part, out=self._part)
        self._low += self._part
        self._high, self._sum = self._sum, self._high

    def value(self) -> np.ndarray:
        """Return the present sum."""
        return np.asarray(self._high + self._low)


class SlidingMean:
    """Weighted mean of the values in a window; NaN is missing.

    ``least``: values that a mean needs; ``weighted``: whether weights differ.
    """

    def __init__(self, shape: tuple[int, ...], least: int, weighted: bool) -> None:
        self._least = least
        self._total, self._weight = SlidingSum(shape), SlidingSum(shape) if weighted else None
        self._count = np.zeros(shape, np.int64)
        self._infinite: dict[float, np.ndarray] = {}

    def enter(self, values: np.ndarray, weight: float = 1.0) -> None:
        """Take values, one of each column, into the window."""
        self._change(values, weight, 1)

    def leave(self, values: np.ndarray, weight: float = 1.0) -> None:
        """Remove values that entered before."""
        self._change(values, weight, -1)

    def _change(self, values: np.ndarray, weight: float, sign: int) -> None:
        finite = np.isfinite(values)
        if finite.all():
            self._total.add(values * (sign * weight))
            self._count += sign
            if self._weight is not None:
                self._weight.add(np.full(values.shape, sign * weight))
            return
        present = ~np.isnan(values)
        for infinity in (np.inf, -np.inf):
            if weight and (at := values == infinity).any():
                self._infinite.setdefault(infinity, np.zeros(values.shape, np.int64))[at] += sign
        self._total.add(np.where(finite, values, 0.0) * (sign * weight))
        self._count += sign * present
        if self._weight is not None:
            self._weight.add(present * (sign * weight))

    def value(self) -> np.ndarray:
        """Return the present means."""
        denominator: Any = self._count if self._weight is None else self._weight.value()
        total = self._total.value()
        with np.errstate(all="ignore"):  # a window without weight has no mean
            for infinity, number in self._infinite.items():
                total[number > 0] += infinity
            means: np.ndarray = total / denominator
        means[self._count < self._least] = np.nan
        return means
