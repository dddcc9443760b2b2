"""Running means: means of windows of successive positions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.arrays.history import history_line, names_with_shapes
from aggarray.dataclass import dataclass
from aggarray.errors import SelectionError
from aggarray.reduce.cell_methods import cell_method, result_attributes, result_units
from aggarray.reduce.coordinates import window_coordinates
from aggarray.reduce.description import step_along, valid_references
from aggarray.reduce.memory_arrays import in_memory
from aggarray.reduce.request import OPTIONS, axes_of, check_names, check_operations, check_options
from aggarray.reduce.time_cells import time_along, time_dimension
from aggarray.reduce.weighting import weights_of

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

#: Bytes of values that are read at a time, and of float64 values of one block and its windows.
_BLOCK, _MEMORY = 4 << 20, 48 << 20
#: Copies of a block that its windows need.
_COPIES = 5


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
        least = max(self.min_count, 1) if self.skipna else self.steps
        means[counts < least] = np.nan
        return means


def running_mean_of(array: "MasterArray", steps: int, dims: Any, options: Mapping[str, Any]) -> "MasterArray":
    """Return the means of all windows of some steps along a dimension."""
    dimension = _dimension(array, dims)
    windows = _windows(array, steps, dimension, options)
    shape = tuple(n - steps + 1 if d == windows.axis else n for d, n in enumerate(array.shape))
    time, coords = time_along(array, dimension), window_coordinates(array, dimension, steps)
    name = dimension if time is None else (time.name or dimension).rpartition("/")[2]
    step = step_along(array, time)
    method = cell_method([name], "mean", time=name, step=step, comment=f"running over {steps} values")
    values = np.empty(shape, np.float64)
    for columns in _columns(array, windows):
        _fill(values, array, windows, columns)
    units, calendar = result_units(array.units, array.calendar, "mean")
    result = in_memory(array, array.name, values, array.dimensions, units, calendar, mask=np.isnan(values))
    attrs = valid_references(array, result_attributes(array.attrs, array.name, array.units, "mean", method), coords, [])
    line = history_line(f"aggarray running mean of {names_with_shapes([array])}: over {steps} values along {dimension}")
    history = "\n".join(filter(None, [line, str(array.file_attrs.get("history", ""))]))
    return replace(result, attrs=attrs, file_attrs={**array.file_attrs, "history": history}, coords=coords)


def _dimension(array: "MasterArray", dims: Any) -> str:
    """Return the one dimension of the windows; by default that of times."""
    if dims is None:
        return time_dimension(array)
    axes = axes_of(array, dims)
    if len(axes) != 1:
        what = f"a running mean is along one dimension: {len(axes)} are given ({', '.join(array.dimensions[a] for a in axes)})"
        raise SelectionError(what, variable=array.name, hint="name one dimension")
    return array.dimensions[axes[0]]


def _windows(array: "MasterArray", steps: Any, dimension: str, options: Mapping[str, Any]) -> Windows:
    """Return the checked windows; errors as of reductions."""
    check_names("running_mean", options, OPTIONS)
    check_operations(array, "mean")
    skipna, min_count = options.get("skipna", True), options.get("min_count", 1)
    check_options(array, skipna, min_count)
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
    return Windows(axis, int(steps), own, bool(skipna), int(min_count))


def _columns(array: "MasterArray", windows: Windows) -> Iterator[tuple[slice, ...]]:
    """Yield boxes of the other dimensions whose windows fit into memory."""
    sizes = [list(s) for s in array.chunks_for(_BLOCK)]
    along = max(sizes.pop(windows.axis), default=1) + windows.steps
    limit = max(1, _MEMORY // (8 * _COPIES * along))
    for axis, each in enumerate(sizes):
        # Boxes smaller than a stored chunk read it several times, but bound the memory.
        others = prod(max(s, default=1) for s in sizes[axis + 1 :])
        before = prod(max(s, default=1) for s in sizes[:axis])
        most = max(1, limit // max(1, others * before))
        sizes[axis] = [part for size in each for part in _parts(size, most)]
    edges = [np.concatenate(([0], np.cumsum(s, dtype=np.int64))).tolist() for s in sizes]
    yield from product(*([slice(a, b) for a, b in pairwise(e)] for e in edges))


def _parts(size: int, most: int) -> list[int]:
    return [min(most, size - start) for start in range(0, size, most)]


def _fill(result: np.ndarray, array: "MasterArray", windows: Windows, columns: Sequence[slice]) -> None:
    """Compute the windows of some columns, block after block along the axis."""
    axis, steps = windows.axis, windows.steps
    before = np.empty((0, *(s.stop - s.start for s in columns)))
    start = 0
    for size in array.chunks_for(_BLOCK)[axis]:
        key = (*columns[:axis], slice(start, start + size), *columns[axis:])
        block = np.ma.filled(array.read(key, masked=True).astype(np.float64), np.nan)
        values = np.concatenate([before, np.moveaxis(block, axis, 0)])
        first = start - len(before)
        start += size
        if len(values) >= steps:
            weights = None if windows.weights is None else windows.weights[first:start]
            into = (*columns[:axis], slice(first, start - steps + 1), *columns[axis:])
            result[into] = np.moveaxis(windows.means(values, weights), 0, axis)
        before = values[max(0, len(values) - steps + 1) :].copy() if steps > 1 else values[:0]


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
    ends = np.flip(np.cumsum(np.flip(by_run, 1), axis=1), 1).reshape(padded.shape)[:count]
    beginnings = np.cumsum(by_run, axis=1).reshape(padded.shape)[steps - 1 : steps - 1 + count]
    aligned = np.arange(count) % steps == 0
    beginnings[aligned] = 0
    return np.asarray(ends + beginnings)
