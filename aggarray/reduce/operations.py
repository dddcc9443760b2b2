"""Operations of reductions: their accumulators and results.

Operations of one pass share accumulators: a mean, a sum and a count need one sum and one count.
"""

from collections.abc import Sequence
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
        bytes_of = {"counts": 4, "moments": 24, "argmin": 16, "argmax": 16}
        return sum(bytes_of.get(name, 10) for name in self.accumulators)

    def result_dtype(self, operation: str) -> np.dtype[Any]:
        """Return the dtype of the result of an operation."""
        if operation in ("mean", "std", "var"):
            return _FLOAT
        if operation in ("count", "argmin", "argmax"):
            return _INTEGER
        if operation in ("any", "all"):
            return _BOOL
        if operation == "sum":
            return _FLOAT if self.needs("sum") == ("sum float",) else _INTEGER
        return self.dtype


class State:
    """Accumulators of a segment, or of a tile.

    ``groups``: sorted numbers of the groups that its rows are of; ``limit``: positions of the largest group.
    """

    def __init__(self, work: Work, shape: Shape, groups: np.ndarray, limit: int) -> None:
        self.work, self.shape, self.groups = work, shape, groups
        self._held: dict[str, Accumulator] = {name: _made(name, work, shape, limit) for name in work.accumulators}

    def add(self, group: int, part: Part) -> None:
        """Fold the values of a part of a group."""
        row = int(np.searchsorted(self.groups, group))
        for accumulator in self._held.values():
            accumulator.add(row, part)

    def merge(self, other: "State") -> None:
        """Fold what a later segment collected."""
        rows = np.searchsorted(self.groups, other.groups)
        for name, accumulator in self._held.items():
            accumulator.merge(rows, other._held[name])

    def results(self) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
        """Return values and mask (None: none is missing) of each operation.

        The accumulators become the results where they can, and are not used again.
        """
        counts = self._held["counts"]
        assert isinstance(counts, Counts)
        users = [name for operation in self.work.operations for name in self.work.needs(operation)]
        found = {}
        # A mean divides its sum in place: other users of the sum come first.
        for operation in sorted(self.work.operations, key=lambda name: name in ("mean", "std")):
            shared = any(users.count(name) > 1 for name in self.work.needs(operation))
            values = np.asarray(self._values(operation, counts, shared))
            missing = self._missing(operation, counts)
            if missing is not None:
                missing = np.broadcast_to(missing, values.shape)
                if values.dtype.kind == "f":
                    values[missing] = np.nan
                missing = self.shape.result(missing)
            found[operation] = self.shape.result(values), missing
        return {operation: found[operation] for operation in self.work.operations}

    def _values(self, operation: str, counts: Counts, shared: bool) -> np.ndarray:
        held: Any = [self._held[name] for name in self.work.needs(operation)]
        shape = len(counts.seen), *self.shape.cells
        if operation == "count":
            return np.broadcast_to(counts.values, shape).copy() if counts.missing is None else counts.values
        if operation in ("std", "var"):
            return _deviations(held[0], operation == "std", shared)
        if operation == "mean":
            divisor = held[1].values if self.work.is_weighted else counts.values
            sums = held[0].rows
            out = None if shared or sums.dtype != _FLOAT else sums
            return np.asarray(np.divide(sums, divisor, out=out))
        rows: np.ndarray = held[0].rows
        return rows.copy() if shared and operation == "sum" else rows

    def _missing(self, operation: str, counts: Counts) -> np.ndarray | None:
        """Return where the result is missing; None: nowhere."""
        if operation in ("count", "argmin", "argmax"):
            if operation != "count" and not self._enough(operation, counts).all():
                rows: Any = self._held[operation]
                rows.rows[np.broadcast_to(~self._enough(operation, counts), rows.rows.shape)] = -1
            return None
        missing = ~self._enough(operation, counts)
        if operation in ("first", "last"):
            held: Any = self._held[operation]
            missing = missing | held.absent
        return missing if missing.any() else None

    def _enough(self, operation: str, counts: Counts) -> np.ndarray:
        least = self.work.min_count if operation in ("sum", "any", "all") else max(1, self.work.min_count)
        # With a literal first or last value, other missing ones do not matter.
        literal = operation in ("first", "last") and not self.work.skipna
        enough = np.asarray(counts.shape.column(counts.seen) > 0 if literal else counts.values >= least)
        if not self.work.skipna and not literal and counts.missing is not None:
            enough = enough & (counts.missing == 0)
        return enough


def _deviations(moments: Moments, root: bool, shared: bool) -> np.ndarray:
    variance = np.divide(moments.squares, moments.weights.values, out=None if shared else moments.squares)
    return np.asarray(np.sqrt(variance, out=variance) if root else variance)


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
    return Sum(shape, _INTEGER if name == "sum integer" else _FLOAT)


def distinct_operations(operations: Sequence[str] | str) -> tuple[str, ...]:
    """Return the operations, each once."""
    return tuple(dict.fromkeys([operations] if isinstance(operations, str) else operations))
