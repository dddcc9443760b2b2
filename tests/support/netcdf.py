"""Small netCDF files for tests, and a check of their array."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

import aggarray as aa

Given = Mapping[str, tuple[Any, ...]]
NOLEAP = {"standard_name": "time", "units": "days since 2000-01-01", "calendar": "noleap"}
TIME = {"standard_name": "time", "units": "days since 2000-01-01"}
LAT = {"standard_name": "latitude", "units": "degrees_north"}
LON = {"standard_name": "longitude", "units": "degrees_east"}
TAS = {"standard_name": "air_temperature", "units": "K", "cell_methods": "time: mean"}


def write(
    path: str | os.PathLike[str],
    variables: Given,
    attrs: Mapping[str, Any] | None = None,
    format: str = "NETCDF4",
    unlimited: tuple[str, ...] = (),
) -> str:
    """Write a netCDF file of {name: (dimensions, values, attributes)}.

    Values are never packed or masked. Names with slashes are in groups.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with netCDF4.Dataset(path, "w", format=format) as file:
        file.setncatts(dict(attrs or {}))
        for name, (dimensions, values, *rest) in variables.items():
            group, _, base = name.rpartition("/")
            place = file.createGroup(group) if group else file
            values = np.asarray(values)
            for d, n in zip(dimensions, values.shape, strict=True):
                if d not in place.dimensions and d not in file.dimensions:
                    place.createDimension(d, None if d in unlimited else n)
            given = dict(rest[0]) if rest else {}
            kind = str if values.dtype.kind in "UT" else values.dtype
            made = place.createVariable(base, kind, dimensions, fill_value=given.pop("_FillValue", None))
            made.setncatts(given)
            made.set_auto_maskandscale(False)
            made[...] = values.astype(object) if kind is str else values
    return str(path)


def field(times: Any, lats: Any, lons: Any, dtype: Any = "f4") -> np.ndarray:
    """Return values that identify their (time, lat, lon)."""
    t, y, x = (np.asarray(v, float) for v in (times, lats, lons))
    return (t[:, None, None] * 100 + y[:, None] + x / 100).astype(dtype)


def cube(times: Any, lats: Any = (10.0, 20.0, 30.0), lons: Any = (0.0, 5.0), **changes: Any) -> dict[str, tuple[Any, ...]]:
    """Return variables of a `tas` file over (time, lat, lon).

    ``changes`` replace variables, or omit them (None).
    """
    times, lats, lons = np.asarray(times, "f8"), np.asarray(lats, "f8"), np.asarray(lons, "f8")
    result: dict[str, Any] = {
        "time": (("time",), times, dict(TIME)),
        "lat": (("lat",), lats, dict(LAT)),
        "lon": (("lon",), lons, dict(LON)),
        "tas": (("time", "lat", "lon"), field(times, lats, lons), dict(TAS)),
    }
    result.update(changes)
    return {k: v for k, v in result.items() if v is not None}


def one_array(agg: aa.Aggregation, name: str = "tas") -> aa.MasterArray:
    """Return the array of a name, which must be the only one, without refusal."""
    assert agg.refusals == () and agg.skipped == ()
    assert len(agg) == 1
    return agg[name]


def check(array: aa.MasterArray, times: Any, lats: Any = (10.0, 20.0, 30.0), lons: Any = (0.0, 5.0)) -> None:
    """Compare values and coordinates with those of `field`."""
    np.testing.assert_array_equal(array[...], field(times, lats, lons, array.dtype))
    for name, values in (("time", times), ("lat", lats), ("lon", lons)):
        np.testing.assert_array_equal(array.coords[name][...], values)
