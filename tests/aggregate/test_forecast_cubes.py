"""Files of forecasts become one array over reference time and lead."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray.aggregate.report import hole_problems
from aggarray.opening.persistence import _fields
from tests.support import forecasts
from tests.support.examples import examples
from tests.support.forecasts import LAYOUTS, UNITS, Layout
from tests.support.netcdf import write

FORECAST = aa.Rules.forecast()
REFERENCE, PERIOD = "forecast_reference_time", "forecast_period"


def check(array: aa.MasterArray, runs: Mapping[int, Sequence[int]]) -> None:
    """Check a cube, its coordinates and its view `best` against NumPy."""
    axis, leads, cube = forecasts.cube_of(runs)
    assert array.dimensions == (REFERENCE, PERIOD, "x")
    assert forecasts.hours(array.coords[REFERENCE].datetimes()) == axis
    assert array.coords[PERIOD].to_units("hours")[:].tolist() == leads
    valid = np.add.outer(axis, leads)
    assert forecasts.hours(array.coords["time"].datetimes().ravel()) == valid.ravel().tolist()
    np.testing.assert_array_equal(array[:], cube)
    times, best = forecasts.best_of(runs)
    view = array.forecast("best")
    assert forecasts.hours(view.coords["time"].datetimes()) == times
    np.testing.assert_array_equal(view[:], best)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
@pytest.mark.parametrize("unit", UNITS)
def test_each_layout_becomes_a_cube(tmp_path: Path, layout: Layout, unit: str) -> None:
    runs = {0: [0, 6, 12, 18, 24], 6: [0, 6, 12, 18, 24], 12: [0, 12, 24], 24: [6]}
    forecasts.write_all(tmp_path, {run: (leads, layout, unit) for run, leads in runs.items()})
    agg = aa.open(tmp_path, rules=FORECAST)
    assert (agg.names, agg.refusals, agg.skipped) == (("tas",), (), ())
    check(agg["tas"], runs)


def test_files_of_several_runs(tmp_path: Path) -> None:
    write(tmp_path / "flat.nc", forecasts.flat({0: [0, 6, 12], 6: [0, 12], 12: [3]}))
    write(tmp_path / "many.nc", forecasts.two_dimensional([18, 24, 30], [0, 6], "minutes"))
    agg = aa.open(tmp_path, rules=FORECAST)
    assert agg.refusals == ()
    check(agg["tas"], {0: [0, 6, 12], 6: [0, 12], 12: [3], 18: [0, 6], 24: [0, 6], 30: [0, 6]})


def test_leads_that_depend_on_the_run_in_one_file(tmp_path: Path) -> None:
    """Runs x times with 2-d valid times, padded with missing values."""
    since = {"units": "hours since 2024-01-01"}
    time = np.array([[0.0, 6, 12], [6, 12, 18], [15, 18, np.nan]])
    run = np.array([0, 6, 12])
    lead = time - run[:, None]
    variables = {
        "run": (("run",), run, {"standard_name": REFERENCE, **since}),
        "time": (("run", "t"), time, {"standard_name": "time", **since}),
        "tas": (("run", "t", "x"), forecasts.values(run[:, None] + 0 * lead, lead), {"units": "K", "coordinates": "time"}),
        "x": (("x",), forecasts.X, {"units": "m"}),
    }
    write(tmp_path / "a.nc", variables)
    check(aa.open(tmp_path, rules=FORECAST)["tas"], {0: [0, 6, 12], 6: [0, 6, 12], 12: [3, 6]})


def test_a_constant_lead_of_many_runs(tmp_path: Path) -> None:
    """A run dimension with a scalar lead."""
    since = {"units": "hours since 2024-01-01"}
    for lead in (6, 12):
        runs = np.array([0, 6, 12])
        variables = {
            "time": (("time",), runs + lead, {"standard_name": "time", **since}),
            "frt": (("time",), runs, {"standard_name": REFERENCE, **since}),
            "forecast_period": ((), np.int32(lead), {"standard_name": PERIOD, "units": "hours"}),
            "tas": (("time", "x"), forecasts.values(runs, [lead] * 3), {"units": "K", "coordinates": "frt forecast_period"}),
            "x": (("x",), forecasts.X, {"units": "m"}),
        }
        write(tmp_path / f"{lead}.nc", variables)
    array = aa.open(tmp_path, rules=FORECAST)["tas"]
    check(array, {run: [6, 12] for run in (0, 6, 12)})
    assert array.pmshape == (2,)


def test_the_run_in_the_path(tmp_path: Path) -> None:
    """Dates of four forms, in the folder or the name; the date of the units is another."""
    texts = {0: "2024010100", 6: "20240101T06", 36: "2024-01-02_12", 72: "20240104"}
    for run, text in texts.items():
        ((_, variables),) = forecasts.valid_times(run, [0, 6], "hours")
        write(tmp_path / text / "a.nc", {n: v for n, v in variables.items() if n != "init"})
    rules = aa.Rules.forecast(new_dimension=REFERENCE + r"=(\d{8}|[-\dT_]{9,})/a\.nc$")
    check(aa.open(tmp_path, rules=rules)["tas"], {run: [0, 6] for run in texts})


def test_the_run_in_the_path_of_single_leads(tmp_path: Path) -> None:
    """The path decides, also about files with a time of size 1."""
    forecasts.write_all(tmp_path / "20240102", {0: ([6, 12], forecasts.single_leads, "hours")})
    array = aa.open(tmp_path, rules=aa.Rules.forecast(new_dimension=REFERENCE + r"=/(\d{8})/"))["tas"]
    assert (array.sizes, hours(array)) == ({REFERENCE: 1, PERIOD: 2, "x": 3}, [30, 36])


def hours(array: aa.MasterArray) -> list[int]:
    return forecasts.hours(array.coords["time"].datetimes().ravel())


def test_a_path_without_a_date(tmp_path: Path) -> None:
    forecasts.write_all(tmp_path, {0: ([0, 6], forecasts.valid_times, "hours")})
    with pytest.raises(aa.AggregationError, match="no file has a path"):
        aa.open(tmp_path, rules=aa.Rules.forecast(new_dimension=REFERENCE + r"=(\d{12})"))
    with pytest.raises(aa.AggregationError, match="give forecast_reference_time=regex"):
        aa.open(tmp_path, rules=aa.Rules.forecast(new_dimension=REFERENCE))
    (refusal,) = aa.open(tmp_path, rules=aa.Rules.forecast(new_dimension=REFERENCE + r"=a(\d{5})")).refusals
    assert "'00000' in the path is not a date" in refusal.reason


@pytest.mark.parametrize(("unit", "result"), [("days", "days"), ("minutes", "minutes"), ("hours", "hours")])
def test_leads_keep_a_unit_that_all_files_state(tmp_path: Path, unit: str, result: str) -> None:
    forecasts.write_all(tmp_path, {run: ([0, 6], forecasts.steps, unit) for run in (0, 6)})
    assert aa.open(tmp_path, rules=FORECAST)["tas"].coords[PERIOD].units == result
    forecasts.write_all(tmp_path, {12: ([0, 6], forecasts.valid_times, unit)})
    assert aa.open(tmp_path, rules=FORECAST)["tas"].coords[PERIOD].units == "hours"


def test_calendars_are_not_mixed(tmp_path: Path) -> None:
    """360-day runs stay apart from standard ones, and count days of their own."""
    for name, calendar in (("a", "360_day"), ("b", "standard")):
        for run in (0, 30):
            since = {"units": "days since 2024-01-01", "calendar": calendar}
            variables = {
                "time": (("time",), np.array([run + 29.0, run + 30]), {"standard_name": "time", **since}),
                "frt": ((), np.float64(run), {"standard_name": REFERENCE, **since}),
                "tas": (("time", "x"), forecasts.values([run] * 2, [29, 30]), {"units": "K", "coordinates": "frt"}),
                "x": (("x",), forecasts.X, {"units": "m"}),
            }
            write(tmp_path / f"{name}{run}.nc", variables)
    agg = aa.open(tmp_path, rules=FORECAST)
    assert [a.shape for a in agg] == [(2, 2, 3)] * 2
    assert "360_day" in agg.refusals[0].reason
    dates = agg.arrays[0].coords["time"].datetimes()
    assert [str(date)[:10] for date in dates[0]] == ["2024-01-30", "2024-02-01"]
    view = agg.arrays[0].forecast(run="2024-02-01")
    assert view.coords["time"].datetimes()[0].isoformat() == "2024-02-30T00:00:00"


def test_contradictions_keep_files_apart(tmp_path: Path) -> None:
    """A time that is not run plus lead, a lead in months, a distant date of units."""
    ((_, good),) = forecasts.steps(0, [0, 6], "hours")
    contradicting = {**good, "init": ((), 24, {"standard_name": REFERENCE, "units": "hours since 2024-01-01"})}
    contradicting["tas"] = (*good["tas"][:2], {"units": "K", "coordinates": "time valid_time init"})
    write(tmp_path / "a.nc", contradicting)
    months = {n: v for n, v in good.items() if n != "valid_time"}
    months["step"] = (("step",), np.array([0.0, 6]), {"standard_name": PERIOD, "units": "months"})
    write(tmp_path / "b.nc", months)
    ((_, distant),) = forecasts.date_of_units(0, [0, 6], "hours")
    write(tmp_path / "c.nc", {**distant, "time": (("time",), np.array([0.0, 6]) + 1e5, distant["time"][2])})
    agg = aa.open(tmp_path, rules=FORECAST)
    reasons = sorted(r.reason for r in agg.refusals if r.rule == "forecast")
    assert len(reasons) == 3
    assert reasons[0].startswith("no reference time: the date of the units 'hours since 2024-01-01 00:00:00' is 4166 days")
    assert reasons[1].startswith("the units of step are 'months', no fixed duration")
    assert reasons[2].startswith("time is not init plus the lead") or reasons[2].startswith("valid_time is not init")
    assert "(a.nc)" in reasons[2]


def test_static_fields_stay_as_they_are(tmp_path: Path) -> None:
    for run in (0, 6):
        ((name, variables),) = forecasts.valid_times(run, [0, 6], "hours")
        write(tmp_path / f"{name}.nc", {**variables, "orog": (("x",), forecasts.X * 7, {"units": "m"})})
    agg = aa.open(tmp_path, rules=FORECAST)
    assert agg["orog"].dimensions == ("x",)
    check(agg["tas"], {0: [0, 6], 6: [0, 6]})


def test_bounds_of_times_become_bounds_of_leads(tmp_path: Path) -> None:
    for run in (0, 6):
        ((name, variables),) = forecasts.valid_times(run, [6, 12], "days")
        time, attrs = variables["time"][1], {**variables["time"][2], "bounds": "time_bnds"}
        bounds = (("time", "nv"), np.stack([time - 0.25, time], axis=1), {})
        write(tmp_path / f"{name}.nc", {**variables, "time": (("time",), time, attrs), "time_bnds": bounds})
    array = aa.open(tmp_path, rules=FORECAST)["tas"]
    assert array.coords[PERIOD].attrs["bounds"] == "time_bnds"
    assert array.coords["time_bnds"][:].tolist() == [[0, 6], [6, 12]]
    check(array, {0: [6, 12], 6: [6, 12]})


def test_bounds_of_single_times(tmp_path: Path) -> None:
    """Accumulations: each lead has bounds, the same for all runs."""
    for run in (0, 6):
        for name, variables in forecasts.single_fields(run, [6, 12], "hours"):
            time = float(variables["time"][1])
            given = {**variables, "time": (*variables["time"][:2], {**variables["time"][2], "bounds": "bnds"})}
            write(tmp_path / f"{name}.nc", {**given, "bnds": (("nv",), np.array([time - 6, time]), {})})
    array = aa.open(tmp_path, rules=FORECAST)["tas"]
    assert array.coords["bnds"][:].tolist() == [[0, 6], [6, 12]]
    best = array.forecast("best")
    assert best.coords["bnds"].dimensions[0] == "time"
    assert best.coords["bnds"][:].tolist() == [[0, 6], [0, 6], [6, 12]]


def test_members_are_a_dimension_after_the_leads(tmp_path: Path) -> None:
    """Scalar numbers, as cfgrib writes, and members in the path."""
    for member in (1, 2):
        for run in (0, 6):
            ((name, variables),) = forecasts.steps(run, [0, 6], "hours")
            dimensions, values, attrs = variables["tas"]
            tas = (dimensions, values + member / 100, {**attrs, "coordinates": attrs["coordinates"] + " number"})
            number = ((), np.int64(member), {"standard_name": "realization", "units": "1"})
            write(tmp_path / "scalar" / f"m{member}_{name}.nc", {**variables, "tas": tas, "number": number})
            write(tmp_path / "path" / f"m{member}_{name}.nc", {**variables, "tas": (dimensions, tas[1], attrs)})
    by_path = aa.Rules.forecast(new_dimension=r"number=m(\d)_")
    for folder, rules in (("scalar", FORECAST), ("path", by_path)):
        array = aa.open(tmp_path / folder, rules=rules)["tas"]
        assert array.sizes == {REFERENCE: 2, PERIOD: 2, "number": 2, "x": 3}
        assert array.coords["time"].shape == (2, 2)
        np.testing.assert_array_equal(array[1, 0, 1], forecasts.values(6, 0) + 0.02)
        view = array.forecast("best")
        assert view.sizes == {"time": 3, "number": 2, "x": 3}
        np.testing.assert_array_equal(view.sel(number=2)[:], forecasts.best_of({0: [0, 6], 6: [0, 6]})[1] + 0.02)


def test_leads_as_auxiliary_coordinate_of_times(tmp_path: Path) -> None:
    """As iris writes: time is the dimension, forecast_period lies along it."""
    for run in (0, 6):
        ((name, variables),) = forecasts.valid_times(run, [0, 6, 12], "hours")
        period = (("time",), np.array([0, 21600, 43200], np.int32), {"standard_name": PERIOD, "units": "s"})
        tas = (
            *variables["tas"][:2],
            {**variables["tas"][2], "coordinates": "init forecast_period", "cell_methods": "time: mean"},
        )
        write(tmp_path / f"{name}.nc", {**variables, "tas": tas, "forecast_period": period})
    array = aa.open(tmp_path, rules=FORECAST)["tas"]
    assert (array.coords[PERIOD].units, array.attrs["cell_methods"]) == ("s", "time: mean")
    check(array, {0: [0, 6, 12], 6: [0, 6, 12]})


def test_a_later_file_completes_a_run_and_a_repeated_run_follows_overlap(tmp_path: Path) -> None:
    first = forecasts.write_all(tmp_path, {0: ([0, 6], forecasts.valid_times, "hours"), 6: ([0], forecasts.steps, "hours")})
    later = forecasts.write_all(tmp_path / "later", {6: ([6, 12], forecasts.steps, "hours")})
    agg = aa.open([*first[0], *first[6]], rules=FORECAST).append(later[6])
    check(agg["tas"], {0: [0, 6], 6: [0, 6, 12]})
    ((_, variables),) = forecasts.valid_times(0, [0, 6], "hours")
    changed = (variables["tas"][0], variables["tas"][1] + 0.5, variables["tas"][2])
    again = write(tmp_path / "z.nc", {**variables, "tas": changed})
    same = write(tmp_path / "same.nc", variables)
    assert [d.file for d in agg.append(same).duplicates] == [same]
    (refusal,) = agg.append(again).refusals
    assert refusal.rule == "overlap"
    last = aa.open([*first[0], *later[6]], rules=aa.Rules.forecast(overlap="last")).append(again)["tas"]
    np.testing.assert_array_equal(last[0, :2], changed[1])


@pytest.mark.parametrize("overlap", ["first", "last"])
def test_of_files_that_repeat_leads_the_first_lead_comes_before_the_name(tmp_path: Path, overlap: str) -> None:
    for number, (name, leads) in enumerate((("a", [0, 6, 12]), ("b", [0, 6]), ("0", [6, 12]))):
        ((_, variables),) = forecasts.valid_times(0, leads, "hours")
        dimensions, values, attrs = variables["tas"]
        write(tmp_path / f"{name}.nc", {**variables, "tas": (dimensions, np.full_like(values, number), attrs)})
    tas = aa.open(tmp_path, rules=aa.Rules.forecast(overlap=overlap))["tas"]
    assert tas[0, :, 0].tolist() == ([0, 0, 0] if overlap == "first" else [1, 2, 2])


def test_an_index_keeps_the_rules(tmp_path: Path) -> None:
    paths = forecasts.write_all(tmp_path, {run: ([0, 6, 12], forecasts.valid_times, "hours") for run in (0, 6, 12)})
    index = str(tmp_path / "index.nc")
    aa.open([*paths[0], *paths[12]], rules=FORECAST).save(index)
    opened = aa.open(index)
    check(opened["tas"], {0: [0, 6, 12], 12: [0, 6, 12]})
    more = opened.append(paths[6])
    check(more["tas"], {run: [0, 6, 12] for run in (0, 6, 12)})
    more.save(index)
    check(aa.open(index)["tas"], {run: [0, 6, 12] for run in (0, 6, 12)})


def test_assumed_files_give_the_same(tmp_path: Path) -> None:
    runs = {run: [0, 6, 12] if run % 12 else [0, 12] for run in range(0, 60, 6)}
    forecasts.write_all(tmp_path, {run: (leads, forecasts.valid_times, "hours") for run, leads in runs.items()})
    check(aa.open(tmp_path, rules=aa.Rules.forecast(trust="assume"))["tas"], runs)


def test_selected_variables_and_unnamed_reference_times(tmp_path: Path) -> None:
    forecasts.write_all(tmp_path, {run: ([0, 6], forecasts.unnamed_reference, "hours") for run in (0, 6)})
    agg = aa.open(tmp_path, rules=FORECAST, variables=["tas"])
    assert agg.names == ("tas",)
    check(agg["tas"], {0: [0, 6], 6: [0, 6]})


@pytest.mark.heavy
def test_the_archive_of_forty_runs(tmp_path: Path) -> None:
    """40 runs x 30 leads, odd runs with every other lead, a run and files left out; xarray reads the same."""
    runs = {6 * n: list(range(0, 90, 3)) if n % 2 == 0 else list(range(0, 90, 6)) for n in range(40) if n != 7}
    units = list(UNITS)
    forecasts.write_all(
        tmp_path, {run: (leads, LAYOUTS[(run // 6) % 3], units[run % 5 % 3]) for run, leads in runs.items() if run != 60}
    )
    del runs[60]
    agg = aa.open(tmp_path, rules=FORECAST)
    array = agg["tas"]
    assert array.shape == (38, 30, 3)
    check(array, runs)
    oracle = _by_xarray(tmp_path, sorted(runs))
    values = array.to_xarray().transpose(*oracle.dims)
    np.testing.assert_array_equal(values, oracle.sel({PERIOD: array.coords[PERIOD][:]}))


def _by_xarray(folder: Path, runs: Sequence[int]) -> xr.DataArray:
    """Return the cube that xarray concatenates of the same files, by their names."""
    cubes = []
    for run in runs:
        steps = []
        for path in sorted(folder.glob(f"?{run:05}*.nc")):
            with xr.open_dataset(path) as data:
                time = np.atleast_1d(data["time"].values)
                leads = (time - np.datetime64(forecasts.START)) / np.timedelta64(1, "h") - run
                tas = data["tas"].values.reshape(len(leads), 3)
                steps.append(xr.DataArray(tas, {PERIOD: leads}, (PERIOD, "x")))
        cubes.append(xr.concat(steps, PERIOD))
    return xr.concat(cubes, REFERENCE, join="outer")


RUNS = st.dictionaries(
    st.integers(0, 12).map(lambda n: 6 * n),
    st.tuples(
        st.lists(st.integers(0, 9).map(lambda n: 3 * n), min_size=1, max_size=6, unique=True).map(sorted),
        st.sampled_from(LAYOUTS),
        st.sampled_from(sorted(UNITS)),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(40), deadline=None)
@given(RUNS, st.randoms(use_true_random=False))
def test_any_runs_and_layouts(made: dict[int, tuple[list[int], Layout, str]], random: Any) -> None:
    """Files in any layout give the cube that NumPy gives, opened at once or appended in any order."""
    runs = {run: leads for run, (leads, _, _) in made.items()}
    with tempfile.TemporaryDirectory() as folder:
        paths = [path for own in forecasts.write_all(Path(folder), made).values() for path in own]
        at_once = aa.open(paths, rules=FORECAST)
        assert (len(at_once), at_once.refusals) == (1, ())
        check(at_once["tas"], runs)
        random.shuffle(paths)
        cut = random.randrange(1, len(paths) + 1)
        appended = aa.open(paths[:cut], rules=FORECAST)
        for path in paths[cut:]:
            appended = appended.append(path)
        check(appended["tas"], runs)


def test_check_names_the_leads_that_runs_lack(tmp_path: Path) -> None:
    """One problem for the runs that lack the same leads."""
    runs = {0: [0, 3, 6, 9, 12], 6: [0, 6, 12], 12: [0, 3, 6, 9, 12], 18: [0, 6, 12], 24: [0, 3]}
    forecasts.write_all(tmp_path, {run: (leads, forecasts.valid_times, "hours") for run, leads in runs.items()})
    agg = aa.open(tmp_path, rules=FORECAST)
    assert [problem.message for problem in agg.check().problems if problem.kind == "hole"] == [
        "tas: no file covers forecast_period 3, 9 in 2 of 5 runs, 2024-01-01T06:00:00 to 2024-01-01T18:00:00",
        "tas: no file covers forecast_period 6 to 12 in the run 2024-01-02",
    ]
    part = agg.sel({REFERENCE: "2024-01-01"})["tas"].transpose("x", PERIOD, REFERENCE)
    assert [problem.message for problem in hole_problems(part)] == [
        "tas: no file covers forecast_period 3, 9 in 2 of 4 runs, 2024-01-01T06:00:00 to 2024-01-01T18:00:00"
    ]


def test_tiles_of_a_field_are_holes_of_their_own(tmp_path: Path) -> None:
    """Of a lead without one of two tiles, the tile is named."""
    for tile, run in ((0, 0), (0, 6), (1, 0)):
        ((name, variables),) = forecasts.valid_times(run, [0, 6], "hours")
        x = (("x",), forecasts.X + 10 * tile, {"units": "m"})
        write(tmp_path / f"{name}_{tile}.nc", {**variables, "x": x})
    array = aa.open(tmp_path, rules=FORECAST)["tas"]
    assert array.shape == (2, 2, 6)
    assert [problem.message for problem in hole_problems(array)] == [
        "tas: no file covers forecast_reference_time 2024-01-01T06:00:00, x 11 to 13, beside a00000_1.nc"
    ]
    np.testing.assert_array_equal(array.forecast("best")[1], [*forecasts.values(6, 0), *[np.nan] * 3])


def test_rules() -> None:
    assert aa.Rules.forecast().forecast_cubes
    assert not aa.Rules().forecast_cubes
    with pytest.raises(aa.AggregationError, match="forecast_cubes='yes' is invalid"):
        aa.Rules(forecast_cubes="yes")  # type: ignore[arg-type]


def test_indexes_of_other_rules_open_in_earlier_releases() -> None:
    """Only the rules of forecasts have a field that earlier releases lack."""
    assert "forecast_cubes" not in _fields(aa.Rules())
    assert _fields(FORECAST)["forecast_cubes"] is True


def test_netcdf4_reads_the_saved_times(tmp_path: Path) -> None:
    """The index has the valid times for other software."""
    forecasts.write_all(tmp_path, {run: ([0, 6], forecasts.valid_times, "hours") for run in (0, 6)})
    aa.open(tmp_path, rules=FORECAST).save(tmp_path / "index.nc")
    with netCDF4.Dataset(tmp_path / "index.nc") as file:
        time = file["time"]
        assert time.dimensions == (REFERENCE, PERIOD)
        dates = netCDF4.num2date(time[:], time.units, time.calendar)
    assert [date.hour for date in dates.ravel()] == [0, 6, 6, 12]
