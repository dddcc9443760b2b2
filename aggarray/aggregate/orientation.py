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
    found: Candidate,
    names: Mapping[str, str],
    order: Sequence[str],
    turned: Mapping[str, bool],
    array: MasterArray | None = None,
) -> MasterArray:
    """Return an array, or a coordinate of it, oriented as a master.

    ``names``: {own dimension: master's}; ``order``: the master's dimensions, missing ones are inserted; ``turned``: {master
    dimension: increasing}, others do not change.
    """
    item = found.array if array is None else array
    if _is_oriented(found, item, names, order, turned):
        return item
    matrix, known = rename(item._matrix, names), item._known
    by_name = {names.get(p.name, p.name): p for p in found.places.values()}
    pairs = _pairs(found, item)
    for name in order:
        place = by_name.get(name)
        if place is not None and name in turned and name in matrix.dimensions:
            against = _runs_against(matrix, matrix.axis(name), turned[name], place)
            matrix, known = _turn(matrix, known, name, turned[name], place)
            if against and pairs:
                matrix, known = reverse(matrix, 1), known and tuple(None if k is None else k[:, ::-1] for k in known)
    for name in reversed(order):
        if name not in matrix.dimensions:
            matrix = expand(matrix, name)
            known = known and tuple(None if k is None else k[np.newaxis] for k in known)  # type: ignore[assignment]
    wanted = [matrix.axis(d) for d in order]
    known = known and tuple(None if k is None else k.transpose(wanted) for k in known)  # type: ignore[assignment]
    return replace(item, _matrix=transpose(matrix, wanted), _known=known)


def _pairs(found: Candidate, item: MasterArray) -> bool:
    """Return whether a coordinate is bounds of two vertices (CF 7.1).

    Their order follows the direction of the dimension.
    """
    dimensions = item._matrix.dimensions
    places = {p.name for p in found.places.values()}
    return len(dimensions) == 2 and item.shape[1] == 2 and dimensions[0] in places and dimensions[1] not in places


def _is_oriented(
    found: Candidate, item: MasterArray, names: Mapping[str, str], order: Sequence[str], turned: Mapping[str, bool]
) -> bool:
    """Return whether an array is oriented already, as most are."""
    dimensions, directions = item._matrix.dimensions, item._matrix.directions
    if dimensions != tuple(order) or any(own != name and own in dimensions for own, name in names.items()):
        return False
    for place in found.places.values():
        upwards = turned.get(place.name) if place.name in dimensions else None
        if upwards is None:
            continue
        against = directions[dimensions.index(place.name)] != upwards
        if against or (place.coordinate is not None and place.size > 1 and upwards == place.flipped):
            return False
    return True


def unplaced_names(found: Candidate, coordinate: MasterArray, wanted: Sequence[str]) -> dict[str, str]:
    """Return master names of the dimensions that only a coordinate has.

    These, such as the vertices of bounds, are matched to the last of ``wanted``.
    """
    places = {p.name for p in found.places.values()}
    extra = [d for d in coordinate.dimensions if d not in places]
    return dict(zip(extra, wanted[max(0, len(wanted) - len(extra)) :], strict=False))


def _turn(matrix: Matrix, known: Any, name: str, upwards: bool, place: AxisCoordinate) -> tuple[Matrix, Any]:
    """Make a dimension increase or decrease, by its coordinate or its label.

    A label that contradicts the coordinate is corrected.
    """
    axis = matrix.axis(name)
    if _runs_against(matrix, axis, upwards, place):
        matrix = reverse(matrix, axis)
        index = (*(slice(None),) * axis, slice(None, None, -1))
        known = known and tuple(None if k is None else k[index] for k in known)
    return (matrix if matrix.directions[axis] == upwards else relabel(matrix, axis)), known


def _runs_against(matrix: Matrix, axis: int, upwards: bool, place: AxisCoordinate) -> bool:
    flipped = not matrix.directions[axis] if place.coordinate is None else place.flipped
    return upwards == flipped and place.size > 1


def in_memory(like: MasterArray, values: np.ndarray, mask: np.ndarray | None = None) -> MasterArray:
    """Return an array with the description of another and values in memory."""
    piece = SubArray.from_array(
        values, dimensions=like.dimensions, units=like.units, calendar=like.calendar, directions=like.directions
    )
    return replace(like, _matrix=piece.matrix(), _known=(values, mask), dtype=values.dtype)
