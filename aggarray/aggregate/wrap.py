"""Which longitudes are the same modulo 360, and how are arrays turned so that they agree?

A file whose longitudes are those of another but for whole turns is rolled to the order of the other: a lazy selection of two
runs (two virtual partitions), with the longitudes and their bounds shifted by whole turns in memory.
"""

from dataclasses import replace

import numpy as np

from aggarray.aggregate.candidate import Candidate, Place
from aggarray.aggregate.equal import is_longitude, reference_units
from aggarray.aggregate.view import View
from aggarray.master import MasterArray, SubArray


def unwrapped(view: View) -> list[Candidate] | None:
    """Return the group with every array rolled to the longitudes of the first where they are the same modulo 360, else None."""
    for key in view.varying:
        place = view.group[0].places[key]
        if place.coordinate is None or not is_longitude(place.coordinate):
            continue
        turned = _turned(view, key)
        if turned:
            return [turned.get(row, one) for row, one in enumerate(view.group)]
    return None


def _turned(view: View, key: str) -> dict[int, Candidate]:
    """Return the candidates that change, by row."""
    layout = view.layouts[key]
    first = _first(view, key)
    units = reference_units(c.places[key] for c in view.group)
    wanted = view.group[first].places[key].values(*units)
    orders: dict[int, tuple[np.ndarray, np.ndarray] | None] = {layout.classes[first]: None}
    changed = {}
    for row, one in enumerate(view.group):
        number = layout.classes[row]
        if number not in orders:
            values = one.places[key].values(*units)
            orders[number] = _order(values, wanted, layout.tolerance) if one.places[key].monotonic else None
        found = orders[number]
        if found is not None:
            changed[row] = _rolled(one, key, *found)
    return changed


def _first(view: View, key: str) -> int:
    """Return the row of the array that is the first: the lowest along the other dimensions, then by URI."""
    boxes, _ = view.boxes([k for k in view.varying if k != key])
    return min(range(len(view.group)), key=lambda row: (boxes[row, :, 0].tolist(), view.group[row].uri))


def _order(values: np.ndarray, wanted: np.ndarray, tolerance: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Return in which order values are the wanted ones modulo 360, and by how much each is to be shifted; else None."""
    if len(values) != len(wanted) or not len(values):
        return None
    turns = np.floor((values - (wanted[0] - tolerance)) / 360.0)
    shifted = values - 360.0 * turns
    order = np.argsort(shifted, kind="stable")
    if not turns.any() or (np.abs(shifted[order] - wanted) > max(tolerance, 1e-9)).any():
        return None
    return order, -360.0 * turns[order]


def _rolled(one: Candidate, key: str, order: np.ndarray, shift: np.ndarray) -> Candidate:
    """Return a candidate with elements along a place in another order, its coordinate and bounds shifted."""
    place = one.places[key]
    if place.coordinate is None:
        return one
    if place.flipped:
        order, shift = (place.size - 1 - order)[::-1], shift[::-1]
    array = one.array
    if place.scalar:
        shift = shift.reshape(())
    elif not np.array_equal(order, np.arange(place.size)):
        array = array._chosen({place.name: order})
    names = [n for n, c in one.array.coords.items() if c is place.coordinate]
    coords = dict(array.coords)
    for name in names:
        coords[name] = _shifted(coords[name], shift)
        bounds = one.bounds.get(name)
        if bounds is not None:
            coords[bounds] = _shifted(coords[bounds], shift[..., np.newaxis])
    array = replace(array, coords=coords)
    moved = replace(place, coordinate=next((coords[n] for n in names), place.coordinate))
    places: dict[str, Place] = {**one.places, key: moved}
    return replace(one, array=array, places=places)


def _shifted(coordinate: MasterArray, shift: np.ndarray) -> MasterArray:
    """Return a coordinate with other values, in memory."""
    values, mask = coordinate._values_and_mask()
    moved = (values + shift).astype(values.dtype)
    return in_memory(coordinate, moved if mask is None else np.where(mask, values, moved), mask)


def in_memory(like: MasterArray, values: np.ndarray, mask: np.ndarray | None = None) -> MasterArray:
    """Return an array with the description of another, of the same shape, and values in memory."""
    piece = SubArray.from_array(
        values, dimensions=like.dimensions, units=like.units, calendar=like.calendar, directions=like.directions
    )
    return replace(like, _matrix=piece.matrix(), _known=(values, mask), dtype=values.dtype)
