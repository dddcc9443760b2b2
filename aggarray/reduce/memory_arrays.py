"""Arrays with values in memory."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.arrays.subarray import SubArray
from aggarray.partition.conform import fill_for


def in_memory(
    name: str | None,
    values: Any,
    dimensions: Sequence[str],
    units: str | None = None,
    calendar: str | None = None,
    *,
    mask: np.ndarray | None = None,
    fill_value: Any = None,
    attrs: Any = None,
) -> MasterArray:
    """Return an array with values in memory; ``mask``: True where missing."""
    values = np.asarray(values)
    if values.dtype.kind == "U":
        values = values.astype(np.dtypes.StringDType())
    if mask is not None and mask.any():
        fill = fill_for(values.dtype, fill_value if values.dtype.kind in "iu" else None)
        values = np.where(mask, np.asarray(fill, values.dtype), values)
    else:
        mask, fill = None, fill_for(values.dtype, None)
    piece = SubArray.from_array(
        values, dimensions=tuple(dimensions), units=units, calendar=calendar, fill_value=None if mask is None else fill
    )
    location = [(0, n) for n in values.shape]
    master = MasterArray.from_subarrays([(location, piece)], dimensions=tuple(dimensions), shape=values.shape)
    return replace(master, name=name, fill_value=fill, attrs=dict(attrs or {}), _known=(values, mask))
