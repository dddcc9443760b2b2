"""Transfer of an aggregation to other processes.

A pickled array of an index refers to the index, which the receiver would have to open. Here arrays are sent with their content,
and get their origin in the index on arrival.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aggarray.arrays import MasterArray
from aggarray.arrays.origin import Origin
from aggarray.opening import Aggregation
from aggarray.opening.provenance import Provenance

#: How an array can be found again: its ``find`` and ``place``, None where there is none.
_Place = tuple[Callable[..., Any], tuple[Any, ...]] | None


def packed(aggregation: Aggregation) -> tuple[Any, ...]:
    """Return an aggregation as what can be sent."""
    places = [_place(a) for a in aggregation.arrays]
    arrays = tuple(_whole(a) for a in aggregation.arrays)
    known = aggregation._provenance
    wishes = known.rules, known.variables, known.selections, known.access
    return arrays, places, aggregation.refusals, aggregation.skipped, aggregation.duplicates, wishes


def unpacked(sent: tuple[Any, ...]) -> Aggregation:
    """Return the aggregation that was sent."""
    arrays, places, refusals, skipped, duplicates, wishes = sent
    found = tuple(_send_aggregation(a, place) for a, place in zip(arrays, places, strict=True))
    return Aggregation(found, refusals, skipped, duplicates, Provenance(*wishes))


def _place(array: MasterArray) -> _Place:
    origin: Origin | None = array._origin
    if origin is None or origin.steps or not origin.describes(array._witness):
        return None
    return origin.find, origin.place


def _whole(array: MasterArray) -> MasterArray:
    coords = {name: _whole(c) for name, c in array.coords.items()}
    return replace(array, coords=coords, _origin=None)


def _send_aggregation(array: MasterArray, place: _Place) -> MasterArray:
    return array if place is None else array._with_origin(place[0], *place[1])
