"""Operations of reductions: their accumulators and results.

Operations of one pass share accumulators: a mean, a sum and a count need one sum and one count.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aggarray.dataclass import dataclass
from aggarray.reduce.accumulators import (
    Accumulator,
    Counts,
    End,
    Extreme,
    ExtremePosition,
    Moments,
    Shape,
    Sum,
    Truth,
    Weights,
)
from aggarray.reduce.part import Part

OPERATIONS = ("mean", "sum", "min", "max", "std", "var", "count", "any", "all", "first", "last", "argmin", "argmax")
#: Operations that weights change; the others ignore them.
WEIGHTED = frozenset({"mean", "sum", "std", "var"})
#: Operations along one dimension, whose order they need.
ORDERED = frozenset({"first", "last", "argmin", "argmax"})
#: Operations that reference times have.
OF_TIMES = frozenset({"min", "max", "first", "last", "count", "argmin", "argmax"})
#: Operations whose results are values of the array.
CHOSEN = frozenset({"min", "max", "first", "last"})
_FLOAT, _INTEGER, _BOOL = np.dtype(np.float64), np.dtype(np.int64), np.dtype(bool)


@dataclass(frozen=True, slots=True)
class Work:
    """What is computed: operations, dtype of the values, and options."""

    operations: tuple[str, ...]
    dtype: np.dtype[Any]
    is_weighted: bool = False
    skipna: bool = True
    min_count: int = 1

    @property
    def accumulators(self) -> tuple[str, ...]:
        """Names of the accumulators that the operations need."""
        names = {"counts"}.union(*(self.needs(operation) for operation in self.operations))
        # Sums overwrite missing values.
        return tuple(sorted(names, key=lambda name: (name not in OPERATIONS, name)))

    @property
    def is_sum(self) -> bool:
        """Whether only unweighted sums of floating values, and counts, are taken."""
        return self.dtype.kind == "f" and not self.is_weighted and self.accumulators == ("counts", "sum float")

    def needs(self, operation: str) -> tuple[str, ...]:
        """Return the accumulators of an operation, beside the counts."""
        if operation == "count":
            return ()
        if operation in ("std", "var"):
            return ("moments",)
        if operation == "mean":
            return (self._mean_sum, "weights") if self.is_weighted else (self._mean_sum,)
        if operation == "sum":
            return ("sum float" if self.is_weighted or self.dtype.kind == "f" else "sum integer",)
        return (operation,)

    @property
    def _mean_sum(self) -> str:
        # The sum of 64-bit integers may overflow; that of others is exact.
        exact = self.dtype.kind == "b" or (self.dtype.kind in "iu" and self.dtype.itemsize < 8)
        return "sum integer" if exact and not self.is_weighted else "sum float"

    @property
    def width(self) -> int:
        """Bytes that the accumulators need per element of the result."""
        bytes_of = {"counts": 2, "moments": 24, "argmin": 16, "argmax": 16, "first": 10, "last": 10}
        return sum(bytes_of.get(name, 8) for name in self.accumulators)

    @property
    def beside(self) -> tuple[int, int]:
        """Bytes per element beside the results: of one tile, of each of several.

        The accumulators of a single tile become results where they can.
        """
        results = sum(self.result_dtype(name).itemsize for name in self.operations)
        own = {
            self.needs(name)[0]: self.result_dtype(name).itemsize
            for name in self.operations
            if name == "sum" or (name != "count" and self.needs(name)[0] != "sum integer")
        }
        return self.width - sum(own.values()) + len(self.operations), self.width + results + len(self.operations)

    def result_dtype(self, operation: str) -> np.dtype[Any]:
        """Return the dtype of the result of an operation."""
        if operation in ("mean", "std", "var"):
            return _FLOAT
        if operation in ("count", "argmin", "argmax"):
            return _INTEGER
        if operation in ("any", "all"):
            return _BOOL if self.least(operation) == 0 and self.skipna else np.dtype(np.int8)
        if operation == "sum":
            return _FLOAT if self.needs("sum") == ("sum float",) else self.integer
        return self.dtype

    @property
    def integer(self) -> np.dtype[Any]:
        """Dtype of sums of integers."""
        return self.dtype if self.dtype == np.uint64 else _INTEGER

    def least(self, operation: str) -> int:
        """Return the number of values that a result needs, else it is missing.

        As in NumPy, none are needed to say that any or all values differ from 0, unless several are asked for.
        """
        if operation in ("any", "all"):
            return self.min_count if self.min_count > 1 else 0
        return self.min_count if operation == "sum" else max(1, self.min_count)


class State:
    """Accumulators of a segment, or of a tile.

    ``groups``: sorted numbers of the groups that its rows are of; ``limit``: positions of the largest group.
    """

    def __init__(self, work: Work, shape: Shape, groups: np.ndarray, limit: int) -> None:
        self.work, self.shape, self.groups = work, shape, groups
        self.held: dict[str, Accumulator] = {name: _made(name, work, shape, limit) for name in work.accumulators}

    def add(self, group: int, part: Part) -> None:
        """Fold the values of a part of a group."""
        row = int(np.searchsorted(self.groups, group))
        for accumulator in self.held.values():
            accumulator.add(row, part)

    def merge(self, other: State) -> None:
        """Fold what a later segment collected."""
        rows = np.searchsorted(self.groups, other.groups)
        for name, accumulator in self.held.items():
            accumulator.merge(rows, other.held[name])


def _made(name: str, work: Work, shape: Shape, limit: int) -> Accumulator:
    if name == "counts":
        return Counts(shape, limit)
    if name == "weights":
        return Weights(shape)
    if name == "moments":
        return Moments(shape)
    if name in ("min", "max"):
        return Extreme(shape, work.dtype, name == "min")
    if name in ("argmin", "argmax"):
        return ExtremePosition(shape, work.dtype, name == "argmin")
    if name in ("first", "last"):
        return End(shape, work.dtype, name == "first", work.skipna)
    if name in ("any", "all"):
        return Truth(shape, name == "all")
    return Sum(shape, work.integer if name == "sum integer" else _FLOAT)
