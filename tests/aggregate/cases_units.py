"""Cases of conversions of temperatures, years and bounds after CF."""

from typing import Any

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
from tests.support.netcdf import LAT, TAS, TIME, cube, field

cases = Cases()
DIFFERENCE, ON_SCALE, UNKNOWN = ({"units_metadata": f"temperature: {kind}"} for kind in ("difference", "on_scale", "unknown"))
PLEV = {"standard_name": "air_pressure", "units": "hPa", "positive": "down"}


def _pair(f: Folder, first: dict[str, Any], second: dict[str, Any], units: tuple[str, str] = ("K", "degC")) -> None:
    """Write days 0, 1 and 2, 3 in two units, with further attributes each."""
    for name, days, unit, attrs in (("a", [0, 1], units[0], first), ("b", [2, 3], units[1], second)):
        f(name, changed(cube(days), "tas", units=unit, **attrs))


def _apart(*texts: str, units: tuple[str, str] = ("K", "degC")) -> Outcome:
    """Return the outcome of `_pair` with separate files."""
    return Outcome([tas([0, 1], units=units[0]), tas([2, 3], units=units[1])], [ExpectedRefusal("units", texts)])


@cases
def temperature_differences(f: Folder) -> Outcome:
    """A degree more is a kelvin more."""
    _pair(f, DIFFERENCE, DIFFERENCE)
    return one(tas(range(4), units="K", attrs=DIFFERENCE))


@cases
def standard_deviations_of_temperatures(f: Folder) -> Outcome:
    """The cell methods imply a difference, which the master states."""
    methods = {"cell_methods": "area: mean time: standard_deviation"}
    _pair(f, methods, methods)
    return one(tas(range(4), attrs={**methods, **DIFFERENCE}))


@cases
def means_of_daily_ranges(f: Folder) -> Outcome:
    """The mean of differences is one."""
    methods = {"cell_methods": "time: range within days time: mean over days"}
    _pair(f, methods, methods)
    return one(tas(range(4), attrs=DIFFERENCE))


@cases
def means_over_a_dimension_called_range(f: Folder) -> Outcome:
    """A dimension or a comment is not a method."""
    methods = {"cell_methods": "range: mean (comment: standard_deviation of nothing)"}
    _pair(f, methods, methods)
    values = field(range(4), LATS, LONS, "f8")
    values[2:] += 273.15
    return one(tas(range(4), values=values, rtol=1e-6))


@cases
def variances_of_temperatures(f: Folder) -> Outcome:
    """Squares of differences scale."""
    methods = {"cell_methods": "time: variance"}
    _pair(f, methods, methods, ("K2", "degC2"))
    return one(tas(range(4), units="K2"))


@cases
def anomalies_in_kelvin_and_fahrenheit(f: Folder) -> Outcome:
    """The standard name implies a difference."""
    name = {"standard_name": "air_temperature_anomaly"}
    _pair(f, name, name, ("K", "degF"))
    values = field(range(4), LATS, LONS, "f8")
    values[2:] *= 5 / 9
    return one(tas(range(4), values=values, rtol=1e-6, attrs=DIFFERENCE))


@cases
def standard_errors(f: Folder) -> Outcome:
    """The modifier of a standard name implies a difference."""
    name = {"standard_name": "air_temperature standard_error"}
    _pair(f, name, name)
    return one(tas(range(4), attrs=DIFFERENCE))


@cases
def lapse_rates(f: Folder) -> Outcome:
    """Derived units have no offset."""
    _pair(
        f, {"standard_name": "air_temperature_lapse_rate"}, {"standard_name": "air_temperature_lapse_rate"}, ("K m-1", "degC/m")
    )
    return one(tas(range(4), units="K m-1"))


@cases
def on_scale_and_unstated(f: Folder) -> Outcome:
    """Unstated temperatures are on their scale."""
    _pair(f, ON_SCALE, {})
    values = field(range(4), LATS, LONS, "f8")
    values[2:] += 273.15
    return one(tas(range(4), values=values, rtol=1e-6))


@cases
def difference_and_on_scale(f: Folder) -> Outcome:
    """Different quantities, even in equal units."""
    _pair(f, DIFFERENCE, ON_SCALE, ("K", "K"))
    return _apart("difference", "on its scale", units=("K", "K"))


@cases
def difference_and_unstated(f: Folder) -> Outcome:
    """Unstated temperatures are on their scale, so they differ."""
    _pair(f, DIFFERENCE, {}, ("K", "K"))
    return _apart("difference", "no attribute states a difference", units=("K", "K"))


@cases
def unknown_in_two_units(f: Folder) -> Outcome:
    """Unknown kinds in different units do not convert."""
    _pair(f, UNKNOWN, UNKNOWN)
    return _apart("temperature: unknown")


@cases
def unknown_in_units_of_one_zero(f: Folder) -> Outcome:
    """Both meanings convert in the same way."""
    _pair(f, UNKNOWN, UNKNOWN, ("K", "mK"))
    values = field(range(4), LATS, LONS, "f8")
    values[2:] /= 1000
    return one(tas(range(4), values=values, rtol=1e-6, attrs=UNKNOWN))


@cases
def contradictory_in_two_units(f: Folder) -> Outcome:
    """On its scale, and a standard deviation: one must be wrong."""
    both = {**ON_SCALE, "cell_methods": "time: standard_deviation"}
    _pair(f, both, both)
    return _apart("contradicts")


@cases
def contradictory_in_the_same_units(f: Folder) -> Outcome:
    """Equal units need no conversion."""
    both = {**ON_SCALE, "cell_methods": "time: standard_deviation"}
    _pair(f, both, both, ("K", "kelvin"))
    return one(tas(range(4), attrs=both))


@cases
def sums_of_temperatures(f: Folder) -> Outcome:
    """No offset converts a sum of temperatures on their scale."""
    methods = {"cell_methods": "time: sum"}
    _pair(f, methods, methods)
    return _apart("time: sum", "zero of the scale")


@cases
def products_on_scale(f: Folder) -> Outcome:
    """CF 3.1.2: these convert only where the factors are known."""
    _pair(f, ON_SCALE, ON_SCALE, ("K m", "degC m"))
    return _apart("on_scale", units=("K m", "degC m"))


@cases
def a_coordinate_of_differences(f: Folder) -> Outcome:
    """Bins of a temperature difference, with bounds: 1 K is 1 degC."""
    for name, days, units in (("a", [0, 1], "K"), ("b", [2, 3], "degC")):
        attrs = {"long_name": "excess", "units": units, **DIFFERENCE}
        made = cube(days, lat=None, tas=(("time", "bin", "lon"), field(days, LATS, LONS), TAS))
        f(name, with_bounds({**made, "bin": (("bin",), np.array(LATS), attrs)}, "bin", 5))
    coords = {"time": range(4), "bin": LATS, "bin_bnds": edges(LATS, 5)}
    return one(Expected(field(range(4), LATS, LONS), coords, ("time", "bin", "lon")))


@cases
def a_coordinate_of_temperatures(f: Folder) -> Outcome:
    """Levels of potential temperature, with bounds: 1 degC is 274.15 K."""
    for name, days, units, shift in (("a", [0, 1], "K", 0.0), ("b", [2, 3], "degC", 273.15)):
        made = cube(days, lat=None, tas=(("time", "theta", "lon"), field(days, LATS, LONS), TAS))
        levels = (("theta",), np.array(LATS) + 300 - shift, {"standard_name": "air_potential_temperature", "units": units})
        f(name, with_bounds({**made, "theta": levels}, "theta", 5))
    coords = {"time": range(4), "theta": np.array(LATS) + 300, "theta_bnds": edges(np.array(LATS) + 300, 5)}
    return one(Expected(field(range(4), LATS, LONS), coords, ("time", "theta", "lon")))


# Years


@cases
def years_and_days(f: Folder) -> Outcome:
    """A year is 365.242198781 days in every calendar (CF 4.4)."""
    f("a", cube([0, 400], time=(("time",), np.array([0.0, 400.0]), {**TIME, "calendar": "noleap"})))
    f(
        "b",
        cube([2, 3], time=(("time",), np.array([2.0, 3.0]), {**TIME, "units": "years since 2000-01-01", "calendar": "noleap"})),
    )
    times = [0, 400, 2 * 365.242198781, 3 * 365.242198781]
    return one(tas(times, values=field([0, 400, 2, 3], LATS, LONS)))


@cases
def months_and_common_years(f: Folder) -> Outcome:
    """A month is a twelfth of a year; a common year has 365 days."""
    for name, step, units in (("a", 1, "months"), ("b", 2, "common_years")):
        attrs = {**TIME, "units": f"{units} since 2000-01-01", "calendar": "360_day"}
        f(name, cube([step], time=(("time",), np.array([float(step)]), attrs)))
    return one(tas([1, 730 * 12 / 365.242198781], values=field([1, 2], LATS, LONS)))


# Bounds


def _levels(days: Any, **attrs: Any) -> Made:
    """Return variables on pressure levels; ``attrs``: of their bounds."""
    made = cube(days, lat=None, tas=(("time", "plev", "lon"), field(days, (1000.0, 850.0, 500.0), LONS), TAS))
    return with_bounds({**made, "plev": (("plev",), np.array([1000.0, 850.0, 500.0]), PLEV)}, "plev", 50, **attrs)


def _on_levels(levels: Any, bounds: Any, stored: Any = (1000.0, 850.0, 500.0)) -> Expected:
    coords = {"time": range(4), "plev": levels, "plev_bnds": bounds}
    return Expected(field(range(4), stored, LONS), coords, ("time", "plev", "lon"))


@cases
def bounds_in_units_of_the_rules(f: Folder) -> Outcome:
    """Bounds follow their coordinate into the requested units."""
    f("a", _levels([0, 1]))
    f("b", _levels([2, 3]))
    return one(_on_levels([100, 85, 50], edges([100, 85, 50], 5)[:, ::-1]), rules={"units": {"plev": "kPa"}})


@cases
def bounds_by_the_standard_name_of_the_coordinate(f: Folder) -> Outcome:
    """Bounds have no standard name; their coordinate has."""
    f("a", _levels([0, 1]))
    f("b", _levels([2, 3]))
    return one(_on_levels([100, 85, 50], edges([100, 85, 50], 5)[:, ::-1]), rules={"units": {"air_pressure": "kPa"}})


@cases
def bounds_in_the_direction_of_the_rules(f: Folder) -> Outcome:
    """Pairs run as the coordinate runs (CF 7.1)."""
    f("a", _levels([0, 1]))
    f("b", turned(_levels([2, 3]), "plev"))
    upwards = [500.0, 850.0, 1000.0]
    return one(_on_levels(upwards, edges(upwards, 50), upwards), rules={"directions": {"plev": True}})


@cases
def bounds_in_units_of_their_own(f: Folder) -> Outcome:
    """Bounds in Pa of levels in hPa become hPa."""
    made = _levels([0, 1], units="Pa")
    f("a", changed(made, "plev_bnds", made["plev_bnds"][1] * 100))
    f("b", _levels([2, 3]))
    return one(_on_levels([1000, 850, 500], edges([1000, 850, 500], 50)[:, ::-1]))


@cases
def bounds_that_do_not_convert(f: Folder) -> Outcome:
    """Bounds in metres of levels in hPa are skipped with a reason."""
    f("a", _levels([0, 1], units="m"))
    result = field([0, 1], (1000.0, 850.0, 500.0), LONS)
    return one(Expected(result, {"plev": [1000, 850, 500]}, ("time", "plev", "lon")), skipped=("a.nc",))


@cases
def bounds_of_times_with_an_epoch_of_their_own(f: Folder) -> Outcome:
    """Time bounds since another date, and times in the units of the rules."""
    for name, days in (("a", [0, 1]), ("b", [2, 3])):
        made = with_bounds(cube(days), "time", 0.5, units="hours since 1999-12-31")
        f(name, changed(made, "time_bnds", made["time_bnds"][1] * 24 + 24))
    hours = np.arange(4) * 24.0
    rules = {"units": {"time": "hours since 2000-01-01"}}
    return one(tas(hours, values=field(range(4), LATS, LONS), coords={"time_bnds": edges(hours, 12)}), rules=rules)


@cases
def climatology_bounds(f: Folder) -> Outcome:
    """Bounds named by the attribute climatology follow too."""
    for name, days in (("a", [15, 45]), ("b", [75, 105])):
        made = with_bounds(cube(days), "time", 15.0)
        f(name, changed(changed(made, "time", bounds=None, climatology="time_bnds"), "tas", cell_methods="time: mean"))
    hours = np.array([15, 45, 75, 105]) * 24.0
    rules = {"units": {"time": "hours since 2000-01-01"}}
    return one(tas(hours, values=field([15, 45, 75, 105], LATS, LONS), coords={"time_bnds": edges(hours, 360)}), rules=rules)


@cases
def bounds_of_a_latitude_in_degrees(f: Folder) -> Outcome:
    """An equivalent spelling of a unit is not a difference."""
    f("a", with_bounds(cube([0, 1]), "lat", 5, units="degrees"))
    f("b", with_bounds(cube([2, 3]), "lat", 5, units=LAT["units"]))
    return one(tas(range(4), coords={"lat_bnds": edges(LATS, 5)}))
