"""Arrays in memory with coordinates, for tests of reductions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aggarray import MasterArray
from aggarray.reduce.memory_arrays import in_memory

TIME = {"standard_name": "time", "axis": "T"}
LATITUDE = {"standard_name": "latitude", "units": "degrees_north"}
_LIKE = MasterArray.from_subarrays([], dimensions=(), shape=())
LONGITUDE = {"standard_name": "longitude", "units": "degrees_east"}


def coordinate(name: str, values: Any, dimensions: Sequence[str], attrs: Mapping[str, Any] | None = None) -> MasterArray:
    own = dict(attrs or {})
    units, calendar = own.pop("units", None), own.pop("calendar", None)
    return in_memory(_LIKE, name, values, dimensions, units, calendar, attrs=own)


def array(
    values: Any,
    dimensions: Sequence[str],
    coords: Mapping[str, tuple[Sequence[str], Any, Mapping[str, Any]]],
    attrs: Mapping[str, Any] | None = None,
    file_attrs: Mapping[str, Any] | None = None,
    name: str = "tas",
) -> MasterArray:
    """Return an array; ``coords``: (dimensions, values, attributes) by name."""
    made = {key: coordinate(key, value, dims, own) for key, (dims, value, own) in coords.items()}
    return replace(coordinate(name, values, dimensions, attrs), coords=made, file_attrs=dict(file_attrs or {}))


def series(
    times: Any, units: str = "days since 2000-01-01", calendar: str = "standard", bounds: Any = None, **file_attrs: Any
) -> MasterArray:
    """Return a series of values 0, 1, ... at times, with bounds if given."""
    times = np.asarray(times)
    own = {**TIME, "units": units, "calendar": calendar}
    coords: dict[str, Any] = {"time": (("time",), times, own)}
    if bounds is not None:
        coords["time"] = (("time",), times, {**own, "bounds": "time_bnds"})
        coords["time_bnds"] = (("time", "bnds"), np.asarray(bounds, float), {"units": units, "calendar": calendar})
    return array(np.arange(len(times), dtype=float), ("time",), coords, {"units": "K"}, file_attrs)
