"""Results of reductions from their accumulators."""

from __future__ import annotations

from typing import Any

import numpy as np

from aggarray.reduce.accumulators import Counts, Shape
from aggarray.reduce.operations import Work

#: Values and mask, None where nothing is missing.
Result = tuple[np.ndarray, np.ndarray | None]


def results_of(work: Work, shape: Shape, held: dict[str, Any]) -> dict[str, Result]:
    """Return values and mask of each operation.

    The accumulators become the results where they can, and are not used again. Few elements are computed at a time, so that
    temporary arrays are small.
    """
    # The last operation that needs an accumulator changes it in place.
    order = sorted(work.operations, key=lambda name: name in ("mean", "std"))
    made: dict[str, Result] = {}
    for number, operation in enumerate(order):
        source = _source(work, held, operation)
        needed = {name for later in order[number + 1 :] for name in work.needs(later)}
        dtype = work.result_dtype(operation)
        kept = source is not None and source.dtype == dtype and needed.isdisjoint(work.needs(operation))
        values: Any = source if kept else shape.full(0, dtype)
        mask: np.ndarray | None = None
        for own in shape.pieces():
            _finish(work, held, operation, source, values, own)
            missing = _missing(work, held, operation, own)
            if missing is None:
                continue
            if operation in ("argmin", "argmax"):
                np.copyto(values[own], -1, where=missing)
                continue
            if dtype.kind == "f":
                np.copyto(values[own], np.nan, where=missing)
            mask = shape.full(False, bool) if mask is None else mask
            mask[own] = missing
        made[operation] = shape.result(values), None if mask is None else shape.result(mask)
    return {operation: made[operation] for operation in work.operations}


def _source(work: Work, held: dict[str, Any], operation: str) -> np.ndarray | None:
    """Return the rows that become the result, None for counts."""
    if operation == "count":
        return None
    accumulator = held[work.needs(operation)[0]]
    rows: np.ndarray = accumulator.squares if operation in ("std", "var") else accumulator.rows
    return rows


def _finish(work: Work, held: dict[str, Any], operation: str, source: Any, values: np.ndarray, own: tuple[slice, ...]) -> None:
    """Compute some elements of a result."""
    into = values[own]
    if operation == "count":
        into[...] = held["counts"].at(own)
    elif operation in ("std", "var"):
        np.divide(source[own], held["moments"].weights.at(own), out=into)
        if operation == "std":
            np.sqrt(into, out=into)
    elif operation == "mean":
        np.divide(source[own], held["weights" if work.is_weighted else "counts"].at(own), out=into)
    elif values is not source:
        into[...] = source[own]


def _missing(work: Work, held: dict[str, Any], operation: str, own: tuple[slice, ...]) -> np.ndarray | None:
    """Return which elements are missing, None if none is."""
    if operation == "count":
        return None
    counts: Counts = held["counts"]
    if operation in ("first", "last") and not work.skipna:
        missing = held[operation].absent[own] | ~held[operation].present[own]
        return missing if missing.any() else None
    missing = np.asarray(counts.at(own) < work.least(operation))
    if work.is_weighted and operation in ("mean", "std", "var"):
        weights = held["weights"] if operation == "mean" else held["moments"].weights
        missing = missing | (weights.at(own) == 0)
    if not work.skipna and counts.missing is not None:
        missing = missing | (counts.missing[own] > 0)
    return missing if missing.any() else None
