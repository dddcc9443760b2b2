"""Join along one dimension, conformed to the first file, against NumPy."""

from pathlib import Path

import numpy as np
import pytest

import aggarray as aa
from tests.support.netcdf import LAT, LON, TAS, TIME, check, cube, field, one_array, write

pytestmark = pytest.mark.quick

# Along one dimension


def test_times_are_sorted(tmp_path: Path) -> None:
    for name, times in (("a", [4, 5]), ("b", [0, 1]), ("c", [2, 3])):
        write(tmp_path / f"{name}.nc", cube(times))
    array = one_array(aa.open(tmp_path))
    check(array, range(6))
    assert [Path(p.data.uri or "").name for p in array.partitions] == ["b.nc", "c.nc", "a.nc"]
    assert array.pmdimensions == ("time",) and array.pmshape == (3,)
    assert array.partitions.edges[0].tolist() == [0, 2, 4, 6]


def test_gaps_in_time_are_not_holes(tmp_path: Path) -> None:
    for times in ([0, 1], [10, 11], [500]):
        write(tmp_path / f"{times[0]}.nc", cube(times))
    check(one_array(aa.open(tmp_path)), [0, 1, 10, 11, 500])


def test_single_steps(tmp_path: Path) -> None:
    for step in (3, 1, 2, 0):
        write(tmp_path / f"{9 - step}.nc", cube([step]))
    check(one_array(aa.open(tmp_path)), range(4))


def test_scalar_coordinate_becomes_a_leading_dimension(tmp_path: Path) -> None:
    lats, lons = [10.0, 20.0], [0.0, 5.0]
    for step in (2, 0, 1):
        made = cube([0], lats, lons)
        made["time"] = ((), np.float64(step), {**TIME, "bounds": "time_bnds"})
        made["time_bnds"] = (("nv",), np.array([step - 0.5, step + 0.5]))
        made["tas"] = (("lat", "lon"), field([step], lats, lons)[0], {**TAS, "coordinates": "time"})
        write(tmp_path / f"{step}.nc", made)
    array = one_array(aa.open(tmp_path))
    assert array.dimensions == ("time", "lat", "lon")
    check(array, range(3), lats, lons)
    bounds = array.coords["time_bnds"]
    assert bounds.dimensions == ("time", "nv") and bounds.units == TIME["units"]
    np.testing.assert_array_equal(bounds[...], [[-0.5, 0.5], [0.5, 1.5], [1.5, 2.5]])


def test_scalar_time_joins_a_time_dimension(tmp_path: Path) -> None:
    lats, lons = [10.0, 20.0], [0.0, 5.0]
    write(tmp_path / "a.nc", cube([0, 1], lats, lons))
    made = cube([2], lats, lons, time=((), np.float64(2), TIME))
    made["tas"] = (("lat", "lon"), field([2], lats, lons)[0], {**TAS, "coordinates": "time"})
    write(tmp_path / "b.nc", made)
    check(one_array(aa.open(tmp_path)), range(3), lats, lons)


def test_scalar_coordinate_that_is_equal_stays_scalar(tmp_path: Path) -> None:
    height = ((), np.float64(2), {"standard_name": "height", "units": "m"})
    for times in ([0, 1], [2, 3]):
        made = cube(times, height=height)
        made["tas"] = (*made["tas"][:2], {**TAS, "coordinates": "height"})
        write(tmp_path / f"{times[0]}.nc", made)
    array = one_array(aa.open(tmp_path))
    check(array, range(4))
    assert array.coords["height"].shape == () and array.coords["height"][...] == 2


def test_a_file_of_no_steps(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([]), unlimited=("time",))
    write(tmp_path / "b.nc", cube([2, 3]), unlimited=("time",))
    write(tmp_path / "c.nc", cube([0, 1]), unlimited=("time",))
    array = one_array(aa.open(tmp_path))
    check(array, range(4))


def test_only_files_of_no_steps(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.nc", cube([]), unlimited=("time",))
    agg = aa.open(tmp_path)
    assert agg.names == ("tas",)
    assert all(a.shape == (0, 3, 2) and a[...].shape == (0, 3, 2) for a in agg)


def test_unlimited_dimension_in_some(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0, 1]), unlimited=("time",))
    write(tmp_path / "b.nc", cube([2, 3]), format="NETCDF3_CLASSIC")
    check(one_array(aa.open(tmp_path)), range(4))


# Units, calendars, epochs


def test_epochs_and_integers(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0, 1]))
    time = (("time",), np.array([0, 24], "i4"), {"standard_name": "time", "units": "hours since 2000-01-03"})
    write(tmp_path / "b.nc", cube([2, 3], time=time))
    array = one_array(aa.open(tmp_path))
    check(array, range(4))
    assert array.coords["time"].units == TIME["units"] and array.coords["time"].dtype == np.float64


def test_integer_times_of_other_epochs_stay_exact(tmp_path: Path) -> None:
    for name, start, values in (("a", "2000-01-01", [0, 1]), ("b", "2000-01-03", [0, 1])):
        time = (("time",), np.array(values, "i8"), {"standard_name": "time", "units": f"days since {start}"})
        write(tmp_path / f"{name}.nc", cube([0, 1] if name == "a" else [2, 3], time=time))
    array = one_array(aa.open(tmp_path))
    check(array, range(4))
    assert array.coords["time"].dtype == np.int64


def test_units_are_converted_to_the_first(tmp_path: Path) -> None:
    write(tmp_path / "b.nc", cube([0, 1]))
    made = cube([2, 3])
    made["tas"] = (made["tas"][0], made["tas"][1] - np.float32(273.15), {**TAS, "units": "degC"})
    write(tmp_path / "a.nc", made)
    array = one_array(aa.open(tmp_path))
    assert array.units == "K"
    np.testing.assert_allclose(array[...], field(range(4), (10.0, 20.0, 30.0), (0.0, 5.0)), rtol=1e-6)


def test_integers_whose_units_do_not_stay_whole_become_floats(tmp_path: Path) -> None:
    for name, times, units in (("a", [0], "K"), ("b", [1], "degC")):
        tas = (("time", "lat", "lon"), np.ones((1, 3, 2), "i2"), {**TAS, "units": units})
        write(tmp_path / f"{name}.nc", cube(times, tas=tas))
    array = one_array(aa.open(tmp_path))
    assert array.dtype == np.float64
    np.testing.assert_allclose(array[:, 0, 0], [1, 274.15])


SAME_CALENDARS = [
    *(("standard", "gregorian"), ("gregorian", None), ("standard", "proleptic_gregorian")),
    *(("noleap", "365_day"), ("all_leap", "366_day")),
]


@pytest.mark.parametrize(("one_calendar", "other"), SAME_CALENDARS)
def test_equivalent_calendars_join(tmp_path: Path, one_calendar: str, other: str | None) -> None:
    for name, times, calendar in (("a", [0, 1], one_calendar), ("b", [2, 3], other)):
        attrs = {**TIME, **({"calendar": calendar} if calendar else {})}
        write(tmp_path / f"{name}.nc", cube(times, time=(("time",), np.array(times, "f8"), attrs)))
    array = one_array(aa.open(tmp_path))
    check(array, range(4))
    assert array.coords["time"].calendar == one_calendar


@pytest.mark.parametrize("other", ["noleap", "360_day", "julian", "proleptic_gregorian before 1582"])
def test_different_calendars_stay_separate(tmp_path: Path, other: str) -> None:
    since = "days since 1500-01-01" if "before" in other else TIME["units"]
    for name, times, calendar in (("a", [0, 1], "standard"), ("b", [2, 3], other.split()[0])):
        attrs = {"standard_name": "time", "units": since, "calendar": calendar}
        write(tmp_path / f"{name}.nc", cube(times, time=(("time",), np.array(times, "f8"), attrs)))
    agg = aa.open(tmp_path)
    assert len(agg) == 2
    (refusal,) = agg.refusals
    assert refusal.rule in ("coordinate", "conversion")
    assert "standard" in refusal.reason and other.split()[0] in refusal.reason
    for array, times in zip(agg, ([0, 1], [2, 3]), strict=True):
        check(array, times)


# Directions, orders, names


@pytest.mark.parametrize("which", [("a", "b"), ("a",), ("b",)])
def test_descending_latitude_in_some(tmp_path: Path, which: tuple[str, ...]) -> None:
    up, down = [10.0, 20.0, 30.0], [30.0, 20.0, 10.0]
    for name, times in (("a", [0, 1]), ("b", [2, 3])):
        write(tmp_path / f"{name}.nc", cube(times, down if name in which else up))
    array = one_array(aa.open(tmp_path))
    check(array, range(4), down if "a" in which else up)
    assert array.directions == (True, "a" not in which, True)


def test_tiles_along_a_descending_latitude(tmp_path: Path) -> None:
    lats = [60.0, 50.0, 40.0, 30.0, 20.0]
    write(tmp_path / "a.nc", cube([0], lats[:2]))
    write(tmp_path / "b.nc", cube([0], lats[2:]))
    array = one_array(aa.open(tmp_path))
    # The first lies lowest; it runs downwards, and so does the master.
    check(array, [0], lats)
    assert array.directions[1] is False


def test_a_reversed_tile(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0], [10.0, 20.0]))
    write(tmp_path / "b.nc", cube([0], [50.0, 40.0, 30.0]))
    check(one_array(aa.open(tmp_path)), [0], [10.0, 20.0, 30.0, 40.0, 50.0])


def test_dimension_order_and_names_differ(tmp_path: Path) -> None:
    lats, lons = [10.0, 20.0, 30.0], [0.0, 5.0]
    write(tmp_path / "a.nc", cube([0, 1]))
    other = {
        "t": (("t",), np.array([2.0, 3.0]), TIME),
        "latitude": (("latitude",), np.array(lats), LAT),
        "x": (("x",), np.array(lons), LON),
        "T2": (("x", "latitude", "t"), field([2, 3], lats, lons).transpose(2, 1, 0), {**TAS, "cell_methods": "t: mean"}),
    }
    write(tmp_path / "b.nc", other)
    array = one_array(aa.open(tmp_path))
    assert array.dimensions == ("time", "lat", "lon")
    check(array, range(4))


def test_size_one_dimension_that_some_lack(tmp_path: Path) -> None:
    lats, lons = [10.0, 20.0, 30.0], [0.0, 5.0]
    level = {"standard_name": "height", "units": "m"}
    made = cube([0, 1], height=(("height",), np.array([2.0]), level))
    made["tas"] = (("time", "height", "lat", "lon"), made["tas"][1][:, None], TAS)
    write(tmp_path / "a.nc", made)
    made = cube([2, 3], height=((), np.float64(2), level))
    made["tas"] = (*made["tas"][:2], {**TAS, "coordinates": "height"})
    write(tmp_path / "b.nc", made)
    array = one_array(aa.open(tmp_path))
    assert array.dimensions == ("time", "height", "lat", "lon")
    np.testing.assert_array_equal(array[:, 0], field(range(4), lats, lons))


# What the master takes from the first, and from all


def test_the_first_array_is_the_lowest(tmp_path: Path) -> None:
    late = cube([2, 3])
    late["tas"] = (*late["tas"][:2], {**TAS, "units": "degC", "long_name": "late", "cell_measures": "x"})
    write(tmp_path / "a.nc", late, {"title": "same", "history": "late"})
    early = cube([0, 1])
    early["tas"] = (*early["tas"][:2], {**TAS, "long_name": "early", "cell_measures": "x"})
    write(tmp_path / "b.nc", early, {"title": "same", "history": "early"})
    array = one_array(aa.open([tmp_path / "a.nc", tmp_path / "b.nc"]))
    assert array.units == "K" and array.attrs["long_name"] == "early"
    assert array.attrs["standard_name"] == "air_temperature" and array.attrs["cell_methods"] == "time: mean"
    assert array.file_attrs == {"title": "same"}
    assert not {"units", "calendar"} & set(array.attrs)


def test_attributes_that_are_equal_everywhere(tmp_path: Path) -> None:
    for name, times, comment in (("a", [0], "x"), ("b", [1], "y")):
        made = cube(times)
        made["tas"] = (*made["tas"][:2], {**TAS, "comment": comment, "level": np.array([1, 2]), "bad": np.nan})
        write(tmp_path / f"{name}.nc", made)
    attrs = one_array(aa.open(tmp_path)).attrs
    assert set(attrs) == {"standard_name", "cell_methods", "level", "bad"}
    np.testing.assert_array_equal(attrs["level"], [1, 2])


def test_the_commonest_name(tmp_path: Path) -> None:
    for name, step in (("temp", 0), ("tas", 1), ("tas", 2)):
        made = cube([step])
        made[name] = made.pop("tas")
        write(tmp_path / f"{step}.nc", made)
    check(one_array(aa.open(tmp_path), "tas"), range(3))


DTYPES = [("i2", "i4"), ("f4", "f8"), ("i2", "u2"), ("f4", "i4"), ("u1", "i1"), ("i8", "f4")]


@pytest.mark.parametrize(("first", "second"), DTYPES)
def test_dtype_is_the_common_one(tmp_path: Path, first: str, second: str) -> None:
    parts = [np.arange(6).reshape(1, 3, 2).astype(d) for d in (first, second)]
    for step, part in enumerate(parts):
        write(tmp_path / f"{step}.nc", cube([step], tas=(("time", "lat", "lon"), part, TAS)))
    array = one_array(aa.open(tmp_path))
    assert array.dtype == np.result_type(first, second)
    np.testing.assert_array_equal(array[...], np.concatenate(parts))


def test_packed_files_of_different_packing(tmp_path: Path) -> None:
    stored = np.arange(6, dtype="i2").reshape(1, 3, 2)
    for step, (scale, offset) in enumerate([(np.float32(0.5), np.float32(10)), (np.float32(2), np.float32(-3))]):
        attrs = {**TAS, "scale_factor": scale, "add_offset": offset, "_FillValue": np.int16(step)}
        write(tmp_path / f"{step}.nc", cube([step], tas=(("time", "lat", "lon"), stored, attrs)))
    array = one_array(aa.open(tmp_path))
    expected = np.concatenate([stored * np.float32(0.5) + np.float32(10), stored * np.float32(2) - np.float32(3)])
    expected[0][stored[0] == 0] = np.nan
    expected[1][stored[0] == 1] = np.nan
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array[...], expected)


def test_missing_value_is_the_first_ones(tmp_path: Path) -> None:
    for step, fill in enumerate((-9, -5)):
        values = np.array([[[fill, -9], [-5, 3], [4, 5]]], "i4")
        tas = (("time", "lat", "lon"), values, {**TAS, "_FillValue": np.int32(fill)})
        write(tmp_path / f"{step}.nc", cube([step], tas=tas))
    array = one_array(aa.open(tmp_path))
    assert array.fill_value == -9
    mask = np.ma.getmaskarray(array.read(masked=True))
    np.testing.assert_array_equal(mask[:, :, :], [[[1, 1], [0, 0], [0, 0]], [[1, 0], [1, 0], [0, 0]]])
    np.testing.assert_array_equal(array[1, 0], [-9, -9])  # the second's missing value, and its valid -9


def test_missing_value_of_a_later_file_is_not_the_masters(tmp_path: Path) -> None:
    for step, attrs in enumerate((TAS, {**TAS, "_FillValue": np.int32(7)})):
        write(tmp_path / f"{step}.nc", cube([step], tas=(("time", "lat", "lon"), np.full((1, 3, 2), 7, "i4"), attrs)))
    array = one_array(aa.open(tmp_path))
    assert array.fill_value != 7
    assert (array[0] == 7).all() and (array[1] == array.fill_value).all()
