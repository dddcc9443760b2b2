"""Positions of the samples of each row of a ragged array.

A row has a start and a count; samples that are not stored in the order of rows have an order. CF chapter 9 has three
representations: the sizes of consecutive rows (contiguous), the row of every sample (indexed), or both, the row of every run
of samples (indexed contiguous).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aggarray.dataclass import dataclass
from aggarray.errors import FormatError
from aggarray.memory.selection import Range, Selector

#: The greatest number of instances, or per element of the index: a damaged file must not allocate memory by its claims.
_MOST_INSTANCES, _MOST_PER_ELEMENT = 1 << 27, 4


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of samples, each a run of samples in the order of rows.

    Row i is ``starts[i]`` to ``starts[i] + counts[i]``. ``order``: the position of each sample in storage, in the order of
    rows; None: samples are stored in that order. All int64.
    """

    starts: np.ndarray
    counts: np.ndarray
    order: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def offsets(self) -> np.ndarray:
        """Begins and ends of the rows, laid end to end: int64, one more than rows."""
        return offsets_of(self.counts)

    def take(self, selector: Range | np.ndarray) -> Rows:
        """Return selected rows, in the order of the selection; no sample is moved."""
        key = selector.as_slice() if isinstance(selector, Range) else selector
        return Rows(self.starts[key], self.counts[key], self.order)

    def positions(self) -> slice | np.ndarray:
        """Return the samples' positions, row by row; a slice if consecutive.

        >>> contiguous(np.array([2, 0, 3])).take(Range(1, 2)).positions()
        slice(2, 5, None)
        """
        used = np.flatnonzero(self.counts)
        starts, counts = self.starts[used], self.counts[used]
        if not len(used):
            return slice(0, 0)
        if (starts[1:] == starts[:-1] + counts[:-1]).all():
            run = slice(int(starts[0]), int(starts[-1] + counts[-1]))
            if self.order is None:
                return run
            positions = self.order[run]
            first, last = int(positions[0]), int(positions[-1])
            is_run = last - first == len(positions) - 1 and bool((np.diff(positions) == 1).all())
            return slice(first, last + 1) if is_run else positions
        positions = runs(starts, counts)
        return positions if self.order is None else self.order[positions]


def runs(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the numbers in consecutive runs, one run after the other.

    >>> runs(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = offsets_of(counts)
    return np.repeat(starts - before[:-1], counts) + np.arange(before[-1])


def offsets_of(counts: np.ndarray) -> np.ndarray:
    """Return the offsets of rows of these sizes, int64, one more than rows.

    >>> offsets_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def contiguous(counts: np.ndarray) -> Rows:
    """Return consecutive rows of these sizes (CF section 9.3.3)."""
    return Rows(offsets_of(counts)[:-1], counts)


def indexed(index: np.ndarray, size: int) -> Rows:
    """Return rows of indexed samples (CF section 9.3.4), whose order is kept.

    >>> rows = indexed(np.array([1, 0, 1]), 3)
    >>> rows.counts.tolist(), rows.order.tolist()
    ([1, 2, 0], [1, 0, 2])
    """
    counts = np.bincount(index, minlength=size)
    if (np.diff(index) >= 0).all():
        return contiguous(counts)
    return Rows(offsets_of(counts)[:-1], counts, np.argsort(index, kind="stable"))


def indexed_contiguous(counts: np.ndarray, index: np.ndarray, size: int) -> Rows:
    """Return rows of runs (CF H.6.3) of ``counts`` samples in rows ``index``.

    >>> rows = indexed_contiguous(np.array([2, 1, 1]), np.array([1, 0, 1]), 2)
    >>> rows.counts.tolist(), rows.order.tolist()
    ([1, 3], [2, 0, 1, 3])
    """
    row_sizes = np.zeros(size, np.int64)
    np.add.at(row_sizes, index, counts)
    if (np.diff(index) >= 0).all():
        return contiguous(row_sizes)
    sorted_runs = np.argsort(index, kind="stable")
    return Rows(offsets_of(row_sizes)[:-1], row_sizes, runs(offsets_of(counts)[:-1][sorted_runs], counts[sorted_runs]))


def incomplete(valid: np.ndarray, rows: np.ndarray, elements: np.ndarray) -> Rows:
    """Return the rows of incomplete arrays, one per file (CF section 9.3.2).

    ``valid``: whether an element is a sample, bool; ``rows``, ``elements``: their numbers in each file.

    >>> incomplete(np.array([True, False, True, True]), np.array([2]), np.array([4]))
    Rows(starts=array([0, 2]), counts=array([1, 2]), order=None)
    """
    widths = np.repeat(elements // np.maximum(rows, 1), rows)
    starts = offsets_of(widths)[:-1]
    before = offsets_of(valid)
    counts = before[starts + widths] - before[starts]
    # Rows whose missing elements all come last.
    if (before[starts + counts] - before[starts] == counts).all():
        return Rows(starts, counts)
    return Rows(offsets_of(counts)[:-1], counts, np.flatnonzero(valid))


def concatenate_rows(parts: Sequence[tuple[Rows, int]]) -> Rows:
    """Join (rows, number of samples) pairs whose samples are end to end.

    >>> concatenate_rows([(contiguous(np.array([1])), 1), (indexed(np.array([1, 0]), 2), 2)]).order.tolist()
    [0, 2, 1]
    """
    if len(parts) == 1:
        return parts[0][0]
    before = offsets_of(np.array([size for _, size in parts]))[:-1].tolist()
    counts = np.concatenate([np.zeros(0, np.int64), *(rows.counts for rows, _ in parts)])
    pairs = [(rows, shift) for (rows, _), shift in zip(parts, before, strict=True)]
    if all(rows.order is None for rows, _ in parts):
        return Rows(np.concatenate([np.zeros(0, np.int64), *(rows.starts + shift for rows, shift in pairs)]), counts)
    orders = [(runs(rows.starts, rows.counts) if rows.order is None else rows.order) + shift for rows, shift in pairs]
    return Rows(offsets_of(counts)[:-1], counts, np.concatenate(orders))


def check_counts(counts: np.ndarray, samples: int) -> None:
    """Raise FormatError unless row sizes are valid and sum to ``samples``."""
    below = np.flatnonzero(counts < 0)
    # promise: row-sizes-negative
    if below.size:
        raise FormatError(f"row {below[0]} has the negative size {counts[below[0]]}", hint="correct the file")
    # With Python's integers if the values may overflow NumPy's sum.
    total = int(counts.sum()) if int(counts.max(initial=0)) <= samples < 2**31 else sum(counts.tolist())
    # promise: row-sizes-total
    if total != samples:
        raise FormatError(f"row sizes add up to {total}, but there are {samples} samples", hint="correct the file")


def check_index(index: np.ndarray, size: int) -> None:
    """Raise FormatError for an index out of range or an implausible ``size``."""
    if size > max(_MOST_INSTANCES, _MOST_PER_ELEMENT * len(index)):
        raise FormatError(f"{size} instances, but the index has only {len(index)} elements", hint="correct the file")
    wrong = np.flatnonzero((index < 0) | (index >= size))
    # promise: row-index-range
    if wrong.size:
        what = f"index {index[wrong[0]]} of element {wrong[0]} is out of range for {size} instances (0 to {size - 1})"
        raise FormatError(what, hint="correct the file")


def positions_of(rows: Rows, selector: Selector) -> slice | np.ndarray:
    """Return the positions in storage of the samples of selected rows."""
    return rows.take(Range(selector, 1) if isinstance(selector, int) else selector).positions()
