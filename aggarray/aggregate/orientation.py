"""Arrays and coordinates in the names, order and directions of a master."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.aggregate.candidate import Candidate
from aggarray.arrays.master import MasterArray
from aggarray.arrays.subarray import SubArray
from aggarray.dataclass import replace
from aggarray.partition.tiling import expand, relabel, rename, reverse, transpose


def oriented(
    candidate: Candidate,
    names: Mapping[str, str],
    order: Sequence[str],
    increasing: Mapping[str, bool],
    array: MasterArray | None = None,
) -> MasterArray:
    """Return an array, or a coordinate of it, oriented as a master.

    ``names``: {own dimension: master's}; ``order``: the master's dimensions, missing ones are inserted; ``increasing``: {master
    dimension: increasing}, others do not change.
    """
    item = candidate.array if array is None else array
    if _is_oriented(candidate, item, names, order, increasing):
        return item
    matrix = rename(item._matrix, names)
    known: Any = item._known
    by_name = {names.get(p.name, p.name): p for p in candidate.axes.values()}
    own, axes = item._matrix.dimensions, {p.name for p in candidate.axes.values()}
    # The order of two vertices of bounds follows the direction of the dimension (CF 7.1).
    pairs = len(own) == 2 and item.shape[1] == 2 and own[0] in axes and own[1] not in axes
    for name in order:
        axis = by_name.get(name)
        if axis is None or name not in increasing or name not in matrix.dimensions:
            continue
        number = matrix.axis(name)
        flipped = not matrix.directions[number] if axis.coordinate is None else axis.flipped
        if increasing[name] == flipped and axis.size > 1:
            for turned in (number, 1) if pairs else (number,):
                matrix = reverse(matrix, turned)
                known = known and tuple(None if k is None else np.flip(k, turned) for k in known)
        # A label that contradicts the coordinate is corrected.
        matrix = matrix if matrix.directions[number] == increasing[name] else relabel(matrix, number)
    for name in reversed(order):
        if name not in matrix.dimensions:
            matrix = expand(matrix, name)
            known = known and tuple(None if k is None else k[np.newaxis] for k in known)
    numbers = [matrix.axis(d) for d in order]
    known = known and tuple(None if k is None else k.transpose(numbers) for k in known)
    return replace(item, _matrix=transpose(matrix, numbers), _known=known)


def _is_oriented(
    candidate: Candidate, item: MasterArray, names: Mapping[str, str], order: Sequence[str], increasing: Mapping[str, bool]
) -> bool:
    dimensions, directions = item._matrix.dimensions, item._matrix.directions
    if dimensions != tuple(order) or any(own != name and own in dimensions for own, name in names.items()):
        return False
    for axis in candidate.axes.values():
        expected = increasing.get(axis.name) if axis.name in dimensions else None
        if expected is None:
            continue
        opposite = directions[dimensions.index(axis.name)] != expected
        if opposite or (axis.coordinate is not None and axis.size > 1 and expected == axis.flipped):
            return False
    return True


def unmatched_names(candidate: Candidate, coordinate: MasterArray, order: Sequence[str]) -> dict[str, str]:
    """Return names, last in ``order``, of dimensions only a coordinate has."""
    axes = {p.name for p in candidate.axes.values()}
    extra = [d for d in coordinate.dimensions if d not in axes]
    return dict(zip(extra, order[max(0, len(order) - len(extra)) :], strict=False))


def in_memory(like: MasterArray, values: np.ndarray, mask: np.ndarray | None = None) -> MasterArray:
    """Return an array with the description of another and values in memory."""
    piece = SubArray.from_array(
        values, dimensions=like.dimensions, units=like.units, calendar=like.calendar, directions=like.directions
    )
    return replace(like, _matrix=piece.matrix(), _known=(values, mask), dtype=values.dtype)
