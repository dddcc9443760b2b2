"""Values of one group in one block, with their sums and counts."""

from functools import cached_property
from math import prod
from typing import Any

import numpy as np


class Part:
    """Values that are folded together into one row of accumulators.

    ``values``: with all dimensions of the array; ``missing``: their mask, None if none is missing; ``axes``: the reduced axes;
    ``weights``: float64, broadcasts with the values, or None; ``positions``: along the first reduced axis. Results have the
    kept dimensions; scalars stand for the same number everywhere.
    """

    def __init__(
        self,
        values: np.ndarray,
        missing: np.ndarray | None,
        axes: tuple[int, ...],
        weights: np.ndarray | None,
        positions: np.ndarray | range,
    ) -> None:
        self.values, self.missing, self.axes, self.weights, self.positions = values, missing, axes, weights, positions
        self.size = prod(values.shape[axis] for axis in axes)

    @cached_property
    def absent(self) -> Any:
        """Number of missing values, None if there are none."""
        if self.missing is None:
            return None
        some = np.logical_or.reduce(self.missing, axis=self.axes)
        if not some.any():
            return None
        # Land is missing at every step: then nothing is counted.
        if np.array_equal(some, np.logical_and.reduce(self.missing, axis=self.axes)):
            return np.multiply(some, self.size, dtype=np.int64)
        return np.add.reduce(self.missing, axis=self.axes, dtype=np.int64)

    @property
    def count(self) -> Any:
        """Number of values that are not missing."""
        return self.size if self.absent is None else self.size - self.absent

    def filled(self, value: Any) -> np.ndarray:
        """Return the values with ``value`` in place of missing ones."""
        if self.missing is None:
            return self.values
        return np.where(self.missing, np.asarray(value, self.values.dtype), self.values)

    @cached_property
    def zeros(self) -> np.ndarray:
        """The values, 0 in place of missing ones."""
        return self.filled(0)

    def total(self, dtype: np.dtype[Any]) -> np.ndarray:
        """Return the sum of the values."""
        return np.asarray(np.add.reduce(self.zeros, axis=self.axes, dtype=dtype))

    @cached_property
    def weighted(self) -> np.ndarray:
        """Sum of values times weights."""
        assert self.weights is not None
        return np.asarray(np.add.reduce(np.multiply(self.zeros, self.weights, dtype=np.float64), axis=self.axes))

    @cached_property
    def weight(self) -> Any:
        """Sum of the weights of values that are not missing, else their count."""
        if self.weights is None:
            return self.count
        weights = np.broadcast_to(self.weights, self.values.shape)
        if self.missing is not None:
            weights = np.where(self.missing, 0.0, weights)
        return np.asarray(np.add.reduce(weights, axis=self.axes))

    @cached_property
    def moments(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """Weight, mean, and sum of weighted squared deviations."""
        weight = self.weight
        total = self.total(np.dtype(np.float64)) if self.weights is None else self.weighted
        mean = np.divide(total, weight, out=np.zeros(total.shape), where=np.asarray(weight) != 0)
        deviations = np.subtract(self.zeros, np.expand_dims(mean, self.axes), dtype=np.float64)
        if self.missing is not None:
            deviations[self.missing] = 0
        squares = np.multiply(deviations, deviations, out=deviations)
        if self.weights is not None:
            squares *= self.weights
        return weight, mean, np.asarray(np.add.reduce(squares, axis=self.axes))
