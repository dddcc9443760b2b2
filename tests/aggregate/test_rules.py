"""Effects of rules: overlap, along, order, units, directions."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from tests.support.netcdf import LAT, TAS, cube, field, write

pytestmark = pytest.mark.quick

Made = dict[str, Any]


# Overlap


def overlapping(folder: Path) -> None:
    for name, times, value in (("b", [0, 1, 2], 1.0), ("a", [2, 3], 2.0)):
        shape = (len(times), 3, 2)
        write(folder / f"{name}.nc", cube(times, tas=(("time", "lat", "lon"), np.full(shape, value), TAS)))


def test_overlap_is_refused(tmp_path: Path) -> None:
    overlapping(tmp_path)
    agg = aa.open(tmp_path)
    assert [a.shape[0] for a in agg] == [2, 3]
    (refusal,) = agg.refusals
    hint = "give Rules(overlap='first') or Rules(overlap='last') to choose which one to use"
    reason = f"they overlap at time 2000-01-03: b.nc, a.nc; {hint}"
    assert (refusal.rule, refusal.reason) == ("overlap", reason)
    assert [Path(f).name for f in refusal.files] == ["b.nc", "a.nc"]


@pytest.mark.parametrize(("overlap", "expected"), [("first", [1, 1, 1, 2]), ("last", [1, 1, 2, 2])])
def test_overlap_first_and_last(tmp_path: Path, overlap: str, expected: list[float]) -> None:
    overlapping(tmp_path)
    agg = aa.open(tmp_path, rules=aa.Rules(overlap=overlap))
    assert agg.refusals == ()
    np.testing.assert_array_equal(agg["tas"][:, 0, 0], expected)
    np.testing.assert_array_equal(agg["tas"].coords["time"][...], range(4))


def test_an_overlap_does_not_prevent_other_joins(tmp_path: Path) -> None:
    overlapping(tmp_path)
    write(tmp_path / "c.nc", cube([4, 5]))
    write(tmp_path / "d.nc", cube([6]))
    agg = aa.open(tmp_path)
    assert sorted(a.shape[0] for a in agg) == [2, 6] and len(agg.refusals) == 1
    times = np.concatenate([a.coords["time"][...] for a in agg])
    assert sorted(times) == [0, 1, 2, 2, 3, 4, 5, 6]


def test_a_folder_given_twice(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0]))
    write(tmp_path / "b.nc", cube([1]))
    agg = aa.open([tmp_path, tmp_path / "a.nc", tmp_path / "*.nc"])
    assert agg.refusals == () and agg["tas"].shape[0] == 2


# Rules


def test_along(tmp_path: Path) -> None:
    for number, (times, lats) in enumerate([([0], [10, 20]), ([1], [10, 20]), ([0], [30, 40]), ([1], [30, 40])]):
        write(tmp_path / f"{number}.nc", cube(times, lats))
    assert aa.open(tmp_path)["tas"].shape == (2, 4, 2)
    for rules in (aa.Rules(along=["time"]), aa.Rules(along=("time", "lon"))):
        agg = aa.open(tmp_path, rules=rules)
        assert [a.shape for a in agg] == [(2, 2, 2)] * 2
        (refusal,) = agg.refusals
        assert refusal.rule == "along" and all(t in refusal.reason for t in ("lat", "10", "40", "time"))
    # By identity too; along nothing, nothing is joined.
    assert len(aa.open(tmp_path, rules=aa.Rules(along=["latitude"]))) == 2
    assert len(aa.open(tmp_path, rules=aa.Rules(along=[]))) == 4


def without_time(value: float, steps: int = 2) -> Made:
    return {
        "lat": (("lat",), np.array([10.0, 20.0]), LAT),
        "tas": (("step", "lat"), np.full((steps, 2), value), TAS),
    }


def test_order_of_dimensions_without_a_coordinate(tmp_path: Path) -> None:
    given_files = enumerate([("c", 2), ("a", 1), ("b", 2)])
    paths = [write(tmp_path / f"{name}.nc", without_time(n, steps)) for n, (name, steps) in given_files]
    agg = aa.open(paths)
    assert len(agg) == 3 and len(agg.refusals) == 2
    assert {r.rule for r in agg.refusals} <= {"no_coordinate", "overlap"}
    assert all("step" in r.reason and "order" in r.reason for r in agg.refusals)
    given = aa.open(paths, rules=aa.Rules(order={"step": "given"}))
    np.testing.assert_array_equal(given["tas"][:, 0], [0, 0, 1, 2, 2])
    named = aa.open(paths, rules=aa.Rules(order={"step": "name"}))
    np.testing.assert_array_equal(named["tas"][:, 0], [1, 2, 2, 0, 0])
    assert given.refusals == named.refusals == ()


def test_requested_units(tmp_path: Path) -> None:
    for step in range(2):
        write(tmp_path / f"{step}.nc", cube([step]))
    for rules in (aa.Rules(units={"tas": "degC"}), aa.Rules(units={"air_temperature": "degC"})):
        array = aa.open(tmp_path, rules=rules)["tas"]
        assert array.units == "degC"
        expected = field([0, 1], (10.0, 20.0, 30.0), (0.0, 5.0)) - 273.15
        np.testing.assert_allclose(array[...], expected, rtol=1e-5)
    times = aa.open(tmp_path, rules=aa.Rules(units={"time": "hours since 2000-01-01"}))["tas"].coords["time"]
    assert times.units == "hours since 2000-01-01" and times[...].tolist() == [0, 24]
    alone = aa.open(tmp_path / "0.nc", rules=aa.Rules(units={"tas": "degC"}))["tas"]
    assert alone.units == "degC" and alone.shape == (1, 3, 2)


def test_requested_units_that_no_array_converts_to_are_an_error(tmp_path: Path) -> None:
    for step in range(2):
        write(tmp_path / f"{step}.nc", cube([step]))
    text = r"^units do not convert: '.+' to '.+' \(variable '\w+' in .*0\.nc\); correct"
    coordinates = (("lat", "K"), ("time", "K"), ("lon", "days since 2000-01-01"))
    for name, units in (("tas", "m"), ("tas", "furlong"), ("air_temperature", "m"), *coordinates):
        for source in (tmp_path, tmp_path / "0.nc"):
            with pytest.raises(aa.UnitsError, match=text) as caught:
                aa.open(source, rules=aa.Rules(units={name: units}))
            assert f"units={{{name!r}: {units!r}}}" in str(caught.value) and caught.value.variable in ("tas", name)


def test_requested_units_that_some_arrays_convert_to(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0]), {"source_id": "A"})
    made = cube([0])
    dimensions, values, attrs = made["tas"]
    made["tas"] = (dimensions, values, {**attrs, "units": "m"})
    write(tmp_path / "b.nc", made, {"source_id": "B"})
    agg = aa.open(tmp_path, rules=aa.Rules(units={"tas": "degC"}))
    assert sorted(str(a.units) for a in agg) == ["degC", "m"]
    assert "units" in [r.rule for r in agg.refusals] and any("'degC'" in r.reason for r in agg.refusals)


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({"units": {"nothing": "K"}}, "units names 'nothing', which no array has; the arrays have .*tas"),
        ({"units": {"lat_bnds": "K"}}, "units names 'lat_bnds', bounds, which follow their coordinate"),
        ({"along": ["nothing"]}, "along names 'nothing', which no array has; the arrays have .*time"),
        ({"along": ["time", "nothing"]}, "along names 'nothing'"),
        ({"along": ["lat_bnds"]}, "along names 'lat_bnds', bounds"),
        ({"directions": {"nothing": True}}, "directions names 'nothing', which no array has"),
        ({"directions": {"tas": True}}, "directions names 'tas', which no array has"),
        ({"order": {"nothing": "name"}}, "order names 'nothing', which no array has"),
        ({"order": {"height": "name"}}, "order names 'height', which no array has; the arrays have lat, lon, time$"),
        ({"separate_by": ["nothing"]}, "separate_by names 'nothing', an attribute that no file has"),
        ({"separate_by": ["source_id", "nothing"]}, "separate_by names 'nothing'"),
        ({"new_dimension": "nothing"}, "no file has an attribute 'nothing'"),
        ({"new_dimension": "member=nothing(.)"}, "no file has a path that 'nothing\\(.\\)' matches"),
        ({"versions": "nothing"}, "versions='nothing': no array has such a coordinate"),
    ],
)
def test_names_in_rules_that_nothing_has(tmp_path: Path, rules: Made, text: str) -> None:
    bounds = (("lat", "bnds"), np.array([[5.0, 15], [15, 25], [25, 35]]), {})
    lat = (("lat",), np.array([10.0, 20, 30]), {**LAT, "bounds": "lat_bnds"})
    for step in range(2):
        made = cube([step], lat=lat, lat_bnds=bounds, height=((), 2.0, {"units": "m"}))
        dimensions, values, attrs = made["tas"]
        made["tas"] = (dimensions, values, {**attrs, "coordinates": "height"})
        write(tmp_path / f"{step}.nc", made, {"source_id": "A"})
    for source in (tmp_path, tmp_path / "0.nc"):
        with pytest.raises(aa.AggregationError, match=text):
            aa.open(source, rules=aa.Rules(**rules))


def test_requested_directions(tmp_path: Path) -> None:
    for step in range(2):
        write(tmp_path / f"{step}.nc", cube([step]))
    for files in (tmp_path, tmp_path / "0.nc"):
        array = aa.open(files, rules=aa.Rules(directions={"lat": False}))["tas"]
        assert array.directions == (True, False, True)
        np.testing.assert_array_equal(array.coords["lat"][...], [30, 20, 10])
        np.testing.assert_array_equal(array[...], field(range(array.shape[0]), [30.0, 20.0, 10.0], (0.0, 5.0)))
    array = aa.open(tmp_path, rules=aa.Rules(directions={"time": False}))["tas"]
    np.testing.assert_array_equal(array.coords["time"][...], [1, 0])
    np.testing.assert_array_equal(array[...], field([1, 0], (10.0, 20.0, 30.0), (0.0, 5.0)))


BAD: list[dict[str, Any]] = [
    *({"overlap": "best"}, {"holes": "yes"}, {"along": "time"}, {"separate_by": "source_id"}, {"order": {"x": "any"}}),
    *({"tolerance": -1}, {"tolerance": 0.9}, {"tolerance": "1"}, {"coverage": 2}, {"coverage": True}),
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_invalid_rules(bad: dict[str, Any]) -> None:
    with pytest.raises(aa.AggregationError, match=next(iter(bad))):
        aa.Rules(**bad)


# Rules as values


def test_rules_hash_compare_and_pickle() -> None:
    given = {"order": {"x": "name"}, "units": {"tas": "K"}, "directions": {"lat": np.True_}, "along": ["x", "lat"]}
    a, b = aa.Rules(**given), aa.Rules(**given)
    assert a == b and hash(a) == hash(b) and len({a, b, aa.Rules(), aa.Rules.cmip()}) == 3
    assert a.units == {"tas": "K"} and a.order == {"x": "name"} and a.directions == {"lat": True}
    assert repr(a.units) == "{'tas': 'K'}" and dict(a.directions) == {"lat": True}
    assert pickle.loads(pickle.dumps(a)) == copy.deepcopy(a) == a
    with pytest.raises(TypeError):
        a.units["pr"] = "mm"  # type: ignore[index]
    given["units"]["tas"] = "degC"  # type: ignore[index]
    assert a.units["tas"] == "K"
