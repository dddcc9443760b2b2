"""Arrays that are not joined have a refusal with values and files."""

import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray.aggregate.identity import identity_of
from tests.support.examples import examples
from tests.support.netcdf import LAT, TAS, TIME, cube, field, write

Made = dict[str, Any]


def changed_tas(**attrs: Any) -> Callable[[Made], None]:
    """Return a change of the attributes of `tas`."""

    def change(made: Made) -> None:
        dimensions, values, old = made["tas"]
        made["tas"] = (dimensions, values, {k: v for k, v in {**old, **attrs}.items() if v is not None})

    return change


def changed(name: str, **attrs: Any) -> Callable[[Made], None]:
    """Return a change of the attributes of a coordinate."""

    def change(made: Made) -> None:
        dimensions, values, old = made[name]
        made[name] = (dimensions, values, {**old, **attrs})

    return change


def with_text_latitude(made: Made) -> None:
    made["lat"] = (("lat",), np.array(["a", "b", "c"]), {"standard_name": "latitude"})


def with_height(made: Made) -> None:
    made["height"] = ((), np.float64(2), {"standard_name": "height", "units": "m"})
    changed_tas(coordinates="height")(made)


def with_bounds(made: Made) -> None:
    changed("lat", bounds="lat_bnds")(made)
    made["lat_bnds"] = (("lat", "nv"), np.zeros((3, 2)))


def without_latitude(made: Made) -> None:
    del made["lat"]


def as_text(made: Made) -> None:
    made["tas"] = (made["tas"][0], np.full(made["tas"][1].shape, "x"), {"standard_name": "air_temperature"})


def mapping(latitude: float) -> Callable[[Made], None]:
    def change(made: Made) -> None:
        attrs = {"grid_mapping_name": "rotated_latitude_longitude", "grid_north_pole_latitude": latitude}
        made["crs"] = ((), np.int32(0), attrs)
        changed_tas(grid_mapping="crs")(made)

    return change


ODD: list[tuple[str, Callable[[Made], None], Callable[[Made], None], str, list[str]]] = [
    ("units", changed_tas(), changed_tas(units="m"), "units", ["'K'", "'m'"]),
    ("no units", changed_tas(), changed_tas(units=None), "units", ["'K'", "None"]),
    ("bad units", changed_tas(), changed_tas(units="K????"), "units", ["'K'", "'K????'"]),
    ("cell methods", changed_tas(), changed_tas(cell_methods="time: maximum"), "cell_methods", ["time: mean", "time: maximum"]),
    ("flags", changed_tas(flag_meanings="a b"), changed_tas(flag_meanings="a c"), "flag_meanings", ["'a b'", "'a c'"]),
    ("scalar", changed_tas(), with_height, "dimensions", ["'height'"]),
    ("bounds", changed_tas(), with_bounds, "coordinate", ["'bounds'", "no bounds"]),
    ("no coordinate", changed_tas(), without_latitude, "dimensions", ["'lat'", "'latitude'"]),
    ("coordinate units", changed_tas(), changed("lat", units="m"), "coordinate", ["latitude", "'m'"]),
    ("coordinate is text", changed_tas(), with_text_latitude, "coordinate", ["latitude", "text"]),
    ("data is text", changed_tas(units=None, cell_methods=None), as_text, "kind_of_data", ["number", "T"]),
    ("grid mapping", mapping(30.0), mapping(40.0), "grid_mapping", ["grid_north_pole_latitude", "30.0", "40.0"]),
]


@pytest.mark.parametrize(("one", "other", "rule", "texts"), [o[1:] for o in ODD], ids=[o[0] for o in ODD])
def test_signatures_that_differ(
    tmp_path: Path, one: Callable[[Made], None], other: Callable[[Made], None], rule: str, texts: list[str]
) -> None:
    """Two equal files are joined; the different third stays separate."""
    for name, start, change in (("a", 0, one), ("b", 2, one), ("odd", 4, other)):
        made = cube([start, start + 1])
        change(made)
        write(tmp_path / f"{name}.nc", made)
    agg = aa.open(tmp_path)
    assert [a.shape[0] for a in agg] == [4, 2] and agg.skipped == ()
    (refusal,) = agg.refusals
    assert refusal.rule == rule
    assert all(t in refusal.reason for t in texts), refusal.reason
    assert refusal.arrays == ("tas", "tas")
    assert "odd.nc" in refusal.reason and {Path(f).name for f in refusal.files} >= {"odd.nc"}
    assert "\n" not in refusal.reason


def test_facets_keep_arrays_separate(tmp_path: Path) -> None:
    given = [("a", 0, "X", "Amon"), ("b", 2, "X", "Amon"), ("c", 4, "Y", "Amon"), ("d", 6, "X", "day")]
    for name, start, model, table in given:
        write(tmp_path / f"{name}.nc", cube([start, start + 1]), {"source_id": model, "table_id": table})
    agg = aa.open(tmp_path)
    assert [(a.file_attrs["source_id"], a.file_attrs["table_id"], a.shape[0]) for a in agg] == [
        ("X", "Amon", 4),
        ("Y", "Amon", 2),
        ("X", "day", 2),
    ]
    # Each is explained against its nearest relative, which differs in one facet only.
    assert sorted((r.rule, tuple(Path(f).name for f in r.files)) for r in agg.refusals) == [
        ("source_id", ("a.nc", "c.nc")),
        ("table_id", ("a.nc", "d.nc")),
    ]
    assert {r.reason.split(":")[0] for r in agg.refusals} == {"source_id differs", "table_id differs"}
    assert "'X' and 'Y'" in next(r.reason for r in agg.refusals if r.rule == "source_id")
    together = aa.open(tmp_path, rules=aa.Rules(separate_by=()))
    assert together["tas"].shape[0] == 8 and together.refusals == ()


def test_separate_by_another_attribute(tmp_path: Path) -> None:
    for start, member in ((0, "r1"), (2, "r2")):
        write(tmp_path / f"{start}.nc", cube([start, start + 1]), {"member": member})
    assert len(aa.open(tmp_path)) == 1
    agg = aa.open(tmp_path, rules=aa.Rules(separate_by=["member"]))
    assert len(agg) == 2 and agg.refusals[0].rule == "member" and "'r1' and 'r2'" in agg.refusals[0].reason


def test_cmip5_tables_by_name_only(tmp_path: Path) -> None:
    tables = ["Table Omon (26 July 2011) 25bb", "Table Omon (1 May 2012) ff00", "Table Amon (26 July 2011) 25bb"]
    for number, table in enumerate(tables):
        write(tmp_path / f"{number}.nc", cube([2 * number, 2 * number + 1]), {"table_id": table})
    agg = aa.open(tmp_path)
    assert [a.shape[0] for a in agg] == [4, 2]
    assert "'Omon' and 'Amon'" in agg.refusals[0].reason or "'Amon' and 'Omon'" in agg.refusals[0].reason


def test_numeric_facets(tmp_path: Path) -> None:
    for start, realization in ((0, 1), (2, 2)):
        write(tmp_path / f"{start}.nc", cube([start, start + 1]), {"realization": np.int32(realization)})
    assert [r.rule for r in aa.open(tmp_path).refusals] == ["realization"]


# Coordinates that differ


def test_latitudes_that_differ_slightly_never_interleave(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0, 1], [10, 20, 30]))
    write(tmp_path / "b.nc", cube([2, 3], [10, 20.5, 30]))
    agg = aa.open(tmp_path)
    assert [a.shape for a in agg] == [(2, 3, 2)] * 2
    assert agg.refusals[0].rule == "coordinate_values"
    assert all(t in agg.refusals[0].reason for t in ("lat", "20", "20.5", "a.nc", "b.nc"))


def test_one_odd_file_does_not_prevent_the_join(tmp_path: Path) -> None:
    for step in range(5):
        lats = [10, 20, 30] if step != 2 else [10, 20.001, 30]
        write(tmp_path / f"{step}.nc", cube([step], lats))
    agg = aa.open(tmp_path)
    assert [a.shape[0] for a in agg] == [4, 1]
    (refusal,) = agg.refusals
    assert Path(refusal.files[1]).name == "2.nc"
    np.testing.assert_array_equal(agg.arrays[0].coords["time"][...], [0, 1, 3, 4])


def test_two_dimensional_coordinates_that_differ(tmp_path: Path) -> None:
    def curvilinear(step: int, shift: float) -> Made:
        y, x = np.mgrid[0:3, 0:4] * 1.0
        return {
            "time": (("time",), np.array([step], "f8"), TIME),
            "nav_lat": (("y", "x"), y + shift * (x == 1) * (y == 2), {"standard_name": "latitude", "units": "degrees_north"}),
            "nav_lon": (("y", "x"), x, {"standard_name": "longitude", "units": "degrees_east"}),
            "tos": (("time", "y", "x"), np.full((1, 3, 4), step * 1.0), {"units": "K", "coordinates": "nav_lat nav_lon"}),
        }

    for step in range(4):
        write(tmp_path / f"{step}.nc", curvilinear(step, 0.25 if step == 1 else 0.0))
    agg = aa.open(tmp_path)
    assert [a.shape[0] for a in agg] == [3, 1]
    (refusal,) = agg.refusals
    assert refusal.rule == "coordinate"
    assert all(t in refusal.reason for t in ("nav_lat", "2, 1", "2 and 2.25", "1.nc")), refusal.reason
    np.testing.assert_array_equal(agg.arrays[0][:, 0, 0], [0, 2, 3])
    assert agg.arrays[0].coords["nav_lat"].shape == (3, 4)


def test_interleaving_latitudes_stay_separate(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0], [0, 20, 40]))
    write(tmp_path / "b.nc", cube([0], [10, 30, 50]))
    agg = aa.open(tmp_path)
    assert len(agg) == 2 and agg.refusals[0].rule == "coordinate_values"
    assert all(t in agg.refusals[0].reason for t in ("lat", "a.nc", "b.nc")), agg.refusals[0].reason


def test_an_odd_time_within_another_file(tmp_path: Path) -> None:
    for name, times in (("a", [0, 1]), ("b", [2, 3]), ("odd", [2.5])):
        write(tmp_path / f"{name}.nc", cube(times))
    (array,) = aa.open(tmp_path)
    assert array.coords["time"][...].tolist() == [0, 1, 2, 2.5, 3]
    np.testing.assert_array_equal(array[...], field([0, 1, 2, 2.5, 3], array.coords["lat"][...], array.coords["lon"][...]))
    assert [p.location[0] for p in array.partitions] == [(0, 2), (2, 3), (3, 4), (4, 5)]
    assert [p.virtual for p in array.partitions] == [False, True, False, True]


@pytest.mark.parametrize("times", [[2, 2], [3, 2, 4], [2, np.nan], [np.nan, np.nan]])
def test_a_time_that_is_not_monotonic(tmp_path: Path, times: list[float]) -> None:
    write(tmp_path / "a.nc", cube([0]))
    write(tmp_path / "b.nc", cube([1]))
    write(tmp_path / "odd.nc", cube(times))
    agg = aa.open(tmp_path)
    assert [a.shape[0] for a in agg] == [2, len(times)]
    (refusal,) = agg.refusals
    assert refusal.rule == "not_monotonic" and "odd.nc" in refusal.reason and "time" in refusal.reason
    np.testing.assert_array_equal(agg.arrays[1].coords["time"][...], times)


def test_missing_times_declared(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0]))
    odd = cube([1, 2], time=(("time",), np.array([1, -99], "i4"), {**TIME, "_FillValue": np.int32(-99)}))
    write(tmp_path / "odd.nc", odd)
    agg = aa.open(tmp_path)
    assert len(agg) == 2 and agg.refusals[0].rule == "not_monotonic"


def test_equal_coordinates_need_no_order(tmp_path: Path) -> None:
    """What does not vary may run as it likes."""
    for step in range(2):
        write(tmp_path / f"{step}.nc", cube([step], [10, 30, 20]))
    agg = aa.open(tmp_path)
    assert agg.refusals == () and agg["tas"].shape == (2, 3, 2)
    np.testing.assert_array_equal(agg["tas"].coords["lat"][...], [10, 30, 20])


# Several variables


def test_two_variables_of_one_standard_name_are_never_mixed(tmp_path: Path) -> None:
    for times in ([0, 1], [2, 3]):
        made = cube(times)
        made["tasmax"] = (made["tas"][0], -made["tas"][1], TAS)
        write(tmp_path / f"{times[0]}.nc", made)
    agg = aa.open(tmp_path)
    assert sorted(agg.names) == ["tas", "tasmax"] and len(agg) == 2
    expected = field(range(4), (10.0, 20.0, 30.0), (0.0, 5.0))
    np.testing.assert_array_equal(agg["tas"][...], expected)
    np.testing.assert_array_equal(agg["tasmax"][...], -expected)
    assert [r.rule for r in agg.refusals] == ["name"] and "'tas' and 'tasmax'" in agg.refusals[0].reason


def test_one_variable_of_a_file_is_odd(tmp_path: Path) -> None:
    for times in ([0, 1], [2, 3]):
        made = cube(times)
        units = "Pa" if times[0] == 0 else "m"
        made["ps"] = (made["tas"][0], made["tas"][1], {"standard_name": "surface_air_pressure", "units": units})
        write(tmp_path / f"{times[0]}.nc", made)
    agg = aa.open(tmp_path)
    assert agg["tas"].shape[0] == 4 and len(agg.select("ps")) == 2
    assert [(r.rule, r.arrays) for r in agg.refusals] == [("units", ("ps", "ps"))]


def test_variables_that_only_some_files_have(tmp_path: Path) -> None:
    for times in ([0, 1], [2, 3], [4, 5]):
        made = cube(times)
        if times[0] != 2:
            made["pr"] = (made["tas"][0], made["tas"][1] * 2, {"standard_name": "precipitation", "units": "mm"})
        write(tmp_path / f"{times[0]}.nc", made)
    agg = aa.open(tmp_path)
    assert agg["tas"].shape[0] == 6 and agg["pr"].shape[0] == 4 and not agg.refusals
    np.testing.assert_array_equal(agg["pr"].coords["time"][...], [0, 1, 4, 5])


def test_one_name_of_different_identities_is_explained(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0]))
    made = cube([1])
    changed_tas(standard_name="sea_surface_temperature")(made)
    write(tmp_path / "b.nc", made)
    agg = aa.open(tmp_path)
    assert len(agg) == 2 and agg.refusals[0].rule == "identity"
    assert "air_temperature" in agg.refusals[0].reason and "sea_surface_temperature" in agg.refusals[0].reason


# Anything at all


def text_times(made: Made) -> None:
    made["time"] = (("time",), np.array([f"t{n}" for n in range(len(made["time"][1]))]), {"standard_name": "time"})


def no_dimensions(made: Made) -> None:
    made["tas"] = ((), np.float64(1), TAS)


def transposed(made: Made) -> None:
    dimensions, values, attrs = made["tas"]
    made["tas"] = (dimensions[::-1], values.T, attrs)


def missing_latitude(made: Made) -> None:
    values = made["lat"][1].copy()
    values[1] = np.nan
    made["lat"] = (("lat",), values, LAT)


def two_times(made: Made) -> None:
    made["lat"] = (("lat",), made["lat"][1], {**LAT, "standard_name": "time", "units": TIME["units"]})


def months(made: Made) -> None:
    made["time"] = (("time",), made["time"][1], {**TIME, "units": "months since 2000-01-01"})


def nonsense_units(made: Made) -> None:
    made["time"] = (("time",), made["time"][1], {**TIME, "units": "days since once upon a time"})


def tiny_times(made: Made) -> None:
    made["time"] = (("time",), made["time"][1].astype("i1"), TIME)


def doubled(made: Made) -> None:
    made["again"] = made["tas"]


def climatological(made: Made) -> None:
    steps = len(made["time"][1])
    made["time"] = (("time",), made["time"][1], {**TIME, "climatology": "bnds"})
    made["bnds"] = (("time", "nv"), np.zeros((steps, 2)), {"units": "hours since 1999-01-01"})


CHANGES: list[Callable[[Made], None]] = [
    *(without_latitude, with_text_latitude, with_height, with_bounds, as_text, mapping(30.0), text_times, no_dimensions),
    *(transposed, missing_latitude, two_times, months, nonsense_units, tiny_times, doubled, climatological),
    *(changed_tas(units=None), changed_tas(units="degC"), changed_tas(standard_name=None, units=None)),
    *(changed("time", calendar="noleap"), changed("time", units="hours since 2000-01-01"), changed("lat", units="1")),
]


@pytest.mark.parametrize("steps", [(0, 1), (1, 1), (1, 2)])
@pytest.mark.parametrize("turned", [(), (0,), (1,), (0, 1)])
def test_two_dimensions_of_one_identity_in_any_order(tmp_path: Path, steps: tuple[int, int], turned: tuple[int, ...]) -> None:
    for number, start in enumerate((0, steps[0])):
        made = cube(range(start, start + steps[number]))
        two_times(made)
        if number in turned:
            transposed(made)
        write(tmp_path / f"{number}.nc", made)
    (result,) = (a for a in aa.open(tmp_path) if a.name == "tas")
    assert sorted(result.shape) == sorted((sum(steps), *cube([0])["tas"][1].shape[1:]))
    assert not aa.open(tmp_path).refusals


def test_one_of_two_times_has_bounds(tmp_path: Path) -> None:
    for number, changes in enumerate(([two_times, climatological], [two_times])):
        made = cube(range(number, number + 1))
        for change in changes:
            change(made)
        write(tmp_path / f"{number}.nc", made)
    agg = aa.open(tmp_path)
    assert [a.shape for a in agg if a.name == "tas"] == [(1, 3, 2)] * 2
    assert "coordinate time differs: 'bounds no bounds' and 'no bounds no bounds'" in str(agg.refusals)


@settings(max_examples=examples(100))
@given(data=st.data())
def test_any_mixture_of_odd_files_opens(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any mixture of files opens without errors and is readable.

    Each sub-array serves one array, and each separate array has a refusal.
    """
    folder = tmp_path_factory.mktemp("odd")
    written: list[tuple[str, str]] = []
    for number in range(data.draw(st.integers(2, 5))):
        start, steps = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 3))
        lats = data.draw(st.sampled_from([[10, 20, 30], [30, 20, 10], [10, 20.5, 30], [40, 50, 60], [5, 5, 5]]))
        made = cube(range(start, start + steps), lats)
        for change in data.draw(st.lists(st.sampled_from(CHANGES), max_size=2)):
            with contextlib.suppress(KeyError, ValueError, TypeError):  # one may take away what the next changes
                change(made)
        path = write(folder / f"{number}.nc", made)
        written += [(path, name) for name in ("tas", "again") if name in made and made[name][1].size]
    overlap = data.draw(st.sampled_from(["refuse", "first", "last"]))
    try:
        agg = aa.open(folder, rules=aa.Rules(overlap=overlap, order=data.draw(st.sampled_from([{}, {"lat": "name"}]))))
    except aa.AggregationError as error:
        assert "lat has a coordinate" in str(error)
        agg = aa.open(folder, rules=aa.Rules(overlap=overlap))
    assert agg.skipped == ()
    arrays = [a for a in agg if a.name in ("tas", "again")]
    served = Counter(pair for a in arrays for pair in {(p.data.uri, p.data.variable) for p in a.partitions if p.data})
    assert all(n == 1 for n in served.values())
    repeats = {(d.file, d.array) for d in agg.duplicates}
    assert set(served) >= set(written) - repeats or overlap != "refuse"
    # What is another quantity needs no explanation.
    assert len(arrays) == len({identity_of(a) for a in arrays}) or agg.refusals
    for array in agg:
        assert array[...].shape == array.shape
        for coordinate in array.coords.values():
            assert coordinate[...].shape == coordinate.shape
