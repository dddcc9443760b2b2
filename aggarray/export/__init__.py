"""Exports: kerchunk references, and extracts to netCDF-4 and Zarr."""

from typing import Any

import numpy as np


def json_scalar(value: Any) -> Any:
    """Return a scalar as Zarr's JSON: complex as pairs, non-finite as text."""
    item = value.item() if isinstance(value, np.generic | np.ndarray) else value
    if isinstance(item, complex):
        return [json_scalar(item.real), json_scalar(item.imag)]
    if isinstance(item, float) and not np.isfinite(item):
        return "NaN" if np.isnan(item) else "Infinity" if item > 0 else "-Infinity"
    return item
