"""Runs of interleaved arrays: arrays cut so that they share a dimension.

Interleaved arrays are cut if the runs cover the matrix without holes. Such files exist for times, members and levels;
interleaved horizontal coordinates are different grids.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import pairwise, product
from typing import Any

import numpy as np

from aggarray.aggregate.candidate import AxisCoordinate, Candidate
from aggarray.aggregate.equality import is_horizontal
from aggarray.aggregate.positions import PositionLayout
from aggarray.aggregate.split_rules import covered
from aggarray.aggregate.view import View
from aggarray.arrays import MasterArray
from aggarray.errors import AggregationError
from aggarray.memory.selection import Range
from aggarray.partition.matrix import Matrix, Parts


def cut(view: View) -> list[Candidate] | None:
    """Return the group with interleaved arrays cut into runs.

    A run has consecutive positions. None if no array is interleaved or the runs would leave holes.
    """
    keys = [k for k in view.varying if not all(map(view.layouts[k].contiguous, range(len(view.layouts[k].positions))))]
    if not keys or any(_never(c, k) for c in view.group for k in keys):
        return None
    pieces = [piece for row, one in enumerate(view.group) for piece in _pieces(one, row, keys, view)]
    again = View(pieces, view.rules)
    try:
        whole = again.broken is None and covered(again, list(again.varying)) == 1.0
    except AggregationError:
        return None
    return pieces if whole else None


def _never(one: Candidate, key: str) -> bool:
    place = one.places[key]
    return place.coordinate is None or not place.monotonic or place.scalar or is_horizontal(place.coordinate)


def _pieces(one: Candidate, row: int, keys: list[str], view: View) -> Iterator[Candidate]:
    """Yield the runs of a candidate, or itself if it is one run."""
    stretches = [_stretches(view.layouts[k], row) for k in keys]
    if all(len(s) <= 1 for s in stretches):
        yield one
        return
    names = [one.places[key].name for key in keys]
    select = _selecting(one.array, names)
    spanning = {n: _selecting(c, names) for n, c in one.array.coords.items() if not set(names).isdisjoint(c.dimensions)}
    own = {key: n for key in keys for n, c in one.array.coords.items() if c is one.places[key].coordinate}
    lone = {key: c for key in keys if key not in own and (c := one.places[key].coordinate) is not None}
    alone = {key: _selecting(c, names) for key, c in lone.items()}
    same = {f.name: getattr(one, f.name) for f in fields(one)} | {"whole": one.whole or one}
    for combination in product(*stretches):
        chosen = {}
        for key, (start, stop) in zip(keys, combination, strict=True):
            place = one.places[key]
            chosen[place.name] = Range(place.size - stop if place.flipped else start, stop - start)
        coords = {n: spanning[n](chosen, {}) if n in spanning else c for n, c in one.array.coords.items()}
        places = dict(one.places)
        for key in keys:
            coordinate = coords[own[key]] if key in own else alone[key](chosen, {})
            places[key] = _part(one.places[key], coordinate)
        yield Candidate(**{**same, "array": select(chosen, {"coords": coords}), "places": places})


def _part(place: AxisCoordinate, coordinate: MasterArray) -> AxisCoordinate:
    """Return the axis of a run; it keeps the direction of the complete axis."""
    values, _ = coordinate._values_and_mask()
    largest = max(abs(float(values[0])), abs(float(values[-1]))) if len(values) and values.dtype.kind in "iuf" else 0.0
    return AxisCoordinate(place.name, False, len(values), coordinate, place.flipped, True, largest)


def _selecting(item: MasterArray, names: Sequence[str]) -> Callable[[Mapping[str, Range], Mapping[str, Any]], MasterArray]:
    """Return a function that selects ranges of an array and replaces fields.

    It is fast for arrays of a single partition, as files give them.
    """
    matrix, known = item._matrix, item._known
    axes = {name: matrix.axis(name) for name in names if name in matrix.dimensions}
    if len(matrix.refs) != 1 or matrix.refs[0] < 0 or any(matrix.parts.at(name, 0)[1] <= 0 for name in axes):
        return lambda chosen, changes: replace(item._selected(chosen), **changes)
    against = {name: bool(matrix.flips(axis)[0]) for name, axis in axes.items()}
    same = {f.name: getattr(item, f.name) for f in fields(item)}
    parts = matrix.parts

    def select(chosen: Mapping[str, Range], changes: Mapping[str, Any]) -> MasterArray:
        edges, starts, index = list(matrix.edges), dict(parts.starts), [slice(None)] * len(matrix.edges)
        for name, axis in axes.items():
            wanted, (start, step) = chosen[name], parts.at(name, 0)
            skipped = int(edges[axis][-1]) - 1 - wanted.last if against[name] else wanted.start
            if name in starts or skipped:
                starts[name] = np.array([start + step * skipped], np.int64)
            edges[axis] = np.array([0, wanted.count], np.int64)
            index[axis] = wanted.as_slice()
        part = Parts(starts, parts.steps, parts.picks)
        cut = Matrix(matrix.dimensions, matrix.directions, tuple(edges), matrix.references, matrix.refs, part)
        values = known and tuple(None if k is None else k[tuple(index)] for k in known)
        return MasterArray(**{**same, "_matrix": cut, "_known": values, **changes})

    return select


def _stretches(layout: PositionLayout, row: int) -> list[tuple[int, int]]:
    """Return (start, stop) of each run of consecutive positions."""
    positions = np.asarray(layout.positions[layout.classes[row]])
    cuts = [0, *(np.flatnonzero(np.diff(positions) != 1) + 1).tolist(), len(positions)]
    return list(pairwise(cuts))
