"""Reductions by NumPy, in double precision, to compare with those of arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def reduced(
    operation: str,
    values: np.ndarray,
    mask: np.ndarray,
    axes: Sequence[int],
    *,
    weights: np.ndarray | None = None,
    skipna: bool = True,
    min_count: int = 1,
) -> np.ma.MaskedArray:
    """Return the reduction of masked values; ``weights``: of the shape of the values."""
    kept = [d for d in range(values.ndim) if d not in axes]
    order = (*kept, *axes)
    shape = tuple(values.shape[d] for d in kept)
    rows = values.transpose(order).reshape(int(np.prod(shape)), int(np.prod([values.shape[d] for d in axes])))
    masks = mask.transpose(order).reshape(rows.shape)
    factors = np.ones(rows.shape) if weights is None else weights.transpose(order).reshape(rows.shape)
    cells = [_cell(operation, *row, skipna, min_count) for row in zip(rows, masks, factors, strict=True)]
    result = np.ma.masked_all(shape, _dtype(operation, values.dtype, weights is not None))
    if operation in ("any", "all") and (min_count > 1 or not skipna):
        result = result.astype("i1")
    for index, cell in zip(np.ndindex(shape), cells, strict=True):
        if cell is not None:
            result[index] = cell
    return result


def _cell(operation: str, values: np.ndarray, mask: np.ndarray, weights: np.ndarray, skipna: bool, min_count: int) -> Any:
    own, weights = values[~mask], weights[~mask]
    if operation == "count":
        return len(own)
    if operation in ("first", "last") and not skipna:
        end = 0 if operation == "first" else -1
        return None if not len(values) or mask[end] else values[end]
    truth = operation in ("any", "all")
    least = (min_count if min_count > 1 else 0) if truth else min_count if operation == "sum" else max(1, min_count)
    if len(own) < least or (not skipna and mask.any()):
        return -1 if operation in ("argmin", "argmax") else None
    if operation in ("argmin", "argmax"):
        return np.flatnonzero(~mask)[getattr(own, operation)()]
    if operation in ("first", "last"):
        return own[0 if operation == "first" else -1]
    if operation in ("min", "max", "any", "all"):
        return getattr(own, operation)()
    if operation == "sum":
        return (
            (own.astype("f8") * weights).sum()
            if own.dtype.kind == "f" or (weights != 1).any()
            else own.sum(dtype=_dtype("sum", own.dtype, False))
        )
    if not weights.sum():
        return None
    mean = np.average(own.astype("f8"), weights=weights)
    variance = np.average((own.astype("f8") - mean) ** 2, weights=weights)
    return {"mean": mean, "var": variance, "std": np.sqrt(variance)}[operation]


def _dtype(operation: str, dtype: np.dtype[Any], weighted: bool) -> Any:
    if operation in ("mean", "std", "var") or (operation == "sum" and (weighted or dtype.kind == "f")):
        return "f8"
    if operation in ("sum", "count", "argmin", "argmax"):
        return "u8" if operation == "sum" and dtype == np.uint64 else "i8"
    return bool if operation in ("any", "all") else dtype


def deviation_scale(operation: str, values: np.ndarray) -> float:
    """Return the scale of the rounding errors of a deviation: those of the mean, squared for a variance."""
    greatest = float(np.abs(values).max(initial=0))
    return {"std": greatest, "var": 1e-12 * greatest * greatest}.get(operation, 0.0)


def assert_reduced(array: Any, expected: np.ma.MaskedArray, what: Any = "", scale: float = 0.0) -> None:
    """Check shape, dtype, mask and values of a result, floats within 1e-12 of the greatest, or of ``scale``."""
    values = array.read(masked=True)
    assert (values.shape, values.dtype) == (expected.shape, expected.dtype), what
    mask = np.ma.getmaskarray(expected)
    assert np.array_equal(np.ma.getmaskarray(values), mask), what
    if expected.dtype.kind == "f":
        assert np.isnan(array.read()[mask]).all(), what
        own, given = values.data[~mask], expected.data[~mask]
        scale = np.abs(given[np.isfinite(given)]).max(initial=max(1e-300, scale))
        assert np.allclose(own, given, rtol=1e-12, atol=1e-12 * scale, equal_nan=True), what
    else:
        assert np.array_equal(values.data[~mask], expected.data[~mask]), what
