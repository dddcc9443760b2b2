"""Lossless comparison of coordinate values and labels of different dtypes.

NumPy rounds large integers to floats, and overflows when times get a finer unit. Here labels are cast to the dtype of the keys
if no label changes, otherwise the keys to that of the labels. Values out of range stay out of range.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: Number of keys that are compared at a time.
_BLOCK = 1 << 16


def tick(dtype: np.dtype[Any]) -> Any:
    """Return the smallest step of a datetime64 or timedelta64 dtype."""
    return np.ones((), dtype.str.replace("M8", "m8"))[()]


def is_coarser(start: np.datetime64, keys: np.ndarray) -> bool:
    """Return whether a period is coarser than a coordinate's resolution."""
    if np.datetime_data(start.dtype)[0] in "YM":
        return True
    ratio = int(tick(start.dtype) // tick(keys.dtype))
    blocks = (keys[at : at + _BLOCK] for at in range(0, keys.size, _BLOCK))
    return ratio > 1 and any(bool((block[~np.isnat(block)].astype(np.int64) % ratio != 0).any()) for block in blocks)


def rescale(times: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Cast datetime64 or timedelta64 to another unit, clipped to its range."""
    if np.datetime_data(times.dtype)[0] in "YM":
        times = times.astype("M8[D]")
    ratio = int(tick(times.dtype) // tick(dtype))
    if ratio <= 1:
        return times.astype(dtype)
    limit = np.iinfo(np.int64).max // ratio
    fitted = (np.clip(times.astype(np.int64), -limit, limit) * ratio).astype(dtype)
    return np.where(np.isnat(times), np.array("NaT", dtype), fitted)


def to_common_dtype(keys: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return keys and labels of one dtype, the keys' if no label changes."""
    if keys.dtype == labels.dtype or keys.dtype.kind not in "iufM":
        return keys, labels
    if keys.dtype.kind == "M":
        reduced = rescale(labels, keys.dtype)
        finer = np.datetime_data(labels.dtype)[0] not in "YM" and tick(labels.dtype) < tick(keys.dtype)
        if finer and bool((rescale(reduced, labels.dtype) != labels).any()):
            return rescale(keys, labels.dtype), labels
        return keys, reduced
    if keys.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return keys, labels.astype(keys.dtype)  # 0.1 selects the float32 0.1, as in xarray
    limits, integral = np.iinfo(keys.dtype), labels.dtype.kind in "iu" or bool((labels == np.rint(labels)).all())
    integral = integral and bool(np.isfinite(labels).all()) and labels.size > 0
    if integral and limits.min <= int(labels.min()) and int(labels.max()) <= limits.max:
        return keys, labels.astype(keys.dtype)
    return keys.astype(np.float64), labels.astype(np.float64)


def equal_elements(keys: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Compare element by element. NaN equals NaN."""
    equal: np.ndarray = keys == labels
    return equal | ((keys != keys) & (labels != labels)) if keys.dtype.kind == "f" else equal


def distance(keys: Any, labels: Any) -> Any:
    """Return the exact distance of keys and labels; of times, uint64 ticks."""
    if keys.dtype.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):
            return np.abs(keys - labels)
    if keys.dtype.kind == "O":
        return np.abs(keys - labels).astype("m8[us]").astype(np.uint64)
    if keys.dtype.kind != "u":
        keys, labels = keys.astype(np.int64), labels.astype(np.int64)
    # The difference of two int64 may overflow int64, but its bits are the correct uint64.
    return (np.maximum(keys, labels) - np.minimum(keys, labels)).astype(np.uint64)
