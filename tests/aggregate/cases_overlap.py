"""Cases of exact duplicates and of overlaps, refused or served."""

import numpy as np

from tests.support.cases import (
    LATS,
    LONS,
    Cases,
    ExpectedRefusal,
    Folder,
    Outcome,
    Problem,
    changed,
    one,
    scalar_time,
    tas,
    turned,
)
from tests.support.netcdf import cube, field

cases = Cases()


@cases
def a_copy_of_a_file(f: Folder) -> Outcome:
    """An exact duplicate is used once; its other attributes may differ."""
    f("c", cube([0, 1]), {"history": "made"})
    f("a", cube([2, 3]), {"history": "made"})
    f("b", changed(cube([2, 3]), "tas", comment="copied"), {"history": "copied"})
    return one(tas(range(4)), problems=[Problem("duplicate", ("b.nc|a.nc", "tas"))])


@cases
def a_copy_with_missing_values(f: Folder) -> Outcome:
    """Missing values are equal, independent of their encoding."""
    values = field([0, 1], LATS, LONS)
    values[0, 1, 1] = -9
    f("a", changed(cube([0, 1]), "tas", values, _FillValue=np.float32(-9)))
    f("b", changed(cube([0, 1]), "tas", np.where(values == -9, np.float32(1e20), values), missing_value=np.float32(1e20)))
    return one(tas([0, 1], values=np.where(values == -9, np.nan, values)), problems=[Problem("duplicate")])


@cases
def a_copy_in_another_format_and_packing(f: Folder) -> Outcome:
    """A duplicate has equal values: packed, netCDF-3, reversed latitudes."""
    values = np.arange(12, dtype="f4").reshape(2, 3, 2) / 2
    f("a", changed(cube([0, 1]), "tas", values))
    packed = changed(cube([0, 1]), "tas", (values * 2).astype("i2"), scale_factor=np.float32(0.5), add_offset=np.float32(0))
    f("b", turned(packed, "lat"), format="NETCDF3_CLASSIC")
    return one(tas([0, 1], values=values), problems=[Problem("duplicate")])


@cases
def the_same_places_with_other_values(f: Folder) -> Outcome:
    """Equal positions with other values overlap; the relative is the lowest."""
    f("a", cube([0, 1]))
    f("b", changed(cube([0, 1]), "tas", field([0, 1], LATS, LONS) + 1))
    expected = [tas([0, 1]), tas([0, 1], values=field([0, 1], LATS, LONS) + 1)]
    return Outcome(expected, [ExpectedRefusal("overlap", ("a.nc", "b.nc"))])


@cases
def a_shared_step_of_equal_values(f: Folder) -> Outcome:
    """Equal values in the shared step alone are still an overlap."""
    f("b", cube([0, 1, 2]))
    f("a", cube([2, 3, 4]))
    return Outcome([tas([0, 1, 2]), tas([2, 3, 4])], [ExpectedRefusal("overlap", ("time", "2", "a.nc", "b.nc"))])


def _overlapping(f: Folder) -> None:
    f("b", cube([0, 1, 2]))
    f("a", changed(cube([1, 2, 3]), "tas", field([1, 2, 3], LATS, LONS) + 0.5))


@cases
def overlap_served_by_the_first(f: Folder) -> Outcome:
    """The first is the lowest in time, independent of its name."""
    _overlapping(f)
    values = field(range(4), LATS, LONS)
    values[3] += 0.5
    return one(tas(range(4), values=values), rules={"overlap": "first"})


@cases
def overlap_served_by_the_last(f: Folder) -> Outcome:
    """The last is the highest in time."""
    _overlapping(f)
    values = field(range(4), LATS, LONS)
    values[1:] += 0.5
    return one(tas(range(4), values=values), rules={"overlap": "last"})


@cases
def three_overlapping_files_of_which_two_join(f: Folder) -> Outcome:
    """The outer files are joined; the middle one overlaps both: separate."""
    f("c", cube([0, 1, 2, 3]))
    f("a", cube([2, 3, 4, 5]))
    f("b", cube([4, 5, 6, 7]))
    return Outcome([tas(range(8)), tas([2, 3, 4, 5])], [ExpectedRefusal("overlap", ("time", "2", "3", "a.nc"))])


@cases
def interleaved_times_shared_in_one_step(f: Folder) -> Outcome:
    """Every second day with one common day: an overlap, even if it is equal."""
    f("a", cube([0, 2, 4]))
    f("b", cube([1, 2, 3]))
    return Outcome([tas([0, 2, 4]), tas([1, 2, 3])], [ExpectedRefusal("overlap", ("time", "2000-01-03"))])


@cases
def interleaved_times_shared_and_served(f: Folder) -> Outcome:
    """With overlap="first", the lower file serves the common day."""
    f("a", changed(cube([1, 2, 3]), "tas", field([1, 2, 3], LATS, LONS) + 0.5))
    f("b", cube([0, 2, 4]))
    values = field(range(5), LATS, LONS)
    values[[1, 3]] += 0.5
    return one(tas(range(5), values=values), rules={"overlap": "first"})


@cases
def every_day_and_every_second_day(f: Folder) -> Outcome:
    """A file whose steps are a subset of another's is not a duplicate."""
    f("b", cube(range(6)))
    f("a", cube([1, 3, 5]))
    return Outcome([tas(range(6)), tas([1, 3, 5])], [ExpectedRefusal("overlap", ("time", "a.nc", "b.nc"))])


@cases
def a_copy_with_rolled_longitudes(f: Folder) -> Outcome:
    """A duplicate with longitudes from -180 on; the lower URI serves."""
    lons = np.arange(0.0, 360.0, 60.0)
    made = cube([0, 1], LATS, lons)
    order = np.argsort((lons + 180) % 360)
    rolled = cube([0, 1], LATS, (lons[order] + 180) % 360 - 180)
    f("a", made)
    f("b", changed(rolled, "tas", made["tas"][1][..., order]))
    return one(tas([0, 1], LATS, lons, uris=("a.nc",)), problems=[Problem("duplicate", ("a.nc|b.nc",))])


@cases
def a_folder_copied_twice(f: Folder) -> Outcome:
    """Three copies of everything: the lowest URIs serve, others are problems."""
    for folder in "cab":
        for start in (2, 0):
            f(f"{folder}/{start}", cube([start, start + 1]))
    return one(tas(range(4)), problems=[Problem("duplicate")] * 4)


@cases
def a_copy_of_single_steps(f: Folder) -> Outcome:
    """One step of many is there twice, once with time as a scalar coordinate."""
    for step in range(4):
        f(f"f{9 - step}", cube([step]))
    f("again", scalar_time(2))
    return one(tas(range(4)), problems=[Problem("duplicate", ("again.nc|f7.nc",))])


@cases
def an_empty_file_and_its_copy(f: Folder) -> Outcome:
    """Files without steps are not reported."""
    for name, times in (("c", []), ("b", []), ("a", [0, 1])):
        f(name, cube(times), unlimited=("time",))
    return one(tas([0, 1]))


@cases
def copies_before_a_real_overlap(f: Folder) -> Outcome:
    """A duplicate is dropped, and the overlap is refused."""
    f("a", cube([0, 1, 2]))
    f("b", cube([0, 1, 2]))
    f("c", changed(cube([2, 3, 4]), "tas", field([2, 3, 4], LATS, LONS) + 1))
    expected = [tas([0, 1, 2]), tas([2, 3, 4], values=field([2, 3, 4], LATS, LONS) + 1)]
    return Outcome(expected, [ExpectedRefusal("overlap", ("time", "c.nc", "[ab].nc"))])


@cases
def an_almost_copy(f: Folder) -> Outcome:
    """One value in the last digit differs: an overlap, not a copy."""
    values = field([0, 1], LATS, LONS)
    values[1, 2, 1] = np.nextafter(values[1, 2, 1], np.float32(np.inf))
    f("a", cube([0, 1]))
    f("b", changed(cube([0, 1]), "tas", values))
    return Outcome([tas([0, 1]), tas([0, 1], values=values)], [ExpectedRefusal("overlap", ("a.nc", "b.nc"))])
