"""Tests of conversions against UDUNITS, cftime and exact fractions, and of calendars."""

import datetime
import re
import threading
from fractions import Fraction

import cf_units
import cftime
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray.cf.units import is_reference_time, normal_calendar, same_calendar
from aggarray.cf.units.calendars import SINCE, datetimes
from aggarray.cf.units.compatibility import canonical_units, conversion, equivalent, incompatibility, same
from aggarray.cf.units.linear import Conversion
from aggarray.cf.units.udunits import signature
from aggarray.errors import UnitsError

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


def ulps(found: float, exact: Fraction) -> float:
    """Return the difference of a float and an exact number in units in the last place."""
    return float(abs(Fraction(found) - exact) / Fraction(float(np.spacing(abs(float(exact)))))) if exact else abs(found)


@pytest.mark.parametrize(
    ("units", "calendar", "expected"),
    [
        ("days since 2000-01-01", None, "standard"),
        ("DAYS SINCE 2000-01-01", " Gregorian ", "gregorian"),
        ("days since 2000-01-01", "", "standard"),
        ("days", "noleap", None),
        (None, "noleap", None),
        ("sincere", None, None),
    ],
)
def test_normal_calendar(units: str | None, calendar: str | None, expected: str | None) -> None:
    assert normal_calendar(units, calendar) == expected
    assert is_reference_time(units) == (expected is not None)


@given(st.text(st.sampled_from("sSiInNcCeE \t\u2003x-"), max_size=24) | st.text(max_size=12))
def test_reference_times_are_those_of_a_pattern(units: str) -> None:
    units = units.replace("x", "since")
    assert is_reference_time(units) == (SINCE.search(units) is not None)


def test_names_of_one_calendar() -> None:
    for names in (("standard", "GREGORIAN", None, ""), ("noleap", "365_day"), ("all_leap", "366_Day"), ("360_day",)):
        for a in names:
            assert all(same_calendar(a, b) for b in names)
            assert not same_calendar(a, "julian") and not same_calendar(a, "proleptic_gregorian")


SAME = [
    ("degrees_north", "degree_north"),
    ("kg m-2 s-1", "kg/m2/s"),
    (None, None),
    ("", None),
    ("  ", ""),
    ("psu", "psu"),
    ("(0 - 1)", "(0 - 1) "),
    ("Pa", "N m-2"),
    ("days since 2000-01-01", "day since 2000-1-1 00:00:00Z"),
    ("hours since 2000-01-01 01:00 +01:00", "h since 2000-01-01"),
    ("months since 2000-01-01", "month since 2000-1-1"),
]
EQUIVALENT = [("K", "degC"), ("hPa", "Pa"), ("dBZ", "mm6 m-3"), ("%", "1"), ("degrees_east", "1"), ("m s-1", "km/h")]
APART = [
    ("m", "s", "different quantities"),
    ("s", "Hz", "different quantities"),
    (None, "1", "has none"),
    ("m", "", "has none"),
    ("psu", "1", "'psu' is not a unit of UDUNITS"),
    ("1", "(0 - 1)", "is not a unit of UDUNITS"),
    ("days", "days since 2000-01-01", "reference time"),
    ("days since 2000-01-01", "metres since 2000-01-01", "not a unit of time"),
    ("days since 2000-01-01", "days since yesterday", "not a date"),
    ("days since 2000-01-01", "days since 2000-01-01 25:00", "time of day"),
    ("days since 2000-01-01", "days since 2001-02-29", "invalid day"),
    ("days since 2000-01-01", "days since 0000-01-01", "no year 0"),
    ("jiffies since 2000-01-01", "metres since 2000-01-01", "not a unit of time"),
    ("0 s since 2000-01-01", "days since 2000-01-01", "not a unit of time"),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_same(a: str | None, b: str | None) -> None:
    assert same(a, None, b, None) and same(b, None, a, None) and equivalent(a, None, b, None)
    assert conversion(a, None, b, None).identity
    assert canonical_units(a).strip() == canonical_units(b).strip()


@pytest.mark.parametrize(("a", "b"), EQUIVALENT)
def test_equivalent(a: str, b: str) -> None:
    assert equivalent(a, None, b, None) and equivalent(b, None, a, None) and incompatibility(a, None, b, None) is None
    assert not same(a, None, b, None) and canonical_units(a) == canonical_units(b)


@pytest.mark.parametrize(("a", "b", "words"), APART)
def test_incompatible(a: str | None, b: str | None, words: str) -> None:
    for one, other in ((a, b), (b, a)):
        assert not equivalent(one, None, other, None) and not same(one, None, other, None)
        assert words in (incompatibility(one, None, other, None) or "")
        with pytest.raises(UnitsError) as caught:
            conversion(one, None, other, None)
        assert repr(one) in str(caught.value) and repr(other) in str(caught.value) and "\n" not in str(caught.value)
    assert canonical_units(a) != canonical_units(b)


def test_udunits_writes_no_messages(capfd: pytest.CaptureFixture[str]) -> None:
    for units in ("(0 - 1)", "(0-1)", "0 - 1", "0", "code table 4.2", "level", "K @ 273.15", "10 m", "1e0"):
        canonical_units(units)
    assert capfd.readouterr() == ("", "")
    assert equivalent("10 m", None, "km", None) and equivalent("K @ 0", None, "K", None)


@given(
    st.lists(st.sampled_from(["m", "s-1", "kg", "K", "Pa", "W", "hPa", "mm day-1", "J", "degC", "%"]), min_size=1, max_size=3)
)
def test_canonical_agrees_with_udunits(words: list[str]) -> None:
    units = " ".join(words)
    for other in ("m", "kg s-2", "Pa m", "W m-2", "1", "K", "m2 s-2"):
        ours, theirs = cf_units.Unit(units), cf_units.Unit(other)
        reciprocal = equivalent(units, None, f"({other})-1", None) and canonical_units(other) != "1"
        if not reciprocal:
            assert (canonical_units(units) == canonical_units(other)) == ours.is_convertible(theirs)


WORDS = st.builds(
    "{}{}".format,
    st.sampled_from(["m", "kg", "s", "A", "K", "mol", "cd", "Pa", "N", "J", "W"]),
    st.sampled_from(["", "-1", "-2", "2", "3"]),
)
ALONE = [
    "degC",
    "hPa",
    "km",
    "day",
    "days",
    "1",
    "%",
    "degree",
    "degrees",
    "degrees_north",
    "degrees_east",
    "m-10",
    "m 2",
    " m",
]


@given(st.one_of(st.lists(WORDS, min_size=1, max_size=4).map(" ".join), st.sampled_from(ALONE)))
def test_base_units_of_common_units_equal_udunits(units: str) -> None:
    words = re.split(r"[ .()]", str(cf_units.Unit(units).definition))
    assert signature(units) == (".".join(sorted(w for w in words if re.fullmatch(r"(m|kg|s|A|K|mol|cd)(-?\d+)?", w))) or "1")


LINEAR = [
    ("hPa", "Pa", Fraction(100), Fraction(0)),
    ("Pa", "hPa", Fraction(1, 100), Fraction(0)),
    ("h", "day", Fraction(1, 24), Fraction(0)),
    ("m s-1", "km h-1", Fraction(18, 5), Fraction(0)),
    ("kg m-2 s-1", "kg m-2 day-1", Fraction(86400), Fraction(0)),
    ("ft", "m", Fraction(3048, 10000), Fraction(0)),
    ("K", "degC", Fraction(1), Fraction(-273.15)),
    ("degC", "K", Fraction(1), Fraction(273.15)),
    ("degF", "degC", Fraction(5, 9), Fraction(-160, 9)),
    ("degC", "degF", Fraction(9, 5), Fraction(32)),
    ("degF", "K", Fraction(5, 9), Fraction(45967, 180)),
    ("1", "%", Fraction(100), Fraction(0)),
    ("g", "t", Fraction(1, 10**6), Fraction(0)),
]


@pytest.mark.parametrize(("a", "b", "slope", "offset"), LINEAR)
@given(value=st.floats(-1e30, 1e30).filter(lambda v: v == 0 or abs(v) > 1e-30))
def test_one_rounding(a: str, b: str, slope: Fraction, offset: Fraction, value: float) -> None:
    found = conversion(a, None, b, None)
    assert (found.slope, found.offset) == (slope, offset)
    for dtype in ("f8", "f4"):
        given_value = np.array(value, dtype)
        result = found(given_value)
        assert result.dtype == np.float64 and result.shape == ()
        assert ulps(float(result), Fraction(float(given_value)) * slope + offset) <= 1


@pytest.mark.parametrize(
    ("a", "b"),
    [("K", "degF"), ("degree", "radian"), ("dBZ", "mm6 m-3"), ("W", "dBm"), ("mol m-2", "DU"), ("knot", "m/s"), ("year", "s")],
)
def test_conversions_equal_udunits(a: str, b: str) -> None:
    values = np.linspace(0.25, 400, 77)
    for one, other in ((a, b), (b, a)):
        expected = cf_units.Unit(one).convert(values.copy(), cf_units.Unit(other))
        np.testing.assert_allclose(conversion(one, None, other, None)(values), expected, rtol=1e-13, atol=1e-11)


@given(
    st.sampled_from(CALENDARS),
    st.sampled_from([*STEPS]),
    st.sampled_from([*STEPS]),
    st.sampled_from(DATES),
    st.sampled_from(DATES),
    st.floats(-1e7, 1e7),
)
def test_times_are_exact(calendar: str, step_a: str, step_b: str, date_a: str, date_b: str, value: float) -> None:
    a, b = f"{step_a} since {date_a}", f"{step_b} since {date_b}"
    first, second = (cftime.num2date(0, f"days since {d}", calendar, only_use_cftime_datetimes=True) for d in (date_a, date_b))
    shift = Fraction(round((first - second) / datetime.timedelta(microseconds=1)), 10**6)
    exact = (Fraction(value) * STEPS[step_a] + shift) / STEPS[step_b]
    found = conversion(a, calendar, b, calendar)
    assert found.limit is None
    if abs(exact) > 1e-290:
        assert ulps(float(found(np.array([value]))[0]), exact) <= 1
    whole = np.array([int(value)], np.int32)
    result = found(whole)
    exact = (Fraction(int(value)) * STEPS[step_a] + shift) / STEPS[step_b]
    assert result.dtype == (np.int64 if found.integer_exact else np.float64)
    assert int(result[0]) == exact if found.integer_exact else ulps(float(result[0]), exact) <= 1


def test_integers_stay_integers() -> None:
    found = conversion("days since 2000-01-01", None, "hours since 1999-12-31", None)
    for dtype in ("i1", "u1", "i2", ">i4", "i8", "u8"):
        result = found(np.array([[1, 2]], dtype))
        assert result.dtype == np.dtype("i8") and result.tolist() == [[48, 72]]
    assert not conversion("hours since 2000-01-01", None, "days since 2000-01-01", None).integer_exact
    back = conversion("microseconds since 1970-01-01", None, "days since 1970-01-01", None)
    for value in (2**62 + 1, -(2**62) - 1, 2**53 + 1, 2**63 - 1, -(2**63)):
        assert ulps(float(back(np.array(value, "i8"))), Fraction(value, 86_400_000_000)) <= 1
    assert ulps(float(back(np.array(2**64 - 1, "u8"))), Fraction(2**64 - 1, 86_400_000_000)) <= 1


def test_integers_beyond_64_bits() -> None:
    result = conversion("days since 2000-01-01", None, "microseconds since 2000-01-01", None)
    values = np.array([1, 2**40])
    with pytest.raises(UnitsError, match=r"1099511627776 converts to .* out of range for 64 bits"):
        result(values)
    assert result(values, mask=np.array([False, True]))[0] == 86_400_000_000


@pytest.mark.parametrize(
    "pair", [("K", "degC"), ("hPa", "Pa"), ("Pa", "hPa"), ("degF", "degC"), ("dBZ", "mm6 m-3"), ("K", "K")]
)
@pytest.mark.parametrize("dtype", ["f4", ">f8", "f2", "i2", ">i8", "u8", "g"])
def test_any_dtype_and_shape(pair: tuple[str, str], dtype: str) -> None:
    found = conversion(pair[0], None, pair[1], None)
    for shape in ((), (0,), (3, 0), (2, 3), (1, 5, 4)):
        values = np.full(shape, 3, dtype)
        values.flags.writeable = False
        result = found(values)
        assert isinstance(result, np.ndarray) and result.shape == shape and result.dtype.isnative
        whole = values.dtype.kind in "iu" and found.integer_exact
        assert result.dtype == (np.int64 if whole else np.longdouble if dtype == "g" else np.float64)
        assert not np.shares_memory(result, values)
        np.testing.assert_allclose(result.astype("f8"), found(np.full(shape, 3.0)), rtol=1e-15)
    if values.dtype.kind == "f":
        odd = np.array([np.nan, np.inf, -np.inf], dtype)
        result = found(odd)
        assert np.isnan(result[0]) and result[1] == np.inf


def test_strided_and_long_arrays() -> None:
    result = conversion("degF", None, "degC", None)
    values = np.arange(200_000.0).reshape(400, 500)[::-2, ::3]
    np.testing.assert_allclose(result(values), (values - 32) * 5 / 9, rtol=1e-14)


def test_complex_and_longdouble() -> None:
    assert conversion("hPa", None, "Pa", None)(np.array([1 + 2j], "c8")).tolist() == [100 + 200j]
    assert conversion("hPa", None, "Pa", None)(np.array([1 + 2j], "G")).dtype == np.dtype("G")
    for pair in (("K", "degC"), ("dBZ", "mm6 m-3")):
        with pytest.raises(UnitsError, match="complex128"):
            conversion(pair[0], None, pair[1], None)(np.array([1j]))
    third = conversion("h", None, "day", None)(np.array([8], "g"))
    assert third[0] == np.longdouble(1) / 3


def test_values_without_units() -> None:
    text = np.array(["a"], dtype=np.dtypes.StringDType())
    assert conversion("m", None, "m", None)(text).tolist() == ["a"]
    for values in (text, np.array([True]), np.array(["2000"], "M8[D]")):
        with pytest.raises(UnitsError, match="do not convert"):
            conversion("m", None, "km", None)(values)


def test_conversions_are_values() -> None:
    one, other = conversion("K", None, "degC", None), conversion("kelvin", None, "celsius", None)
    assert one == other and hash(one) == hash(other) and one != Conversion()
    assert conversion("K", None, "degC", None) is one


def test_gregorian_calendars_are_equal_from_1582() -> None:
    proleptic, standard = "days since 0001-01-01", "days since 1850-01-01"
    result = conversion(proleptic, "proleptic_gregorian", standard, "standard")
    date = cftime.DatetimeProlepticGregorian(1990, 5, 6)
    number = cftime.date2num(date, proleptic, "proleptic_gregorian")
    expected = cftime.date2num(cftime.DatetimeGregorian(1990, 5, 6), standard, "standard")
    assert result(np.array([number])).tolist() == [expected]
    # The reference dates of the same text differ by two days.
    assert conversion(proleptic, "proleptic_gregorian", proleptic, "standard")(np.array([number])).tolist() == [number + 2]
    cut = cftime.date2num(cftime.DatetimeProlepticGregorian(1582, 10, 15), proleptic, "proleptic_gregorian")
    assert result.limit == cut and not result.identity and result.integer_exact
    result(np.array([cut, np.nan]))
    for values in (np.array([cut - 1]), np.array(cut - 1), np.array([cut - 0.5])):
        with pytest.raises(UnitsError, match=rf"value {values.min()} is before 1582-10-15"):
            result(values)
    assert result(np.array([cut - 1, cut]), mask=np.array([True, False]))[1] == cut + result.offset
    back = conversion(standard, "gregorian", proleptic, "proleptic_gregorian")
    assert back(np.array([expected])).tolist() == [number]
    with pytest.raises(UnitsError, match="1582-10-15"):
        back(np.array([-98000]))
    assert not conversion(standard, None, standard, "proleptic_gregorian").identity
    assert canonical_units(standard, None) == canonical_units(proleptic, "PROLEPTIC_gregorian")


def test_calendars_are_not_mixed() -> None:
    units = "days since 2000-01-01"
    for a in [*CALENDARS, "tai", "none", "utc"]:
        for b in [*CALENDARS, "tai", "none", "utc"]:
            meet = a == b or {a, b} == {"standard", "proleptic_gregorian"}
            assert equivalent(units, a, units, b) == meet
            assert (canonical_units(units, a) == canonical_units(units, b)) == meet
    assert "noleap and 360_day" in (incompatibility(units, "365_day", units, "360_day") or "")
    # Units in an unknown calendar convert only to the same text.
    assert same(units, "none", units, "NONE") and not equivalent(units, "none", "hours since 2000-01-01", "none")


YEAR = Fraction("365.242198781")


@pytest.mark.parametrize("calendar", CALENDARS)
def test_years_and_months_in_every_calendar(calendar: str) -> None:
    def days(unit: str) -> Fraction:
        return conversion(f"{unit} since 2000-01-01", calendar, "days since 2000-01-01", calendar).slope

    assert days("years") == days("yr") == days("tropical_year") == YEAR and days("months") == YEAR / 12
    assert (days("common_years"), days("leap_year"), days("Julian_years")) == (365, 366, Fraction("365.25"))
    assert days("Gregorian_year") == Fraction("365.2425") and days("fortnight") == 14
    assert days("sidereal_day") * 86400 == Fraction("86164.09") and days("sidereal_years") * 86400 == 31558150
    assert canonical_units("months since 2000-01-01", calendar) == canonical_units("seconds since 1900-01-01", calendar)


@given(
    st.sampled_from(
        [
            "year",
            "month",
            "common_year",
            "leap_year",
            "Julian_year",
            "Gregorian_year",
            "sidereal_day",
            "lunar_month",
            "fortnight",
        ]
    ),
    st.floats(-3000, 3000),
)
def test_lengths_of_years_equal_udunits(unit: str, value: float) -> None:
    there = cf_units.Unit("days since 1900-01-01", calendar="standard")
    expected = cf_units.Unit(f"{unit} since 2000-01-01", calendar="standard").convert(value, there)
    result = conversion(f"{unit} since 2000-01-01", None, "days since 1900-01-01", None)(np.array([value]))[0]
    assert result == pytest.approx(expected, rel=1e-11, abs=1e-6)


def test_dates_of_years() -> None:
    result = datetimes(np.array([1, 2000]), "years since 2000-01-01", None, "numpy")
    assert result.astype(str).tolist() == ["2000-12-31T05:48:45.974678", "3999-12-31T09:32:29.356800"]
    (date,) = datetimes(np.array([1]), "common_years since 2000-01-01", "noleap", "cftime")
    assert date == cftime.num2date(1, "common_years since 2000-01-01", "noleap")
    # A month is a calendar month in cftime, and a twelfth of a year in CF and UDUNITS.
    (date,) = datetimes(np.array([1]), "months since 2000-01-01", "360_day", "cftime")
    assert date == cftime.Datetime360Day(2000, 2, 1, 10, 29, 3, 831223)


def test_threads_may_convert() -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for place in range(60):
                factor = conversion(f"{number * 100 + place + 1} m", None, "km", None)
                assert abs(factor(np.array(1.0)) * 1000 - (number * 100 + place + 1)) < 1e-9
                conversion("dBZ", None, f"{place + 1} m3", None)(np.ones(3))
        except (AssertionError, UnitsError, ValueError) as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
