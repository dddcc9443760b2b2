"""Aggregation of real kinds of archives with misleading metadata."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from tests.support.netcdf import LAT, LON, TAS, TIME, check, cube, field, one_array, write

pytestmark = pytest.mark.quick


def scalar(value: Any, **attrs: Any) -> tuple[tuple[()], Any, dict[str, Any]]:
    return (), value, attrs


# Coordinates are compared wherever scalar coordinates are


def swath(value: float, offset: float, **scalars: Any) -> dict[str, Any]:
    lat = (("y", "x"), np.array([[1.0, 1.0], [2.0, 2.0]]) + offset, LAT)
    named = " ".join(["lat", *scalars])
    return {"lat": lat, **scalars, "v": (("y", "x"), np.full((2, 2), value), {"units": "K", "coordinates": named})}


def test_other_grids_at_other_scalar_times_stay_separate(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / f"{number}.nc", swath(number, number * 10.0, time=scalar(float(number), **TIME)))
    agg = aa.open(tmp_path)
    assert len(agg) == 2 and [r.rule for r in agg.refusals] == ["coordinate"]


def test_equal_grids_at_other_scalar_times_join(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.nc", swath(number, 0.0, time=scalar(float(number), **TIME)))
    (array,) = aa.open(tmp_path)
    assert array.dimensions == ("time", "y", "x") and array[:, 0, 0].tolist() == [0, 1, 2]


def test_members_with_other_bounds_stay_separate(tmp_path: Path) -> None:
    for number in range(2):
        bounds = np.array([[5.0, 15], [15, 25], [25, 35 + number]])
        made = cube([0], lat_bnds=(("lat", "bnds"), bounds, {}))
        made["lat"] = (("lat",), made["lat"][1], {**LAT, "bounds": "lat_bnds"})
        write(tmp_path / f"{number}.nc", made, {"source_id": f"m{number}"})
    agg = aa.open(tmp_path, rules=aa.Rules(new_dimension="source_id"))
    assert len(agg) == 2 and "lat_bnds" in agg.refusals[0].reason


# Longitudes modulo 360 in tiles


def test_tiles_in_other_turns_of_longitude(tmp_path: Path) -> None:
    for step in range(3):
        for tile in range(6):
            lons = np.arange(tile * 60, tile * 60 + 60, 20.0)
            write(tmp_path / f"{step}{5 - tile}.nc", cube([step], lons=lons - 360 if step == 1 and tile >= 3 else lons))
            if step == 1 and tile >= 3:
                made = cube([step], lons=lons)
                made["lon"] = (("lon",), lons - 360, LON)
                write(tmp_path / f"{step}{5 - tile}.nc", made)
    check(one_array(aa.open(tmp_path)), range(3), lons=np.arange(0, 360, 20.0))


def test_closed_and_open_longitudes_stay_separate(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0], lons=np.arange(-180, 181, 60.0)))
    write(tmp_path / "b.nc", cube([1], lons=np.arange(0, 360, 60.0)))
    agg = aa.open(tmp_path)
    assert len(agg) == 2 and "same meridian at both ends" in agg.refusals[0].reason


def test_equal_closed_longitudes_join(tmp_path: Path) -> None:
    lons = np.arange(0, 361, 60.0)
    for step in range(2):
        write(tmp_path / f"{step}.nc", cube([step], lons=lons))
    check(one_array(aa.open(tmp_path)), range(2), lons=lons)


def test_repeated_positions_overlap(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0], lons=[-20.0, -10, 0, 10]))
    made = cube([0], lons=[340.0, 350, 360, 370])
    made["tas"] = (made["tas"][0], made["tas"][1] + 1, TAS)
    write(tmp_path / "b.nc", made)
    agg = aa.open(tmp_path)
    assert len(agg) == 2 and [r.rule for r in agg.refusals] == ["overlap"]


# Names that name nothing, coordinate systems without a name


@pytest.mark.parametrize("word", ["unknown", "Undefined", "", "none"])
def test_unknown_standard_names_are_ignored(tmp_path: Path, word: str) -> None:
    for name, steps in (("tp", [0, 1]), ("sf", [2, 3])):
        made = cube(steps)
        dimensions, values, _ = made.pop("tas")
        made[name] = (dimensions, values, {"standard_name": word, "long_name": name, "units": "m"})
        write(tmp_path / f"{name}.nc", made)
    assert {(a.name, a.shape[0]) for a in aa.open(tmp_path)} == {("tp", 2), ("sf", 2)}


@pytest.mark.parametrize("kinds", [("i4", "i4"), ("i4", "S1")])
def test_coordinate_systems_given_as_text(tmp_path: Path, kinds: tuple[str, str]) -> None:
    for folder, zones in (("other", (31, 32)), ("same", (31, 31))):
        for step, (zone, kind) in enumerate(zip(zones, kinds, strict=True)):
            made = cube([step])
            made["tas"] = (*made["tas"][:2], {**TAS, "grid_mapping": "crs"})
            made["crs"] = ((), np.array(0 if kind == "i4" else b"", kind), {"crs_wkt": f"UTM zone {zone}N"})
            write(tmp_path / folder / f"{step}.nc", made)
    agg = aa.open(tmp_path / "other")
    assert len(agg) == 2 and "31N" in agg.refusals[0].reason and "32N" in agg.refusals[0].reason
    check(one_array(aa.open(tmp_path / "same")), [0, 1])


def test_stations_identified_by_cf_role(tmp_path: Path) -> None:
    for step, names in enumerate((["a", "b"], ["a", "c"])):
        write(
            tmp_path / f"{step}.nc",
            {
                "time": (("time",), np.array([float(step)]), TIME),
                "station_id": (("station",), np.array(names), {"cf_role": "timeseries_id"}),
                "tas": (("time", "station"), np.zeros((1, 2), "f4"), TAS),
            },
        )
    agg = aa.open(tmp_path)
    assert len(agg) == 2 and "station_id" in agg.refusals[0].reason


# Times that belong to other times


def test_a_reference_time_follows_the_time(tmp_path: Path) -> None:
    for number in range(4):
        steps = np.arange(6) / 4 + number * 1.5
        made = cube(steps, frt=scalar(number * 1.5, standard_name="forecast_reference_time", units=TIME["units"]))
        made["tas"] = (*made["tas"][:2], {**TAS, "coordinates": "frt"})
        write(tmp_path / f"{number}.nc", made)
    array = one_array(aa.open(tmp_path))
    check(array, np.arange(24) / 4)
    assert array.coords["frt"].dimensions == ("time",)
    assert array.coords["frt"][...].tolist() == np.repeat(np.arange(4) * 1.5, 6).tolist()
    assert array.lazy[7].coords["frt"][...] == 1.5


def test_year_and_month_follow_the_time(tmp_path: Path) -> None:
    for month in range(24):
        made = cube([month * 30.0])
        made["time"] = scalar(month * 30.0, **TIME)
        made["year"] = scalar(np.int32(2000 + month // 12), long_name="year", units="1")
        made["month_number"] = scalar(np.int32(month % 12 + 1), long_name="month_number", units="1")
        made["tas"] = (("lat", "lon"), made["tas"][1][0], {**TAS, "coordinates": "time year month_number"})
        write(tmp_path / f"{month:02}.nc", made)
    array = one_array(aa.open(tmp_path))
    assert array.dimensions == ("time", "lat", "lon")
    assert array.coords["year"][...].tolist() == [2000] * 12 + [2001] * 12
    assert array.coords["month_number"][...].tolist() == [*range(1, 13)] * 2


def test_times_under_other_names_than_their_dimensions(tmp_path: Path) -> None:
    for number in range(2):
        write(
            tmp_path / f"{number}.nc",
            {
                "t2": (("Time", "y"), np.full((2, 3), number, "f4"), {"coordinates": "XTIME"}),
                "XTIME": (("Time",), np.arange(2.0) + 2 * number, {"units": "minutes since 2000-01-01"}),
            },
        )
    (array,) = aa.open(tmp_path)
    assert array.dimensions == ("Time", "y") and array[:, 0].tolist() == [0, 0, 1, 1]
    assert array.coords["XTIME"][...].tolist() == [0, 1, 2, 3]


# What is written differently


def test_latitudes_known_by_their_units(tmp_path: Path) -> None:
    for number, attrs in enumerate((LAT, {"units": "degrees_north"}, {"units": "degrees_north", "long_name": "Latitude"})):
        made = cube([number])
        made["lat"] = (("lat",), made["lat"][1], attrs)
        write(tmp_path / f"{number}.nc", made)
    check(one_array(aa.open(tmp_path)), range(3))


def test_a_dimension_of_size_one_that_others_lack(tmp_path: Path) -> None:
    write(tmp_path / "0.nc", cube([0]))
    made = cube([1])
    made["tas"] = (("time", "z", "lat", "lon"), made["tas"][1][:, np.newaxis], TAS)
    write(tmp_path / "1.nc", made)
    check(one_array(aa.open(tmp_path)), [0, 1])


def test_longitudes_of_another_turn_beside_a_dimension_of_size_one(tmp_path: Path) -> None:
    write(tmp_path / "0.nc", cube([0], lons=[0.0, 90, 180, 270]))
    made = cube([1], lons=[-180.0, -90, 0, 90])
    made["tas"] = (("time", "z", "lat", "lon"), field([1], [10, 20, 30], [180, 270, 0, 90])[:, np.newaxis], TAS)
    write(tmp_path / "1.nc", made)
    check(one_array(aa.open(tmp_path)), [0, 1], lons=[0, 90, 180, 270])


def test_files_in_order_of_the_numbers_in_their_names(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        made = cube([number], time=None)
        write(tmp_path / f"s{number}.nc", made)
    array = one_array(aa.open(tmp_path, rules=aa.Rules(order={"time": "name"})))
    np.testing.assert_array_equal(array[...], field([1, 2, 10], [10, 20, 30], [0, 5]))
