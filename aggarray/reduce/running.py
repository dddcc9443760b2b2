"""Running means: means of windows of successive positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.arrays.history import history_line, names_with_shapes
from aggarray.arrays.inputs import Inputs, Relation, remember_inputs
from aggarray.dataclass import dataclass, replace
from aggarray.errors import SelectionError
from aggarray.reduce.cell_methods import cell_method, result_attributes, result_units
from aggarray.reduce.coordinates import window_coordinates
from aggarray.reduce.description import step_along, valid_references
from aggarray.reduce.memory_arrays import in_memory, missing_in
from aggarray.reduce.request import OPTIONS, axes_of, check_names, check_operations, check_options
from aggarray.reduce.time_cells import time_along, time_dimension
from aggarray.reduce.weighting import weights_of

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

#: Bytes of values that are read at a time, and of all copies of a block and the values before it.
_BLOCK, _MEMORY = 4 << 20, 40 << 20
#: Copies of a block that its windows need.
_COPIES = 10


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Windows of ``steps`` positions along an axis, whose means are taken.

    ``weights``: of the positions, None: equal. Missing values count unless ``skipna`` is False; windows with fewer values than
    ``min_count`` are missing.
    """

    axis: int
    steps: int
    weights: np.ndarray | None = None
    skipna: bool = True
    min_count: int = 1

    def means(self, values: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Return the means of windows along the first axis; NaN is missing."""
        missing = np.isnan(values)
        none_missing = not missing.any()
        if none_missing and weights is None:
            return window_sums(values, self.steps) / self.steps
        own = np.broadcast_to(1.0 if weights is None else weights.reshape(-1, *(1,) * (values.ndim - 1)), values.shape)
        total = window_sums(np.where(missing, 0.0, values) * own, self.steps)
        with np.errstate(all="ignore"):  # a window without weight has no mean
            means: np.ndarray = total / window_sums(np.where(missing, 0.0, own), self.steps)
        counts = window_sums((~missing).astype(np.float64), self.steps)
        means[counts < self.least] = np.nan
        return means

    @property
    def least(self) -> int:
        """Values that a window needs."""
        return max(self.min_count, 1) if self.skipna else self.steps


def running_mean_of(array: MasterArray, steps: int, dims: Any, options: Mapping[str, Any]) -> MasterArray:
    """Return the means of all windows of some steps along a dimension."""
    dimension = _dimension(array, dims)
    windows = _windows(array, steps, dimension, options)
    shape = tuple(n - steps + 1 if d == windows.axis else n for d, n in enumerate(array.shape))
    time, coords = time_along(array, dimension), window_coordinates(array, dimension, steps)
    name = dimension if time is None else (time.name or dimension).rpartition("/")[2]
    step = step_along(array, time)
    method = cell_method([name], "mean", time=name, step=step, comment=f"running over {steps} values")
    values = np.empty(shape, np.float64)
    for columns in _columns(array, windows.axis):
        _fill(values, array, windows, columns)
    units, calendar = result_units(array.units, array.calendar, "mean")
    result = in_memory(array, array.name, values, array.dimensions, units, calendar, mask=missing_in(values))
    attrs = valid_references(array, result_attributes(array.attrs, array.name, array.units, "mean", method), coords, [])
    line = history_line(f"aggarray running mean of {names_with_shapes([array])}: over {steps} values along {dimension}")
    history = "\n".join(filter(None, [line, str(array.file_attrs.get("history", ""))]))
    result = replace(result, attrs=attrs, file_attrs={**array.file_attrs, "history": history}, coords=coords)
    relations = (Relation(axis, steps if axis == windows.axis else 1) for axis in range(array.ndim))
    return remember_inputs(result, Inputs(array, tuple(relations), f"running mean over {steps} values along {dimension}"))


def _dimension(array: MasterArray, dims: Any) -> str:
    """Return the one dimension of the windows; by default that of times."""
    if dims is None:
        return time_dimension(array)
    axes = axes_of(array, dims)
    if len(axes) != 1:
        what = f"a running mean is along one dimension: {len(axes)} are given ({', '.join(array.dimensions[a] for a in axes)})"
        raise SelectionError(what, variable=array.name, hint="name one dimension")
    return array.dimensions[axes[0]]


def _windows(array: MasterArray, steps: Any, dimension: str, options: Mapping[str, Any]) -> Windows:
    """Return the checked windows; errors as of reductions."""
    check_names("running_mean", options, OPTIONS)
    check_operations(array, "mean")
    skipna, min_count = options.get("skipna", True), options.get("min_count")
    check_options(array, skipna, 1 if min_count is None else min_count)
    axis = array.dimensions.index(dimension)
    size = array.shape[axis]
    is_integer = isinstance(steps, int | np.integer) and not isinstance(steps, bool)
    if not is_integer or not 1 <= steps <= size:
        hint = f"give an integer from 1 to {size}, the size of {dimension!r}"
        raise SelectionError(f"invalid number of steps: {steps!r}", variable=array.name, hint=hint)
    factors = weights_of(array, (dimension,), options.get("weights"))
    own = None if factors is None else np.ones(size)
    for names, values in factors or ():
        if names != (dimension,):
            what = f"weights of a running mean along {dimension!r} have dimensions {', '.join(names)}"
            raise SelectionError(what, variable=array.name, hint=f"give weights along {dimension!r} alone")
        own = own * values
    return Windows(axis, int(steps), own, bool(skipna), int(steps if min_count is None else min_count))


def _columns(array: MasterArray, axis: int) -> Iterator[tuple[slice, ...]]:
    """Yield boxes of the other dimensions, along stored chunks."""
    sizes = list(array.chunks_for(_BLOCK))
    del sizes[axis]
    edges = [np.concatenate(([0], np.cumsum(s, dtype=np.int64))).tolist() for s in sizes]
    yield from product(*([slice(a, b) for a, b in pairwise(e)] for e in edges))


def _fill(result: np.ndarray, array: MasterArray, windows: Windows, columns: Sequence[slice]) -> None:
    """Compute the windows of some columns, block after block along the axis.

    Windows that fit into memory are computed at once. Otherwise blocks are read again where their values leave the windows.
    """
    longest = max(array.chunks_for(_BLOCK)[windows.axis]) + windows.steps
    fits = 8 * _COPIES * longest * prod(s.stop - s.start for s in columns) <= _MEMORY
    (_fill_at_once if fits else _fill_stepwise)(result, array, windows, columns)


def _read(array: MasterArray, axis: int, columns: Sequence[slice], start: int, stop: int) -> np.ndarray:
    """Return positions along an axis, which becomes the first, as float64."""
    key = (*columns[:axis], slice(start, stop), *columns[axis:])
    return np.moveaxis(np.ma.filled(array.read(key, masked=True).astype(np.float64), np.nan), axis, 0)


def _fill_at_once(result: np.ndarray, array: MasterArray, windows: Windows, columns: Sequence[slice]) -> None:
    axis, steps = windows.axis, windows.steps
    before = np.empty((0, *(s.stop - s.start for s in columns)))
    start = 0
    for size in array.chunks_for(_BLOCK)[axis]:
        values = np.concatenate([before, _read(array, axis, columns, start, start + size)])
        first = start - len(before)
        start += size
        if len(values) >= steps:
            weights = None if windows.weights is None else windows.weights[first:start]
            into = (*columns[:axis], slice(first, start - steps + 1), *columns[axis:])
            result[into] = np.moveaxis(windows.means(values, weights), 0, axis)
        before = values[max(0, len(values) - steps + 1) :].copy() if steps > 1 else values[:0]


def _fill_stepwise(result: np.ndarray, array: MasterArray, windows: Windows, columns: Sequence[slice]) -> None:
    from aggarray.reduce.sliding_sums import SlidingMean

    axis, steps = windows.axis, windows.steps
    weights = np.ones(array.shape[axis]) if windows.weights is None else windows.weights
    shape = tuple(s.stop - s.start for s in columns)
    mean = SlidingMean(shape or (1,), windows.least, windows.weights is not None)
    start = 0
    for size in array.chunks_for(_BLOCK)[axis]:
        stop, behind = start + size, max(0, start - steps)
        entering = _read(array, axis, columns, start, stop)
        leaving = _read(array, axis, columns, behind, max(behind, stop - steps))
        for at in range(start, stop):
            mean.enter(entering[at - start], weights[at])
            if at >= steps:
                mean.leave(leaving[at - steps - behind], weights[at - steps])
            if at >= steps - 1:
                into: Any = (*columns[:axis], at - steps + 1, *columns[axis:])
                result[into] = mean.value().reshape(shape)
        start = stop


def window_sums(values: np.ndarray, steps: int) -> np.ndarray:
    """Return the sums of all windows along the first axis.

    Each is the sum of the end of one run of ``steps`` values and the beginning of the next: nothing is subtracted, so that
    large values leave no error in later windows.

    >>> window_sums(np.array([1.0, 2.0, 3.0, 1e30, 4.0]), 2).tolist()
    [3.0, 5.0, 1e+30, 1e+30]
    """
    count = len(values) - steps + 1
    runs = -(-len(values) // steps)
    padded = np.zeros((runs * steps, *values.shape[1:]))
    padded[: len(values)] = values
    by_run = padded.reshape(runs, steps, *values.shape[1:])
    aligned = np.arange(count) % steps == 0
    with np.errstate(invalid="ignore"):  # the sum of opposite infinite values is NaN
        ends = np.flip(np.cumsum(np.flip(by_run, 1), axis=1), 1).reshape(padded.shape)[:count]
        beginnings = np.cumsum(by_run, axis=1).reshape(padded.shape)[steps - 1 : steps - 1 + count]
        beginnings[aligned] = 0
        return np.asarray(ends + beginnings)
