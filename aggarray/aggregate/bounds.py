"""How do bounds follow their coordinate: in units, in calendar, in direction (CF 7.1)?"""

from dataclasses import replace

import numpy as np

from aggarray.arrays import MasterArray
from aggarray.arrays.lazy import with_step
from aggarray.cf.units import conversion_between
from aggarray.errors import UnitsError
from aggarray.partition.matrix import Step


def in_units_of(bounds: MasterArray, coordinate: Step, name: str) -> MasterArray:
    """Return bounds in units and calendar of their coordinate, called ``name``; UnitsError where they do not convert."""
    own = bounds._step
    if (own.units, own.calendar) == (coordinate.units, coordinate.calendar):
        return bounds
    wanted = replace(own, units=coordinate.units, calendar=coordinate.calendar)
    try:
        change = conversion_between(own, replace(wanted, temperature=coordinate.temperature))
    except UnitsError as error:
        raise UnitsError(f"bounds of {name!r}: {error}; give both the same units, or leave those of the bounds out") from error
    if not change.identity and own.dtype.kind in "iu":
        wanted = replace(wanted, dtype=np.dtype(np.int64 if change.integer_exact else np.float64))
    # promise: bounds-units
    return with_step(bounds, wanted)
