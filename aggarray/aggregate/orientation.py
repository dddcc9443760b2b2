"""Arrays and coordinates in the names, order and directions of a master."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aggarray.aggregate.candidate import AxisCoordinate, Candidate
from aggarray.arrays import MasterArray, SubArray
from aggarray.partition.matrix import Matrix
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
    matrix, known = rename(item._matrix, names), item._known
    by_name = {names.get(p.name, p.name): p for p in candidate.axes.values()}
    pairs = _pairs(candidate, item)
    for name in order:
        axis = by_name.get(name)
        if axis is not None and name in increasing and name in matrix.dimensions:
            opposite = _runs_against(matrix, matrix.axis(name), increasing[name], axis)
            matrix, known = _orient(matrix, known, name, increasing[name], axis)
            if opposite and pairs:
                matrix, known = reverse(matrix, 1), known and tuple(None if k is None else k[:, ::-1] for k in known)
    for name in reversed(order):
        if name not in matrix.dimensions:
            matrix = expand(matrix, name)
            known = known and tuple(None if k is None else k[np.newaxis] for k in known)  # type: ignore[assignment]
    axes = [matrix.axis(d) for d in order]
    known = known and tuple(None if k is None else k.transpose(axes) for k in known)  # type: ignore[assignment]
    return replace(item, _matrix=transpose(matrix, axes), _known=known)


def _pairs(candidate: Candidate, item: MasterArray) -> bool:
    """Return whether a coordinate is bounds of two vertices (CF 7.1). Their order follows the direction of the dimension."""
    dimensions = item._matrix.dimensions
    axes = {p.name for p in candidate.axes.values()}
    return len(dimensions) == 2 and item.shape[1] == 2 and dimensions[0] in axes and dimensions[1] not in axes


def _is_oriented(
    candidate: Candidate,
    item: MasterArray,
    names: Mapping[str, str],
    order: Sequence[str],
    directions_wanted: Mapping[str, bool],
) -> bool:
    """Return whether an array is oriented already, as most are."""
    dimensions, directions = item._matrix.dimensions, item._matrix.directions
    if dimensions != tuple(order) or any(own != name and own in dimensions for own, name in names.items()):
        return False
    for axis in candidate.axes.values():
        increasing = directions_wanted.get(axis.name) if axis.name in dimensions else None
        if increasing is None:
            continue
        opposite = directions[dimensions.index(axis.name)] != increasing
        if opposite or (axis.coordinate is not None and axis.size > 1 and increasing == axis.flipped):
            return False
    return True


def unmatched_names(candidate: Candidate, coordinate: MasterArray, order: Sequence[str]) -> dict[str, str]:
    """Return master names, the last of ``order``, of dimensions that only a coordinate has, as vertices of bounds."""
    axes = {p.name for p in candidate.axes.values()}
    extra = [d for d in coordinate.dimensions if d not in axes]
    return dict(zip(extra, order[max(0, len(order) - len(extra)) :], strict=False))


def _orient(matrix: Matrix, known: Any, name: str, increasing: bool, axis_coordinate: AxisCoordinate) -> tuple[Matrix, Any]:
    """Make a dimension increase or decrease by its coordinate; a label that contradicts the coordinate is corrected."""
    axis = matrix.axis(name)
    if _runs_against(matrix, axis, increasing, axis_coordinate):
        matrix = reverse(matrix, axis)
        index = (*(slice(None),) * axis, slice(None, None, -1))
        known = known and tuple(None if k is None else k[index] for k in known)
    return (matrix if matrix.directions[axis] == increasing else relabel(matrix, axis)), known


def _runs_against(matrix: Matrix, axis: int, increasing: bool, axis_coordinate: AxisCoordinate) -> bool:
    flipped = not matrix.directions[axis] if axis_coordinate.coordinate is None else axis_coordinate.flipped
    return increasing == flipped and axis_coordinate.size > 1


def in_memory(like: MasterArray, values: np.ndarray, mask: np.ndarray | None = None) -> MasterArray:
    """Return an array with the description of another and values in memory."""
    piece = SubArray.from_array(
        values, dimensions=like.dimensions, units=like.units, calendar=like.calendar, directions=like.directions
    )
    return replace(like, _matrix=piece.matrix(), _known=(values, mask), dtype=values.dtype)
