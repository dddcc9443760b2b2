"""Climatologies and anomalies against xarray."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from aggarray import MasterArray
from aggarray.errors import NotFoundError, SelectionError
from aggarray.reduce import anomaly
from tests.reduce.arrays import TIME, array, series
from tests.reduce.test_running import archive

pytestmark = pytest.mark.quick


def days(count: int = 800, calendar: str = "standard", dtype: str = "f8") -> MasterArray:
    """Return daily values on a grid, some missing, in an order where time is not first."""
    rng = np.random.default_rng(0)
    values = rng.normal(280, 10, (3, count, 2)).astype(dtype)
    if dtype.startswith("f"):
        values[rng.random(values.shape) < 0.1] = np.nan
    own = {**TIME, "units": "days since 1999-11-20", "calendar": calendar}
    return array(values, ("y", "time", "x"), {"time": (("time",), np.arange(count) + 0.5, own)}, {"units": "K"})


def in_xarray(a: MasterArray) -> xr.DataArray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return a.to_xarray().load()


@pytest.mark.parametrize("calendar", ["standard", "noleap", "360_day"])
@pytest.mark.parametrize("by", ["month", "season", "dayofyear", "hour"])
def test_climatologies_and_anomalies_are_those_of_xarray(by: str, calendar: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anomaly, "_BLOCK", 2000)
    a = days(calendar=calendar)
    x = in_xarray(a)
    groups = x.groupby(f"time.{by}")
    climatology = a.climatology(by)
    expected = groups.mean().sel({by: climatology.coords[by][:].tolist()})
    np.testing.assert_allclose(climatology[...], expected.transpose(*climatology.dimensions).values, rtol=1e-12)
    difference = (groups - groups.mean()).transpose(*a.dimensions)
    result = a.anomaly(by)
    np.testing.assert_allclose(result[...], difference.values, rtol=1e-12, atol=1e-12 * 280)
    assert result.dimensions == a.dimensions and result.coords["time"] is a.coords["time"]


def test_anomalies_of_files_keep_the_dtype(tmp_path: Path) -> None:
    a = archive(tmp_path, (5, 2, 3))
    result = a.anomaly("month")
    values = a[...].astype(float)
    expected = np.concatenate([part - np.nanmean(part, axis=0) for part in (values[:31], values[31:])])
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result[...], expected.astype(np.float32))


def test_integers_become_floats() -> None:
    a = days(dtype="i4")
    result = a.anomaly()
    assert result.dtype == np.float64 and abs(result[...].mean()) < 1e-10


def test_another_climatology() -> None:
    a = days(1200)
    base = a.isel(time=slice(42, 42 + 366))
    climatology = base.climatology("month")
    x = in_xarray(a)
    expected = x.groupby("time.month") - in_xarray(base).groupby("time.month").mean()
    np.testing.assert_allclose(a.anomaly(climatology=climatology)[...], expected.transpose(*a.dimensions).values, atol=1e-10)
    turned = climatology.transpose("x", "month", "y").lazy[:, ::-1].to_units("degC")
    np.testing.assert_allclose(a.anomaly(climatology=turned)[...], expected.transpose(*a.dimensions).values, atol=1e-10)


def test_missing_times_have_no_anomaly() -> None:
    result = series([0.0, np.nan, 1.0]).anomaly()
    np.testing.assert_array_equal(result[:], [-1.0, np.nan, 1.0])


def test_missing_values_are_masked() -> None:
    a = days()
    result = a.anomaly()
    assert np.array_equal(np.ma.getmaskarray(result.read(masked=True)), np.isnan(a[...]))
    assert result.count()[()] == np.isfinite(a[...]).sum() and abs(result.mean()[()]) < 1e-10


def test_labels() -> None:
    a = series(np.arange(4.0))
    assert a.anomaly(np.array(["a", "b", "a", "b"]))[:].tolist() == [-1, -1, 1, 1]


def test_metadata() -> None:
    a = replace(days(), attrs={"standard_name": "air_temperature", "long_name": "Temperature", "cell_methods": "time: mean"})
    r = a.anomaly()
    assert r.attrs["standard_name"] == "air_temperature_anomaly" and r.units == "K"
    assert r.attrs["units_metadata"] == "temperature: difference"
    assert r.attrs["long_name"] == "anomaly from means by month: Temperature"
    assert "aggarray anomaly of tas(y=3, time=800, x=2) from means by month" in r.file_attrs["history"]
    assert r.to_units("degC")[0, 0, 0] == pytest.approx(r[0, 0, 0])  # a difference has no offset
    assert "standard_name" not in replace(a, attrs={"standard_name": "x_wind"}).anomaly().attrs


def test_weights_of_a_climatology() -> None:
    months = np.array([14.0, 45.0, 74.0])  # January to March 2000
    result = series(months).climatology("season", weights="time")[:]
    np.testing.assert_allclose(result, [29 / 60, 2.0], rtol=1e-14)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda a: a.climatology("year"), NotFoundError, r"no climatology by 'year'.*mean\(..., by='year'\)"),
        (lambda a: a.anomaly("moth"), NotFoundError, "did you mean 'month'"),
        (lambda a: a.climatology(month=1), TypeError, "unexpected keyword argument 'month'.*weights"),
        (lambda a: a.anomaly(climatology=a), SelectionError, "give one over y, month, x"),
        (lambda a: a.anomaly(climatology=a.isel(time=slice(0, 30)).climatology()), NotFoundError, "lacks groups of 'month': 1"),
        (lambda a: a.isel(time=0).climatology(), SelectionError, "no dimension with 1-d times: y, x"),
        (lambda a: a.running_mean(3, ["y", "x"]), SelectionError, "along one dimension"),
        (lambda a: a.running_mean(3, by="month"), TypeError, "'by'"),
    ],
)
def test_errors(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(days())


def located(count: int = 60) -> MasterArray:
    """Return daily values with latitudes and names of columns."""
    a = days(count)
    own = array(
        a[...],
        a.dimensions,
        {
            "time": (("time",), a.coords["time"][:], {**TIME, "units": "days since 1999-11-20", "calendar": "standard"}),
            "y": (("y",), np.array([-10.0, 0.0, 10.0]), {"units": "degrees_north", "standard_name": "latitude"}),
            "x": (("x",), np.array(["east", "west"]), {}),
        },
        {"units": "K"},
    )
    return own


@pytest.mark.parametrize(("dimension", "words"), [("y", "along 'y': -10 and 10 at position 0"), ("x", "along 'x'")])
def test_a_climatology_of_another_grid_is_refused(dimension: str, words: str) -> None:
    a = located()
    flipped = a.isel({dimension: slice(None, None, -1)})
    for climatology in (a.climatology(), a.climatology().to_xarray()):
        with pytest.raises(SelectionError, match=f"the means have other coordinates {words}.*select or flip"):
            flipped.anomaly(climatology=climatology)


@pytest.mark.parametrize("by", ["month", "season"])
def test_climatologies_of_xarray_and_numpy(by: str) -> None:
    a = located()
    climatology = a.climatology(by)
    expected = a.anomaly(by)[...]
    np.testing.assert_array_equal(a.anomaly(by, climatology.to_xarray().transpose())[...], expected)
    np.testing.assert_array_equal(a.anomaly(by, climatology.to_xarray().sel({by: climatology.coords[by][::-1]}))[...], expected)
    np.testing.assert_array_equal(a.anomaly(by, climatology[...])[...], expected)
    for wrong in (climatology[0], "all", climatology.to_xarray().to_dataset(name="tas"), climatology[...].astype(str)):
        with pytest.raises(SelectionError, match=rf"a climatology of type.*give an array over y, {by}, x"):
            a.anomaly(by, wrong)
