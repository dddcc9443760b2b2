"""Where do the samples of each row of a ragged array lie? A start and a count per row, and the order of samples if not theirs.

CF chapter 9 says it in three ways: the sizes of rows that lie one after the other (contiguous), the row of every sample
(indexed), or both, the row of every run of samples (indexed contiguous).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aggarray.errors import FormatError
from aggarray.memory.selection import Range, Selector

#: So many instances there may be, or a few times as many as elements name one: what a damaged file claims takes no memory.
_MOST_INSTANCES, _MOST_WITHOUT = 1 << 27, 4


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of samples: row i is ``starts[i]`` to ``starts[i] + counts[i]`` of the samples in the order of rows.

    ``order``: where each sample, in the order of rows, is stored; None where they are stored in that order. All int64.
    """

    starts: np.ndarray
    counts: np.ndarray
    order: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def offsets(self) -> np.ndarray:
        """Where the rows begin and end if they lie one after the other: int64, one more than rows, from 0."""
        return offsets_of(self.counts)

    def take(self, chosen: Range | np.ndarray) -> "Rows":
        """Return some of the rows, in the order given; no sample is moved."""
        key = chosen.as_slice() if isinstance(chosen, Range) else chosen
        return Rows(self.starts[key], self.counts[key], self.order)

    def places(self) -> slice | np.ndarray:
        """Return where the samples of all rows are stored, row by row: a slice where they lie one after the other.

        >>> contiguous(np.array([2, 0, 3])).take(Range(1, 2)).places()
        slice(2, 5, None)
        """
        used = np.flatnonzero(self.counts)
        starts, counts = self.starts[used], self.counts[used]
        if not len(used):
            return slice(0, 0)
        if (starts[1:] == starts[:-1] + counts[:-1]).all():
            run = slice(int(starts[0]), int(starts[-1] + counts[-1]))
            return run if self.order is None else _as_slice(self.order[run])
        found = runs(starts, counts)
        return found if self.order is None else self.order[found]


def _as_slice(places: np.ndarray) -> slice | np.ndarray:
    """Return places that follow each other as a slice."""
    first, last = int(places[0]), int(places[-1])
    if last - first == len(places) - 1 and (np.diff(places) == 1).all():
        return slice(first, last + 1)
    return places


def runs(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the numbers of runs, one run after the other.

    >>> runs(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = offsets_of(counts)
    return np.repeat(starts - before[:-1], counts) + np.arange(before[-1])


def offsets_of(counts: np.ndarray) -> np.ndarray:
    """Return where rows of these sizes begin and end, int64.

    >>> offsets_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    found = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=found[1:])
    return found


def contiguous(counts: np.ndarray) -> Rows:
    """Return rows that lie one after the other (CF section 9.3.3)."""
    return Rows(offsets_of(counts)[:-1], counts)


def indexed(index: np.ndarray, size: int) -> Rows:
    """Return the rows of samples each of which names its row (CF section 9.3.4): those of a row keep their order.

    >>> rows = indexed(np.array([1, 0, 1]), 3)
    >>> rows.counts.tolist(), rows.order.tolist()
    ([1, 2, 0], [1, 0, 2])
    """
    counts = np.bincount(index, minlength=size)
    if (np.diff(index) >= 0).all():
        return contiguous(counts)
    return Rows(offsets_of(counts)[:-1], counts, np.argsort(index, kind="stable"))


def indexed_contiguous(counts: np.ndarray, index: np.ndarray, size: int) -> Rows:
    """Return the rows of runs of samples: ``counts``: of samples in a run, ``index``: the row of each run (CF H.6.3).

    >>> rows = indexed_contiguous(np.array([2, 1, 1]), np.array([1, 0, 1]), 2)
    >>> rows.counts.tolist(), rows.order.tolist()
    ([1, 3], [2, 0, 1, 3])
    """
    of_rows = np.zeros(size, np.int64)
    np.add.at(of_rows, index, counts)
    if (np.diff(index) >= 0).all():
        return contiguous(of_rows)
    sorted_runs = np.argsort(index, kind="stable")
    return Rows(offsets_of(of_rows)[:-1], of_rows, runs(offsets_of(counts)[:-1][sorted_runs], counts[sorted_runs]))


def incomplete(there: np.ndarray, rows: np.ndarray, places: np.ndarray) -> Rows:
    """Return rows that have places for equally many samples within each file (CF section 9.3.2).

    ``there``: whether there is a sample, bool per place; ``rows``, ``places``: how many each file has.

    >>> found = incomplete(np.array([True, False, True, True]), np.array([2]), np.array([4]))
    >>> found.starts.tolist(), found.counts.tolist(), found.order
    ([0, 2], [1, 2], None)
    """
    widths = np.repeat(places // np.maximum(rows, 1), rows)
    starts = offsets_of(widths)[:-1]
    before = offsets_of(there)
    counts = before[starts + widths] - before[starts]
    # Rows whose missing samples all come last.
    if (before[starts + counts] - before[starts] == counts).all():
        return Rows(starts, counts)
    return Rows(offsets_of(counts)[:-1], counts, np.flatnonzero(there))


def concatenate_rows(parts: Sequence[tuple[Rows, int]]) -> Rows:
    """Return the rows of several as those of one, whose samples are stored one behind the other; given with their number.

    >>> one_after_the_other([(contiguous(np.array([1])), 1), (indexed(np.array([1, 0]), 2), 2)]).order.tolist()
    [0, 2, 1]
    """
    if len(parts) == 1:
        return parts[0][0]
    before = offsets_of(np.array([size for _, size in parts]))[:-1].tolist()
    counts = np.concatenate([np.zeros(0, np.int64), *(rows.counts for rows, _ in parts)])
    pairs = [(rows, shift) for (rows, _), shift in zip(parts, before, strict=True)]
    if all(rows.order is None for rows, _ in parts):
        return Rows(np.concatenate([np.zeros(0, np.int64), *(rows.starts + shift for rows, shift in pairs)]), counts)
    own = [(runs(rows.starts, rows.counts) if rows.order is None else rows.order) + shift for rows, shift in pairs]
    return Rows(offsets_of(counts)[:-1], counts, np.concatenate(own))


def check_counts(counts: np.ndarray, samples: int, where: str) -> None:
    """Raise FormatError unless row sizes add up to the number of samples; ``where`` names file and variable."""
    below = np.flatnonzero(counts < 0)
    # promise: row-sizes-negative
    if below.size:
        raise FormatError(
            f"{where}: row {below[0]} has a size of {counts[below[0]]}, so that offsets run backwards: correct the file"
        )
    # As Python adds where a damaged file says anything: NumPy's sum would wrap around.
    total = int(counts.sum()) if int(counts.max(initial=0)) <= samples < 2**31 else sum(counts.tolist())
    # promise: row-sizes-total
    if total != samples:
        raise FormatError(f"{where}: row sizes add up to {total}, but there are {samples} samples: correct the file")


def check_index(index: np.ndarray, size: int, where: str) -> None:
    """Raise FormatError unless every index is that of a row, of no absurd number; ``where`` names file and variable."""
    if size > max(_MOST_INSTANCES, _MOST_WITHOUT * len(index)):
        raise FormatError(f"{where}: {size} instances, of which {len(index)} elements name any: correct the file")
    wrong = np.flatnonzero((index < 0) | (index >= size))
    # promise: row-index-range
    if wrong.size:
        raise FormatError(
            f"{where}: index {index[wrong[0]]} of element {wrong[0]} is none of {size} instances, 0 to {size - 1}: "
            "correct the file"
        )


def places_of(rows: Rows, selector: Selector) -> slice | np.ndarray:
    """Return where the samples of the rows that a selector chooses are stored."""
    return rows.take(Range(selector, 1) if isinstance(selector, int) else selector).places()
