"""Selection along dimensions, of every array that has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aggarray.arrays.master import MasterArray
from aggarray.errors import AggarrayError, NotFoundError, SelectionError, names_hint


def keys_of(given: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys given as a mapping or by name; SelectionError for others."""
    if given is not None and not isinstance(given, Mapping):
        hint = "give dimension=label; agg.select(name, attribute=value) selects arrays"
        raise SelectionError(f"not a mapping of labels: {given!r}", hint=hint)
    return {**(given or {}), **named}


def select_along(
    arrays: Sequence[MasterArray],
    keys: Mapping[str, Any],
    select: Callable[[MasterArray, Mapping[str, Any]], MasterArray],
    missing: type[NotFoundError | SelectionError],
) -> tuple[MasterArray, ...]:
    """Return arrays selected along the dimensions that each has.

    ``keys``: by dimension; ``select`` applies those of one array. Raises ``missing`` for a dimension that no array has, and
    the errors of ``select`` with the array's name and what distinguishes it.
    """
    dimensions = list(dict.fromkeys(d for array in arrays for d in array.dimensions))
    for name in keys:
        if name not in dimensions:
            raise missing(f"no array has a dimension {name!r}", hint=names_hint(name, dimensions, "the dimensions are"))
    selected = []
    for number, array in enumerate(arrays):
        own = {d: key for d, key in keys.items() if d in array.dimensions}
        try:
            selected.append(select(array, own) if own else array)
        except AggarrayError as error:
            _locate(error, arrays, number)
            raise
    return tuple(selected)


def _locate(error: AggarrayError, arrays: Sequence[MasterArray], number: int) -> None:
    """Add to an error which of several arrays it is about."""
    if len(arrays) == 1:
        return
    from aggarray.aggregate.differences import labels

    error.variable = arrays[number].name
    label = labels(arrays)[number]
    way = f"to leave this array out{f' ({label})' if label else ''}, select others with agg.select(...)"
    if isinstance(error, NotFoundError):
        way += ", or give a slice, which may select nothing"
    error.hint = way if error.hint is None else f"{error.hint}; {way}"
