"""Cases of equal positions that are written differently."""

from typing import Any

import cftime
import numpy as np

from tests.support.cases import (
    LATS,
    LONS,
    Cases,
    Expected,
    ExpectedRefusal,
    Folder,
    Made,
    Outcome,
    changed,
    edges,
    one,
    tas,
    turned,
    with_bounds,
)
from tests.support.netcdf import LAT, LON, TAS, TIME, cube, field

cases = Cases()
WEST_FIRST = np.arange(-180.0, 180.0, 60.0)
LATS_OFF = np.array([10.0, 20.0000001, 30.0])
EAST_FIRST = np.arange(0.0, 360.0, 60.0)


def _time(values: Any, units: str, calendar: str | None, dtype: str = "f8") -> tuple[Any, ...]:
    attrs = {"standard_name": "time", "units": units, **({"calendar": calendar} if calendar else {})}
    return ("time",), np.array(values, dtype), attrs


def _in_two_calendars(f: Folder, one_calendar: str | None, other: str | None, units: str = TIME["units"]) -> None:
    f("b", cube([0, 1], time=_time([0, 1], units, one_calendar)))
    f("a", cube([2, 3], time=_time([2, 3], units, other)))


# Within a tolerance


@cases
def latitudes_off_by_rounding(f: Folder) -> Outcome:
    """A difference of 1e-10 degrees is rounding."""
    f("b", cube([0, 1]))
    f("a", changed(cube([2, 3]), "lat", np.array(LATS) + 1e-10))
    return one(tas(range(4), rtol=1e-9))


@cases
def latitudes_off_by_a_ten_millionth(f: Folder) -> Outcome:
    """1e-7 of a spacing of 10 is within the tolerance."""
    f("b", cube([0, 1]))
    f("a", changed(cube([2, 3]), "lat", LATS_OFF))
    return one(tas(range(4), rtol=1e-7))


@cases
def no_tolerance(f: Folder) -> Outcome:
    """With tolerance=0: separate; both values have enough digits to differ."""
    f("b", cube([0, 1]))
    f("a", changed(cube([2, 3]), "lat", LATS_OFF))
    values = field([2, 3], LATS, LONS)
    refusal = ExpectedRefusal("coordinate_values", ("lat", "20.0000001"))
    return Outcome([tas([0, 1]), tas([2, 3], LATS_OFF, values=values)], [refusal], rules={"tolerance": 0})


@cases
def one_of_eleven_is_off(f: Folder) -> Outcome:
    """One of eleven files has latitudes that differ by 2.5e-3 at one index."""
    lats = np.arange(30) * 1.25
    odd = lats + 2.5e-3 * (np.arange(30) == 17)
    for step in range(11):
        f(f"f{(step * 7) % 11:02}", cube([step], odd if step == 5 else lats))
    texts = ("lat", r"17\b", r"2\.5e-0?3|0\.0025", r"1\.25", r"1e-0?5", r"f02\.nc")
    return Outcome(
        [tas([0, 1, 2, 3, 4, 6, 7, 8, 9, 10], lats), tas([5], odd)], [ExpectedRefusal("coordinate_values|coordinate", texts)]
    )


@cases
def two_wavelengths(f: Folder) -> Outcome:
    """4e-7 and 5e-7 m are two positions of a dimension, not equal."""
    for name, length in (("a", 5e-7), ("b", 4e-7)):
        made = cube([0, 1], lon=None, lat=None)
        made["wavelength"] = (("wavelength",), np.array([length]), {"standard_name": "radiation_wavelength", "units": "m"})
        made["tas"] = (("time", "wavelength"), np.array([[length * 1e7], [length * 1e7 + 10]]), TAS)
        f(name, made)
    expected = np.array([[4e-7, 5e-7]] * 2) * 1e7 + [[0], [10]]
    return one(Expected(expected, {"wavelength": [4e-7, 5e-7], "time": [0, 1]}, ("time", "wavelength"), rtol=1e-12))


@cases
def spectra_that_differ(f: Folder) -> Outcome:
    """Small values that differ relative to their spacing stay separate."""
    expected = []
    for name, start, shift in (("b", 0, 0.0), ("a", 2, 1e-8)):
        made = cube([start, start + 1], lon=None, lat=None)
        lengths = np.array([4e-7, 5e-7]) + shift
        made["wavelength"] = (("wavelength",), lengths, {"standard_name": "radiation_wavelength", "units": "m"})
        made["tas"] = (("time", "wavelength"), np.full((2, 2), start * 1.0), TAS)
        f(name, made)
        expected.append(Expected(made["tas"][1], {"wavelength": lengths}, ("time", "wavelength"), rtol=1e-12))
    return Outcome(expected, [ExpectedRefusal("coordinate_values", ("wavelength", "a.nc", "b.nc"))])


@cases
def two_stations(f: Folder) -> Outcome:
    """Single latitudes 50 and 50.001 have no spacing: only rounding is equal."""
    f("b", cube([0, 1], [50.0]))
    f("a", cube([2, 3], [50.001]))
    refusal = ExpectedRefusal("coverage|coordinate_values|coordinate", ("lat", "a.nc", "b.nc"))
    return Outcome([tas([0, 1], [50.0]), tas([2, 3], [50.001])], [refusal])


@cases
def single_and_double_precision(f: Folder) -> Outcome:
    """Latitudes as float32 and float64 are equal to the coarser rounding."""
    lats = np.arange(10) * 0.1 + 50
    f("b", cube([0, 1], lats))
    f("a", changed(cube([2, 3], lats), "lat", lats.astype("f4")))
    return one(tas(range(4), lats, rtol=1e-6))


@cases
def precise_times_of_single_precision(f: Folder) -> Outcome:
    """float32 days on after float64 days: different steps stay different."""
    f("b", cube([0, 1]))
    f("a", cube([2, 3], time=_time([2, 3], TIME["units"], None, "f4")))
    return one(tas(range(4)))


# Directions


@cases
def latitudes_reversed_with_bounds(f: Folder) -> Outcome:
    """Latitudes, bounds and data of one file are reversed, pairs included."""
    f("b", with_bounds(cube([0, 1]), "lat", 5))
    f("a", turned(with_bounds(cube([2, 3]), "lat", 5), "lat"))
    return one(tas(range(4), coords={"lat_bnds": edges(LATS, 5)}))


@cases
def latitudes_reversed_bounds_ascending(f: Folder) -> Outcome:
    """Latitudes descend, pairs of bounds ascend, as many models write them."""
    f("b", with_bounds(cube([0, 1]), "lat", 5))
    made = turned(with_bounds(cube([2, 3]), "lat", 5), "lat")
    f("a", changed(made, "lat_bnds", edges(LATS[::-1], 5)))
    return one(tas(range(4), coords={"lat_bnds": edges(LATS, 5)}))


@cases
def the_first_runs_southward(f: Folder) -> Outcome:
    """The first file's latitudes descend: so do the master's."""
    f("b", turned(with_bounds(cube([0, 1]), "lat", 5), "lat"))
    f("a", with_bounds(cube([2, 3]), "lat", 5))
    return one(tas(range(4), LATS[::-1], coords={"lat_bnds": edges(LATS, 5)[::-1, ::-1]}))


def _with_area(made: Made, y: Any, x: Any) -> Made:
    area = ((np.asarray(y)[:, None] * 1000 + np.asarray(x) % 360), {"standard_name": "cell_area", "units": "m2"})
    return {**changed(made, "tas", coordinates="area"), "area": (("lat", "lon"), *area)}


@cases
def reversed_with_an_auxiliary_coordinate(f: Folder) -> Outcome:
    """An auxiliary coordinate over (lat, lon) is reversed too."""
    f("b", _with_area(cube([0, 1]), LATS, LONS))
    f("a", turned(_with_area(cube([2, 3]), LATS, LONS), "lat"))
    return one(tas(range(4), coords={"area": np.array(LATS)[:, None] * 1000 + np.array(LONS)}))


@cases
def an_auxiliary_coordinate_off_at_one_point(f: Folder) -> Outcome:
    """Curvilinear latitudes that differ at one point stay separate."""
    expected = []
    for name, start, shift in (("c", 0, 0), ("b", 2, 0), ("odd", 4, 0.25)):
        y, x = np.mgrid[0:3, 0:4] * 1.0
        made = {
            "time": cube([start])["time"],
            "nav_lat": (("y", "x"), y + shift * (x == 1) * (y == 2), LAT),
            "nav_lon": (("y", "x"), x, LON),
            "tas": (("time", "y", "x"), np.full((1, 3, 4), start * 1.0), {**TAS, "coordinates": "nav_lat nav_lon"}),
        }
        f(name, made)
        expected.append(Expected(made["tas"][1], {"nav_lat": made["nav_lat"][1]}, ("time", "y", "x")))
    joined = Expected(np.concatenate([e.values for e in expected[:2]]), expected[0].coords, ("time", "y", "x"))
    return Outcome([joined, expected[2]], [ExpectedRefusal("coordinate", ("nav_lat", "2, 1", "2.25", "odd.nc"))])


# Longitudes around the globe


def _around(times: Any, lons: Any, **more: Any) -> Made:
    """Return a cube whose values depend on the longitude modulo 360."""
    return cube(times, LATS, lons, tas=(("time", "lat", "lon"), field(times, LATS, np.asarray(lons) % 360), TAS), **more)


@cases
def longitudes_east_first(f: Folder) -> Outcome:
    """0 to 300, then -180 to 120: the second is rolled, two partitions."""
    f("a", _around([0, 1], EAST_FIRST))
    f("b", _around([2, 3], WEST_FIRST))
    return one(tas(range(4), LATS, EAST_FIRST, pmshape=(2, 2)), problems=[])


@cases
def longitudes_west_first(f: Folder) -> Outcome:
    """-180 to 120 first: it determines the turn."""
    f("a", _around([0, 1], WEST_FIRST))
    f("b", _around([2, 3], EAST_FIRST))
    values = field(range(4), LATS, WEST_FIRST % 360)
    return one(tas(range(4), LATS, WEST_FIRST, values=values, pmshape=(2, 2)))


@cases
def longitudes_rolled_with_bounds(f: Folder) -> Outcome:
    """Bounds are rolled with their longitudes."""
    f("a", with_bounds(_around([0, 1], WEST_FIRST), "lon", 30))
    f("b", with_bounds(_around([2, 3], EAST_FIRST), "lon", 30))
    values = field(range(4), LATS, WEST_FIRST % 360)
    return one(tas(range(4), LATS, WEST_FIRST, values=values, coords={"lon_bnds": edges(WEST_FIRST, 30)}))


@cases
def longitudes_rolled_with_an_auxiliary_coordinate(f: Folder) -> Outcome:
    """Auxiliary coordinates over (lat, lon) are rolled too."""
    f("a", _with_area(_around([0, 1], EAST_FIRST), LATS, EAST_FIRST))
    f("b", _with_area(_around([2, 3], WEST_FIRST), LATS, WEST_FIRST))
    area = np.array(LATS)[:, None] * 1000 + EAST_FIRST
    return one(tas(range(4), LATS, EAST_FIRST, coords={"area": area}))


@cases
def longitudes_shifted_as_a_whole(f: Folder) -> Outcome:
    """A region written as -30 to 0 and as 330 to 360 is equal, without a cut."""
    west = np.array([-30.0, -20.0, -10.0])
    f("a", _around([0, 1], west))
    f("b", _around([2, 3], west + 360))
    values = field(range(4), LATS, west % 360)
    return one(tas(range(4), LATS, west, values=values, pmshape=(2,)))


@cases
def longitudes_rolled_and_reversed_latitudes(f: Folder) -> Outcome:
    """Both at once."""
    f("a", _around([0, 1], EAST_FIRST))
    f("b", turned(_around([2, 3], WEST_FIRST), "lat"))
    return one(tas(range(4), LATS, EAST_FIRST))


@cases
def longitudes_of_another_grid(f: Folder) -> Outcome:
    """Around the globe, but half a cell off: another grid."""
    f("a", _around([0, 1], EAST_FIRST))
    f("b", _around([2, 3], WEST_FIRST + 30))
    values = field([2, 3], LATS, (WEST_FIRST + 30) % 360)
    expected = [tas([0, 1], LATS, EAST_FIRST), tas([2, 3], LATS, WEST_FIRST + 30, values=values)]
    return Outcome(expected, [ExpectedRefusal("coordinate_values", ("lon", "a.nc", "b.nc"))])


@cases
def two_halves_of_the_globe(f: Folder) -> Outcome:
    """-180 to -60 and 0 to 120 are neighbours and are not unwrapped."""
    f("b", _around([0, 1], WEST_FIRST[:3]))
    f("a", _around([0, 1], WEST_FIRST[3:]))
    return one(tas([0, 1], LATS, WEST_FIRST, values=field([0, 1], LATS, WEST_FIRST % 360)))


# Units of coordinates, bounds, reference dates, calendars


@cases
def bounds_without_units(f: Folder) -> Outcome:
    """Bounds take the units of their coordinate, stated in one file only."""
    f("b", with_bounds(cube([0, 1]), "time", 0.5))
    f("a", with_bounds(cube([2, 3]), "time", 0.5, units=TIME["units"]))
    return one(tas(range(4), coords={"time_bnds": edges(range(4), 0.5)}))


@cases
def bounds_of_another_epoch(f: Folder) -> Outcome:
    """Bounds without units follow the epoch of their own coordinate."""
    f("b", with_bounds(cube([0, 1]), "time", 0.5))
    f("a", with_bounds(cube([2, 3], time=_time([0, 1], "days since 2000-01-03", None)), "time", 0.5))
    return one(tas(range(4), coords={"time_bnds": edges(range(4), 0.5)}))


@cases
def pressure_in_two_units(f: Folder) -> Outcome:
    """Levels in hPa and in Pa are equal."""

    def levels(times: Any, values: Any, units: str) -> Made:
        plev = (("lat",), np.array(values), {"standard_name": "air_pressure", "units": units})
        return cube(times, lat=plev)

    f("b", levels([0, 1], [1000.0, 850.0, 500.0], "hPa"))
    f("a", levels([2, 3], [100000.0, 85000.0, 50000.0], "Pa"))
    return one(tas(range(4), coords={"lat": [1000.0, 850.0, 500.0]}))


@cases
def hours_and_days(f: Folder) -> Outcome:
    """Hours since one date, integers, and days since another."""
    f("b", cube([0, 1], time=_time([0, 24], "hours since 2000-01-01", "gregorian", "i4")))
    f("a", cube([2, 3], time=_time([367, 368], "days since 1999-01-01", "standard")))
    return one(tas(range(4), coords={"time": [0, 24, 48, 72]}))


@cases
def each_file_its_own_epoch(f: Folder) -> Outcome:
    """Every file counts from its own first day."""
    for n, name in enumerate("dbca"):
        start = cftime.num2date(31 * n, TIME["units"], "standard")
        f(name, cube(range(31 * n, 31 * n + 31), time=_time(range(31), f"days since {start}", "standard")))
    return one(tas(range(124)))


@cases
def standard_and_gregorian(f: Folder) -> Outcome:
    """Two names of one calendar."""
    _in_two_calendars(f, "gregorian", "standard")
    return one(tas(range(4)))


@cases
def no_calendar_and_standard(f: Folder) -> Outcome:
    """No calendar is the standard one."""
    _in_two_calendars(f, None, "standard")
    return one(tas(range(4)))


@cases
def proleptic_after_the_reform(f: Folder) -> Outcome:
    """After 1582-10-15 the proleptic calendar is the standard one."""
    _in_two_calendars(f, "standard", "proleptic_gregorian")
    return one(tas(range(4)))


@cases
def proleptic_before_the_reform(f: Folder) -> Outcome:
    """Before 1582-10-15 they differ by ten days."""
    _in_two_calendars(f, "standard", "proleptic_gregorian", "days since 1500-01-01")
    return Outcome(
        [tas([0, 1]), tas([2, 3])], [ExpectedRefusal("coordinate|conversion", ("time", "standard", "proleptic_gregorian"))]
    )


@cases
def noleap_and_365_day(f: Folder) -> Outcome:
    """Two names of one calendar, another epoch: 2000-03-01 is day 59."""
    f("b", cube([57, 58], time=_time([57, 58], TIME["units"], "noleap")))
    f("a", cube([59, 60], time=_time([0, 1], "days since 2000-03-01", "365_day")))
    return one(tas([57, 58, 59, 60]))


@cases
def all_leap_and_366_day(f: Folder) -> Outcome:
    """Two names of one calendar."""
    _in_two_calendars(f, "all_leap", "366_day")
    return one(tas(range(4)))


@cases
def noleap_and_standard(f: Folder) -> Outcome:
    """Calendars that are not equivalent are never mixed."""
    _in_two_calendars(f, "standard", "noleap")
    return Outcome(
        [tas([0, 1]), tas([2, 3])], [ExpectedRefusal("coordinate|conversion", ("time", "standard", "noleap", "a.nc", "b.nc"))]
    )


@cases
def years_of_360_days(f: Folder) -> Outcome:
    """360_day is not equivalent to others either."""
    _in_two_calendars(f, "360_day", None)
    return Outcome([tas([0, 1]), tas([2, 3])], [ExpectedRefusal("coordinate|conversion", ("time", "360_day"))])
