"""Cases of positions along dimensions: overlaps, interleaving, holes."""

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
    Problem,
    changed,
    edges,
    one,
    scalar_time,
    tas,
    turned,
    with_bounds,
)
from tests.support.netcdf import TAS, TIME, cube, field

cases = Cases()
NO_TIME = {"standard_name": "air_temperature", "units": "K"}


@cases
def three_files_of_days(f: Folder) -> Outcome:
    """Along one dimension, names in no order."""
    for name, start in (("c", 0), ("a", 2), ("b", 4)):
        f(name, cube([start, start + 1]))
    return one(tas(range(6), pmshape=(3,), dtype=np.float32), problems=[])


@cases
def single_steps(f: Folder) -> Outcome:
    """One step in each file, time as a dimension."""
    for step in range(7):
        f(f"f{(step * 3) % 7}", cube([step]))
    return one(tas(range(7), pmshape=(7,)))


@cases
def scalar_times(f: Folder) -> Outcome:
    """Scalar times of one step each become the leading dimension."""
    for step in range(5):
        f(f"f{9 - step}", scalar_time(step))
    return one(tas(range(5)), problems=[])


@cases
def scalar_time_among_time_dimensions(f: Folder) -> Outcome:
    """A scalar time between two files that have time as a dimension."""
    f("a", cube([3, 4]))
    f("b", scalar_time(2))
    f("c", cube([0, 1]))
    return one(tas(range(5), pmshape=(3,)))


@cases
def scalar_time_first_among_time_dimensions(f: Folder) -> Outcome:
    """A scalar time is the lowest: time is a dimension of master and bounds."""
    f("b", with_bounds(cube([1, 2]), "time", 0.5))
    f("c", with_bounds(scalar_time(0), "time", 0.5))
    return one(tas(range(3), coords={"time_bnds": edges(range(3), 0.5)}))


@cases
def odd_and_even_days(f: Folder) -> Outcome:
    """Interleaved times are joined; every run is a virtual partition."""
    f("odd", cube([1, 3, 5]))
    f("even", cube([0, 2, 4]))
    return one(tas(range(6), pmshape=(6,), uris=("odd.nc", "even.nc")), problems=[])


@cases
def interleaved_runs(f: Folder) -> Outcome:
    """Runs of several steps stay whole: 0 1 | 2 3 | 4 5 | 6."""
    f("a", cube([2, 3, 6]))
    f("b", cube([0, 1, 4, 5]))
    return one(tas(range(7), pmshape=(4,)))


@cases
def files_by_calendar_month(f: Folder) -> Outcome:
    """All Januaries in one file, all Februaries in another, all Marches."""
    for name, month in (("mar", 2), ("jan", 0), ("feb", 1)):
        f(name, cube([month + 30 * 12 * year for year in range(3)]))
    return one(tas(sorted(m + 360 * y for m in range(3) for y in range(3)), pmshape=(9,)))


@cases
def one_file_within_the_gap_of_another(f: Folder) -> Outcome:
    """Days 0, 1, 8, 9 in one file, 3 to 5 in another."""
    f("a", cube([0, 1, 8, 9]))
    f("b", cube([3, 4, 5]))
    return one(tas([0, 1, 3, 4, 5, 8, 9], pmshape=(3,)))


@cases
def interleaved_with_a_descending_time(f: Folder) -> Outcome:
    """Interleaved times, one file descends; the lowest gives the direction."""
    f("b", cube([0, 2, 4]))
    f("a", turned(cube([1, 3, 5]), "time"))
    return one(tas(range(6)))


@cases
def interleaved_pressure_levels(f: Folder) -> Outcome:
    """Interleaved levels at the same times are joined: there are no holes."""

    def levels(values: list[float]) -> Made:
        plev = (("plev",), np.array(values), {"standard_name": "air_pressure", "units": "hPa", "positive": "down"})
        tas = (("time", "plev", "lon"), field([0, 1], values, LONS), TAS)
        return cube([0, 1], values, lat=None, plev=plev, tas=tas)

    f("a", levels([1000.0, 500.0]))
    f("b", levels([850.0, 250.0]))
    expected = [1000.0, 850.0, 500.0, 250.0]
    coords = {"time": [0, 1], "plev": expected, "lon": LONS}
    return one(Expected(field([0, 1], expected, LONS), coords, ("time", "plev", "lon")))


@cases
def latitudes_a_little_off_at_the_same_times(f: Folder) -> Outcome:
    """Latitudes shifted by 2.5e-3 of a spacing of 1.25 are another grid."""
    lats = np.arange(0, 12.5, 1.25)
    f("a", cube([0, 1], lats))
    f("b", cube([0, 1], lats + 2.5e-3))
    return Outcome(
        [tas([0, 1], lats), tas([0, 1], lats + 2.5e-3)], [ExpectedRefusal("coordinate_values", ("lat", "a.nc", "b.nc"))]
    )


@cases
def two_grids_at_different_times(f: Folder) -> Outcome:
    """Interleaving latitudes at other times would leave half holes: separate."""
    other = (12.0, 22.0, 32.0)
    f("a", cube([0, 1]))
    f("b", cube([2, 3], other))
    return Outcome(
        [tas([0, 1]), tas([2, 3], other)], [ExpectedRefusal("coordinate_values", ("lat", "10", "12", "a.nc", "b.nc"))]
    )


@cases
def two_grids_two_files_each(f: Folder) -> Outcome:
    """Two grids that alternate in time give two arrays, not four."""
    other = (12.0, 22.0, 32.0)
    for name, times, lats in (("d", [0, 1], LATS), ("c", [2, 3], other), ("b", [4, 5], LATS), ("a", [6, 7], other)):
        f(name, cube(times, lats))
    return Outcome([tas([0, 1, 4, 5]), tas([2, 3, 6, 7], other)], [ExpectedRefusal("coordinate_values", ("lat",))])


@cases
def hemispheres(f: Folder) -> Outcome:
    """Tiles along latitude, with bounds."""
    f("north", with_bounds(cube([0, 1], [5.0, 15.0, 25.0]), "lat", 5))
    f("south", with_bounds(cube([0, 1], [-25.0, -15.0, -5.0]), "lat", 5))
    lats = [-25.0, -15.0, -5.0, 5.0, 15.0, 25.0]
    return one(tas([0, 1], lats, coords={"lat_bnds": edges(lats, 5)}, pmshape=(2,)))


def _tile(f: Folder, name: str, lats: list[float], lons: list[float], times: tuple[float, ...] = (0.0, 1.0)) -> None:
    f(name, cube(times, lats, lons))


@cases
def misaligned_tiles(f: Folder) -> Outcome:
    """Five tiles whose edges do not meet (a pinwheel): one pass, no holes."""
    _tile(f, "e", [0, 1], [0, 1, 2, 3])
    _tile(f, "a", [0, 1, 2, 3], [4, 5])
    _tile(f, "d", [4, 5], [2, 3, 4, 5])
    _tile(f, "b", [2, 3, 4, 5], [0, 1])
    _tile(f, "c", [2, 3], [2, 3])
    return one(tas([0, 1], range(6), range(6), pmshape=(3, 3)), problems=[])


@cases
def tiles_with_a_duplicate(f: Folder) -> Outcome:
    """Four tiles, one of them twice: used once, and reported."""
    for n, (lat, lon) in enumerate([(0, 0), (0, 2), (2, 0), (2, 2)]):
        _tile(f, f"t{3 - n}", [lat, lat + 1], [lon, lon + 1])
    _tile(f, "again", [2, 3], [0, 1])
    return one(tas([0, 1], range(4), range(4), pmshape=(2, 2)), problems=[Problem("duplicate", ("again.nc|t1.nc", "tas"))])


@cases
def a_tile_is_missing(f: Folder) -> Outcome:
    """Three of four tiles: the hole reads as missing and is reported."""
    for name, lat, lon in (("c", 0, 0), ("b", 0, 2), ("a", 2, 2)):
        _tile(f, name, [lat, lat + 1], [lon, lon + 1])
    values = field([0, 1], range(4), range(4))
    values[:, 2:, :2] = np.nan
    return one(tas([0, 1], range(4), range(4), values=values), problems=[Problem("hole", ("tas",))])


@cases
def a_missing_tile_refused(f: Folder) -> Outcome:
    """With holes="refuse", the tiles are divided along the first dimension."""
    for name, lat, lon in (("c", 0, 0), ("b", 0, 2), ("a", 2, 2)):
        _tile(f, name, [lat, lat + 1], [lon, lon + 1])
    expected = [tas([0, 1], range(2), range(4)), tas([0, 1], range(2, 4), range(2, 4))]
    return Outcome(expected, [ExpectedRefusal("coverage", ("75%",))], rules={"holes": "refuse"})


@cases
def two_corner_tiles(f: Folder) -> Outcome:
    """Half covered is not more than half: separate."""
    _tile(f, "b", [0, 1], [0, 1])
    _tile(f, "a", [2, 3], [2, 3])
    return Outcome(
        [tas([0, 1], [0, 1], [0, 1]), tas([0, 1], [2, 3], [2, 3])], [ExpectedRefusal("coverage", ("50%", "a.nc", "b.nc"))]
    )


@cases
def tiles_of_times_and_latitudes(f: Folder) -> Outcome:
    """Tiles in time and space, the northern ones divided differently in time."""
    f("e", cube([0, 1, 2], [10.0]))
    f("d", cube([3, 4, 5], [10.0]))
    f("c", cube([0], [20.0, 30.0]))
    f("b", cube([1, 2, 3, 4], [20.0, 30.0]))
    f("a", cube([5], [20.0, 30.0]))
    return one(tas(range(6), pmshape=(4, 2)))


@cases
def a_file_of_no_steps(f: Folder) -> Outcome:
    """A time of length zero does not prevent the join and is never the first."""
    f("c", cube([0, 1]), unlimited=("time",))
    f("a", changed(cube([]), "tas", units="degC"), unlimited=("time",))
    f("b", cube([2, 3]), unlimited=("time",))
    return one(tas(range(4)))


@cases
def a_time_that_runs_backwards(f: Folder) -> Outcome:
    """One file's time descends: it is reversed to the first's direction."""
    f("b", cube([0, 1, 2]))
    f("a", turned(cube([3, 4, 5]), "time"))
    return one(tas(range(6)))


@cases
def a_time_that_does_not_run_one_way(f: Folder) -> Outcome:
    """A file with a time that is not monotonic stays separate."""
    f("c", cube([0, 1]))
    f("b", cube([2, 3]))
    f("odd", cube([4, 6, 5]))
    return Outcome([tas(range(4)), tas([4, 6, 5])], [ExpectedRefusal("not_monotonic", ("time", "odd.nc"))])


@cases
def directions_wanted(f: Folder) -> Outcome:
    """Latitudes from north to south, as requested."""
    f("b", cube([0, 1]))
    f("a", turned(cube([2, 3]), "lat"))
    return one(tas(range(4), LATS[::-1]), rules={"directions": {"lat": False}})


@cases
def along_time_only(f: Folder) -> Outcome:
    """Rules(along=["time"]): tiles of latitude stay separate, joined in time."""
    for name, times, lats in (("d", [0], [10.0]), ("c", [1], [10.0]), ("b", [0], [20.0]), ("a", [1], [20.0])):
        f(name, cube(times, lats))
    return Outcome(
        [tas([0, 1], [10.0]), tas([0, 1], [20.0])], [ExpectedRefusal("along", ("lat", "10", "20"))], rules={"along": ["time"]}
    )


def _steps(value: float, steps: int) -> Made:
    return {"lat": cube([0])["lat"], "tas": (("step", "lat"), np.full((steps, 3), value, "f4"), NO_TIME)}


def _stepwise(*values: float, **coords: Any) -> Expected:
    expected = np.repeat(np.array(values, "f4")[:, None], 3, axis=1)
    return Expected(expected, {"lat": LATS, **coords}, ("step", "lat"))


@cases
def no_coordinate_joined_by_name(f: Folder) -> Outcome:
    """Steps without a coordinate: in the order of the file names."""
    for name, value, steps in (("c", 0, 2), ("a", 1, 1), ("b", 2, 2)):
        f(name, _steps(value, steps))
    return one(_stepwise(1, 2, 2, 0, 0), rules={"order": {"step": "name"}})


@cases
def no_coordinate_joined_as_given(f: Folder) -> Outcome:
    """In the order given: the only rule that depends on the order of files."""
    for name, value, steps in (("c", 0, 2), ("a", 1, 1), ("b", 2, 2)):
        f(name, _steps(value, steps))
    return one(_stepwise(0, 0, 1, 2, 2), rules={"order": {"step": "given"}}, as_given=True)


@cases
def no_coordinate_and_no_order(f: Folder) -> Outcome:
    """Without a coordinate or order: separate, with advice in the reason."""
    f("b", _steps(0, 2))
    f("a", _steps(1, 1))
    return Outcome([_stepwise(0, 0), _stepwise(1)], [ExpectedRefusal("no_coordinate", ("step", "order", "a.nc", "b.nc"))])


@cases
def numbered_steps_without_units(f: Folder) -> Outcome:
    """A coordinate variable without units or standard name gives positions."""
    for name, start in (("b", 0), ("a", 2)):
        made = _steps(start, 2)
        made["step"] = (("step",), np.arange(start, start + 2), {})
        f(name, made)
    return one(_stepwise(0, 0, 2, 2, step=range(4)))


@cases
def time_gaps_are_no_holes(f: Folder) -> Outcome:
    """Missing days do not exist in the array."""
    for name, times in (("c", [0, 1]), ("a", [10, 11]), ("b", [500])):
        f(name, cube(times))
    return one(tas([0, 1, 10, 11, 500]))


@cases
def heights_in_two_files(f: Folder) -> Outcome:
    """Scalar heights at the same times become a leading dimension."""
    for name, height in (("a", 10.0), ("b", 2.0)):
        made = cube([0, 1], height=((), np.float64(height), {"standard_name": "height", "units": "m"}))
        f(name, changed(made, "tas", made["tas"][1] + np.float32(height), coordinates="height"))
    values = np.stack([field([0, 1], LATS, LONS) + np.float32(h) for h in (2, 10)])
    coords = {"height": [2.0, 10.0]}
    return one(tas([0, 1], values=values, coords=coords, dimensions=("height", "time", "lat", "lon")))


@cases
def heights_at_different_times(f: Folder) -> Outcome:
    """Heights at different times would leave half holes: separate."""
    for name, height, times in (("a", 10.0, [2, 3]), ("b", 2.0, [0, 1])):
        made = cube(times, height=((), np.float64(height), {"standard_name": "height", "units": "m"}))
        f(name, changed(made, "tas", coordinates="height"))
    expected = [tas([0, 1], coords={"height": 2.0}), tas([2, 3], coords={"height": 10.0})]
    return Outcome(expected, [ExpectedRefusal("coverage|coordinate_values|coordinate", ("height", "a.nc", "b.nc"))])


@cases
def hours_of_two_satellites(f: Folder) -> Outcome:
    """Hourly times of integer type, one file at even and one at odd hours."""
    for name, hours in (("b", [0, 2, 4]), ("a", [1, 3, 5])):
        time = (("time",), np.array(hours, "i4"), {**TIME, "units": "hours since 2000-01-01"})
        f(name, cube(hours, time=time))
    return one(tas(range(6)))
