"""Bounds in the units and calendar of their coordinate (CF 7.1)."""

from dataclasses import replace

import numpy as np

from aggarray.arrays import MasterArray
from aggarray.arrays.lazy import with_step
from aggarray.cf.units import conversion_between
from aggarray.errors import UnitsError
from aggarray.partition.matrix import Step


def in_units_of(bounds: MasterArray, coordinate: Step, name: str) -> MasterArray:
    """Return bounds in units and calendar of coordinate ``name``. Raises UnitsError where they do not convert."""
    own = bounds._step
    if (own.units, own.calendar) == (coordinate.units, coordinate.calendar):
        return bounds
    step = replace(own, units=coordinate.units, calendar=coordinate.calendar)
    try:
        conversion = conversion_between(own, replace(step, temperature=coordinate.temperature))
    except UnitsError as error:
        hint = "give both the same units, or omit those of the bounds"
        raise UnitsError(f"bounds of {name!r}: {error}", hint=hint) from error
    if not conversion.identity and own.dtype.kind in "iu":
        step = replace(step, dtype=np.dtype(np.int64 if conversion.integer_exact else np.float64))
    # promise: bounds-units
    return with_step(bounds, step)
