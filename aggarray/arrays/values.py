"""How is a selection of an array read, as its caller wishes: a fresh array or a view, with or without the mask?"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggarray.errors import AggregationError, SelectionError
from aggarray.memory import Array
from aggarray.memory.creation import array_of
from aggarray.memory.selection import Range, Selector, result_shape
from aggarray.partition.matrix import Matrix
from aggarray.read import Target, output, read, view

#: The values of a whole array that scanning has read, and which of them are missing (None: none).
KnownValues = tuple[np.ndarray, np.ndarray | None]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a selection is wanted: with the mask, into an array, as a view, by so many threads.

    Raises AggregationError or SelectionError for values that are none of those.
    """

    masked: bool = False
    out: np.ndarray | None = None
    copy: bool | None = True
    threads: int | None = None

    def __post_init__(self) -> None:
        if not (self.copy is None or self.copy is True or self.copy is False):
            raise AggregationError(f"copy={self.copy!r}: give True, None (a view where possible) or False (a view or an error)")
        whole = isinstance(self.threads, int | np.integer) and not isinstance(self.threads, bool)
        if self.threads is not None and not (whole and self.threads >= 1):
            raise SelectionError(f"threads={self.threads!r}: give a whole number of at least 1, or None for the option")


def read_or_view(matrix: Matrix, target: Target, selectors: Sequence[Any], wish: ReadOptions) -> np.ndarray:
    """Read a selection as wished; a masked array carries the mask of the files."""
    if wish.copy is not True and wish.out is None:
        found = view(matrix, target, selectors, wish.masked)
        if isinstance(found, np.ndarray):
            return np.ma.MaskedArray(found, mask=False) if wish.masked else found
        if wish.copy is False:
            raise AggregationError(f"no view without a copy: {found}; read with copy=None or copy=True")
    elif wish.copy is False:
        raise AggregationError("copy=False and out= contradict each other: leave one out")
    values, mask = read(matrix, target, selectors, wish.out, wish.masked, wish.threads)
    if mask is None:
        return values
    return np.ma.MaskedArray(values, mask=mask, fill_value=_mask_fill(values.dtype, target.fill_value))


class Viewable:
    """What may be in memory as it is, or in a file that can be mapped: for `aggarray.memory.debug_repr`."""

    __slots__ = ()

    @abstractmethod
    def read(self, *, copy: bool | None) -> np.ndarray:
        """Return the values, False for ``copy``: as a view, or AggregationError."""

    def __memory__(self) -> Array | str:
        try:
            return array_of(self.read(copy=False))
        except AggregationError as error:
            return str(error)


def _mask_fill(dtype: np.dtype[Any], fill: Any) -> Any:
    return fill if dtype.kind in "iufcbmM" else None


def read_known(known: KnownValues, target: Target, selectors: Sequence[Selector], wish: ReadOptions) -> np.ndarray:
    """Read a selection of values that are in memory already, as `read_or_view` reads those of files: always a copy."""
    values, mask = (None if k is None else _taken(k, selectors) for k in known)
    result = output(wish.out, result_shape(selectors), target.step.dtype)
    result[...] = values
    if mask is not None:
        result[mask] = target.fill_value
    if not wish.masked:
        return result
    mask = np.zeros(result.shape, bool) if mask is None else mask
    return np.ma.MaskedArray(result, mask=mask, fill_value=_mask_fill(result.dtype, target.fill_value))


def _taken(values: np.ndarray, selectors: Sequence[Selector]) -> np.ndarray:
    """Apply selectors, each to its own dimension."""
    for axis in reversed(range(values.ndim)):
        chosen = selectors[axis]
        index = chosen.as_slice() if isinstance(chosen, Range) else chosen
        values = np.asarray(values[(*(slice(None),) * axis, index)])
    return values


def with_nan(values: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Return values with NaN where the mask, if there is one, says missing."""
    return values if mask is None or not mask.any() else np.where(mask, np.nan, values)
