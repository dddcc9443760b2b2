"""Selectors: the elements that a key selects.

`normalise` turns a key, as written between square brackets, into one `Selector` per dimension: an int (the dimension is
dropped), a `Range` (a slice) or a read-only int64 array (index arrays and masks). Selectors apply to their dimensions
independently of each other, as in netCDF4-python. `compose` selects from a selection, so that a chain of lazy selections
stays one selection. Memory depends on the sizes of listed indices only, not on those of dimensions.
"""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggarray.errors import SelectionError


@dataclass(frozen=True, slots=True)
class Range:
    """The ``count`` positions start, start + step, ..., none negative; ``step`` may be negative, not 0.

    The form is unique: an empty Range is ``Range(0, 0, 1)``, the step of a single position is 1. Two Ranges are equal exactly
    if they select the same positions in the same order. Raises SelectionError for other values.

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

    def reversed(self) -> "Range":
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


@dataclass(frozen=True, slots=True)
class _Dimension:
    """A dimension as messages name it."""

    name: str | int
    size: int

    def __str__(self) -> str:
        return f"dimension {self.name!r} of size {self.size}"


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
    axes = [_Dimension(name, int(size)) for name, size in zip(names, shape, strict=True)]
    return tuple(_select(part, axis) for part, axis in zip(_expand(key, axes), axes, strict=True))


def _expand(key: Any, axes: Sequence[_Dimension]) -> list[Any]:
    """Return one part of the key per dimension, with Ellipsis and trailing dimensions expanded."""
    parts = list(key) if isinstance(key, tuple) else [key]
    if any(part is None for part in parts):
        hint = "read first, then index the result with None"
        raise SelectionError("None (newaxis) is not supported in a key", hint=hint)
    gaps = [position for position, part in enumerate(parts) if part is Ellipsis]
    if len(gaps) > 1:
        raise SelectionError(f"the key has {len(gaps)} Ellipses (...)", hint="give one at most")
    missing = len(axes) - (len(parts) - len(gaps))
    if missing < 0:
        names = ", ".join(str(axis.name) for axis in axes) or "none"
        what = f"{len(parts) - len(gaps)} indices for {len(axes)} dimensions ({names})"
        raise SelectionError(what, hint=f"give {len(axes)} at most")
    position = gaps[0] if gaps else len(parts)
    return [*parts[:position], *[slice(None)] * missing, *parts[position + 1 :]]


def _select(part: Any, axis: _Dimension) -> Selector:
    """Return the selector of one part of a key along one dimension."""
    if isinstance(part, slice):
        return _from_slice(part, axis)
    if isinstance(part, Range):
        for end in (part.start, part.last) if part.count else ():
            _position(end, axis)
        return part
    if isinstance(part, range) and (not part or (part[0] < 0) == (part[-1] < 0)):  # otherwise it wraps around, as a list may
        ends = [_position(end, axis) for end in (part[0], part[-1])] if part else []
        return Range(ends[0], len(part), part.step) if ends else Range(0, 0)
    if isinstance(part, int) and not isinstance(part, bool):
        return _position(part, axis)
    if isinstance(part, str | bytes) or np.ma.is_masked(part):
        raise _unusable(part, axis)
    try:
        array = np.asarray(part)
    except ValueError as error:  # nested lists of uneven lengths
        raise _unusable(part, axis) from error
    if array.size == 0 and array.ndim == 1 and isinstance(part, list | tuple):
        array = array.astype(np.int64)  # [] is float64 in NumPy
    if array.ndim > 1:
        what = f"an index array of {array.ndim} dimensions for {axis}"
        raise SelectionError(what, hint="give one 1-d array or mask per dimension")
    if array.ndim == 0:
        if array.dtype.kind not in "iu":
            raise _unusable(part, axis)
        return _position(int(array), axis)
    return _positions(array, axis)


def _unusable(part: Any, axis: _Dimension) -> SelectionError:
    text = repr(part)
    text = text if len(text) <= 60 else text[:57] + "..."
    hint = "give an integer, a slice, ..., or a 1-d array of integers or booleans"
    return SelectionError(f"{' '.join(text.split())} ({type(part).__name__}) cannot index {axis}", hint=hint)


def _from_slice(part: slice, axis: _Dimension) -> Range:
    try:
        positions = range(*part.indices(axis.size))
    except TypeError as error:
        raise SelectionError(f"{part!r} cannot index {axis}", hint="give integers or None as start, stop and step") from error
    except ValueError as error:
        raise SelectionError(f"{part!r} cannot index {axis}", hint="give a step other than 0") from error
    return Range(positions.start, len(positions), positions.step)


def _position(index: int, axis: _Dimension) -> int:
    """Return a position counted from the start; raises SelectionError if it is out of range."""
    index = operator.index(index)
    if not -axis.size <= index < axis.size:
        hint = f"give {-axis.size} to {axis.size - 1}" if axis.size else None
        raise SelectionError(f"index {index} is out of range for {axis}", hint=hint)
    return index + axis.size if index < 0 else index


def _positions(array: np.ndarray, axis: _Dimension) -> np.ndarray:
    """Return the positions of a 1-d mask or index array, read-only."""
    if array.dtype.kind == "b":
        if array.size != axis.size:
            raise SelectionError(f"a mask of {array.size} elements for {axis}", hint=f"give one of {axis.size}")
        positions = np.flatnonzero(array).astype(np.int64, copy=False)
    elif array.dtype.kind in "iu":
        if array.size:
            for extreme in (array.min(), array.max()):  # before the cast: uint64 may not fit
                _position(int(extreme), axis)
        positions = array.astype(np.int64)  # a copy
        positions[positions < 0] += axis.size
    else:
        raise SelectionError(f"an index array of dtype {array.dtype} for {axis}", hint="give integers or booleans")
    positions.flags.writeable = False
    return positions


def length(selector: Selector) -> int:
    """Return the number of positions of a selector; 1 for an int.

    >>> length(Range(0, 5)), length(3)
    (5, 1)
    """
    return 1 if isinstance(selector, int) else len(selector)


def result_shape(selectors: Iterable[Selector]) -> tuple[int, ...]:
    """Return the shape of a selection: one size per dimension that is not dropped.

    >>> result_shape((2, Range(0, 5), np.array([1, 1, 4])))
    (5, 3)
    """
    return tuple(len(selector) for selector in selectors if not isinstance(selector, int))


def compose(first: Selector, second: Selector, size: int) -> Selector:
    """Return the selector equal to selecting by ``first`` and then by ``second``.

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
        return _compose_range(first, second, size)
    if isinstance(second, int):
        return int(first[second])
    positions = first[second.as_slice()] if isinstance(second, Range) else first[second]
    positions.flags.writeable = False
    return positions


def _highest(selector: Selector) -> int:
    """Return the highest position of a selector, -1 if it is empty."""
    if isinstance(selector, int):
        return selector
    if isinstance(selector, Range):
        return max(selector.start, selector.last) if selector.count else -1
    return int(selector.max(initial=-1))


def _compose_range(first: Range, second: Selector, size: int) -> Selector:
    if first.is_full(size):
        return second
    if isinstance(second, int):
        return first.start + first.step * second
    if isinstance(second, Range):
        return Range(first.start + first.step * second.start, second.count, first.step * second.step)
    positions = first.start + first.step * second
    positions.flags.writeable = False
    return positions


def as_range(array: np.ndarray) -> Range | None:
    """Return a 1-d int64 index array as a Range if its steps are equal and not 0, else None.

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
