"""Reduction of the values of several processes, in groups along one axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from aggarray.dataclass import NamedTuple
from aggarray.mpi.transport.base import Link

#: Result of an operation: values with the kept dimensions after that of the groups, and which are missing.
Values = tuple[np.ndarray, np.ndarray]
_Key = tuple[Any, ...]


class Section(NamedTuple):
    """Owned elements of a process.

    ``axes``: the reduced axes; ``positions``: global positions along the first of them; ``numbers``: the group of each, -1 for
    none, of ``groups``; None: all are one group. ``weights``: float64, broadcasts with the values; None: unweighted.
    """

    values: np.ndarray
    fill: Any
    axes: tuple[int, ...]
    positions: np.ndarray
    numbers: np.ndarray | None = None
    groups: int = 1
    weights: np.ndarray | None = None


class SectionReduction:
    """Reduction of the sections of some processes, which all get the result."""

    def __init__(self, link: Link, ranks: Sequence[int], section: Section) -> None:
        self._link, self._ranks, self._section = link, ranks, section
        values = section.values
        self._values = values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))
        if values.dtype.kind == "f":
            self._valid = ~np.isnan(self._values)
        else:
            self._valid = np.ones(values.shape, bool) if section.fill is None else self._values != section.fill
        self._parts = list(self._selections())
        self._count = self._fold(np.add, self._valid, 0, np.int64)

    def compute(self, operation: str) -> Values:
        """Return the result, equal on all processes."""
        if operation == "count":
            return self._count, np.zeros(self._count.shape, bool)
        if operation in ("argmin", "argmax", "first", "last"):
            return self._positioned(operation)
        missing = self._count == 0
        if operation in ("min", "max"):
            return self._extreme(operation), missing
        if operation in ("any", "all"):
            return self._truth(operation), np.zeros(missing.shape, bool)
        return {"sum": self._sum, "mean": self._mean, "var": self._variance, "std": self._deviation}[operation](), missing

    def _selections(self) -> Iterator[tuple[int, _Key]]:
        """Yield each group that occurs, with the key of its elements."""
        numbers, axis = self._section.numbers, min(self._section.axes, default=0)
        if numbers is None:
            yield 0, (...,)
            return
        order = np.argsort(numbers, kind="stable")
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-2))
        for chosen in np.split(order, starts[1:]):
            if len(chosen) and numbers[chosen[0]] >= 0:
                is_run = chosen[-1] - chosen[0] == len(chosen) - 1
                part = slice(int(chosen[0]), int(chosen[-1]) + 1) if is_run else chosen
                yield int(numbers[chosen[0]]), (slice(None),) * axis + (part,)

    def _fold(
        self, ufunc: np.ufunc, values: np.ndarray, start: Any, dtype: Any = None, where: np.ndarray | None = None
    ) -> np.ndarray:
        """Return values reduced by group, of all processes.

        ``start``: the result without elements; ``where``: the elements that count, all valid ones by default.
        """
        axes, where = self._section.axes, self._valid if where is None else where
        dtype = values.dtype if dtype is None else np.dtype(dtype)
        kept = tuple(size for axis, size in enumerate(values.shape) if axis not in axes)
        result = np.full((self._section.groups, *kept), start, dtype)
        for group, key in self._parts:
            result[group] = ufunc.reduce(values[key], axis=axes, dtype=dtype, initial=start, where=where[key])
        from aggarray.mpi.sums import allreduce

        allreduce(self._link, self._ranks, result, ufunc)
        return result

    def _weighted(self, values: np.ndarray) -> np.ndarray:
        return values if self._section.weights is None else values * self._section.weights

    def _sum(self, exact: bool = True) -> np.ndarray:
        integral = self._values.dtype.kind in "iub" and exact and self._section.weights is None
        integer = np.uint64 if self._values.dtype == np.uint64 else np.int64
        return self._fold(np.add, self._weighted(self._values), 0, integer if integral else np.float64)

    def _mean(self) -> np.ndarray:
        return self._per_weight(self._sum(exact=self._values.dtype.itemsize < 8))

    def _deviation(self) -> np.ndarray:
        return np.asarray(np.sqrt(self._variance()))

    def _variance(self) -> np.ndarray:
        # Two passes keep the precision of small deviations from a large mean.
        mean = self._mean()
        deviations = self._values.astype(np.float64)
        for group, key in self._parts:
            deviations[key] -= np.expand_dims(mean[group], self._section.axes)
        np.multiply(deviations, deviations, out=deviations)
        return self._per_weight(self._fold(np.add, self._weighted(deviations), 0))

    def _per_weight(self, total: np.ndarray) -> np.ndarray:
        weight, quotient = self._count, np.full(total.shape, np.nan)
        if self._section.weights is not None:
            weight = self._fold(np.add, np.broadcast_to(self._section.weights, self._values.shape), 0, np.float64)
        return np.asarray(np.divide(total, weight, out=quotient, where=self._count > 0))

    def _truth(self, operation: str) -> np.ndarray:
        ufunc = np.logical_or if operation == "any" else np.logical_and
        return self._fold(ufunc, self._values != 0, operation == "all")

    def _extreme(self, operation: str) -> np.ndarray:
        dtype = self._values.dtype
        limits: Any = np.iinfo(dtype) if dtype.kind in "iu" else None
        ends: tuple[Any, Any] = (limits.min, limits.max) if limits else (-np.inf, np.inf)
        lowest, highest = (False, True) if dtype.kind == "b" else ends
        ufunc, start = (np.minimum, highest) if operation == "min" else (np.maximum, lowest)
        return self._fold(ufunc, self._values, start)

    def _positioned(self, operation: str) -> Values:
        """Return positions of extremes, or the values at the ends."""
        (axis,) = self._section.axes
        shape = [-1 if d == axis else 1 for d in range(self._values.ndim)]
        positions = np.broadcast_to(self._section.positions.reshape(shape), self._values.shape)
        where = self._valid
        if operation.startswith("arg"):
            extreme = self._extreme(operation[3:])
            where = self._valid & self._matches(self._values, extreme)
        ufunc, start = (np.maximum, -1) if operation == "last" else (np.minimum, np.iinfo(np.int64).max)
        found = self._fold(ufunc, positions, start, np.int64, where)
        if operation.startswith("arg"):
            return np.where(self._count > 0, found, -1), np.zeros(found.shape, bool)
        at = self._valid & self._matches(positions, found)
        return self._fold(np.add, self._values, self._values.dtype.type(0), None, at), self._count == 0

    def _matches(self, values: np.ndarray, results: np.ndarray) -> np.ndarray:
        """Return which values equal the result of their group."""
        matches = np.zeros(values.shape, bool)
        for group, key in self._parts:
            matches[key] = values[key] == np.expand_dims(results[group], self._section.axes)
        return matches
