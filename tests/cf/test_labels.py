"""Tests of labels against xarray: equal positions, or an error of the package where xarray raises."""

import datetime
import doctest
import subprocess
import sys
import warnings
from typing import Any

import cftime
import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
import pytest
import xarray as xr
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import aggarray.cf.labels as labels
from aggarray.cf.labels import locate
from aggarray.cf.labels.duration import parse_duration
from aggarray.errors import NotFoundError, SelectionError
from tests.support.calls import calls_of
from tests.support.examples import examples

pytestmark = pytest.mark.quick

TEXT = np.dtypes.StringDType()
METHODS = [None, "nearest", "pad", "ffill", "backfill", "bfill"]


def ours(values: np.ndarray, label: Any, method: str | None = None, tolerance: Any = None) -> Any:
    """Positions by this package: an int, a list, or None for an absent label."""
    try:
        result = locate(values, label, method=method, tolerance=tolerance, dimension="x")
    except (NotFoundError, SelectionError) as error:
        assert "dimension 'x'" in str(error) and "\n" not in str(error)
        return type(error)
    if isinstance(result, slice):
        assert all(isinstance(part, int) for part in (result.start, result.step))
    elif isinstance(result, np.ndarray):
        assert result.dtype == np.int64
    else:
        assert type(result) is int
    return np.arange(values.size)[result].tolist()


def xarrays(values: Any, label: Any, method: str | None = None, tolerance: Any = None) -> Any:
    """Positions by xarray, or the expected error of this package."""
    array = xr.DataArray(np.arange(len(values)), coords={"x": values}, dims="x")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return array.sel(x=label, method=method, tolerance=tolerance).values.tolist()
        except KeyError:
            return NotFoundError
        except (TypeError, ValueError, NotImplementedError, pd.errors.InvalidIndexError):
            return SelectionError


@st.composite
def coordinates(draw: st.DrawFn, repeats: bool = True) -> np.ndarray:
    numbers = draw(st.lists(st.integers(-20, 20), max_size=8, unique=not repeats))
    order = draw(st.sampled_from(["up", "down", "any"]))
    numbers = numbers if order == "any" else sorted(numbers, reverse=order == "down")
    dtype = draw(st.sampled_from(["f8", "f4", "i8", "i4", "i2"]))
    scale = 0.3 if dtype.startswith("f") and draw(st.booleans()) else 1
    return (np.array(numbers, "f8") * scale).astype(dtype)


@st.composite
def near(draw: st.DrawFn, values: np.ndarray) -> Any:
    """A number that is often one of the values, between two, or out of range."""
    if values.size and draw(st.booleans()):
        return draw(st.sampled_from(values.tolist()))
    number = draw(st.integers(-22, 22))
    return draw(st.sampled_from([number, float(number), number + 0.5]))


@settings(max_examples=examples(400))
@given(st.data(), coordinates())
def test_one_number_as_in_xarray(data: st.DataObject, values: np.ndarray) -> None:
    label = data.draw(near(values))
    method = data.draw(st.sampled_from(METHODS))
    tolerance = data.draw(st.none() | st.integers(0, 6) | st.sampled_from([0.5, 1.25])) if method else None
    assume(values.dtype.kind == "i" or tolerance is None or isinstance(tolerance, int))
    assert ours(values, label, method, tolerance) == xarrays(values, label, method, tolerance)


@settings(max_examples=examples(400))
@given(st.data(), coordinates())
def test_lists_of_numbers_as_in_xarray(data: st.DataObject, values: np.ndarray) -> None:
    expected = data.draw(st.lists(near(values), min_size=1, max_size=5))
    expected = data.draw(st.sampled_from([expected, np.array(expected)]))
    method = data.draw(st.sampled_from(METHODS))
    tolerance = data.draw(st.none() | st.integers(0, 6)) if method else None
    assert ours(values, expected, method, tolerance) == xarrays(values, expected, method, tolerance)


@settings(max_examples=examples(500))
@given(st.data(), coordinates())
def test_slices_of_numbers_as_in_xarray(data: st.DataObject, values: np.ndarray) -> None:
    start, stop = (data.draw(st.none() | near(values)) for _ in range(2))
    label = slice(start, stop, data.draw(st.none() | st.sampled_from([1, 2, 3, -1, -2])))
    assert ours(values, label) == xarrays(values, label)


@settings(max_examples=examples(200))
@given(st.data(), st.lists(st.sampled_from(["a", "b", "bb", "c", "d", "e"]), max_size=6), st.booleans())
def test_text_as_in_xarray(data: st.DataObject, names: list[str], ordered: bool) -> None:
    names = sorted(names) if ordered else names
    one = st.sampled_from(["a", "b", "ba", "bb", "c", "z"])
    label = data.draw(st.one_of(one, st.lists(one, min_size=1, max_size=3), st.builds(slice, st.none() | one, st.none() | one)))
    method = data.draw(st.sampled_from([None, "pad", "bfill"])) if not isinstance(label, slice) else None
    assume(names)  # xarray takes an empty list for numbers
    assert ours(np.array(names, TEXT), label, method) == xarrays(names, label, method)


UNITS = ["Y", "M", "D", "h", "m", "s"]
CUTS = {"Y": 4, "M": 7, "D": 10, "h": 13, "m": 16, "s": 19}


@st.composite
def moments(draw: st.DrawFn) -> datetime.datetime:
    day = datetime.datetime(2000, 1, 1) + datetime.timedelta(days=draw(st.integers(-40, 400)))
    hour, minute, second = draw(st.sampled_from([(0, 0, 0), (6, 0, 0), (12, 30, 0), (23, 59, 59)]))
    return day.replace(hour=hour, minute=minute, second=second)


@st.composite
def time_axes(draw: st.DrawFn) -> np.ndarray:
    first = draw(moments())
    step = draw(st.sampled_from([3600 * 6, 86400, 86400 * 10, 86400 * 31, 61]))
    count = draw(st.integers(1, 40))
    times = np.datetime64(first, "s") + np.arange(count) * np.timedelta64(step, "s")
    return times.astype(draw(st.sampled_from(["M8[s]", "M8[us]", "M8[ns]"])))


def some_time(values: np.ndarray) -> st.SearchStrategy[Any]:
    own = st.sampled_from(list(values)).map(lambda v: v.astype("M8[s]").item())
    moment = moments() | own
    text = st.builds(lambda m, u: m.isoformat()[: CUTS[u]], moment, st.sampled_from(UNITS))
    return st.one_of(text, moment, moment.map(lambda m: np.datetime64(m, "ns")), moment.map(lambda m: np.datetime64(m, "s")))


@settings(max_examples=examples(400))
@given(st.data(), time_axes())
def test_times_as_in_xarray(data: st.DataObject, values: np.ndarray) -> None:
    one = some_time(values)
    kind = data.draw(st.sampled_from(["one", "slice", "list", "near"]))
    if kind == "slice":
        label: Any = slice(data.draw(st.none() | one), data.draw(st.none() | one), data.draw(st.sampled_from([None, 2, -1])))
        assert ours(values, label) == xarrays(values, label)
    elif kind == "list":
        label = [
            np.datetime64(m, "s")
            for m in data.draw(st.lists(moments() | st.sampled_from(list(values)), min_size=1, max_size=3))
        ]
        assert ours(values, label) == xarrays(values, label)
    elif kind == "near":
        method = data.draw(st.sampled_from(METHODS[1:]))
        tolerance = data.draw(st.none() | st.sampled_from([datetime.timedelta(days=1), np.timedelta64(7, "h")]))
        label = data.draw(one)
        assert ours(values, label, method, tolerance) == xarrays(values, label, method, tolerance)
    else:
        label = data.draw(one)
        values = data.draw(st.sampled_from([values, values[::-1]]))
        assert ours(values, label) == xarrays(values, label)


def dates(values: np.ndarray, calendar: str) -> np.ndarray:
    """The same years, months and hours in a calendar of cftime."""
    seconds = (values - values[0]).astype("m8[s]").astype(np.int64)
    first = values[0].astype("M8[s]").item()
    start = cftime.datetime(first.year, first.month, min(first.day, 28), first.hour, calendar=calendar)
    units = f"seconds since {start.strftime('%Y-%m-%d %H:%M:%S')}"
    return np.asarray(cftime.num2date(seconds, units, calendar, only_use_cftime_datetimes=True))


@settings(max_examples=examples(300))
@given(st.data(), time_axes(), st.sampled_from(["noleap", "360_day", "standard"]), st.booleans())
def test_cftime_as_in_xarray(data: st.DataObject, times: np.ndarray, calendar: str, down: bool) -> None:
    values = dates(times, calendar)
    values = values[::-1] if down and values.size > 1 else values
    date = st.builds(
        lambda m: cftime.datetime(m.year, m.month, min(m.day, 28), m.hour, m.minute, m.second, calendar=calendar), moments()
    ) | st.sampled_from(list(values))
    text = st.builds(lambda d, u: d.strftime("%Y-%m-%dT%H:%M:%S")[: CUTS[u]], date, st.sampled_from(UNITS))
    kind = data.draw(st.sampled_from(["one", "slice", "list", "near"]))
    method = tolerance = None
    if kind == "slice":
        label: Any = slice(data.draw(st.none() | date | text), data.draw(st.none() | date | text))
    elif kind == "list":
        label = data.draw(st.lists(date, min_size=1, max_size=3))
    elif kind == "near":
        label, method = data.draw(date), data.draw(st.sampled_from(METHODS[1:]))
        tolerance = data.draw(st.none() | st.sampled_from([datetime.timedelta(days=1), datetime.timedelta(hours=7)]))
    else:
        label = data.draw(date | text)
    expected = xarrays(values, label, method, tolerance)
    if expected == [] and kind == "one" and down:
        assert ours(values, label) in ([], NotFoundError)  # xarray tells gaps from what lies outside only going up
    else:
        assert ours(values, label, method, tolerance) == expected


def test_descending_times_slice_as_descending_cftime_does() -> None:
    times = np.arange("2000-01-01", "2000-03-01", np.timedelta64(6, "h"), dtype="M8[h]").astype("M8[ns]")[::-1]
    same = dates(times[::-1], "standard")[::-1]
    for label in (
        slice("2000-02-02", "2000-01-28"),
        slice("2000-02", None),
        slice(None, "2000-01-28T12"),
        slice("2000-01", "2000-02"),
    ):
        assert ours(times, label) == xarrays(same, label) == ours(same, label)


@pytest.mark.parametrize(
    "label", ["2000-02-03", "2000-01", "2005", slice("2000-01-04", None), slice("2000-01-01", "2000-01-02")]
)
def test_unordered_times(label: Any) -> None:
    times = np.array(["2000-01-04", "2000-01-01", "2000-02-03", "2000-01-02"], "M8[ns]")
    if isinstance(label, slice):
        first = locate(times, slice(datetime.datetime(2000, 1, 1), datetime.datetime(2000, 2, 3)), dimension="x")
        assert first == slice(1, 3, 1)
        assert ours(times, label) in (NotFoundError, [0, 1, 2, 3])
    else:
        assert ours(times, label) == xarrays(times, label)


def test_thirty_days_has_february() -> None:
    values = cftime.num2date(np.arange(120), "days since 2000-01-01", "360_day")
    assert ours(values, "2000-02-30") == [59]
    assert ours(values, slice("2000-02-29", "2000-03-01")) == [58, 59, 60]
    assert ours(values, "2000-02") == list(range(30, 60))
    noleap = cftime.num2date(np.arange(120), "days since 2000-01-01", "noleap")
    with pytest.raises(NotFoundError, match="calendar noleap has no '2000-02-29'"):
        locate(noleap, "2000-02-29", dimension="time")
    standard = cftime.num2date(np.arange(120), "days since 1582-10-01", "standard")
    assert ours(standard, "1582-10-04") == [3] and ours(standard, "1582-10-15") == [4]
    for absent in ("1582-10-10", "0000"):
        assert ours(standard, absent) is NotFoundError and ours(standard, slice(absent, None)) is NotFoundError


def test_dates_of_gregorian_calendars_compare() -> None:
    times = np.arange("2000-01-01", "2000-01-11", dtype="M8[D]")
    for calendar in ("standard", "proleptic_gregorian"):
        values = cftime.num2date(np.arange(10), "days since 2000-01-01", calendar, only_use_cftime_datetimes=True)
        for label in (datetime.datetime(2000, 1, 5), datetime.date(2000, 1, 5), np.datetime64("2000-01-05", "ns")):
            assert ours(values, label) == ours(times, label) == 4
            assert ours(values, slice(label, None, 2)) == ours(times, slice(label, None, 2)) == [4, 6, 8]
        assert ours(times, cftime.datetime(2000, 1, 5, calendar=calendar)) == 4
        assert ours(values, [cftime.datetime(2000, 1, 5, calendar="standard"), "2000-01-03"]) == [4, 2]
    noleap = cftime.num2date(np.arange(10), "days since 2000-01-01", "noleap")
    with pytest.raises(NotFoundError, match="of calendar proleptic_gregorian, the coordinate of noleap"):
        locate(noleap, datetime.datetime(2000, 1, 5), dimension="time")
    with pytest.raises(NotFoundError, match="of calendar noleap, the coordinate of proleptic_gregorian"):
        locate(times, noleap[4], dimension="time")
    old = cftime.num2date(np.arange(10), "days since 1500-01-01", "standard")
    with pytest.raises(NotFoundError, match="the coordinate of standard"):
        locate(old, datetime.datetime(1500, 1, 5), dimension="time")


def test_dates_in_iso_8601() -> None:
    values = np.arange("2000-01-01", "2000-01-11", np.timedelta64(12, "h"), dtype="M8[h]")
    alike = [
        "2000-01-05T12",
        "2000-01-05 12:00",
        "2000-01-05T12:00:00",
        "20000105T12",
        "2000-1-5T12:00:00.0",
        " 2000-01-05T1200 ",
    ]
    assert {ours(values, text) if text != alike[-1] else 9 for text in alike} == {9}
    assert ours(values, ["2000-01-05", "2000-01"]) == [8, 0]
    for text in ("abc", "2000-13", "2000-02-30", "", "2000-01-05T12Z", "nearest", "2000-01-05T24:61"):
        assert ours(values, text) is NotFoundError
        assert ours(values, slice(text, None)) is NotFoundError


def test_years_beyond_nanoseconds_do_not_overflow() -> None:
    values = np.arange("2000", "2010", dtype="M8[Y]").astype("M8[ns]")
    assert ours(values, slice("1000", "9999")) == list(range(10))
    assert ours(values, slice(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))) == list(range(10))
    assert ours(values, slice("9999", None)) == []
    assert ours(values, datetime.datetime(9999, 1, 1), "nearest") == 9
    assert ours(values, "2001", "nearest", np.timedelta64(10**6, "W")) == 1
    assert ours(values, "99999") is NotFoundError
    wide = np.array(["0001-01-01", "2000-01-01", "9000-01-01"], "M8[s]")
    assert ours(wide, np.datetime64("2000-01-01", "ns")) == 1
    assert ours(wide, slice("0001", "2000")) == [0, 1]


def test_labels_finer_than_the_coordinate_are_not_rounded() -> None:
    values = np.array(["2000-01-01", "2000-01-02"], "M8[s]")
    half = np.datetime64("2000-01-01T00:00:00.5")
    assert ours(values, half) is NotFoundError
    assert ours(values, "2000-01-01T00:00:00.5") is NotFoundError
    assert ours(values, half, "pad") == 0 and ours(values, half, "bfill") == 1
    assert ours(values, slice(half, None)) == [1]
    assert ours(values, half, "nearest", np.timedelta64(400, "ms")) is NotFoundError
    assert ours(values, half, "nearest", datetime.timedelta(milliseconds=500)) == 0


def test_large_and_unsigned_numbers_compare_exactly() -> None:
    large = np.array([2**53, 2**53 + 1, 2**62])
    assert ours(large, 2**53 + 1) == 1
    assert ours(large, 2**70) is NotFoundError and ours(large, 2**70, "nearest") == 2
    assert ours(large, np.inf, "pad") == 2
    ends = np.array([-(2**63), 2**63 - 1])
    assert ours(ends, 5, "nearest") == 1 and ours(ends, -5, "nearest") == 0
    tiny = np.array([0, 100, 200], np.uint8)
    assert ours(tiny, -1) is NotFoundError
    assert ours(tiny, [-5, 300, 140], "nearest") == [0, 2, 1] and ours(tiny, slice(-1, 300)) == [0, 1, 2]
    assert ours(tiny[::-1], 150, "nearest") == 0  # of two equally near the greater


def test_not_a_number() -> None:
    values = np.array([0.0, 10, np.nan, 30])
    assert ours(values, 10) == 1 and ours(values, np.nan) == 2 and ours(values, [30, 10]) == [3, 1]
    assert ours(values, 11, "nearest") is SelectionError
    assert ours(np.arange(3.0), np.nan, "nearest") is NotFoundError
    times = np.array(["2000", "NaT", "2001"], "M8[s]")
    assert ours(times, "2001") == [2] and ours(times, np.datetime64("NaT", "s")) is NotFoundError


def test_empty_coordinates() -> None:
    for values, label in ((np.zeros(0), 1), (np.zeros(0, "M8[s]"), "2000-01-01"), (np.zeros(0, TEXT), "a")):
        assert ours(values, label) is NotFoundError
        assert ours(values, [label], "pad") is NotFoundError
        assert ours(values, slice(label, None)) == [] and ours(values, []) == []
    none = np.zeros(0, object)
    noleap = cftime.datetime(2000, 1, 5, calendar="noleap")
    assert ours(none, noleap) is NotFoundError and ours(none, slice(noleap, "2001")) == [] and ours(none, "2000") == []


def test_labels_in_arrays() -> None:
    values = np.array([10.0, 20, 30])
    assert ours(values, np.array(20)) == 1 and ours(values, np.float32(20)) == 1
    assert ours(values, xr.DataArray([30, 10], dims="y")) == [2, 0]
    assert ours(values, range(10, 30, 10)) == [0, 1]
    times = np.array(["2000", "2001", "2002"], "M8[s]")
    assert ours(times, times[:0:-1]) == [2, 1] and ours(times, times[1:2][0]) == 1
    assert ours(np.array(["a", "b"], TEXT), np.array(["b"], TEXT)) == [1]
    assert ours(np.array(["a", "b"]), np.str_("b")) == 1
    assert ours(np.array(["a", "b"], object), "b") == 1


@pytest.mark.parametrize(
    ("label", "extra", "words"),
    [
        (slice(1, 2), {"method": "nearest"}, "method and tolerance do not apply to slice(1, 2, None)"),
        (slice(1, 2), {"tolerance": 1}, "method and tolerance do not apply to"),
        (1, {"method": "linear"}, "unknown method='linear'; give nearest"),
        (1, {"method": 3}, "unknown method=3"),
        (10, {"tolerance": 1}, "tolerance=1 without a method"),
        (10, {"tolerance": "a", "method": "pad"}, "give a number"),
        ([10, 20], {"tolerance": [1, 2, 3], "method": "pad"}, "3 tolerances for 2 labels"),
        ([True, False], {}, "True (bool)"),
        (np.array([True, False, True]), {}, "a boolean array is not a label"),
        (True, {}, "True (bool) is not a label of this coordinate; give numbers"),
        (None, {}, "None (NoneType) is not a label of this coordinate"),
        ("10", {}, "'10' (str) is not a label of this coordinate; give numbers"),
        (datetime.datetime(2000, 1, 1), {}, "give numbers"),
        ({1: 2}, {}, "(dict)"),
        ((10, 20), {}, "give a list of values, or slice(first, last)"),
        ([[10, 20]], {}, "labels of 2 dimensions"),
        (np.zeros((2, 2)), {}, "labels of 2 dimensions"),
        (slice([1], 2), {}, "cannot bound a slice"),
        (slice(None, None, 0), {}, "the step of a slice is 0"),
        (slice(None, None, 1.5), {}, "step 1.5"),
    ],
)
def test_invalid_labels_give_the_reason(label: Any, extra: dict[str, Any], words: str) -> None:
    with pytest.raises(SelectionError) as caught:
        locate(np.array([10.0, 20, 30]), label, dimension="lat", variable="tas", **extra)
    assert words in caught.value.reason and caught.value.reason.startswith("dimension 'lat'")
    assert "variable 'tas'" in str(caught.value)


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # NumPy deprecates it, and users may still pass it
    WITHOUT_UNIT = np.timedelta64(7)

#: Tolerances that are not durations.
WRONG_FOR_TIMES = [
    *(7, 1.5, True, "7", "h", "", "-7h", "7 fortnights", "1M", "1Y", "1 month", "P1Y", "P", "PT", "nan", "\u0661h", b"7h"),
    *("12h x", "9" * 30 + "D", "9" * 5000 + "D", np.timedelta64(1, "M"), WITHOUT_UNIT, object(), [[1], [2, 3]], {"a": 1}),
    [np.timedelta64(1, "M"), np.timedelta64(1, "D")],
]


@given(st.data())
def test_durations_as_pandas_reads_them(data: st.DataObject) -> None:
    names = "W D day days h hr hour hours m min minute minutes s sec second seconds ms milli millis us µs micro micros ns nanos"
    number = st.integers(0, 10**4).map(str) | st.decimals(0, 100, places=data.draw(st.integers(0, 3))).map(str)
    part = st.tuples(number, st.sampled_from(["", " ", ", "]), st.sampled_from(names.split())).map("".join)
    clock = st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)).map(lambda t: "{}:{:02d}:{:02d}".format(*t))
    iso = st.tuples(*[st.integers(0, 99)] * 4).map(lambda t: "P{}DT{}H{:d}M{}.5S".format(*t))
    between = data.draw(st.sampled_from(["", " ", ", "]))
    parts = st.lists(part, min_size=1, max_size=4).map(between.join)
    text = data.draw(parts | clock | iso | st.tuples(parts, clock).map(" ".join))
    expected = pd.Timedelta(text)
    result = parse_duration(text)
    assert abs(int(result.astype("m8[ns]").astype(np.int64)) - expected.as_unit("ns").value) <= 4  # pandas rounds each part


@settings(max_examples=examples(200))
@given(st.data(), time_axes(), st.sampled_from(["", "noleap", "360_day"]))
def test_tolerances_of_every_kind_as_in_xarray(data: st.DataObject, times: np.ndarray, calendar: str) -> None:
    label = data.draw(moments())
    seconds = data.draw(st.sampled_from([0, 1, 60, 3599, 3600, 43200, 86400, 7 * 86400, 400 * 86400]))
    values: Any = times
    if calendar:
        values = dates(times, calendar)
        label = cftime.datetime(label.year, label.month, min(label.day, 28), label.hour, calendar=calendar)
    delta = datetime.timedelta(seconds=seconds)
    method = data.draw(st.sampled_from(METHODS[1:]))
    expected = xarrays(values, label, method, delta)
    kinds = (delta, np.timedelta64(delta), np.timedelta64(seconds, "s").astype("m8[ns]"), pd.Timedelta(delta), np.array(delta))
    hours = f"{seconds // 3600}h" if seconds % 3600 == 0 else f"{seconds} sec"
    texts = (f"{seconds}s", hours, f"PT{seconds}S", str(pd.Timedelta(delta)))
    for tolerance in (*kinds, *texts, np.array(texts[0]), np.str_(texts[1])):
        assert ours(values, label, method, tolerance) == expected, tolerance
    if not calendar:
        assert xarrays(values, label, method, texts[0]) == expected
    each = [texts[0], delta, pd.Timedelta(delta)]
    several = ours(values, [label] * 3, method, each)
    assert several == (expected if isinstance(expected, type) else [expected] * 3)


def test_tolerance_in_nanoseconds_does_not_overflow() -> None:
    times = np.array(["2000-01-01T00:00:00.000000000", "2000-01-02"], "M8[ns]")
    near = np.datetime64("2000-01-01T00:00:00.000000003")
    for tolerance in (pd.Timedelta(3, "ns"), "3ns", np.timedelta64(3, "ns")):
        assert ours(times, near, "nearest", tolerance) == xarrays(times, near, "nearest", tolerance) == 0
    assert ours(times, near, "nearest", "2ns") is ours(times, near, "nearest", pd.Timedelta(2, "ns")) is NotFoundError
    assert ours(times, "2100-01-01", "nearest", "1000000 days") == 1
    assert ours(times, ["2100-01-01", "2000-01-01"], "nearest", ["1000000 days", "1ns"]) == [1, 0]


def test_pandas_is_not_imported_for_a_tolerance() -> None:
    code = (
        "import sys, numpy as np; from aggarray.cf.labels import locate;"
        "t = np.array(['2000-01-01', '2000-01-02'], 'M8[s]');"
        "assert locate(t, '2000-01-01T10', method='nearest', tolerance='12h', dimension='t') == 0;"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_wrong_types_of_labels_and_coordinates() -> None:
    times = np.array(["2000", "2001"], "M8[s]")
    noleap = cftime.num2date(np.arange(3), "days since 2000-01-01", "noleap")
    for values in (times, noleap):
        for label in (5, 5.0, None, True, [5]):
            assert ours(values, label) is SelectionError
        for tolerance in WRONG_FOR_TIMES:
            assert ours(values, "2000-01-01", "nearest", tolerance) is SelectionError
            assert ours(values, ["2000-01-01"], "nearest", [tolerance]) is SelectionError
    assert ours(times, datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)) is SelectionError
    text = np.array(["a", "b"], TEXT)
    assert ours(text, 5) is SelectionError and ours(text, "c", "nearest") is SelectionError
    assert ours(text, "c", "pad", 1) is SelectionError
    for values in (np.zeros((2, 2)), np.array([True, False]), np.array([1j])):
        assert ours(values, 1) is SelectionError
    assert ours(np.array([1, 2, 2]), [1]) is SelectionError and ours(np.array([1, 2, 2]), 1, "pad") is SelectionError


def test_absent_labels_give_the_nearest_value() -> None:
    values = np.array([90.0, 45, 0, -45, -90])
    with pytest.raises(NotFoundError) as caught:
        locate(values, 50, dimension="lat", variable="tas")
    assert str(caught.value) == (
        "dimension 'lat': 50 not found in -90.0 to 90.0, the nearest is 45.0 (variable 'tas'); "
        "give one of its values, or method='nearest'"
    )
    with pytest.raises(NotFoundError, match=r"not found by method 'nearest' .* nearest is 45.0; .* wider tolerance"):
        locate(values, [45, 50], method="nearest", tolerance=1, dimension="lat")
    with pytest.raises(NotFoundError, match=r"'tass' not found among 2 labels, .* such as 'tas'"):
        locate(np.array(["pr", "tas"], TEXT), "tass", dimension="name")
    with pytest.raises(NotFoundError, match=r"2000-01-01T00:00:00 to 2000-01-02T00:00:00, the nearest is 2000-01-02"):
        locate(np.array(["2000-01-01", "2000-01-02"], "M8[D]"), "2000-01-05", dimension="time")
    with pytest.raises(NotFoundError, match=r"2000-01-01 00:00:00 to 2000-01-03 00:00:00, the nearest is 2000-01-03"):
        locate(cftime.num2date(np.arange(3), "days since 2000-01-01", "noleap"), "2001", dimension="time")
    with pytest.raises(NotFoundError, match="cannot bound a slice of an unordered coordinate"):
        locate(np.array([1, 3, 2]), slice(1, 4), dimension="lat")


@pytest.mark.parametrize(
    "wanted", [{"label": 567.0}, {"label": slice(9e2, 10)}, {"label": 5.2, "method": "nearest", "tolerance": 1}]
)
def test_a_million_sorted_values_cost_no_more_calls(wanted: dict[str, Any]) -> None:
    few, many = (calls_of(lambda n=n: locate(np.arange(n)[::-1], dimension="x", **wanted), builtin=True) for n in (1e3, 1e6))
    assert many <= few + 10


def test_a_million_sorted_values() -> None:
    values = np.arange(1e6)[::-1]
    expected = values[::7]
    np.testing.assert_array_equal(locate(values, expected, dimension="x"), np.arange(0, 10**6, 7))


def test_examples() -> None:
    assert doctest.testmod(labels).failed == 0
