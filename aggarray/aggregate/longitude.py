"""Longitudes that are equal modulo 360, and their unwrapping.

Longitudes of different files that differ by whole turns are brought to the turn that begins at the lowest longitude of the
first array: shifted, or rolled by a lazy selection of two runs (two virtual partitions). Other longitudes do not change. A
file with the same meridian at both ends cannot be unwrapped.
"""

from __future__ import annotations

import numpy as np

from aggarray.aggregate.candidate import Candidate
from aggarray.aggregate.equality import is_longitude, reference_units
from aggarray.aggregate.orientation import in_memory
from aggarray.aggregate.view import Division, View
from aggarray.arrays.master import MasterArray
from aggarray.dataclass import replace

#: Longitudes within this difference are equal, in degrees.
NEAR = 1e-9


def unwrapped(view: View) -> list[Candidate] | None:
    """Return the group with longitudes in one turn, None if nothing changes."""
    for key in view.varying:
        if not _have_equal_longitudes(view, key):
            continue
        values, tolerance = view.values(key), max(view.layouts[key].tolerance, NEAR)
        if any(len(v) > 1 and v[-1] - v[0] >= 360.0 - tolerance for v in values):  # the first meridian at both ends
            continue
        base = _turn_start(view, key)
        changed = [_turned(candidate, key, own, base) for candidate, own in zip(view.group, values, strict=True)]
        if any(after is not before for after, before in zip(changed, view.group, strict=True)):
            return changed
    return None


def repeated_meridians(view: View) -> Division | None:
    """Separate arrays with equal longitudes that cannot be unwrapped."""
    for key in view.varying:
        if _have_equal_longitudes(view, key):
            text = f"{view.group[0].axes[key].name} of one array has the same meridian at both ends"
            return Division(view.layouts[key].classes, "coordinate_values", lambda one, other, text=text: text)  # type: ignore[misc]
    return None


def _have_equal_longitudes(view: View, key: str) -> bool:
    axis, layout = view.group[0].axes[key], view.layouts[key]
    if axis.coordinate is None or not is_longitude(axis.coordinate) or not all(c.axes[key].monotonic for c in view.group):
        return False
    union = np.zeros(layout.size)
    units = reference_units(c.axes[key] for c in view.group)
    for number, candidate in dict(zip(layout.classes[::-1], view.group[::-1], strict=True)).items():
        union[layout.positions[number]] = candidate.axes[key].values(*units)
    longitudes = np.sort(np.mod(union, 360.0))
    distances = np.diff(np.append(longitudes, longitudes[0] + 360.0)) if len(longitudes) > 1 else np.array([360.0])
    return bool((distances <= max(layout.tolerance, NEAR)).any())


def _turn_start(view: View, key: str) -> float:
    """Return the longitude at which the turn begins.

    This is the lowest longitude of the first array and its neighbours. The first is the lowest along the other dimensions, then
    by URI; its neighbours are at the same position along the other dimensions and have none of its longitudes, as the other
    tiles of a row.
    """
    boxes, _ = view.boxes([k for k in view.varying if k != key])
    values, tolerance = view.values(key), max(view.layouts[key].tolerance, NEAR)
    order = sorted(range(len(view.group)), key=lambda row: (boxes[row, :, 0].tolist(), view.group[row].uri))
    row = np.zeros(0)
    for number in order:
        if boxes[number, :, 0].tolist() != boxes[order[0], :, 0].tolist():
            break
        if not _any_near(row, values[number], tolerance):
            row = np.concatenate([row, values[number]])
    return float(row.min(initial=np.inf)) - tolerance


def _any_near(known: np.ndarray, values: np.ndarray, tolerance: float) -> bool:
    """Return whether any longitude is a known one, modulo 360."""
    if not len(known) or not len(values):
        return False
    turn = np.sort(np.mod(known, 360.0))
    around = np.concatenate([turn[-1:] - 360.0, turn, turn[:1] + 360.0])
    longitudes = np.mod(values, 360.0)
    after = np.searchsorted(around, longitudes).clip(1, len(around) - 1)
    return bool((np.minimum(longitudes - around[after - 1], around[after] - longitudes) <= tolerance).any())


def _turned(candidate: Candidate, key: str, values: np.ndarray, base: float) -> Candidate:
    """Return a candidate with longitudes in the turn beginning at ``base``."""
    turns, axis = np.floor((values - base) / 360.0), candidate.axes[key]
    names = [n for n, c in candidate.array.coords.items() if axis.coordinate is not None and c.name == axis.coordinate.name]
    if not turns.any() or not names:
        return candidate
    order = np.argsort(values - 360.0 * turns, kind="stable")
    shift = -360.0 * turns[order]
    if axis.flipped:
        order, shift = (axis.size - 1 - order)[::-1], shift[::-1]
    array = candidate.array
    if axis.scalar:
        shift = shift.reshape(())
    elif not np.array_equal(order, np.arange(axis.size)):
        array = array._chosen({axis.name: order})
    coords = dict(array.coords)
    for name in names:
        coords[name] = _shifted(coords[name], shift)
        bounds = candidate.bounds.get(name)
        if bounds is not None:
            coords[bounds] = _shifted(coords[bounds], shift[..., np.newaxis])
    axes = {**candidate.axes, key: replace(axis, coordinate=coords[names[0]])}
    return replace(candidate, array=replace(array, coords=coords), axes=axes)


def _shifted(coordinate: MasterArray, shift: np.ndarray) -> MasterArray:
    values, mask = coordinate._values_and_mask()
    moved = (values + shift).astype(values.dtype)
    return in_memory(coordinate, moved if mask is None else np.where(mask, values, moved), mask)
