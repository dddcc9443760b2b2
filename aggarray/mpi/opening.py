"""Transfer of an aggregation to other processes.

A pickled array of an index refers to the index, which the receiver would have to open. Here arrays are sent with their content,
and get their origin in the index on arrival.
"""

from dataclasses import replace
from typing import Any

from aggarray.arrays import MasterArray
from aggarray.arrays.origin import Origin
from aggarray.opening import Aggregation
from aggarray.opening.provenance import Provenance


def pack_aggregation(aggregation: Aggregation) -> tuple[Any, ...]:
    """Return the picklable content of an aggregation."""
    arrays = tuple(_without_origin(a) for a in aggregation.arrays)
    origins = [_find_origin(a) for a in aggregation.arrays]
    provenance = aggregation._provenance
    options = provenance.rules, provenance.variables, provenance.selections, provenance.access
    return arrays, origins, aggregation.refusals, aggregation.skipped, aggregation.duplicates, options


def unpack_aggregation(content: tuple[Any, ...]) -> Aggregation:
    """Return the aggregation of a packed content."""
    arrays, origins, refusals, skipped, duplicates, options = content
    restored = tuple(
        array if origin is None else array._with_origin(origin[0], *origin[1])
        for array, origin in zip(arrays, origins, strict=True)
    )
    return Aggregation(restored, refusals, skipped, duplicates, Provenance(*options))


def _find_origin(array: MasterArray) -> tuple[Any, tuple[Any, ...]] | None:
    """Return the function and arguments that restore an unchanged array of an index."""
    origin: Origin | None = array._origin
    if origin is None or origin.steps or not origin.describes(array._witness):
        return None
    return origin.find, origin.place


def _without_origin(array: MasterArray) -> MasterArray:
    coords = {name: _without_origin(c) for name, c in array.coords.items()}
    return replace(array, coords=coords, _origin=None)
