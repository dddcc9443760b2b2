"""Dates in columns against cftime, in every calendar."""

import warnings

import cftime
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray.cf.units.calendars import datetimes
from aggarray.cf.units.date_fields import date_fields, day_numbers, named_years, to_reference_time

pytestmark = pytest.mark.quick

CALENDARS = (
    "standard",
    "gregorian",
    "proleptic_gregorian",
    "noleap",
    "365_day",
    "all_leap",
    "366_day",
    "360_day",
    "julian",
)
UNITS = "hours since 1850-01-01"


@given(st.sampled_from(CALENDARS), st.lists(st.floats(-2e7, 1e7), min_size=1, max_size=20))
def test_fields_are_those_of_cftime(calendar: str, values: list[float]) -> None:
    hours = np.array(values)
    fields = date_fields(hours, UNITS, calendar)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cftime warns about years before 1
        dates = datetimes(hours, UNITS, calendar, "cftime")
    years = named_years(fields.year, fields.calendar)
    clocks = [((d.hour * 60 + d.minute) * 60 + d.second) * 1_000_000 + d.microsecond for d in dates]
    expected = [(d.year, d.month, d.day, d.dayofyr) for d in dates]
    assert list(zip(years, fields.month, fields.day, fields.dayofyear, strict=True)) == expected
    assert fields.microsecond.tolist() == clocks
    back = to_reference_time(fields.day_number, UNITS, calendar, fields.microsecond)
    np.testing.assert_allclose(back, hours, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("calendar", CALENDARS)
def test_first_days_of_months(calendar: str) -> None:
    name = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}.get(calendar, calendar)
    years = np.repeat([1, 1500, 1582, 1583, 1900, 2000, 2004, 2100], 12)
    months = np.tile(np.arange(1, 13), 8)
    expected = [cftime.datetime(y, m, 1, calendar=calendar).toordinal() for y, m in zip(years, months, strict=True)]
    assert day_numbers(years, months, name).tolist() == expected


def test_times_of_tai() -> None:
    assert date_fields(np.array([366.0]), "days since 2000-01-01", "tai").year.tolist() == [2001]


def test_missing_times() -> None:
    fields = date_fields(np.array([np.nan, 31.0]), "days since 2000-01-01", None)
    assert fields.missing.tolist() == [True, False] and fields.month[1] == 2
