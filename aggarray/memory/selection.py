"""Selectors: the elements that a key selects.

`normalise` turns a key, as written between square brackets, into one `Selector` per dimension: an int (the dimension is
dropped), a `Range` (a slice) or a read-only int64 array (index arrays and masks). Selectors apply to their dimensions
independently of each other, as in netCDF4-python. `compose` selects from a selection, so that a chain of lazy selections
stays one selection. Memory depends on the sizes of listed indices only, not on those of dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from aggarray.dataclass import dataclass
from aggarray.errors import SelectionError


def distinct(values: np.ndarray) -> np.ndarray:
    """Return the sorted distinct values of an array without NaN.

    `numpy.unique` returns the same, but imports `numpy.ma`, which takes as long as opening an index of a thousand files.

    >>> distinct(np.array([[2, 1], [2, 3]])).tolist(), distinct(np.zeros(0)).tolist()
    ([1, 2, 3], [])
    """
    ordered = np.sort(values, axis=None)
    starts = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
    return ordered[starts]


@dataclass(frozen=True, slots=True)
class Range:
    """``count`` positions: start, start + step, and so on, none negative.

    ``step`` may be negative, not 0. The form is unique: an empty Range is ``Range(0, 0, 1)``, the step of one position is 1.
    Two Ranges are equal exactly if they select the same positions in the same order. Raises SelectionError for other values.

    >>> Range(6, 3, -3).indices()
    array([6, 3, 0])
    >>> Range(4, 1, -7)
    Range(start=4, count=1, step=1)
    """

    start: int
    count: int
    step: int = 1

    def __post_init__(self) -> None:
        if self.count < 0 or self.step == 0 or (self.count and min(self.start, self.start + (self.count - 1) * self.step) < 0):
            what = f"start={self.start}, count={self.count}, step={self.step}"
            raise SelectionError(f"invalid Range: {what}", hint="give positions >= 0, a count >= 0 and a step other than 0")
        if self.count == 0:
            object.__setattr__(self, "start", 0)
        if self.count <= 1:
            object.__setattr__(self, "step", 1)

    def __len__(self) -> int:
        return self.count

    @property
    def last(self) -> int:
        """The last position; -1 for an empty Range."""
        return self.start + (self.count - 1) * self.step

    def indices(self) -> np.ndarray:
        """Return the positions as a new int64 array of shape (count,)."""
        return self.start + self.step * np.arange(self.count, dtype=np.int64)

    def reversed(self) -> Range:
        """Return the same positions in the opposite order.

        >>> Range(1, 3, 2).reversed()
        Range(start=5, count=3, step=-2)
        """
        return Range(self.last, self.count, -self.step) if self.count else self

    def is_full(self, size: int) -> bool:
        """Return whether this selects all of a dimension of a size, in its order."""
        return self.start == 0 and self.step == 1 and self.count == size

    def as_slice(self) -> slice:
        """Return the slice that selects these positions of a sequence.

        >>> Range(6, 3, -3).as_slice()
        slice(6, None, -3)
        """
        stop = self.last + (1 if self.step > 0 else -1)
        return slice(self.start, stop if stop >= 0 else None, self.step)


#: What is chosen along one dimension: an int drops it; arrays are 1-d int64, read-only, non-negative.
Selector = int | Range | np.ndarray


def normalise(key: Any, shape: Sequence[int], dimensions: Sequence[str] | None = None) -> tuple[Selector, ...]:
    """Return one selector per dimension for a key.

    ``key``: an integer, a slice (clipped as NumPy does), an Ellipsis, a 1-d index array, list or mask, or a tuple of
    these for successive dimensions; other dimensions are selected entirely. ``shape``: the sizes; ``dimensions``: their
    names, used in messages. Raises SelectionError if the key does not fit.

    >>> normalise((0, slice(None, None, -2)), (3, 6), ("lat", "lon"))
    (0, Range(start=5, count=3, step=-2))
    >>> normalise((..., [True, False, True]), (2, 3))
    (Range(start=0, count=2, step=1), array([0, 2]))
    >>> normalise(7, (3,), ("lat",))
    Traceback (most recent call last):
    aggarray.errors.SelectionError: index 7 is out of range for dimension 'lat' of size 3; give -3 to 2
    """
    names: Sequence[str | int] = range(len(shape)) if dimensions is None else dimensions
    parts = list(key) if isinstance(key, tuple) else [key]
    if any(part is None for part in parts):
        raise SelectionError("None (newaxis) is not supported in a key", hint="read first, then index the result with None")
    gaps = [position for position, part in enumerate(parts) if part is Ellipsis]
    if len(gaps) > 1:
        raise SelectionError(f"the key has {len(gaps)} Ellipses (...)", hint="give one at most")
    indices = len(parts) - len(gaps)
    if indices > len(shape):
        what = f"{indices} indices for {len(shape)} dimensions ({', '.join(map(str, names)) or 'none'})"
        raise SelectionError(what, hint=f"give {len(shape)} at most")
    position = gaps[0] if gaps else indices
    parts[position : position + 1] = [slice(None)] * (len(shape) - indices)
    return tuple([_select(part, int(size), name) for part, size, name in zip(parts, shape, names, strict=True)])


def _select(part: Any, size: int, name: str | int) -> Selector:
    if type(part) is int and 0 <= part < size:
        return part
    if isinstance(part, slice):
        try:
            positions = range(*part.indices(size))
        except (TypeError, ValueError) as error:
            is_zero = isinstance(error, ValueError)
            hint = "give a step other than 0" if is_zero else "give integers or None as start, stop and step"
            raise _misfit(f"{part!r} cannot index", size, name, hint) from error
        return Range(positions.start, len(positions), positions.step)
    if isinstance(part, Range):
        for end in (part.start, part.last) if part.count else ():
            _position(end, size, name)
        return part
    if isinstance(part, range) and (not part or (part[0] < 0) == (part[-1] < 0)):  # otherwise it wraps around, as a list may
        ends = [_position(end, size, name) for end in (part[0], part[-1])] if part else [0]
        return Range(ends[0], len(part), part.step)
    if isinstance(part, int) and not isinstance(part, bool):
        return _position(int(part), size, name)
    array: Any = None
    if not (isinstance(part, str | bytes) or (isinstance(part, np.ndarray) and np.ma.is_masked(part))):
        with suppress(ValueError):  # nested lists of uneven lengths
            array = np.asarray(part)
    if array is None or (array.ndim == 0 and array.dtype.kind not in "iu"):
        text = repr(part)
        text = " ".join((text if len(text) <= 60 else text[:57] + "...").split())
        hint = "give an integer, a slice, ..., or a 1-d array of integers or booleans"
        raise _misfit(f"{text} ({type(part).__name__}) cannot index", size, name, hint)
    if array.size == 0 and array.ndim == 1 and isinstance(part, list | tuple):
        array = array.astype(np.int64)  # [] is float64 in NumPy
    return _position(int(array), size, name) if array.ndim == 0 else _positions(array, size, name)


def _misfit(what: str, size: int, name: str | int, hint: str | None) -> SelectionError:
    return SelectionError(f"{what} dimension {name!r} of size {size}", hint=hint)


def _position(index: int, size: int, name: str | int) -> int:
    """Return a position from the start; raise SelectionError out of range."""
    if not -size <= index < size:
        raise _misfit(f"index {index} is out of range for", size, name, f"give {-size} to {size - 1}" if size else None)
    return index + size if index < 0 else index


def _positions(array: np.ndarray, size: int, name: str | int) -> np.ndarray:
    """Return the positions of a 1-d mask or index array, read-only."""
    if array.ndim > 1:
        raise _misfit(f"an index array of {array.ndim} dimensions for", size, name, "give one 1-d array or mask per dimension")
    if array.dtype.kind == "b":
        if array.size != size:
            raise _misfit(f"a mask of {array.size} elements for", size, name, f"give one of {size}")
        positions = np.flatnonzero(array).astype(np.int64, copy=False)
    elif array.dtype.kind in "iu":
        if array.size:
            for extreme in (array.min(), array.max()):  # before the cast: uint64 may not fit
                _position(int(extreme), size, name)
        positions = array.astype(np.int64)  # a copy
        positions[positions < 0] += size
    else:
        raise _misfit(f"an index array of dtype {array.dtype} for", size, name, "give integers or booleans")
    positions.flags.writeable = False
    return positions


def length(selector: Selector) -> int:
    """Return the number of positions of a selector; 1 for an int.

    >>> length(Range(0, 5)), length(3)
    (5, 1)
    """
    return 1 if isinstance(selector, int) else len(selector)


def result_shape(selectors: Iterable[Selector]) -> tuple[int, ...]:
    """Return the shape of a selection, without the dimensions it drops.

    >>> result_shape((2, Range(0, 5), np.array([1, 1, 4])))
    (5, 3)
    """
    return tuple(len(selector) for selector in selectors if not isinstance(selector, int))


def compose(first: Selector, second: Selector, size: int) -> Selector:
    """Return the selector for selecting by ``first``, then by ``second``.

    ``first`` is normalised for a dimension of ``size``, ``second`` for ``len(first)``. Raises SelectionError if the first
    drops the dimension or the second exceeds it.

    >>> compose(Range(10, 5, 2), Range(4, 3, -2), 100)
    Range(start=18, count=3, step=-4)
    >>> compose(np.array([5, 1, 3]), Range(1, 2), 10)
    array([1, 3])
    >>> compose(Range(10, 5, 2), 3, 100)
    16
    """
    if isinstance(first, int):
        raise SelectionError(f"index {first} has dropped the dimension of size {size}: it cannot be selected along")
    highest = _highest(second)
    if highest >= len(first):
        what = f"position {highest} is out of range for a selection of {len(first)} elements of a dimension of size {size}"
        raise SelectionError(what)
    if isinstance(first, Range):
        if isinstance(second, Range):
            return Range(first.start + first.step * second.start, second.count, first.step * second.step)
        positions = np.asarray(first.start + first.step * second)
    else:
        positions = np.asarray(first[second.as_slice() if isinstance(second, Range) else second])
    if isinstance(second, int):
        return int(positions)
    positions.flags.writeable = False
    return positions


def _highest(selector: Selector) -> int:
    if isinstance(selector, int):
        return selector
    if isinstance(selector, Range):
        return max(selector.start, selector.last) if selector.count else -1
    return int(selector.max(initial=-1))


def as_range(array: np.ndarray) -> Range | None:
    """Return an int64 index array as a Range, None if steps differ or are 0.

    >>> as_range(np.array([7, 4, 1])), as_range(np.array([1, 2, 4])), as_range(np.array([3]))
    (Range(start=7, count=3, step=-3), None, Range(start=3, count=1, step=1))
    """
    if array.size == 0:
        return Range(0, 0)
    first, last = int(array[0]), int(array[-1])
    step = int(array[1]) - first if array.size > 1 else 1
    # The ends are compared first: most other arrays fail there, at no cost.
    if step == 0 or min(first, last) < 0 or last != first + step * (array.size - 1):
        return None
    return Range(first, array.size, step) if bool((np.diff(array) == step).all()) else None
