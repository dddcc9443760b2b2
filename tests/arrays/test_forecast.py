"""Views of forecasts along the valid time, against NumPy and xarray."""

import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import cftime
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray.arrays.forecast import known_array
from tests.support import forecasts
from tests.support.calls import calls_of
from tests.support.examples import examples

REFERENCE, PERIOD = "forecast_reference_time", "forecast_period"
RUNS = {0: [0, 6, 12], 6: [0, 6, 12, 18], 12: [0, 12], 30: [6]}


@pytest.fixture
def array(tmp_path: Path) -> aa.MasterArray:
    """A cube of four runs, three of them without some leads."""
    forecasts.write_all(tmp_path, {run: (leads, forecasts.valid_times, "hours") for run, leads in RUNS.items()})
    agg = aa.open(tmp_path, rules=aa.Rules.forecast())
    agg.save(tmp_path / "index.nca")
    return aa.open(tmp_path / "index.nca")["tas"]


def hours(view: aa.MasterArray, name: str) -> list[int]:
    return forecasts.hours(np.atleast_1d(view.coords[name].datetimes()))


def test_best_has_the_latest_run_with_a_file(array: aa.MasterArray) -> None:
    times, expected = forecasts.best_of(RUNS)
    view = array.forecast("best")
    assert view.dimensions == ("time", "x")
    assert times == [0, 6, 12, 18, 24, 36]
    assert hours(view, "time") == times
    assert hours(view, REFERENCE) == [0, 6, 12, 6, 12, 30]
    assert view.coords[PERIOD][:].tolist() == [0, 0, 0, 12, 12, 6]
    np.testing.assert_array_equal(view[:], expected)
    np.testing.assert_array_equal(view.coords["x"][:], forecasts.X)


def test_a_period_has_one_value_per_run(array: aa.MasterArray) -> None:
    axis, leads, cube = forecasts.cube_of(RUNS)
    for column, lead in enumerate(leads):
        for period in (lead, float(lead), f"{lead} hours", np.timedelta64(lead, "h"), timedelta(hours=lead), str(lead)):
            view = array.forecast(period=period)
            np.testing.assert_array_equal(view[:], cube[:, column])
        assert hours(view, "time") == [run + lead for run in axis]
        assert hours(view, REFERENCE) == axis
        assert (view.coords[REFERENCE].dimensions, view.coords[PERIOD].dimensions) == (("time",), ())


def test_a_run_has_one_value_per_lead(array: aa.MasterArray) -> None:
    axis, leads, cube = forecasts.cube_of(RUNS)
    for row, run in enumerate(axis):
        start = forecasts.START + timedelta(hours=run)
        for label in (f"{start:%Y-%m-%dT%H}", f"{start:%Y-%m-%d %H:%M}", start, np.datetime64(start)):
            view = array.forecast(run=label)
            np.testing.assert_array_equal(view[:], cube[row])
        assert hours(view, "time") == [run + lead for lead in leads]
        assert view.coords[PERIOD][:].tolist() == leads
        assert (view.coords[REFERENCE].dimensions, view.coords[PERIOD].dimensions) == ((), ("time",))
    assert hours(array.forecast(run="2024-01-02"), "time") == [30 + lead for lead in leads]  # the only run of this day


@pytest.mark.parametrize("view", [{"view": "best"}, {"period": 6}, {"run": "2024-01-01T06"}])
def test_views_are_arrays_like_any_other(array: aa.MasterArray, view: dict[str, Any], tmp_path: Path) -> None:
    made = array.forecast(**view)
    values = made[:]
    np.testing.assert_array_equal(made[::-1, 1], values[::-1, 1])
    np.testing.assert_array_equal(made.lazy[1:3][:], values[1:3])
    np.testing.assert_array_equal(made.flip("time")[:], values[::-1])
    label = made.coords["time"].datetimes()[2]
    np.testing.assert_array_equal(made.sel(time=label)[:], values[2])
    np.testing.assert_allclose(made.mean("time")[:], np.nanmean(values, axis=0))
    received = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(received[:], values)
    assert len(pickle.dumps(made)) < 2000
    np.testing.assert_array_equal(made.to_dask().compute(), values)
    frame = made.to_xarray()
    np.testing.assert_array_equal(frame.values, values)
    np.testing.assert_array_equal(frame["time"].values, made.coords["time"].datetimes().astype("M8[ns]"))
    frame.to_netcdf(tmp_path / "view.nc")
    again = aa.open(tmp_path / "view.nc")["tas"]
    np.testing.assert_array_equal(again[:], values)


def test_xarray_finds_the_same_best(array: aa.MasterArray) -> None:
    """Stack runs and leads, drop missing ones, keep the last run of each valid time."""
    stacked = array.to_xarray().load().drop_vars("x").stack(cell=(REFERENCE, PERIOD)).dropna("cell")
    frame = stacked.isel(x=0).to_series().to_frame("tas").assign(time=stacked["time"].values)
    expected = frame.reset_index(drop=True).assign(run=stacked[REFERENCE].values).sort_values(["time", "run"])
    expected = expected.drop_duplicates("time", keep="last")
    view = array.forecast("best").to_xarray().isel(x=0)
    np.testing.assert_array_equal(view.values, expected["tas"].values)
    np.testing.assert_array_equal(view["time"].values, expected["time"].values)


def test_views_of_selected_and_turned_cubes(array: aa.MasterArray) -> None:
    times, best = forecasts.best_of({run: [lead for lead in leads if lead < 18] for run, leads in RUNS.items() if run < 30})
    part = array.sel({REFERENCE: slice("2024-01-01T00", "2024-01-01T12"), PERIOD: slice(0, 12)})
    for made in (part, part.flip(REFERENCE, PERIOD), part.transpose(PERIOD, "x", REFERENCE), part.flip(PERIOD, "x").flip("x")):
        view = made.forecast("best")
        assert view.dimensions == ("time", "x")
        assert hours(view, "time") == times
        np.testing.assert_array_equal(view[:], best)
    np.testing.assert_array_equal(part.flip(PERIOD).forecast(run="2024-01-01T06")[:], part[1][::-1])
    celsius = part.to_units("degC").forecast("best")
    np.testing.assert_allclose(celsius[:], best - 273.15)
    assert array.lazy[:0].forecast("best").shape == (0, 3)
    assert array.lazy[:, :0].forecast("best").shape == (0, 3)


def test_reductions_and_extracts_of_a_view(array: aa.MasterArray, tmp_path: Path) -> None:
    from aggarray.export.extract import extract

    view = array.forecast("best")
    extract(view, tmp_path / "best.nc")
    with xr.open_dataset(tmp_path / "best.nc") as written:
        np.testing.assert_array_equal(written["tas"], view[:])
        assert set(written.coords) == {"time", REFERENCE, PERIOD, "x"}
    daily = view.max("time", by="day")
    expected = [view[:5].max(), view[4:].max()]
    assert [daily[0].max(), daily[1].max()] == [view[:4].max(), expected[1]]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({}, aa.SelectionError, "0 views instead of one"),
        ({"view": "best", "period": 6}, aa.SelectionError, "2 views instead of one"),
        ({"period": 6, "run": "2024"}, aa.SelectionError, "2 views instead of one"),
        ({"view": "Best"}, aa.SelectionError, "did you mean 'best'"),
        ({"period": 7}, aa.NotFoundError, "period=7 not found: variable 'tas'; the nearest is 6 hours"),
        ({"period": "2 days"}, aa.NotFoundError, "the nearest is 18 hours"),
        ({"period": "soon"}, aa.SelectionError, "give a number of hours"),
        ({"period": [6, 12]}, aa.SelectionError, "give a number of hours"),
        ({"period": np.nan}, aa.NotFoundError, "not found"),
        ({"run": "2024-01-01T07"}, aa.NotFoundError, "the nearest is 2024-01-01T06:00"),
        ({"run": "2024-01-01"}, aa.SelectionError, "is 3 runs: variable 'tas'; give one of 2024-01-01T00:00, "),
        ({"run": "2023"}, aa.NotFoundError, "the nearest is 2024-01-01T00:00"),
        ({"run": 6}, aa.SelectionError, "give a time"),
        ({"run": "yesterday"}, aa.NotFoundError, "'yesterday' is not a date"),
    ],
)
def test_errors(array: aa.MasterArray, arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        array.forecast(**arguments)
    assert text in str(raised.value)


def test_arrays_without_runs_or_leads(array: aa.MasterArray) -> None:
    for made in (array.isel({REFERENCE: 0}), array.isel({PERIOD: 0}), array.forecast("best"), array.coords["x"]):
        with pytest.raises(aa.NotFoundError, match=r"no dimension 'forecast_.*Rules.forecast\(\)"):
            made.forecast("best")


def test_dates_of_other_calendars() -> None:
    """Runs of a 360-day calendar are selected by text and by cftime dates."""
    cube = _cube(np.zeros((3, 2)), [0, 30, 60], [0, 24], "days since 2000-01-01", "360_day")
    assert cube.forecast(run="2000-02-01").coords["time"][:].tolist() == [30, 31]
    assert cube.forecast(run=cftime.Datetime360Day(2000, 3, 1)).coords["time"][:].tolist() == [60, 61]
    with pytest.raises(aa.NotFoundError, match="the nearest is 2000-03-01T00:00"):
        cube.forecast(run="2000-05-30")


def _cube(values: np.ndarray, runs: Any, leads: Any, units: str = "hours since 2024-01-01", calendar: str = "standard") -> Any:
    piece = aa.SubArray.from_array(values, dimensions=(REFERENCE, PERIOD))
    made = aa.MasterArray.from_subarrays([([(0, n) for n in values.shape], piece)], dimensions=(REFERENCE, PERIOD))
    return _with_coordinates(made, runs, leads, units, calendar)


def _with_coordinates(
    made: aa.MasterArray, runs: Any, leads: Any, units: str = "hours since 2024-01-01", calendar: str = "standard"
) -> aa.MasterArray:
    from dataclasses import replace

    run = known_array(made, REFERENCE, np.asarray(runs), (REFERENCE,), (units, calendar), {})
    lead = known_array(made, PERIOD, np.asarray(leads, float), (PERIOD,), ("hours", None), {})
    return replace(made, coords={REFERENCE: run, PERIOD: lead})


@st.composite
def tilings(draw: st.DrawFn) -> tuple[np.ndarray, aa.MasterArray, list[int], list[int]]:
    """A cube of pieces of several runs, leads and columns each, some absent, in files of either direction."""
    shape = tuple(draw(st.integers(1, 6)) for _ in range(3))
    cuts = [sorted({0, n, *draw(st.lists(st.integers(0, n), max_size=3))}) for n in shape]
    values = np.arange(np.prod(shape), dtype=float).reshape(shape)
    expected, pieces = np.full(shape, np.nan), []
    names = (REFERENCE, PERIOD, "x")
    for i in range(len(cuts[0]) - 1):
        for j in range(len(cuts[1]) - 1):
            for k in range(len(cuts[2]) - 1):
                if draw(st.booleans()):
                    continue
                spans = [(c[n], c[n + 1]) for c, n in zip(cuts, (i, j, k), strict=True)]
                key = tuple(slice(*span) for span in spans)
                expected[key] = values[key]
                forward = tuple(draw(st.booleans()) for _ in names)
                order = draw(st.permutations(range(3)))
                block = values[key][tuple(slice(None, None, 1 if f else -1) for f in forward)].transpose(order)
                own, directions = [names[n] for n in order], [forward[n] for n in order]
                pieces.append((spans, aa.SubArray.from_array(block, dimensions=own, directions=directions)))
    array = aa.MasterArray.from_subarrays(pieces, dimensions=names, shape=shape, units=None)
    step = draw(st.sampled_from([1, 2, 6]))
    runs = [step * n for n in range(shape[0])]
    leads = draw(st.lists(st.integers(0, 20), min_size=shape[1], max_size=shape[1], unique=True).map(sorted))
    return expected, _with_coordinates(array, runs, leads), runs, leads


@settings(max_examples=examples(150), deadline=None)
@given(tilings())
def test_views_of_any_tiling(made: tuple[np.ndarray, aa.MasterArray, list[int], list[int]]) -> None:
    expected, array, runs, leads = made
    covered = ~np.isnan(expected).all(axis=2)
    best = {}
    for row, run in enumerate(runs):
        for column, lead in enumerate(leads):
            if covered[row, column]:
                best[run + lead] = expected[row, column]
    view = array.forecast("best")
    assert view.coords["time"][:].tolist() == sorted(best)
    np.testing.assert_array_equal(view[:], np.array([best[t] for t in sorted(best)]).reshape(-1, expected.shape[2]))
    np.testing.assert_array_equal(view.lazy[::2][:], view[::2])
    for column, lead in enumerate(leads):
        np.testing.assert_array_equal(array.forecast(period=lead)[:], expected[:, column])
    for row, run in enumerate(array.coords[REFERENCE].datetimes()):
        np.testing.assert_array_equal(array.forecast(run=run)[:], expected[row])


def test_consecutive_leads_of_a_run_are_one_partition() -> None:
    cube = _cube(np.arange(12.0).reshape(3, 4), [0, 6, 12], [0, 6, 12, 18])
    view = cube.forecast("best")
    assert (view.shape, view.pmshape) == ((6,), (3,))
    assert view[:].tolist() == [0, 4, 8, 9, 10, 11]


@pytest.mark.heavy
def test_a_view_of_a_hundred_thousand_cells_works_on_columns() -> None:
    values = np.arange(100_000.0).reshape(1000, 100)
    pieces = [
        ([(run, run + 1), (lead, lead + 1)], aa.SubArray.from_array(values[run : run + 1, lead : lead + 1]))
        for run in range(1000)
        for lead in range(100)
    ]
    array = aa.MasterArray.from_subarrays(pieces, dimensions=(REFERENCE, PERIOD))
    cube = _with_coordinates(array, np.arange(1000), np.arange(100))
    assert calls_of(lambda: cube.forecast("best"), builtin=True) < 50_000
    view = cube.forecast("best")
    assert view.pmshape == (1099,)
    np.testing.assert_array_equal(view[:], np.concatenate([values[:, 0], values[999, 1:]]))
