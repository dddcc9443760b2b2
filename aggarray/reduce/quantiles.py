"""Exact quantiles, column by column in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.arrays.chunk_sizes import axis_cuts
from aggarray.arrays.inputs import inputs_of, remember_inputs
from aggarray.dataclass import dataclass, replace
from aggarray.errors import AggregationError
from aggarray.options import get_options
from aggarray.partition.chunk_sizes import chunk_ends
from aggarray.reduce.description import Description
from aggarray.reduce.memory_arrays import in_memory
from aggarray.reduce.request import axes_of, check_names, check_options, check_values, groups_along

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray
    from aggarray.reduce.grouping import Groups

#: Bytes of the values of a column, and elements that are sorted together.
COLUMN, _SORTED = 32 << 20, 1 << 17


@dataclass(frozen=True, slots=True, eq=False)
class Quantiles:
    """Quantiles of the groups of positions along the reduced axes.

    ``groups``: positions along the one reduced axis of each group, or None; ``least``: the number of values that a result
    needs, beside one.
    """

    array: MasterArray
    axes: tuple[int, ...]
    probabilities: np.ndarray
    groups: list[np.ndarray] | None
    skipna: bool
    least: int

    @property
    def kept(self) -> tuple[int, ...]:
        """The axes that are not reduced."""
        return tuple(d for d in range(self.array.ndim) if d not in self.axes)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype in which values are sorted; NaN is missing."""
        return self.array.dtype if self.array.dtype.kind == "f" else np.dtype(np.float64)

    def of(self, lanes: np.ndarray) -> np.ndarray:
        """Return the quantiles of rows, which are sorted in place.

        They are float64 of shape (probabilities, rows), interpolated linearly as `numpy.nanquantile` does.
        """
        lanes.sort(axis=1)
        size = lanes.shape[1]
        # NaN is sorted to the end.
        missing = np.isnan(lanes[:, -1]) if size else np.ones(len(lanes), bool)
        count = np.full(len(lanes), size)
        if missing.any():
            count[missing] -= np.add.reduce(np.isnan(lanes[missing]), axis=1)
        rows = np.arange(len(lanes))
        result = np.empty((len(self.probabilities), len(lanes)))
        for number, probability in enumerate(self.probabilities.tolist()):
            position = np.maximum(count - 1, 0) * probability
            below = np.floor(position).astype(np.int64)
            above = np.minimum(below + 1, np.maximum(count - 1, 0))
            low, high = (lanes[rows, at].astype(np.float64) if size else np.full(len(lanes), np.nan) for at in (below, above))
            result[number] = _between(low, high, position - below)
        result[:, count < max(1, self.least)] = np.nan
        if not self.skipna:
            result[:, missing] = np.nan
        return result


def _between(low: np.ndarray, high: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Interpolate linearly, exactly at both ends."""
    with np.errstate(invalid="ignore"):
        change = high - low
        own = np.where(share < 0.5, low + change * share, high - change * (1 - share))
    return np.asarray(np.where((share == 0) | (low == high), low, own))


def quantile_of(array: MasterArray, q: Any, dims: Any, options: Mapping[str, Any], name: str = "quantile") -> MasterArray:
    """Return quantiles; see `MasterArray.quantile`."""
    work, groups = checked_work(array, q, dims, options, name)
    axes, probabilities = work.axes, work.probabilities
    description = Description.of(array, [array.dimensions[axis] for axis in axes], groups)
    values = _computed(work)
    values = np.moveaxis(values, 1, 1 + sum(d < axes[0] for d in work.kept)) if groups is not None else values[:, 0]
    values = np.ascontiguousarray(values)
    detail = "" if name == "median" else ", ".join(f"{p:g}" for p in probabilities.tolist())
    first = description.result(values[0], np.isnan(values[0]), name, detail)
    if name == "median":
        return first
    if np.ndim(q) == 0:
        coordinate = in_memory(array, "quantile", probabilities[0], ())
        return replace(first, coords={**first.coords, "quantile": coordinate})
    coordinate = in_memory(array, "quantile", probabilities, ("quantile",))
    dimensions = ("quantile", *first.dimensions)
    several = in_memory(array, array.name, values, dimensions, first.units, mask=np.isnan(values), attrs=first.attrs)
    several = replace(several, file_attrs=first.file_attrs, coords={"quantile": coordinate, **first.coords})
    own = inputs_of(first._matrix.references.memory[0])
    return several if own is None else remember_inputs(several, replace(own, relations=(None, *own.relations)))


def checked_work(
    array: MasterArray, q: Any, dims: Any, options: Mapping[str, Any], name: str = "quantile"
) -> tuple[Quantiles, Groups | None]:
    """Return what is computed; raise errors before anything is read."""
    check_names(name, options, ("by", "skipna", "min_count"))
    probabilities = _probabilities(array, q)
    check_values(array, [name])
    axes = axes_of(array, dims)
    skipna, least = options.get("skipna", True), options.get("min_count", 1)
    check_options(array, skipna, least)
    groups = None if options.get("by") is None else groups_along(array, axes, options["by"])
    positions = None if groups is None else [np.flatnonzero(groups.numbers == number) for number in range(groups.count)]
    work = Quantiles(array, axes, probabilities, positions, bool(skipna), int(least))
    _check_memory(work)
    return work, groups


def _probabilities(array: MasterArray, q: Any) -> np.ndarray:
    try:
        probabilities = np.atleast_1d(np.asarray(q, np.float64))
        valid = probabilities.ndim == 1 and probabilities.size and ((probabilities >= 0) & (probabilities <= 1)).all()
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise AggregationError(f"invalid q={q!r}", variable=array.name, hint="give numbers from 0 to 1: 0.95 for percentile 95")
    return probabilities


def _check_memory(work: Quantiles) -> None:
    """Raise AggregationError if the values of one result do not fit."""
    count = prod(work.array.shape[axis] for axis in work.axes)
    size = count * work.dtype.itemsize
    if size > COLUMN:
        names = ", ".join(work.array.dimensions[axis] for axis in work.axes)
        what = f"quantiles sort all values of a result in memory: {count:,} over {names} need {size / 1e6:,.0f} MB"
        what += f", {COLUMN / 1e6:.0f} MB are allowed"
        raise AggregationError(what, variable=work.array.name, hint="select a part, or reduce fewer dimensions")


def _computed(work: Quantiles) -> np.ndarray:
    """Return the quantiles: (probabilities, groups, kept dimensions)."""
    array = work.array
    groups = 1 if work.groups is None else len(work.groups)
    result = np.full((len(work.probabilities), groups, *(array.shape[d] for d in work.kept)), np.nan)
    buffer: np.ndarray | None = None
    boxes = list(_boxes(work)) if result.size else []
    with ThreadPoolExecutor(get_options().threads) as pool:
        for box in boxes:
            shape = tuple(s.stop - s.start for s in box)
            if buffer is None or buffer.size < prod(shape):
                buffer = np.empty(prod(shape), array.dtype)
            values = _read(work, box, buffer[: prod(shape)].reshape(shape))
            lanes = values.transpose(*work.kept, *work.axes)
            into = result[(slice(None), slice(None), *(box[d] for d in work.kept))]
            for done in [pool.submit(_fill, work, lanes, into, piece) for piece in _pieces(work, shape)]:
                done.result()
    return result


def _read(work: Quantiles, box: tuple[slice, ...], out: np.ndarray) -> np.ndarray:
    if work.array.dtype.kind == "f":
        return work.array.read(box, out=out)
    masked = work.array.read(box, masked=True, out=out)
    values = out.astype(work.dtype)
    values[np.ma.getmaskarray(masked)] = np.nan
    return values


def _fill(work: Quantiles, lanes: np.ndarray, into: np.ndarray, piece: tuple[slice, ...]) -> None:
    """Compute the quantiles of some cells of a box."""
    own = lanes[piece]
    cells = own.shape[: len(work.kept)]
    for number, positions in enumerate([None] if work.groups is None else work.groups):
        rows = own if positions is None else own.take(positions, axis=-1)
        # Rows are copied, because they are sorted in place.
        rows = np.array(rows.reshape(prod(cells), prod(rows.shape[len(cells) :])), order="C", copy=True)
        key: Any = (slice(None), number, *piece)
        into[key] = work.of(rows).reshape(-1, *cells)


def _boxes(work: Quantiles) -> Iterator[tuple[slice, ...]]:
    """Yield the boxes that are read at a time, with all reduced positions.

    They follow stored chunks if their columns fit into memory. Otherwise they cut them as rarely as possible.
    """
    array = work.array
    cuts = axis_cuts(array)
    itemsize = array.dtype.itemsize + (0 if array.dtype.kind == "f" else work.dtype.itemsize + 1)
    limit = max(1, COLUMN // max(1, itemsize * prod(array.shape[d] for d in work.axes)))
    ends = [own.tolist() for own in chunk_ends([cuts[d] for d in work.kept], 1, limit)]
    candidates = [_cut(ends, number, limit) for number in range(len(ends))] or [ends]
    fewest = min(candidates, key=lambda some: prod(len(own) - 1 for own in some))
    slices = {d: [slice(a, b) for a, b in pairwise(own)] for d, own in zip(work.kept, fewest, strict=True)}
    slices |= {d: [slice(0, array.shape[d])] for d in work.axes}
    yield from product(*(slices[d] for d in range(array.ndim)))


def _cut(ends: Sequence[Sequence[int]], first: int, limit: int) -> list[list[int]]:
    """Cut boxes to at most some elements, along one dimension first.

    >>> _cut([[0, 10, 20], [0, 12]], 1, 40), _cut([[0, 10], [0, 12]], 0, 5)
    ([[0, 10, 20], [0, 4, 8, 12]], [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [0, 4, 8, 12]])
    """
    result = [list(own) for own in ends]
    for number in (first, *(other for other in range(len(ends)) if other != first)):
        sides = [max((b - a for a, b in pairwise(own)), default=1) for own in result]
        others = prod(side for other, side in enumerate(sides) if other != number)
        result[number] = _split(result[number], max(1, limit // max(1, others)))
    return result


def _split(ends: Sequence[int], most: int) -> list[int]:
    """Cut intervals into equal ones of at most some positions.

    >>> _split([0, 5, 8], 3)
    [0, 3, 5, 8]
    """
    result = [0]
    for a, b in pairwise(ends):
        step = -(-(b - a) // -(-(b - a) // most)) if b > a else 1
        result += [*range(a + step, b, step), b]
    return result


def _pieces(work: Quantiles, shape: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Yield parts of the kept dimensions of a box for one thread at a time."""
    left = max(1, _SORTED // max(1, prod(shape[d] for d in work.axes)))
    steps: list[int] = []
    for d in reversed(work.kept):
        steps.insert(0, min(left, shape[d]))
        left = max(1, left // max(1, shape[d]))
    parts = [[slice(a, min(a + s, shape[d])) for a in range(0, shape[d], s)] for d, s in zip(work.kept, steps, strict=True)]
    yield from product(*parts)
