"""Values of one group in one block, with their sums and counts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

_FLOAT = np.dtype(np.float64)
#: If fewer columns than this fraction have missing values, only these are searched.
_FEW = 4
#: If a run of values that are all missing, or all not, is shorter than this on average, they are scattered.
_SCATTERED = 32
#: Number of values that are masked at a time.
_TOGETHER = 1 << 16


class Part:
    """Values that are folded together into one row of accumulators.

    Sums overwrite missing values with 0: accumulators that need to find them come first.
    ``values``: with all dimensions of the array; ``missing``: their mask, None if none is missing; ``axes``: the reduced axes;
    ``factors``: their outer product is the weight; empty: unweighted (see `contracted`); ``positions``: along the
    first reduced axis. Results have the kept dimensions; scalars stand for the same number everywhere.
    """

    def __init__(
        self,
        values: np.ndarray,
        missing: np.ndarray | None,
        axes: tuple[int, ...],
        factors: Sequence[np.ndarray],
        positions: np.ndarray | range,
    ) -> None:
        self.values, self.missing, self.axes, self.factors, self.positions = values, missing, axes, factors, positions
        self.size = prod(values.shape[axis] for axis in axes)

    @cached_property
    def absent(self) -> Any:
        """Number of missing values, None for 0."""
        if self.missing is None:
            return None
        some = np.logical_or.reduce(self.missing, axis=self.axes)
        if not some.any():
            return None
        # Land is missing at every step: then nothing is counted.
        if np.array_equal(some, np.logical_and.reduce(self.missing, axis=self.axes)):
            return some * self._number(self.size)
        return np.add.reduce(self.missing.view(np.uint8), axis=self.axes, dtype=self._number)

    @property
    def _number(self) -> Any:
        """The smallest type of the number of values."""
        return np.min_scalar_type(self.size).type

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
        """The values, 0 in place of missing ones, which are overwritten."""
        if self.missing is not None:
            overwrite(self.values, self.missing)
        return self.values

    def total(self, dtype: np.dtype[Any]) -> np.ndarray:
        """Return the sum of the values, times weights if there are any."""
        return contracted(self.zeros, self.axes, self.factors, dtype)

    @cached_property
    def weight(self) -> Any:
        """Sum of the weights of values that are not missing, else their count."""
        if not self.factors:
            return self.count
        if self.absent is not None and ((self.absent > 0) & (self.absent < self.size)).any():
            return contracted(~self.missing, self.axes, self.factors, _FLOAT)  # type: ignore[operator]
        # Cells have all their values or none: weights are summed along their own dimensions alone.
        shape = [n if any(factor.shape[d] > 1 for factor in self.factors) else 1 for d, n in enumerate(self.values.shape)]
        repeats = self.size // prod(shape[axis] for axis in self.axes)
        weight = repeats * contracted(np.broadcast_to(np.True_, shape), self.axes, self.factors, _FLOAT)
        if weight.size > 1:  # weights differ between cells
            weight = np.broadcast_to(weight, [n for axis, n in enumerate(self.values.shape) if axis not in self.axes])
        return weight if self.absent is None else np.where(self.absent == 0, weight, 0)

    @cached_property
    def moments(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """Weight, mean, and sum of weighted squared deviations."""
        weight, total = self.weight, self.total(_FLOAT)
        if self.size == 1 and not self.factors:
            return weight, total, np.broadcast_to(np.zeros(()), total.shape)
        some = np.asarray(weight) != 0
        mean = np.divide(total, weight, out=total, where=some)
        np.copyto(mean, 0, where=~some)
        deviations = np.asarray(np.subtract(self.zeros, np.expand_dims(mean, self.axes), dtype=_FLOAT))
        if self.missing is not None:
            overwrite(deviations, self.missing)
        squares = np.multiply(deviations, deviations, out=deviations)
        return weight, mean, contracted(squares, self.axes, self.factors, _FLOAT)


class SummedPart(Part):
    """Part of which only sums and counts are taken.

    The values are floating and reduced along the first axes. They are searched for missing ones only if a sum is NaN.
    """

    def __init__(self, values: np.ndarray, axes: tuple[int, ...], positions: np.ndarray | range) -> None:
        super().__init__(values, None, axes, (), positions)
        self._total = np.asarray(np.add.reduce(values, axis=axes, dtype=_FLOAT))
        total = self._total.reshape(-1)
        cells = np.flatnonzero(np.isnan(total))
        if not cells.size:
            return
        columns = values.reshape(self.size, -1)
        if cells.size * _FEW > total.size:
            self.absent = _summed_present(columns, total).reshape(self._total.shape)
            return
        absent, sums = np.zeros(total.shape, self._number), total[cells]
        absent[cells] = _summed_present(columns.take(cells, axis=1), sums)
        total[cells], self.absent = sums, absent.reshape(self._total.shape)

    def total(self, dtype: np.dtype[Any]) -> np.ndarray:
        """Return the sum of the values."""
        return self._total


def _summed_present(columns: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Replace sums of columns by those of values that are not missing.

    Return how many are missing in each column; they may be overwritten.
    """
    missing = np.isnan(columns)
    absent = np.asarray(np.add.reduce(missing.view(np.uint8), axis=0, dtype=np.min_scalar_type(len(columns))))
    total[absent == len(columns)] = 0
    some = np.flatnonzero((absent > 0) & (absent < len(columns)))
    if some.size * _FEW > total.size:
        overwrite(columns, missing)
        np.add.reduce(columns, axis=0, dtype=_FLOAT, out=total)
    elif some.size:
        chosen = columns.take(some, axis=1)
        overwrite(chosen, np.isnan(chosen))
        total[some] = np.add.reduce(chosen, axis=0, dtype=_FLOAT)
    return absent


def overwrite(values: np.ndarray, missing: np.ndarray) -> None:
    """Replace missing values by 0.

    >>> values = np.array([1.0, np.nan])
    >>> overwrite(values, np.isnan(values))
    >>> values.tolist()
    [1.0, 0.0]
    """
    flat = missing.reshape(-1)
    scattered = np.count_nonzero(flat[1:] != flat[:-1]) * _SCATTERED >= flat.size
    if values.dtype.kind != "f" or values.itemsize > 8 or not values.flags.c_contiguous or not scattered:
        np.copyto(values, 0, where=missing)
        return
    # Processors predict where missing values begin and end: if they are scattered, to mask all bits is ten times as fast.
    bits = values.reshape(-1).view(f"i{values.itemsize}")
    for at in range(0, bits.size, _TOGETHER):
        part = bits[at : at + _TOGETHER]
        np.bitwise_and(part, np.subtract(flat[at : at + _TOGETHER], 1, dtype=bits.dtype), out=part)


def contracted(values: np.ndarray, axes: tuple[int, ...], factors: Sequence[np.ndarray], dtype: np.dtype[Any]) -> np.ndarray:
    """Return sums over axes of values times factors.

    Axes without a factor are summed first: weights of latitudes are multiplied with sums over longitudes. ``factors``: float64,
    of the rank of the values, 1 along other dimensions.

    >>> contracted(np.ones((2, 3)), (0, 1), [np.array([[1.0], [2.0]])], np.dtype(float)).item()
    9.0
    """
    if not factors:
        return np.asarray(np.add.reduce(values, axis=axes, dtype=dtype))
    left = [axis for axis in axes if any(factor.shape[axis] > 1 for factor in factors)]
    plain = tuple(axis for axis in axes if axis not in left)
    if plain and values.dtype == bool:
        # Integers of few bytes are counted five times as fast.
        few = np.min_scalar_type(prod(values.shape[axis] for axis in plain))
        total = np.add.reduce(values.view(np.uint8), axis=plain, dtype=few, keepdims=True)
    else:
        total = np.add.reduce(values, axis=plain, dtype=dtype, keepdims=True) if plain else values
    every = range(values.ndim)
    for number, factor in enumerate(factors):
        last = tuple(axis for axis in left if all(other.shape[axis] == 1 for other in factors[number + 1 :]))
        left = [axis for axis in left if axis not in last]
        own, kept = [axis for axis in every if factor.shape[axis] > 1], [axis for axis in every if axis not in last]
        # Products are added as they are made, without an array of them.
        operands = total, every, factor.reshape([factor.shape[axis] for axis in own]), own, kept
        total = np.expand_dims(np.einsum(*operands, dtype=dtype, casting="same_kind"), last)
    return np.asarray(total.squeeze(axes))
