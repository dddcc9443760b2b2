"""Groups of times and labels against xarray and cftime."""

import time
import warnings
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from aggarray.errors import NotFoundError, SelectionError
from aggarray.reduce.grouping import SEASONS, groups_of
from tests.cf.test_date_fields import CALENDARS
from tests.reduce.arrays import TIME, array, series


def decoded(times: Any, units: str, calendar: str) -> xr.DataArray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        coder = xr.coders.CFDatetimeCoder(use_cftime=True)
        dataset = xr.Dataset(coords={"time": ("time", np.asarray(times), {"units": units, "calendar": calendar})})
        dataset["tas"] = "time", np.arange(len(times), dtype=float)
        return xr.decode_cf(dataset, decode_times=coder)["tas"]


def means(numbers: np.ndarray, count: int) -> np.ndarray:
    used = numbers >= 0
    values = np.arange(len(numbers), dtype=float)[used]
    return np.bincount(numbers[used], values, count) / np.bincount(numbers[used], minlength=count)


@settings(deadline=None)
@given(
    st.sampled_from(CALENDARS),
    st.sampled_from(("month", "season", "dayofyear", "hour", "year")),
    st.lists(st.integers(0, 24 * 3000), min_size=1, max_size=40),
    st.sampled_from(("hours since 1998-11-15", "hours since 1580-02-01")),
)
def test_groups_are_those_of_xarray(calendar: str, by: str, times: list[int], units: str) -> None:
    groups = groups_of(series(times, units, calendar), "time", by)
    expected = decoded(times, units, calendar).groupby(f"time.{by}").mean()
    if by == "season":
        expected = expected.sel(season=[s for s in SEASONS if s in expected["season"].values])
    assert groups.labels.tolist() == expected[by].values.tolist()
    np.testing.assert_allclose(means(groups.numbers, groups.count), expected.values, rtol=1e-12)


@pytest.mark.parametrize("calendar", CALENDARS)
@pytest.mark.parametrize(
    ("by", "rule"), [("year", "YS"), ("year-season", "QS-DEC"), ("year-month", "MS"), ("day", "D"), ("10-year", "10YS")]
)
def test_periods_are_those_of_resample(calendar: str, by: str, rule: str) -> None:
    step = {"10-year": 97.0, "day": 0.25, "year-month": 1.0}.get(by, 5.0)
    times = 40 + step * np.arange(300)
    groups = groups_of(series(times, calendar=calendar), "time", by)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = decoded(times, "days since 2000-01-01", calendar).resample(time=rule).mean()
    np.testing.assert_allclose(means(groups.numbers, groups.count), expected.values, rtol=1e-12)
    starts = decoded(groups.edges[:, 0], "days since 2000-01-01", calendar)["time"].values
    assert starts.tolist() == expected["time"].values.tolist()
    assert (groups.edges[1:, 0] == groups.edges[:-1, 1]).all()
    assert groups.keeps_dimension and groups.name == "time"


def test_labels_of_periods() -> None:
    a = series([30.0, 31.0, 340.0, 700.0])
    assert groups_of(a, "time", "year").labels.tolist() == [2000, 2001]
    assert groups_of(a, "time", "year-month").labels.tolist() == ["2000-01", "2000-02", "2000-12", "2001-12"]
    assert groups_of(a, "time", "day").labels.tolist() == ["2000-01-31", "2000-02-01", "2000-12-06", "2001-12-01"]
    # December belongs to the season of the next January.
    assert groups_of(a, "time", "year-season").labels.tolist() == ["2000-DJF", "2001-DJF", "2002-DJF"]
    assert groups_of(a, "time", "2-year").labels.tolist() == ["2000/2001"]
    assert groups_of(a, "time", "season").labels.tolist() == ["DJF"]


def test_decreasing_times_give_ascending_groups() -> None:
    groups = groups_of(series([70.0, 40.0, 3.0]), "time", "year-month")
    assert groups.labels.tolist() == ["2000-01", "2000-02", "2000-03"] and groups.numbers.tolist() == [2, 1, 0]


def test_missing_times_are_in_no_group() -> None:
    groups = groups_of(series([0.0, np.nan, 40.0]), "time", "month")
    assert groups.numbers.tolist() == [0, -1, 1] and groups.labels.tolist() == [1, 2]
    assert groups_of(series([np.nan, np.nan]), "time", "month").count == 0
    assert groups_of(series([np.nan]), "time", "10-year").count == 0


@pytest.mark.parametrize(
    ("by", "days", "complete"),
    [
        ("year-month", range(31, 90), [True, False]),
        ("year-month", [*range(0, 10), *range(11, 60)], [False, True]),
        ("month", [*range(0, 59), *range(366, 366 + 59)], [True, False]),
        ("season", range(0, 366 + 59), [False, True, True, True]),
        ("year-season", range(0, 366 + 59), [False, True, True, True, True]),
        ("year", range(0, 366 + 364), [True, False]),
        ("2-year", range(0, 366 + 365), [True]),
        ("day", range(3), [True] * 3),
        # February of the second of three years is absent.
        ("month", [*range(0, 366), *range(366, 397), *range(425, 366 + 365 + 365)], [True, False] + [True] * 10),
    ],
)
def test_incomplete_groups(by: str, days: Any, complete: list[bool]) -> None:
    times = np.array(days, float)
    if by == "month" and len(days) == 118:
        times = np.array([*range(0, 60), *range(366, 366 + 58)], float)  # 28 February 2001 is absent
    groups = groups_of(series(times), "time", by)
    assert groups.complete is not None and groups.complete.tolist() == complete
    bounds = np.stack([times, times + 1], axis=1)
    with_bounds = groups_of(series(times + 0.5, bounds=bounds), "time", by).complete
    assert with_bounds is not None and with_bounds.tolist() == complete


def test_incomplete_groups_of_monthly_times() -> None:
    starts = np.array([0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335, 366, 397], float)
    groups = groups_of(series(starts + 14), "time", "year")
    assert groups.complete is not None and groups.complete.tolist() == [True, False]
    single = groups_of(series([14.0], frequency="mon"), "time", "year-month")
    assert single.complete is not None and single.complete.tolist() == [True]
    assert groups_of(series([14.0]), "time", "year-month").complete is None
    assert groups_of(series([0.0, 1.0, 7.3, 20.1, 21.9]), "time", "year").complete is None


def test_incomplete_hours() -> None:
    hours = np.array([h for h in range(24 * 3) if h != 29]) / 24
    complete = groups_of(series(hours), "time", "hour").complete
    assert complete is not None and np.flatnonzero(~complete).tolist() == [5]


def test_coordinate_labels() -> None:
    coords = {
        "time": (("time",), np.arange(4.0), {**TIME, "units": "days since 2000-01-01"}),
        "basin": (("time",), np.array(["b", "a", "", "b"]), {}),
        "level": (("time",), np.array([2.5, np.nan, 1.0, 2.5]), {"units": "m"}),
    }
    a = array(np.arange(4.0), ("time",), coords)
    groups = groups_of(a, "time", "basin")
    assert (groups.name, groups.labels.tolist(), groups.numbers.tolist()) == ("basin", ["a", "b"], [1, 0, -1, 1])
    groups = groups_of(a, "time", "level")
    assert (groups.name, groups.labels.tolist(), groups.numbers.tolist()) == ("level", [1.0, 2.5], [1, -1, 0, 1])


@pytest.mark.parametrize(
    ("labels", "unique", "numbers"),
    [
        ([3, 1, 3, 2], [1, 2, 3], [2, 0, 2, 1]),
        (["b", "a", "b", "b"], ["a", "b"], [1, 0, 1, 1]),
        ([1.5, np.nan, 0.5, 1.5], [0.5, 1.5], [1, -1, 0, 1]),
        (np.ma.array([1, 2, 3, 1], mask=[0, 1, 0, 0]), [1, 3], [0, -1, 1, 0]),
        ([True, False, True, True], [False, True], [1, 0, 1, 1]),
    ],
)
def test_an_array_of_labels(labels: Any, unique: list[Any], numbers: list[int]) -> None:
    groups = groups_of(series(np.arange(4.0)), "time", labels)
    assert (groups.name, groups.labels.tolist(), groups.numbers.tolist()) == ("group", unique, numbers)
    assert groups.complete is None and groups.edges is None and not groups.keeps_dimension


def test_errors() -> None:
    a = series(np.arange(4.0))
    with pytest.raises(NotFoundError, match=r"'months'.*did you mean 'month'"):
        groups_of(a, "time", "months")
    with pytest.raises(NotFoundError, match=r"no dimension 'tim'.*did you mean 'time'"):
        groups_of(a, "tim", "month")
    with pytest.raises(SelectionError, match=r"shape \(3,\).*'time' of size 4"):
        groups_of(a, "time", [1, 2, 3])
    with pytest.raises(NotFoundError, match="'0-year'"):
        groups_of(a, "time", "0-year")
    with pytest.raises(SelectionError, match="object"):
        groups_of(a, "time", [None, 1, 2, 3])
    plain = array(np.zeros(2), ("x",), {})
    with pytest.raises(SelectionError, match="'x' has no 1-d time coordinate"):
        groups_of(plain, "x", "month")
    square = array(np.zeros((2, 2)), ("time", "month"), {"time": (("time",), [0.0, 1.0], {"units": "days since 2000-01-01"})})
    with pytest.raises(SelectionError, match="need a dimension 'month'"):
        groups_of(square, "time", "month")


def test_a_million_times_take_little_time() -> None:
    a = series(np.arange(1_000_000) / 24, calendar="noleap")
    started = time.process_time()
    groups = groups_of(a, "time", "month")
    assert groups.count == 12 and time.process_time() - started < 3


@pytest.mark.parametrize("decreasing", [False, True])
def test_periods_of_times_at_the_end_of_their_cells_are_incomplete(decreasing: bool) -> None:
    bounds = np.array([[0, 31], [31, 60], [60, 91], [91, 121]], float)[:, :: -1 if decreasing else 1]
    a = series([31.0, 60.0, 91.0, 121.0], bounds=bounds)
    for by in ("month", "year-month"):
        groups = groups_of(a, "time", by)
        assert groups.complete is not None and not groups.complete.any() and groups.numbers.tolist() == [0, 1, 2, 3]
    assert groups_of(a, "time", "month").labels.tolist() == [2, 3, 4, 5]  # as in xarray and CDO
    start = groups_of(series([0.0, 31.0, 60.0, 91.0], bounds=bounds), "time", "month")
    assert start.labels.tolist() == [1, 2, 3, 4] and start.complete is not None and start.complete.all()
    instant = series([31.0, 60.0], bounds=[[31.0, 31.0], [60.0, 60.0]])
    assert groups_of(instant, "time", "month").labels.tolist() == [2, 3]


def test_labels_of_pandas() -> None:
    import pandas as pd

    a = series(np.arange(4.0))
    for labels in (pd.Index([3, 1, 3, 1]), pd.Series([3, 1, 3, 1]), pd.Categorical([3, 1, 3, 1])):
        groups = groups_of(a, "time", labels)
        assert (groups.labels.tolist(), groups.numbers.tolist()) == ([1, 3], [1, 0, 1, 0])
    for labels in (pd.Index(["b", "a", None, "b"]), pd.Categorical(["b", "a", None, "b"])):
        groups = groups_of(a, "time", labels)
        assert (groups.labels.tolist(), groups.numbers.tolist()) == (["a", "b"], [1, 0, -1, 1])
