"""How are coordinate values and labels of different dtypes compared without loss?

NumPy rounds large integers to floats, and lets times of a finer unit wrap round. Here labels take the dtype of the keys
where they lose nothing by it, else the keys that of the labels, and what lies out of range stays out of range.
"""

from typing import Any

import numpy as np


def tick(dtype: np.dtype[Any]) -> Any:
    """Return the smallest step of a datetime64 or timedelta64 dtype, as a timedelta64."""
    return np.ones((), dtype.str.replace("M8", "m8"))[()]


def is_coarser(start: np.datetime64, keys: np.ndarray) -> bool:
    """Tell whether a period is coarser than the finest of day, hour, ... that the coordinate needs."""
    if np.datetime_data(start.dtype)[0] in "YM":
        return True
    ratio = int(tick(start.dtype) // tick(keys.dtype))
    return ratio > 1 and bool((keys[~np.isnat(keys)].astype(np.int64) % ratio != 0).any())


def rescale(times: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Cast datetime64 or timedelta64 to another unit; what does not fit becomes the nearest end, where NumPy wraps round."""
    if np.datetime_data(times.dtype)[0] in "YM":
        times = times.astype("M8[D]")
    ratio = int(tick(times.dtype) // tick(dtype))
    if ratio <= 1:
        return times.astype(dtype)
    limit = np.iinfo(np.int64).max // ratio
    fitted = (np.clip(times.astype(np.int64), -limit, limit) * ratio).astype(dtype)
    return np.where(np.isnat(times), np.array("NaT", dtype), fitted)


def common(keys: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return keys and labels of one dtype: that of the keys where no label loses by it."""
    if keys.dtype == wanted.dtype or keys.dtype.kind not in "iufM":
        return keys, wanted
    if keys.dtype.kind == "M":
        reduced = rescale(wanted, keys.dtype)
        finer = np.datetime_data(wanted.dtype)[0] not in "YM" and tick(wanted.dtype) < tick(keys.dtype)
        if finer and bool((rescale(reduced, wanted.dtype) != wanted).any()):
            return rescale(keys, wanted.dtype), wanted
        return keys, reduced
    if keys.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return keys, wanted.astype(keys.dtype)  # 0.1 names the float32 0.1, as in xarray
    limits, whole = np.iinfo(keys.dtype), wanted.dtype.kind in "iu" or bool((wanted == np.rint(wanted)).all())
    if whole and bool(np.isfinite(wanted).all()) and wanted.size:
        whole = limits.min <= int(wanted.min()) and int(wanted.max()) <= limits.max
        if whole:
            return keys, wanted.astype(keys.dtype)
    return keys.astype(np.float64), wanted.astype(np.float64)


def same(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Compare element by element; NaN equals NaN."""
    equal: np.ndarray = keys == wanted
    return equal | ((keys != keys) & (wanted != wanted)) if keys.dtype.kind == "f" else equal


def distance(keys: Any, wanted: Any) -> Any:
    """Return how far apart keys and labels are: numbers, for times uint64 ticks; exact and without overflow."""
    if keys.dtype.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):
            return np.abs(keys - wanted)
    if keys.dtype.kind == "O":
        return np.abs(keys - wanted).astype("m8[us]").astype(np.uint64)
    if keys.dtype.kind != "u":
        keys, wanted = keys.astype(np.int64), wanted.astype(np.int64)
    # The difference of two int64 may exceed int64, never uint64, to which it wraps.
    return (np.maximum(keys, wanted) - np.minimum(keys, wanted)).astype(np.uint64)
