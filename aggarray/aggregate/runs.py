"""Runs of interleaved arrays: arrays cut so that they share a dimension.

Interleaved arrays are cut if the runs cover the matrix without holes. Such files exist for times, members and levels;
interleaved horizontal coordinates are different grids. Leads of forecasts may differ between runs: there, holes are allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from aggarray.aggregate.candidate import AxisCoordinate, Candidate
from aggarray.aggregate.equality import is_horizontal
from aggarray.aggregate.split_rules import covered
from aggarray.aggregate.view import View
from aggarray.arrays.master import MasterArray
from aggarray.cf.attributes import LEAD, REFERENCE
from aggarray.dataclass import fields, replace
from aggarray.errors import AggregationError
from aggarray.memory.selection import Range
from aggarray.partition.matrix import Matrix, Parts


def cut(view: View) -> list[Candidate] | None:
    """Return the group cut into runs; None if none is needed or holes remain."""
    keys = [k for k in view.varying if not all(map(view.layouts[k].contiguous, range(len(view.layouts[k].positions))))]
    axes = [c.axes[k] for c in view.group for k in keys]
    if not keys or any(p.coordinate is None or not p.monotonic or p.scalar or is_horizontal(p.coordinate) for p in axes):
        return None
    pieces = [piece for row, candidate in enumerate(view.group) for piece in _pieces(candidate, row, keys, view)]
    cut_view = View(pieces, view.rules)
    if cut_view.unconvertible is not None:
        return None
    if view.rules.forecast_cubes and {REFERENCE, LEAD}.issuperset(keys):
        return pieces
    try:
        complete = covered(cut_view, list(cut_view.varying)) == 1.0
    except AggregationError:
        return None
    return pieces if complete else None


def _pieces(candidate: Candidate, row: int, keys: list[str], view: View) -> Iterator[Candidate]:
    """Yield the runs of a candidate, or itself if it is one run."""
    ranges = []  # (start, stop) of each run of consecutive positions, by axis
    for layout in map(view.layouts.__getitem__, keys):
        positions = np.asarray(layout.positions[layout.classes[row]])
        ranges.append(list(pairwise([0, *(np.flatnonzero(np.diff(positions) != 1) + 1).tolist(), len(positions)])))
    if all(len(s) <= 1 for s in ranges):
        yield candidate
        return
    names = [candidate.axes[key].name for key in keys]
    select = _range_selector(candidate.array, names)
    array_coords = candidate.array.coords
    spanning = {n: _range_selector(c, names) for n, c in array_coords.items() if not set(names).isdisjoint(c.dimensions)}
    own = {key: n for key in keys for n, c in array_coords.items() if c is candidate.axes[key].coordinate}
    separate = {key: c for key in keys if key not in own and (c := candidate.axes[key].coordinate) is not None}
    separate_selectors = {key: _range_selector(c, names) for key, c in separate.items()}
    same = {f.name: getattr(candidate, f.name) for f in fields(candidate)} | {"cut_from": candidate.cut_from or candidate}
    for combination in product(*ranges):
        selected = {}
        for key, (start, stop) in zip(keys, combination, strict=True):
            axis = candidate.axes[key]
            selected[axis.name] = Range(axis.size - stop if axis.flipped else start, stop - start)
        coords = {n: spanning[n](selected, {}) if n in spanning else c for n, c in array_coords.items()}
        axes = dict(candidate.axes)
        for key in keys:
            coordinate = coords[own[key]] if key in own else separate_selectors[key](selected, {})
            axes[key] = _part(candidate.axes[key], coordinate)
        yield Candidate(**{**same, "array": select(selected, {"coords": coords}), "axes": axes})


def _part(axis: AxisCoordinate, coordinate: MasterArray) -> AxisCoordinate:
    """Return the axis of a run; it keeps the direction of the complete axis."""
    values, _ = coordinate._values_and_mask()
    largest = max(abs(float(values[0])), abs(float(values[-1]))) if len(values) and values.dtype.kind in "iuf" else 0.0
    return AxisCoordinate(axis.name, False, len(values), coordinate, axis.flipped, True, largest)


def _range_selector(item: MasterArray, names: Sequence[str]) -> Callable[[Mapping[str, Range], Mapping[str, Any]], MasterArray]:
    """Return a function that selects ranges of an array and replaces fields."""
    matrix, known = item._matrix, item._known
    axes = {name: matrix.axis(name) for name in names if name in matrix.dimensions}
    if len(matrix.refs) != 1 or matrix.refs[0] < 0 or any(matrix.parts.at(name, 0)[1] <= 0 for name in axes):
        return lambda chosen, changes: replace(item._selected(chosen), **changes)
    opposite = {name: bool(matrix.flips(axis)[0]) for name, axis in axes.items()}
    same = {f.name: getattr(item, f.name) for f in fields(item) if f.init}
    parts = matrix.parts

    def select(chosen: Mapping[str, Range], changes: Mapping[str, Any]) -> MasterArray:
        edges, starts, index = list(matrix.edges), dict(parts.starts), [slice(None)] * len(matrix.edges)
        for name, axis in axes.items():
            requested, (start, step) = chosen[name], parts.at(name, 0)
            skipped = int(edges[axis][-1]) - 1 - requested.last if opposite[name] else requested.start
            if name in starts or skipped:
                starts[name] = np.array([start + step * skipped], np.int64)
            edges[axis] = np.array([0, requested.count], np.int64)
            index[axis] = requested.as_slice()
        part = Parts(starts, parts.steps, parts.picks)
        run_matrix = Matrix(matrix.dimensions, matrix.directions, tuple(edges), matrix.references, matrix.refs, part)
        values = known and tuple(None if k is None else k[tuple(index)] for k in known)
        return MasterArray(**{**same, "_matrix": run_matrix, "_known": values, **changes})

    return select
