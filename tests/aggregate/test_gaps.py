"""Gaps judged by frequency, table, usual step, climatology and calendar."""

import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import cftime
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.aggregate.gaps import Gap, gaps, time_gaps
from aggarray.cf.frequency import Frequency, parse_frequency, stated_frequency, table_frequency
from aggarray.cli import main
from tests.support.netcdf import TAS, cube, write

CALENDARS = ("standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day")
#: Stated frequencies and tables, with the months or hours of a step.
MONTHLY = {"mon": 1, "monPt": 1, "monthly": 1, "P1M": 1, "sem": 3, "yr": 12, "annual": 12, "P1Y": 12, "dec": 120}
HOURLY = {"day": 24, "daily": 24, "P1D": 24, "6hr": 6, "6hrPt": 6, "3hrPt": 3, "1hr": 1, "hr": 1, "P7D": 168}
UNITS = "hours since 1850-01-01"
MONTH = Frequency(months=1)


def month_starts(calendar: str, first: int, count: int, step: int) -> list[Any]:
    """Return the first days of months, ``step`` months apart, from a year on."""
    return [cftime.datetime(first + n // 12, n % 12 + 1, 1, calendar=calendar) for n in range(0, count * step, step)]


def labelled(starts: list[Any], after: Any, label: str) -> np.ndarray:
    """Return the beginnings, middles or ends of periods between ``starts`` and ``after``."""
    ends = [*starts[1:], after]
    dates = {"start": starts, "end": ends, "middle": [a + (b - a) / 2 for a, b in zip(starts, ends, strict=True)]}[label]
    return np.array([d.replace() for d in dates], object)


@st.composite
def series(draw: st.DrawFn) -> tuple[np.ndarray, str]:
    """Return the times of a complete series, cftime or datetime64, and its frequency."""
    calendar, count = draw(st.sampled_from(CALENDARS)), draw(st.integers(2, 40))
    frequency = draw(st.sampled_from([*MONTHLY, *HOURLY]))
    first = draw(st.sampled_from([1850, 1899, 1999, 2000, 2096]))
    if frequency in MONTHLY:
        step = MONTHLY[frequency]
        starts = month_starts(calendar, first, count + 1, step)
        times = labelled(starts[:-1], starts[-1], draw(st.sampled_from(["start", "middle", "end"])))
    else:
        start = cftime.datetime(first, draw(st.integers(1, 12)), draw(st.integers(1, 28)), 9, calendar=calendar)
        times = np.array([start + datetime.timedelta(hours=HOURLY[frequency]) * n for n in range(count)], object)
    if calendar == "proleptic_gregorian" and draw(st.booleans()):
        times = np.array([np.datetime64(t.isoformat()) for t in times], "M8[us]")
    return times, frequency


@given(series())
def test_complete_series_have_no_gap(drawn: tuple[np.ndarray, str]) -> None:
    times, frequency = drawn
    assert gaps(times, parse_frequency(frequency)) == gaps(times) == []


@given(series(), st.data())
def test_exactly_the_missing_steps_are_gaps(drawn: tuple[np.ndarray, str], data: st.DataObject) -> None:
    times, frequency = drawn
    kept = sorted({0, *data.draw(st.sets(st.integers(1, len(times) - 1), min_size=1))})
    expected = [Gap(i, b - a - 1) for i, (a, b) in enumerate(pairwise(kept)) if b - a > 1]
    steps = np.diff(kept)
    # Data of regular, longer steps are no gaps if such a step is usual: yearly means of months keep their attributes.
    if (steps == 1).any() or len(steps) < 3 or (steps == steps.min()).sum() < 3:
        assert gaps(times[kept], parse_frequency(frequency)) == expected


@given(series(), st.data())
def test_the_usual_step_decides_without_a_frequency(drawn: tuple[np.ndarray, str], data: st.DataObject) -> None:
    times, _ = drawn
    gone = data.draw(st.sets(st.integers(1, max(1, len(times) - 2)), max_size=len(times) // 4))
    kept = [n for n in range(len(times)) if n not in gone or n in (0, len(times) - 1)]
    expected = [Gap(i, b - a - 1) for i, (a, b) in enumerate(pairwise(kept)) if b - a > 1]
    if (np.diff(kept) == 1).sum() >= len(kept) / 3 and len(kept) > 2:
        assert gaps(times[kept]) == expected


def dates(*texts: str) -> np.ndarray:
    return np.array(texts, "M8[us]")


def every(months: int, count: int, first: str = "2000-01") -> np.ndarray:
    return (np.datetime64(first, "M") + np.arange(0, months * count, months)).astype("M8[us]")


@pytest.mark.parametrize(
    ("times", "frequency", "expected"),
    [
        # Few steps: only attributes say how long one is.
        (dates("1855-01-16", "2099-01-16"), "mon", [(0, 2927)]),
        (dates("1855-01-16", "2099-01-16"), None, []),
        (dates("2000-01-01", "2000-01-05"), "day", [(0, 3)]),
        (dates("2000-01-01", "2000-01-02"), "6hr", [(0, 3)]),
        (dates("2000-01-16", "2000-02-15"), "mon", []),
        (dates("1850-07-01", "1852-07-01"), "yr", [(0, 1)]),
        (every(2, 12), "mon", [(n, 1) for n in range(11)]),
        # Reduced data with the attributes of their input.
        (every(12, 10), "mon", []),
        (np.delete(every(12, 10), 4), "mon", [(3, 1)]),
        (every(3, 8), "day", []),
        (every(1, 24), "day", []),
        (every(1, 24), "6hr", []),
        (every(12, 4), "day", []),
        (dates("2000-01-01") + np.arange(10) * np.timedelta64(1, "D"), "3hr", []),
        # Data of steps shorter than stated.
        (every(1, 24), "yr", []),
        (np.delete(every(1, 24), 5), "yr", [(4, 1)]),
        (dates("2000-01-01") + np.arange(40) * np.timedelta64(1, "D"), "mon", []),
        (dates("2000-01-01") + np.arange(40) * np.timedelta64(6, "h"), "day", []),
        # Fields that do not change, and unknown or irregular steps.
        (dates("2000-01-01", "2000-02-01", "2000-07-01"), "fx", []),
        (dates("2000-01-01", "2000-01-02", "2000-01-05"), "subhrPt", [(1, 2)]),
        (dates("2000-01-01T00:07", "2000-01-02T09:11", "2000-01-04T03:20"), "day", []),
        # The day of the label differs between files.
        (dates("2000-01-31", "2000-02-15", "2000-03-15", "2000-05-01"), "mon", [(2, 1)]),
        (dates("2000-01-01", "2000-02-01", "2000-03-31", "2000-04-30"), "mon", []),
        # The hour of the label differs between files.
        (dates(*(f"2000-01-{d:02}" for d in range(1, 13)), "2000-01-15T12", "2000-01-16T12"), "day", [(11, 2)]),
        (dates(*(f"2000-01-{d:02}" for d in range(1, 13)), "2000-01-13T12", "2000-01-14T12"), "day", []),
        # 29 February exists only in some years.
        (dates("2000-02-28", "2000-02-29", "2000-03-01", "2001-02-28", "2001-03-01"), "day", [(2, 363)]),
    ],
)
def test_gaps_by_frequency(times: np.ndarray, frequency: str | None, expected: list[tuple[int, int]]) -> None:
    stated = None if frequency is None else parse_frequency(frequency)
    assert gaps(times, stated) == [Gap(*pair) for pair in expected]
    dated = np.array([cftime.DatetimeProlepticGregorian(*t.timetuple()[:6]) for t in times.tolist()])
    assert gaps(dated, stated) == [Gap(*pair) for pair in expected]


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "all_leap", "julian"])
def test_days_of_calendars(calendar: str) -> None:
    days = [cftime.datetime(2000, month, day, calendar=calendar) for month in (2, 3) for day in (27, 28)]
    after = (days[2] - days[1]).days - 1
    assert gaps(np.array(days), Frequency(seconds=86400)) == [Gap(1, after)] and after in (26, 27, 28)
    assert gaps(np.array([days[1], days[1] + datetime.timedelta(days=1)]), Frequency(seconds=86400)) == []


def test_climatologies_have_gaps_within_a_cycle() -> None:
    months = np.concatenate([every(1, 12, "1855-01"), every(1, 12, "1995-01")])
    assert gaps(months, MONTH, climatology=True) == [] and gaps(months, MONTH) == [Gap(11, 1668)]
    assert gaps(np.delete(months, [6, 17]), MONTH, climatology=True) == [Gap(5, 1), Gap(15, 1)]
    assert gaps(months[[0, 6]], MONTH, climatology=True) == gaps(months[[0, 12]], MONTH, climatology=True) == []
    hours = np.concatenate([dates(f"2000-{m:02}-15") + np.arange(24) * np.timedelta64(1, "h") for m in range(1, 13)])
    hourly = Frequency(seconds=3600, climatology=True)
    assert gaps(hours, hourly, climatology=True) == [] and gaps(np.delete(hours, 30), hourly, climatology=True) == [Gap(29, 1)]


CMIP = """Amon Omon Lmon LImon OImon SImon AERmon AERmonZ Emon EmonZ CFmon ImonAnt ImonGre APmon OPmonLev cfMon : 1
Eyr Oyr IyrAnt IyrGre : 12
Odec : 120
day Eday EdayZ CFday AERday Oday SIday cfDay : 24
6hrLev 6hrPlev 6hrPlevPt E6hrZ : 6
3hr E3hr E3hrPt CF3hr cf3hr : 3
AERhr E1hr : 1
fx Efx Ofx IfxAnt IfxGre : 0"""


@pytest.mark.parametrize("line", CMIP.splitlines())
def test_tables_of_cmip(line: str) -> None:
    names, _, size = line.rpartition(" : ")
    for name in names.split():
        frequency = table_frequency(name)
        assert frequency is not None and not frequency.climatology
        is_months = "mon" in name.lower() or "yr" in name or "dec" in name
        assert (frequency.months, frequency.seconds) == ((int(size), 0) if is_months else (0, int(size) * 3600)), name


def test_climatological_and_unknown_tables() -> None:
    assert table_frequency("Oclim") == Frequency(months=1, climatology=True)
    assert table_frequency("E1hrClimMon") == Frequency(seconds=3600, climatology=True)
    for name in ("cfSites", "cfOff", "CFsubhr", "Esubhr", "aero", "", "0hr", "monsoon index", "x" * 50):
        assert table_frequency(name) is None
    for text in ("subhr", "subhrPt", "", "9.4 GHz", "P", "PT", "P1M1D", "0day", "irregular", "mon mon", "x" * 50):
        assert parse_frequency(text) is None
    assert parse_frequency("1hrCM") == Frequency(seconds=3600, climatology=True)


def test_the_frequency_comes_before_the_table() -> None:
    stated = stated_frequency({"frequency": "day"}, "Amon")
    assert stated == Frequency(seconds=86400, stated="frequency day")
    assert stated_frequency({"frequency": np.float32(9.4)}, "Amon") == Frequency(months=1, stated="table_id Amon")
    assert stated_frequency({"time_coverage_resolution": "P1D"}, None) == Frequency(
        seconds=86400, stated="time_coverage_resolution P1D"
    )
    assert stated_frequency({"frequency": "unknown"}, "cfSites") is None


# Arrays


def dated(path: Path, times: list[Any], attrs: dict[str, Any], bounds: list[Any] | None = None, name: str = "bounds") -> None:
    """Write `tas` at dates of the noleap calendar.

    ``bounds``: pairs of dates; ``name``: the attribute that names them.
    """
    own: dict[str, Any] = {"standard_name": "time", "units": UNITS, "calendar": "noleap"}
    values = cftime.date2num([cftime.datetime(*t, calendar="noleap") for t in times], UNITS, "noleap")
    made = cube(values)
    if bounds is not None:
        own[name] = "time_bnds"
        pairs = [[cftime.datetime(*t, calendar="noleap") for t in pair] for pair in bounds]
        made["time_bnds"] = (("time", "bnds"), cftime.date2num(pairs, UNITS, "noleap").astype("f8"))
    made["time"] = (("time",), np.asarray(values, "f8"), own)
    write(path, made, attrs)


def gap_messages(source: Any) -> list[str]:
    problems = aa.open(source).check().problems
    assert {p.kind for p in problems} <= {"gap"}
    return [p.message for p in problems]


@pytest.mark.parametrize(
    ("attrs", "stated"),
    [
        ({"frequency": "mon"}, "frequency mon"),
        ({"table_id": "Amon"}, "table_id Amon"),
        ({"table_id": "Table Amon (26 July 2011) 25bb94"}, "table_id Amon"),
        ({"time_coverage_resolution": "P1M"}, "time_coverage_resolution P1M"),
    ],
)
def test_two_files_far_apart(tmp_path: Path, attrs: dict[str, Any], stated: str, capsys: pytest.CaptureFixture[str]) -> None:
    dated(tmp_path / "early.nc", [(1855, 1, 16)], attrs)
    dated(tmp_path / "late.nc", [(2099, 1, 16)], attrs)
    text = f"tas: 2927 steps of time missing between 1855-01-16 and 2099-01-16 ({stated}): early.nc, late.nc"
    assert gap_messages(tmp_path) == [text]
    for command in ("check", "explain"):
        with pytest.raises(SystemExit) as stop:
            main([command, str(tmp_path)])
        assert stop.value.code == 1 and "2927 steps" in " ".join(capsys.readouterr().out.split())
    aa.open(tmp_path).save(tmp_path / "index.nca")
    assert gap_messages(tmp_path / "index.nca") == [text]


def test_decreasing_times(tmp_path: Path) -> None:
    dated(tmp_path / "a.nc", [(2000, m, 16) for m in (12, 11, 9, 8, 3)], {"frequency": "mon"})
    messages = gap_messages(tmp_path)
    assert [m.partition(" (")[0].partition("missing ")[2] for m in messages] == [
        "between 2000-09-16 and 2000-11-16",
        "between 2000-03-16 and 2000-08-16",
    ]
    assert "1 step of" in messages[0] and "4 steps of" in messages[1]


def test_cells_that_touch_are_no_gap(tmp_path: Path) -> None:
    """Yearly means with the frequency of their months, and labels at both ends of months."""
    years = [((y, 1, 1), (y + 1, 1, 1)) for y in (2000, 2001)]
    dated(tmp_path / "years.nc", [(y, 7, 2) for y in (2000, 2001)], {"frequency": "mon"}, bounds=years)
    assert gap_messages(tmp_path / "years.nc") == []
    months = [((2000, m, 1), (2000, m + 1, 1)) for m in range(1, 5)]
    dated(tmp_path / "months.nc", [(2000, 1, 1), (2000, 2, 1), (2000, 3, 1), (2000, 5, 1)], {"frequency": "mon"}, bounds=months)
    assert gap_messages(tmp_path / "months.nc") == []
    # Cells that a program made of the times, across the gap, are longer than the others.
    made = [((2000, a, 1), (2000, b, 1)) for a, b in pairwise((1, 2, 3, 6, 9, 10))]
    dated(tmp_path / "made.nc", [(2000, m, 16) for m in (1, 2, 3, 8, 9)], {"frequency": "mon"}, bounds=made)
    assert [m.partition(" of")[0] for m in gap_messages(tmp_path / "made.nc")] == ["tas: 4 steps"]


def test_a_climatology_in_a_file(tmp_path: Path) -> None:
    for folder, attribute, frequency in (("typical", "climatology", "monC"), ("means", "bounds", "mon")):
        for year in (1855, 1995):
            times = [(year, m, 16) for m in range(1, 13) if m != 7]
            pairs = [((year, m, 1), (year + 10 * (folder == "typical"), m, 28)) for _, m, _ in times]
            dated(tmp_path / folder / f"{year}.nc", times, {"frequency": frequency}, pairs, attribute)
    counts = [m.partition(" of")[0] for m in gap_messages(tmp_path / "typical")]
    assert counts == ["tas: 1 step", "tas: 1 step"]
    counts = [m.partition(" of")[0] for m in gap_messages(tmp_path / "means")]
    assert counts == ["tas: 1 step", "tas: 1668 steps", "tas: 1 step"]


def test_cell_methods_of_a_climatology(tmp_path: Path) -> None:
    for year in (1855, 1995):
        made = cube([year * 365.0])
        made["tas"] = (*made["tas"][:2], {**TAS, "cell_methods": "time: mean within years time: mean over years"})
        write(tmp_path / f"{year}.nc", made, {"frequency": "mon"})
    assert gap_messages(tmp_path) == []


def test_monthly_means_of_daily_maxima_are_no_climatology(tmp_path: Path) -> None:
    for year in (1855, 1995):
        made = cube([year * 365.0])
        made["tas"] = (*made["tas"][:2], {**TAS, "cell_methods": "time: maximum within days time: mean over days"})
        write(tmp_path / f"{year}.nc", made, {"frequency": "mon"})
    assert len(gap_messages(tmp_path)) == 1


def test_reference_times_of_forecasts_have_steps_of_their_own(tmp_path: Path) -> None:
    """The frequency is that of valid times."""
    attrs = {"standard_name": "forecast_reference_time", "units": "days since 2000-01-01"}
    made = cube([0, 1, 2])
    made["run"] = (("time",), np.array([0.0, 10.0, 20.0]), attrs)
    made = {
        ("run" if name == "time" else name): (tuple("run" if d == "time" else d for d in v[0]), *v[1:])
        for name, v in made.items()
        if name != "time"
    }
    write(tmp_path / "a.nc", made, {"frequency": "day"})
    assert gap_messages(tmp_path) == []


def test_times_with_missing_values_have_no_gaps(tmp_path: Path) -> None:
    for calendar in ("standard", "noleap"):
        own = {"standard_name": "time", "units": "days since 2000-01-01", "calendar": calendar, "_FillValue": -1.0}
        write(
            tmp_path / f"{calendar}.nc", cube([0, 1, 2, 9], time=(("time",), [0.0, -1.0, 2.0, 9.0], own)), {"frequency": "day"}
        )
        assert gap_messages(tmp_path / f"{calendar}.nc") == []


def test_no_false_alarm_in_a_real_archive(shared_data: Path) -> None:
    agg = aa.open(shared_data / "cmip6")
    assert len(agg) == 76 and all(along.gaps == [] for array in agg for along in time_gaps(array))


@pytest.mark.heavy
def test_a_missing_file_of_a_real_archive(shared_data: Path) -> None:
    tested = 0
    for array in aa.open(shared_data / "cmip6"):
        files = sorted({str(uri) for uri in array._matrix.references.uris})
        if 3 <= len(files) <= 20:
            gone = len(files) // 2
            size = aa.open(files[gone])["ta"].shape[0]
            (message,) = gap_messages([*files[:gone], *files[gone + 1 :]])
            assert f"{size} steps of time" in message and Path(files[gone - 1]).name in message and "(frequency" in message
            tested += 1
    assert tested > 20
