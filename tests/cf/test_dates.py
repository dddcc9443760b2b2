"""Tests of reference times against cftime, NumPy and UDUNITS."""

import datetime
from fractions import Fraction
from typing import Any

import cftime
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray.cf.units.calendars import datetime_kind, datetimes, epoch, from_datetime
from aggarray.errors import UnitsError
from tests.support.calls import calls_of

pytestmark = pytest.mark.quick

CALENDARS = ["standard", "proleptic_gregorian", "noleap", "all_leap", "360_day", "julian"]
STEPS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1, "milliseconds": Fraction(1, 1000)}
DATES = [
    "1850-01-01",
    "2000-01-01 00:00:00",
    "1970-1-1T12:30:00Z",
    "1999-12-30 23:59:59.5",
    "2000-02-28 06:00:00 +01:00",
    "1583-01-01 00:00 -0330",
    "0001-01-01",
]


@pytest.mark.parametrize("calendar", CALENDARS)
@pytest.mark.parametrize("date", [*DATES, "1582-10-15", "1582-10-04", "-0004-02-28", "-0001-12-30", "1-1-1 00:00:0.0"])
def test_epochs_equal_cftime(calendar: str, date: str) -> None:
    origin = cftime.datetime(2000, 1, 1, calendar=calendar)
    with pytest.warns(cftime.CFWarning) if date[0] == "-" and calendar in ("standard", "julian") else _nothing():
        theirs = cftime.num2date(0, f"days since {date}", calendar, only_use_cftime_datetimes=True)
    shift = (theirs - origin) // datetime.timedelta(microseconds=1)
    result = epoch(f"days since {date}", calendar)
    assert result.microseconds - epoch("s since 2000-01-01", calendar).microseconds == shift


class _nothing:  # noqa: N801
    def __enter__(self) -> None: ...
    def __exit__(self, *args: object) -> None: ...


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("2000-01-01 12", "2000-01-01 12:00"),
        ("2000-01-01 00:00:00 -3:30", "2000-01-01 03:30"),
        ("2000-01-01 00:00:00 1:00", "1999-12-31 23:00"),
        ("2000-01-01 0:0:0.", "2000-01-01"),
        ("2000-01", "2000-01-01"),
        ("2000", "2000-01-01"),
        ("20000102", "2000-01-02"),
        ("2000-01-01 UTC", "2000-01-01"),
        ("2000-01-01t06:00:00z", "2000-01-01 06:00"),
    ],
)
def test_dates_in_text_equal_udunits(text: str, plain: str) -> None:
    assert epoch(f"days since {text}") == epoch(f"days since {plain}")


@given(
    st.sampled_from(["standard", "proleptic_gregorian"]),
    st.sampled_from([*STEPS]),
    st.sampled_from(DATES),
    st.floats(-3e5, 3e5),
)
def test_numpy_dates_are_exact(calendar: str, step: str, date: str, value: float) -> None:
    units = f"{step} since {date}"
    start = epoch(units, calendar)
    exact = start.microseconds + Fraction(value) * start.step - 2_440_588 * 86_400_000_000
    kind = datetime_kind(units, calendar, value, value)
    if kind == "numpy":
        result = datetimes(np.array([value, np.nan]), units, calendar, "numpy")
        assert result.dtype == np.dtype("M8[us]") and np.isnat(result[1])
        assert abs(int(result[0].astype("i8")) - exact) <= Fraction(501, 1000)
    else:
        with pytest.raises(UnitsError, match="standard calendar; use cftime"):
            datetimes(np.array([value]), units, calendar, "numpy")


@given(
    st.sampled_from(CALENDARS),
    st.sampled_from(["days", "hours", "seconds"]),
    st.sampled_from(DATES[:-1]),
    st.integers(-50_000, 50_000),
)
def test_cftime_dates_equal_cftime(calendar: str, step: str, date: str, number: int) -> None:
    units = f"{step} since {date}"
    values = np.array([[number, number + 1], [number - 1000, number]])
    expected = cftime.num2date(values, units, calendar, only_use_cftime_datetimes=True)
    result = datetimes(values, units, calendar, "cftime")
    assert result.dtype == object and result.shape == (2, 2)
    assert result.tolist() == expected.tolist() and type(result[0, 0]) is type(expected[0, 0])
    back = [from_datetime(date, units, calendar) for date in result.ravel()]
    assert back == values.ravel().tolist()


def test_fractions_of_a_day() -> None:
    result = datetimes(np.array([0.1, 1 / 3, 1e-11, 0.5]), "days since 2000-01-01", None, "numpy")
    assert result.astype(str).tolist() == [
        "2000-01-01T02:24:00.000000",
        "2000-01-01T08:00:00.000000",
        "2000-01-01T00:00:00.000001",
        "2000-01-01T12:00:00.000000",
    ]
    assert datetimes(np.array([1_600]), "nanoseconds since 2000-01-01", None, "numpy")[0] == np.datetime64(
        "2000-01-01T00:00:00.000002"
    )
    other = datetimes(np.array([np.nan, 0.1], "f4"), "days since 2000-01-01", "noleap", "cftime")
    assert other[0] is None and abs(other[1] - cftime.DatetimeNoLeap(2000, 1, 1, 2, 24)) < datetime.timedelta(seconds=1)


def test_dates_of_any_shape() -> None:
    for kind in ("numpy", "cftime"):
        for shape in ((), (0,), (2, 0, 3), (2, 3)):
            assert datetimes(np.zeros(shape, ">i2"), "days since 2000-01-01", None, kind).shape == shape


@pytest.mark.parametrize("value", [np.inf, 1e300, 9.96921e36, 2**62, -(2**62)])
@pytest.mark.parametrize("kind", ["numpy", "cftime"])
def test_dates_out_of_range(value: Any, kind: str) -> None:
    with pytest.raises(UnitsError, match="out of range for microseconds"):
        datetimes(np.array([0, value]), "days since 2000-01-01", None, kind)


@pytest.mark.parametrize(
    ("units", "calendar", "low", "high", "expected"),
    [
        ("days since 2000-01-01", None, 0, 10.5, "numpy"),
        ("days since 2000-01-01", None, None, None, "numpy"),
        ("days since 2000-01-01", None, np.nan, np.float32(2), "numpy"),
        ("days since 0001-01-01", None, 0, 10, "cftime"),
        ("days since 0001-01-01", "gregorian", 577_737, 800_000, "numpy"),
        ("days since 0001-01-01", "gregorian", 577_736, 800_000, "cftime"),
        ("days since 0001-01-01", "proleptic_gregorian", -400, 10, "numpy"),
        ("days since 0001-01-01", "proleptic_gregorian", 0, 10**9, "cftime"),
        ("days since 2000-01-01", "360_day", 0, 1, "cftime"),
        ("days since 2000-01-01", "julian", 0, 1, "cftime"),
    ],
)
def test_datetime_kind(units: str, calendar: str | None, low: Any, high: Any, expected: str) -> None:
    assert datetime_kind(units, calendar, low, high) == expected


def test_a_million_dates_are_converted_in_blocks() -> None:
    def cost(count: int) -> int:
        return calls_of(lambda: datetimes(np.linspace(0, 1e5, count), "days since 1850-01-01", None, "numpy"), builtin=True)

    cost(10)
    assert cost(1_000_000) < cost(10) + 1000


def test_from_datetime() -> None:
    units = "hours since 2000-01-01"
    east = datetime.timezone(datetime.timedelta(hours=2))
    for value, expected in [
        (datetime.datetime(2000, 1, 1, 6, 30), 6.5),
        (datetime.datetime(2000, 1, 1, 6, 30, tzinfo=east), 4.5),
        (datetime.date(2000, 1, 2), 24),
        (np.datetime64("2000-01-02"), 24),
        (np.datetime64("2000-02"), 31 * 24),
        (np.datetime64("2000-01-01T01:00:00.000000000"), 1),
        (np.datetime64(1, "D"), (1 - 10957) * 24),
        (cftime.DatetimeGregorian(2000, 1, 2), 24),
        (cftime.DatetimeProlepticGregorian(2000, 1, 2), 24),
        ("2000-01-01 03:00", 3),
    ]:
        result = from_datetime(value, units)
        assert isinstance(result, float) and result == expected
    assert np.isnan(from_datetime(np.datetime64("NaT", "s"), units))
    assert from_datetime("2000-02-30", "days since 2000-01-01", "360_day") == 59
    assert from_datetime(np.datetime64("1500-01-01"), "days since 1500-01-01", "proleptic_gregorian") == 0


@pytest.mark.parametrize(
    ("value", "calendar"),
    [
        (datetime.datetime(2000, 1, 1), "noleap"),
        (np.datetime64("2000"), "360_day"),
        (datetime.date(1500, 1, 1), "standard"),
        (cftime.DatetimeGregorian(1500, 1, 1), "proleptic_gregorian"),
        (cftime.DatetimeNoLeap(2000, 1, 1), "standard"),
        (cftime.datetime(2000, 1, 1, calendar=""), "standard"),
        ("2000-02-30", "standard"),
        (12, "standard"),
    ],
)
def test_dates_of_another_calendar(value: Any, calendar: str) -> None:
    with pytest.raises(UnitsError):
        from_datetime(value, "days since 2000-01-01", calendar)
