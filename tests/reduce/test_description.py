"""Metadata of results: coordinates, bounds, cell methods, units, history."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aggarray import MasterArray
from aggarray.cf.units.udunits import signature
from aggarray.reduce import description, streaming
from aggarray.reduce.cell_methods import METHODS, squared
from aggarray.reduce.description import Description, result_dimensions
from aggarray.reduce.grouping import groups_of
from tests.reduce.arrays import LATITUDE, LONGITUDE, TIME, array
from tests.support.foreign_indexes import cfdm_library

pytestmark = pytest.mark.quick

DAYS = np.arange(731.0) + 0.5


def cube(**attrs: Any) -> MasterArray:
    """Return daily values of two years on a grid, with bounds, text and scalars."""
    units = {"units": "days since 2000-01-01", "calendar": "standard"}
    coords = {
        "time": (("time",), DAYS, {**TIME, **units, "bounds": "time_bnds"}),
        "time_bnds": (("time", "bnds"), np.stack([DAYS - 0.5, DAYS + 0.5], axis=1), units),
        "lat": (("lat",), np.array([-30.0, 30.0]), {**LATITUDE, "bounds": "lat_bnds"}),
        "lat_bnds": (("lat", "bnds"), np.array([[-60.0, 0.0], [0.0, 60.0]]), {}),
        "lon": (("lon",), np.array([0.0, 120.0, 240.0]), LONGITUDE),
        "season_number": (("time",), DAYS % 3, {}),
        "height": ((), 2.0, {"units": "m", "positive": "up"}),
        "crs": ((), np.int32(0), {"grid_mapping_name": "latitude_longitude"}),
        "areacella": (("lat", "lon"), np.ones((2, 3)), {"units": "m2"}),
    }
    own = {
        "units": "K",
        "standard_name": "air_temperature",
        "cell_methods": "time: mean",
        "cell_measures": "area: areacella",
        "grid_mapping": "crs",
        "coordinates": "height season_number",
        "valid_min": 0.0,
        "valid_range": [0.0, 400.0],
        **attrs,
    }
    return array(np.zeros((731, 2, 3)), ("time", "lat", "lon"), coords, own, {"frequency": "day", "history": "made"})


def result(
    operation: str, dims: tuple[str, ...], by: Any = None, weights: Any = None, a: MasterArray | None = None
) -> MasterArray:
    a = cube() if a is None else a
    groups = None if by is None else groups_of(a, "time", by)
    names = result_dimensions(a, dims, groups)
    sizes = {**a.sizes, **({} if groups is None else {groups.name: groups.count})}
    return Description.of(a, dims, groups, weights).result(np.zeros([sizes[n] for n in names]), None, operation)


def times(c: MasterArray) -> Any:
    return c.datetimes().astype("M8[h]").astype(str).tolist()


def test_time_mean() -> None:
    r = result("mean", ("time",))
    assert r.dimensions == ("lat", "lon") and r.name == "tas" and r.units == "K"
    assert r.attrs["cell_methods"] == "time: mean time: mean (interval: 1 day)"
    assert times(r.coords["time"]) == "2000-12-31T12" and r.coords["time"].shape == ()
    assert times(r.coords["time_bnds"]) == ["2000-01-01T00", "2002-01-01T00"]
    assert r.coords["time"].attrs["bounds"] == "time_bnds"
    assert r.attrs["cell_measures"] == "area: areacella" and r.attrs["grid_mapping"] == "crs"
    assert r.attrs["coordinates"] == "height" and "season_number" not in r.coords
    assert not {"valid_min", "valid_range"} & set(r.attrs)
    assert "frequency" not in r.file_attrs
    line, before = r.file_attrs["history"].split("\n")
    assert line.endswith(": aggarray reduce of tas(time=731, lat=2, lon=3): mean over time") and before == "made"


def test_area_mean() -> None:
    r = result("mean", ("lat", "lon"), weights="area")
    assert r.attrs["cell_methods"] == "time: mean area: mean"
    assert not {"cell_measures", "grid_mapping"} & set(r.attrs) and not {"areacella", "crs"} & set(r.coords)
    assert r.coords["lat"][()] == 0 and r.coords["lat_bnds"][:].tolist() == [-60, 60]
    assert r.coords["lon"][()] == 120 and r.coords["lon_bnds"][:].tolist() == [0, 240]
    assert r.coords["time"].shape == (731,) and r.coords["height"][()] == 2 and r.file_attrs["frequency"] == "day"
    assert result("max", ("lat", "lon")).attrs["cell_methods"] == "time: mean lat: lon: maximum"
    assert result("mean", ("time", "lat", "lon"), weights="area").attrs["cell_methods"] == "time: mean time: area: mean"
    assert result("mean", ("lat",), weights="area").attrs["cell_methods"] == "time: mean lat: mean"


def test_periods() -> None:
    r = result("max", ("time",), "year")
    assert r.dimensions == ("time", "lat", "lon") and r.shape == (2, 2, 3)
    assert r.attrs["cell_methods"] == "time: mean time: maximum (interval: 1 day)"
    assert times(r.coords["time_bnds"]) == [["2000-01-01T00", "2001-01-01T00"], ["2001-01-01T00", "2002-01-01T00"]]
    assert times(r.coords["time"]) == ["2000-07-02T00", "2001-07-02T12"]
    assert r.coords["complete"][:].tolist() == [1, 1] and r.coords["complete"].attrs["flag_meanings"] == "incomplete complete"
    assert r.file_attrs["frequency"] == "yr"
    assert result("mean", ("time",), "year-month").coords["time"].units == "days since 2000-01-01"


def test_bounds_of_part_of_a_period_end_with_its_cells() -> None:
    a = cube().isel(time=slice(10, 60))
    r = result("mean", ("time",), "year-month", a=a)
    ends = [["2000-01-11T00", "2000-02-01T00"], ["2000-02-01T00", "2000-03-01T00"]]
    assert times(r.coords["time_bnds"]) == ends and r.coords["complete"][:].tolist() == [0, 1]


def test_periods_without_bounds_have_those_of_the_calendar() -> None:
    a = cube()
    time = replace(a.coords["time"], attrs=TIME)
    coords = {**{n: c for n, c in a.coords.items() if n != "time_bnds"}, "time": time}
    r = result("mean", ("time",), "year", a=replace(a, coords=coords))
    assert times(r.coords["time_bnds"]) == [["2000-01-01T00", "2001-01-01T00"], ["2001-01-01T00", "2002-01-01T00"]]
    assert r.coords["time"].attrs["bounds"] == "time_bnds"
    whole = result("mean", ("time",), a=replace(a, coords=coords))
    assert times(whole.coords["time_bnds"]) == ["2000-01-01T12", "2001-12-31T12"]


def test_climatology() -> None:
    r = result("mean", ("time",), "month")
    assert r.dimensions == ("month", "lat", "lon") and r.coords["month"][:].tolist() == list(range(1, 13))
    expected = "time: mean time: mean within years (interval: 1 day) time: mean over years"
    assert r.attrs["cell_methods"] == expected and r.file_attrs["frequency"] == "monC"
    time = r.coords["time"]
    assert time.dimensions == ("month",) and time.attrs["climatology"] == "climatology_bounds" and "bounds" not in time.attrs
    assert times(r.coords["climatology_bounds"])[1] == ["2000-02-01T00", "2001-03-01T00"]
    assert times(time)[:2] == ["2000-01-16T12", "2000-02-15T12"] and "time_bnds" not in r.coords
    assert result("mean", ("time",), "season").coords["season"][:].tolist() == ["DJF", "MAM", "JJA", "SON"]
    assert result("mean", ("time",), "season").coords["complete"][:].tolist() == [0, 1, 1, 1]
    assert " within days (interval: 1 day) time: mean over days" in result("mean", ("time",), "hour").attrs["cell_methods"]


def test_labels() -> None:
    r = result("mean", ("time",), "season_number")
    assert r.dimensions == ("season_number", "lat", "lon") and r.coords["season_number"][:].tolist() == [0.5, 1.5, 2.5]
    assert "time" not in r.coords and "complete" not in r.coords
    r = result("mean", ("time",), np.array(["b", "a"] * 365 + ["b"]))
    assert r.dimensions == ("group", "lat", "lon") and r.coords["group"][:].tolist() == ["a", "b"]


@pytest.mark.parametrize(("operation", "units"), [("var", "K2"), ("std", "K"), ("sum", "K"), ("count", "1"), ("argmax", "1")])
def test_units(operation: str, units: str) -> None:
    r = result(operation, ("time",))
    assert r.units == units
    assert ("standard_name" in r.attrs) == (operation in METHODS)
    assert r.attrs.get("units_metadata") == ("temperature: difference" if operation in ("var", "std") else None)


def test_sums_are_in_units_of_their_weights() -> None:
    assert result("sum", ("time",), weights="time", a=replace(cube(), units="kg m-2 s-1")).units == "kg m-2"
    assert result("sum", ("lat", "lon"), weights="area", a=replace(cube(), units="kg m-2 s-1")).units == "kg s-1"
    assert result("sum", ("time",), weights={"time": np.ones(731)}).units == "K"
    assert result("mean", ("time",), weights="time").units == "K"


@pytest.mark.parametrize(
    "units", ["K", "degC", "degF", "m s-1", "m/s", "%", "1", "kg.m-2", "W/m^2", "degrees_north", "mm day-1"]
)
def test_squares_of_units(units: str) -> None:
    square, once = signature(squared(units)), signature(f"({units})2")
    assert square is not None and square == once


def test_counts_are_of_another_kind() -> None:
    r = result("count", ("time",), a=cube(long_name="Air Temperature"))
    assert r.attrs["long_name"] == "number of values: Air Temperature"
    assert "cell_methods" not in r.attrs


def test_quantiles_are_points_with_a_comment() -> None:
    a = cube()
    r = a.quantile([0.1, 0.9], "time")
    assert r.attrs["cell_methods"] == "time: mean time: point (interval: 1 day comment: quantile)"
    assert ": quantile 0.1, 0.9 over time\n" in r.file_attrs["history"]
    over = " time: median over years (comment: of all values together)"
    assert a.median("time", by="month").attrs["cell_methods"].endswith(over)


def test_flags_stay_with_values_only() -> None:
    flags = {"flag_values": np.array([0, 1]), "flag_meanings": "a b"}
    assert "flag_values" in result("max", ("time",), a=cube(**flags)).attrs
    assert "flag_values" not in result("mean", ("time",), a=cube(**flags)).attrs


def test_external_cell_measures() -> None:
    a = cube()
    a = replace(a, coords={n: c for n, c in a.coords.items() if n != "areacella"})
    assert result("mean", ("time",), a=a).attrs["cell_measures"] == "area: areacella"
    assert "cell_measures" not in result("mean", ("lat",), a=a).attrs


def test_missing_values() -> None:
    a = cube()
    mask = np.zeros((2, 3), bool)
    mask[0, 1] = True
    r = Description.of(a, ("time",)).result(np.ones((2, 3)), mask, "mean")
    assert np.isnan(r[:]).tolist() == mask.tolist() and np.ma.getmaskarray(r.read(masked=True)).tolist() == mask.tolist()
    r = Description.of(a, ("time",)).result(np.ones((2, 3), np.int64), mask, "argmax")
    assert r.dtype == np.int64 and r[0, 1] == r.fill_value and r[0, 0] == 1


def test_cfdm_reads_the_cell_methods() -> None:
    methods = result("mean", ("time", "lat", "lon"), "month", "area").attrs["cell_methods"]
    cfdm = cfdm_library()
    parsed = cfdm.read_write.netcdf.netcdfread.NetCDFRead(cfdm.implementation())._parse_cell_methods(methods)
    named = [(m["axes"], m["method"], m.get("within"), m.get("over")) for m in parsed]
    assert named == [
        (["time"], "mean", None, None),
        (["area"], "mean", None, None),
        (["time"], "mean", "years", None),
        (["time"], "mean", None, "years"),
    ]


def test_dates_that_do_not_parse_have_no_step() -> None:
    a = cube()
    times = {n: replace(a.coords[n], units="days since the flood") for n in ("time", "time_bnds")}
    r = replace(a, coords={**a.coords, **times}).mean("time")
    assert r.attrs["cell_methods"] == "time: mean time: mean" and r.coords["time"].units == "days since the flood"


def test_metadata_are_found_before_values_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    a = cube()
    monkeypatch.setattr(streaming, "reduce_blocks", lambda *_: pytest.fail("values were read"))
    monkeypatch.setattr(description, "result_coordinates", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        a.mean("time")


def test_climatological_bounds_span_whole_periods() -> None:
    edges = np.array([0, *np.cumsum([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] * 2)], float)
    a = array(
        np.zeros(24),
        ("time",),
        {
            "time": (("time",), edges[:-1] + 14, {**TIME, "units": "days since 1999-01-01", "bounds": "time_bnds"}),
            "time_bnds": (("time", "bnds"), np.stack([edges[:-1], edges[1:]], axis=1), {"units": "days since 1999-01-01"}),
        },
    )
    a = replace(a, coords={n: replace(c, calendar="noleap") for n, c in a.coords.items()})
    r = a.mean("time", by="season")
    assert times(r.coords["climatology_bounds"])[0] == ["1998-12-01T00", "2001-03-01T00"]
    assert r.coords["complete"][:].tolist() == [0, 1, 1, 1]
    part = cube().isel(time=slice(10, 500)).mean("time", by="month")
    assert times(part.coords["climatology_bounds"])[0] == ["2000-01-01T00", "2001-02-01T00"]


def test_bounds_of_an_hour_enclose_longer_cells() -> None:
    a = cube().isel(time=slice(0, 3))
    r = a.mean("time", by="hour")
    assert r.coords["hour"][:].tolist() == [12]
    assert times(r.coords["climatology_bounds"]) == [["2000-01-01T00", "2000-01-04T00"]]


def test_the_table_goes_with_the_frequency() -> None:
    a = replace(cube(), file_attrs={"frequency": "day", "table_id": "day"})
    assert "table_id" not in result("mean", ("time",), "year-month", a=a).file_attrs
    assert "table_id" not in result("mean", ("time",), a=a).file_attrs
    assert result("mean", ("time",), "day", a=a).file_attrs["table_id"] == "day"
    assert result("mean", ("lat",), a=a).file_attrs["table_id"] == "day"


def test_labels_of_successive_times_have_times() -> None:
    a = cube()
    r = a.mean("time", by=np.arange(731) // 366)
    assert r.coords["time"].dimensions == ("group",) and times(r.coords["time"]) == ["2000-07-02T00", "2001-07-02T12"]
    assert times(r.coords["time_bnds"]) == [["2000-01-01T00", "2001-01-01T00"], ["2001-01-01T00", "2002-01-01T00"]]
    assert "time" not in a.mean("time", by=np.arange(731) % 2).coords
    gaps = np.where(np.arange(731) % 366 == 5, "", np.where(np.arange(731) < 366, "b", "a"))
    assert times(a.mean("time", by=gaps).coords["time_bnds"])[0][0] == "2001-01-01T00"
    assert a.mean("time", by=np.arange(731) // 366).to_xarray()["time"].dims == ("group",)


@pytest.mark.parametrize("by", [None, "month", "year"])
def test_dataarrays_name_no_absent_bounds(by: str | None) -> None:
    made = result("mean", ("time",), by).to_xarray()
    assert "time" in made.coords
    for coordinate in made.coords.values():
        assert not {"bounds", "climatology"} & {*coordinate.attrs, *coordinate.encoding}


def test_times_themselves() -> None:
    a = cube().coords["time"]
    r = a.first("time", by="month")
    assert times(r)[:2] == ["2000-01-01T12", "2000-02-01T12"] and r.coords["month"][:].tolist() == list(range(1, 13))
    assert times(a.max("time", by="year")) == ["2000-12-31T12", "2001-12-31T12"]
    assert times(a.min("time", by=np.arange(731) // 366)) == ["2000-01-01T12", "2001-01-01T12"]
    assert times(a.min("time")) == "2000-01-01T12"
    assert r.to_xarray().shape == (12,)
