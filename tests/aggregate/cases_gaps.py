"""Cases of missing steps of regular times, found by a check."""

from typing import Any

import cftime
import numpy as np

from tests.support.cases import LATS, LONS, Cases, Expected, ExpectedRefusal, Folder, Outcome, Problem, one, tas
from tests.support.netcdf import TIME, cube

cases = Cases()


def _dated(
    f: Folder, dates: list[Any], calendar: str, drop: tuple[int, ...] = (), units: str = TIME["units"], files: int = 3
) -> Any:
    """Write one array over dates in several files, some dropped.

    Returns the expected outcome.
    """
    values = np.array([cftime.date2num(cftime.datetime(*d, calendar=calendar), units, calendar) for d in dates], "f8")
    values = np.delete(values, list(drop))
    attrs = {"standard_name": "time", "units": units, "calendar": calendar}
    for number, part in enumerate(np.array_split(values, files)):
        f(f"f{(number * 2 + 1) % files}", cube(part, time=(("time",), part, attrs)))
    return tas(values)


def _months(first: int, count: int, every: int = 1, day: int = 15) -> list[tuple[int, ...]]:
    return [(first + m // 12, m % 12 + 1, day) for m in range(0, count * every, every)]


@cases
def days_missing(f: Folder) -> Outcome:
    """Two days are missing between files; the message has array and dates."""
    f("b", cube([0, 1, 2]))
    f("a", cube([5, 6, 7]))
    return one(tas([0, 1, 2, 5, 6, 7]), problems=[Problem("gap", ("tas", "2000-01-03", "2000-01-06", r"\b2\b"))])


@cases
def days_missing_within_a_file(f: Folder) -> Outcome:
    """A step that is missing within a file is missing all the same."""
    f("b", cube([0, 1, 3, 4]))
    f("a", cube([5, 6, 7]))
    return one(tas([0, 1, 3, 4, 5, 6, 7]), problems=[Problem("gap", ("2000-01-02", "2000-01-04", r"\b1\b"))])


@cases
def two_gaps(f: Folder) -> Outcome:
    """Each gap is a finding of its own."""
    for name, start in (("c", 0), ("a", 5), ("b", 10)):
        f(name, cube(range(start, start + 4)))
    times = [*range(4), *range(5, 9), *range(10, 14)]
    problems = [Problem("gap", ("2000-01-04", "2000-01-06")), Problem("gap", ("2000-01-09", "2000-01-11"))]
    return one(tas(times), problems=problems)


@cases
def hours_missing(f: Folder) -> Outcome:
    """Six-hourly data, a day missing: four steps."""
    expected = []
    for name, hours in (("b", np.arange(0, 48, 6)), ("a", np.arange(72, 96, 6))):
        f(name, cube(hours, time=(("time",), hours.astype("i4"), {**TIME, "units": "hours since 2000-01-01"})))
        expected += hours.tolist()
    return one(tas(expected), problems=[Problem("gap", ("2000-01-02.18", "2000-01-04", r"\b4\b"))])


@cases
def months_are_regular(f: Folder) -> Outcome:
    """Months of different lengths, leap year included: no gap."""
    return one(_dated(f, _months(2000, 30), "standard"), problems=[])


@cases
def middles_of_months_are_regular(f: Folder) -> Outcome:
    """Middles of months vary by day and hour: no gap."""
    middles = [
        np.mean(
            cftime.date2num(
                [cftime.datetime(2000 + n // 12, n % 12 + 1, 1), cftime.datetime(2000 + (n + 1) // 12, (n + 1) % 12 + 1, 1)],
                TIME["units"],
            )
        )
        for n in range(24)
    ]
    f("b", cube(middles[:12]))
    f("a", cube(middles[12:]))
    return one(tas(middles), problems=[])


@cases
def a_month_is_missing(f: Folder) -> Outcome:
    """June 2000 of the standard calendar."""
    problems = [Problem("gap", ("tas", "2000-05-15", "2000-07-15", r"\b1\b"))]
    return one(_dated(f, _months(2000, 24), "standard", (5,)), problems=problems)


@cases
def months_missing_without_leap_days(f: Folder) -> Outcome:
    """Three months of noleap."""
    problems = [Problem("gap", ("2000-10-15", "2001-02-15", r"\b3\b"))]
    return one(_dated(f, _months(2000, 24), "noleap", (10, 11, 12)), problems=problems)


@cases
def months_of_thirty_days(f: Folder) -> Outcome:
    """360_day has a 30th of February: the dates are those of the calendar."""
    problems = [Problem("gap", ("2000-01-30", "2000-03-30", r"\b1\b"))]
    return one(_dated(f, _months(2000, 12, day=30), "360_day", (1,)), problems=problems)


@cases
def seasons_missing(f: Folder) -> Outcome:
    """Every third month, two missing."""
    problems = [Problem("gap", ("2000-10-15", "2001-07-15", r"\b2\b"))]
    return one(_dated(f, _months(2000, 12, every=3), "noleap", (4, 5)), problems=problems)


@cases
def years_missing(f: Folder) -> Outcome:
    """One year of the standard calendar is missing; leap days are no gaps."""
    problems = [Problem("gap", ("2004", "2006", r"\b1\b"))]
    return one(_dated(f, [(y, 7, 1) for y in range(1998, 2012)], "standard", (7,)), problems=problems)


@cases
def years_of_all_leap(f: Folder) -> Outcome:
    """Years of a calendar in which all are leap years."""
    return one(_dated(f, [(y, 7, 1) for y in range(2000, 2010)], "all_leap"), problems=[])


@cases
def irregular_times(f: Folder) -> Outcome:
    """Times without a step have no gaps: overpasses of a satellite."""
    f("b", cube([0.0, 0.31, 1.02, 2.9]))
    f("a", cube([4.4, 4.6, 9.1]))
    return one(tas([0.0, 0.31, 1.02, 2.9, 4.4, 4.6, 9.1]), problems=[])


@cases
def interleaved_with_a_day_missing(f: Folder) -> Outcome:
    """Odd and even days: the union is daily, and lacks one."""
    f("b", cube([0, 2, 4, 8]))
    f("a", cube([1, 3, 5, 7]))
    problems = [Problem("gap", ("2000-01-06", "2000-01-08", r"\b1\b"))]
    return one(tas([0, 1, 2, 3, 4, 5, 7, 8]), problems=problems)


@cases
def a_single_step_has_no_gap(f: Folder) -> Outcome:
    """Nor have two."""
    f("a", cube([0]))
    f("b", cube([7]))
    return one(tas([0, 7]), problems=[])


@cases
def two_steps_of_different_lengths(f: Folder) -> Outcome:
    """Days 0, 1 and 4: the smallest step is the usual one."""
    f("a", cube([0, 1]))
    f("b", cube([4]))
    return one(tas([0, 1, 4]), problems=[Problem("gap", ("tas", "2000-01-02", "2000-01-05", r"\b2\b", "a.nc, b.nc"))])


@cases
def more_gaps_than_steps(f: Folder) -> Outcome:
    """Three months, then every second one: each missing one is a problem."""
    problems = [Problem("gap", (f"2000-{m:02}-15", f"2000-{m + 2:02}-15", r"\b1\b")) for m in (3, 5, 7, 9)]
    return one(_dated(f, _months(2000, 11), "standard", (3, 5, 7, 9)), problems=problems)


@cases
def steps_that_are_no_multiples(f: Folder) -> Outcome:
    """Days 0, 1, 2, 3 and 5.5: without a usual step there are no gaps."""
    f("a", cube([0, 1, 2]))
    f("b", cube([3, 5.5]))
    return one(tas([0, 1, 2, 3, 5.5]), problems=[])


@cases
def what_repeats_in_files_that_are_used(f: Folder) -> Outcome:
    """A field without time in every file is used once: not a duplicate file."""
    for name, start in (("b", 0), ("a", 2)):
        made = cube([start, start + 1])
        made["orog"] = (("lat", "lon"), made["tas"][1][0] * 0 + 7, {"units": "m", "standard_name": "surface_altitude"})
        f(name, made)
    shown = Expected(np.full((3, 2), 7.0), {"lat": LATS, "lon": LONS}, ("lat", "lon"), "orog", "m")
    return Outcome([tas(range(4)), shown], problems=[])


@cases
def gaps_of_one_array_only(f: Folder) -> Outcome:
    """Two models, one with a gap: the problem names its files."""
    f("d", cube([0, 1, 2]), {"source_id": "A"})
    f("c", cube([3, 4, 5]), {"source_id": "A"})
    f("b", cube([0, 1, 2]), {"source_id": "B"})
    f("a", cube([5, 6, 7]), {"source_id": "B"})
    expected = [tas(range(6), attrs={"source_id": "A"}), tas([0, 1, 2, 5, 6, 7], attrs={"source_id": "B"})]
    problems = [Problem("gap", ("2000-01-03", "2000-01-06"))]
    return Outcome(expected, [ExpectedRefusal("source_id", ("'A'", "'B'"))], problems=problems)


CALENDARS = ("standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day")


def _every_calendar(calendar: str, what: str, dates: list[Any], around: tuple[int, int]) -> None:
    """Add a case of regular dates; those within ``around`` are missing."""

    def case(f: Folder) -> Outcome:
        low, high = around
        expected = _dated(f, dates, calendar, tuple(range(low + 1, high)))
        texts = [f"{dates[n][0]:04}-{dates[n][1]:02}-{dates[n][2]:02}" for n in around]
        return one(expected, problems=[Problem("gap", (*texts, rf"\b{high - low - 1}\b"))])

    case.__name__, case.__doc__ = f"missing_{what}_of_{calendar}", f"Missing {what} of the calendar {calendar}."
    cases(case)


for _name in CALENDARS:
    _every_calendar(_name, "months", _months(1999, 36), (12, 15))
    _every_calendar(_name, "quarters", _months(1999, 12, every=3, day=28), (3, 5))
    _every_calendar(_name, "years", [(y, 1, 1) for y in range(1996, 2009)], (6, 8))
