"""Cases of differences that are conformed to the first file."""

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
    one,
    tas,
    with_bounds,
)
from tests.support.netcdf import TAS, TIME, cube, field

cases = Cases()
HEIGHT = {"standard_name": "height", "units": "m", "positive": "up"}


def _two(f: Folder, first: Made, second: Made, **how: Any) -> None:
    """Write the files of days 0, 1 and 2, 3, the later one first by name."""
    f("b", first, **how)
    f("a", second, **how)


@cases
def kelvin_and_celsius(f: Folder) -> Outcome:
    """The first is in K, the second in degC: the master is in K."""
    celsius = changed(cube([2, 3]), "tas", field([2, 3], LATS, LONS, "f8") - 273.15, units="degC")
    _two(f, cube([0, 1]), celsius)
    return one(tas(range(4), units="K", rtol=1e-6))


@cases
def celsius_first(f: Folder) -> Outcome:
    """The first in time determines the units."""
    celsius = changed(cube([0, 1]), "tas", field([0, 1], LATS, LONS, "f8") - 273.15, units="degC")
    _two(f, celsius, cube([2, 3]))
    return one(tas(range(4), values=field(range(4), LATS, LONS, "f8") - 273.15, units="degC", rtol=1e-6))


@cases
def three_units_of_speed(f: Folder) -> Outcome:
    """m s-1, km/h and knots; a missing value that stays missing."""
    speeds = np.arange(18, dtype="f8").reshape(3, 3, 2)
    for n, (name, units, factor) in enumerate((("c", "m s-1", 1), ("b", "km/h", 3.6), ("a", "knot", 3600 / 1852))):
        values = speeds[n : n + 1] * factor
        values[0, n, 0] = 1e20
        made = cube(
            [n], tas=(("time", "lat", "lon"), values, {"standard_name": "wind_speed", "units": units, "_FillValue": 1e20})
        )
        f(name, made)
    expected = speeds.copy()
    expected[range(3), range(3), 0] = np.nan
    return one(tas(range(3), values=expected, units="m s-1", rtol=1e-12))


@cases
def single_and_double(f: Folder) -> Outcome:
    """float32 and float64 give float64."""
    _two(f, cube([0, 1]), changed(cube([2, 3]), "tas", field([2, 3], LATS, LONS, "f8")))
    values = field(range(4), LATS, LONS, "f8")
    values[:2] = field([0, 1], LATS, LONS)
    return one(tas(range(4), values=values, dtype=np.float64))


@cases
def floats_and_integers(f: Folder) -> Outcome:
    """Floats, then integers with a missing value: NaN in the float master."""
    whole = np.arange(12, dtype="i2").reshape(2, 3, 2)
    _two(f, cube([0, 1]), changed(cube([2, 3]), "tas", whole, _FillValue=np.int16(7)))
    expected = np.where(whole == 7, np.nan, whole).astype("f4")
    return one(tas(range(4), values=np.concatenate([field([0, 1], LATS, LONS), expected]), dtype=np.float32))


@cases
def integers_of_two_widths(f: Folder) -> Outcome:
    """int16 and int32 give int32."""
    whole = np.arange(24, dtype="i4").reshape(4, 3, 2)
    late = whole[2:] * 100_000
    _two(f, changed(cube([0, 1]), "tas", whole[:2].astype("i2")), changed(cube([2, 3]), "tas", late))
    return one(tas(range(4), values=np.concatenate([whole[:2], late]), dtype=np.int32))


@cases
def packed_with_a_scale_of_its_own_each(f: Folder) -> Outcome:
    """int16 packed, scale, offset and missing value different in every file."""
    expected = []
    packings = (("c", 0.5, 10.0, -32767), ("a", 0.25, -5.0, -1), ("b", 2.0, 0.0, 32767))
    for n, (name, scale, offset, missing) in enumerate(packings):
        stored = (np.arange(12, dtype="i2") * (n + 1)).reshape(2, 3, 2)
        stored[1, n, 1] = missing
        attrs = {"scale_factor": scale, "add_offset": offset, "_FillValue": np.int16(missing)}
        f(name, changed(cube([2 * n, 2 * n + 1]), "tas", stored, **attrs))
        expected.append(np.where(stored == missing, np.nan, stored * scale + offset))
    return one(tas(range(6), values=np.concatenate(expected)))


@cases
def packed_and_plain(f: Folder) -> Outcome:
    """One file packed, the other plain."""
    stored = np.arange(12, dtype="u1").reshape(2, 3, 2)
    packed = changed(cube([0, 1]), "tas", stored, scale_factor=np.float32(0.5), add_offset=np.float32(200))
    _two(f, packed, cube([2, 3]))
    values = np.concatenate([stored.astype("f4") / 2 + 200, field([2, 3], LATS, LONS)])
    return one(tas(range(4), values=values))


@cases
def unsigned_bytes(f: Folder) -> Outcome:
    """Signed bytes with _Unsigned equal unsigned bytes."""
    whole = np.arange(100, 124, dtype="u1").reshape(4, 3, 2) + np.uint8(100)
    first = changed(cube([0, 1]), "tas", whole[:2].view("i1"), _Unsigned="true", _FillValue=np.int8(-1))
    _two(f, first, changed(cube([2, 3]), "tas", whole[2:]))
    return one(tas(range(4), values=whole))


@cases
def valid_range_in_one_file(f: Folder) -> Outcome:
    """Values outside the valid range of their own file are missing."""
    values = field([0, 1], LATS, LONS)
    ranged = changed(cube([0, 1]), "tas", valid_range=np.array([15, 125], "f4"))
    _two(f, ranged, cube([2, 3]))
    expected = np.where((values < 15) | (values > 125), np.nan, values)
    assert np.isnan(expected).any() and not np.isnan(expected).all()
    return one(tas(range(4), values=np.concatenate([expected, field([2, 3], LATS, LONS)])))


@cases
def integers_with_two_missing_values(f: Folder) -> Outcome:
    """-1 is missing in the first file and valid in the second."""
    first, second = np.arange(12).reshape(2, 3, 2) - 1, np.arange(12).reshape(2, 3, 2) - 9
    _two(
        f,
        changed(cube([0, 1]), "tas", first.astype("i4"), _FillValue=np.int32(-1)),
        changed(cube([2, 3]), "tas", second.astype("i4"), _FillValue=np.int32(-9)),
    )
    both = np.concatenate([first, second])
    mask = np.concatenate([first == -1, second == -9])
    return one(tas(range(4), values=np.ma.MaskedArray(both, mask), dtype=np.int32))


@cases
def missing_value_without_fill_value(f: Folder) -> Outcome:
    """`missing_value` alone, and NaN: missing either way."""
    values = field(range(4), LATS, LONS)
    values[1, 1, 1] = values[2, 0, 0] = np.nan
    first = changed(cube([0, 1]), "tas", np.nan_to_num(values[:2], nan=-999), missing_value=np.float32(-999))
    _two(f, first, changed(cube([2, 3]), "tas", values[2:]))
    return one(tas(range(4), values=values))


@cases
def dimensions_in_another_order(f: Folder) -> Outcome:
    """(lon, time, lat) is turned into (time, lat, lon)."""
    other = cube([2, 3])
    other["tas"] = (("lon", "time", "lat"), other["tas"][1].transpose(2, 0, 1), TAS)
    _two(f, cube([0, 1]), other)
    return one(tas(range(4)))


@cases
def dimensions_of_other_names(f: Folder) -> Outcome:
    """Coordinates are matched by standard name; cell methods follow the names."""
    other = cube([2, 3])
    names = {"time": "t", "lat": "latitude", "lon": "longitude"}
    made = {n: ((n,), *other[old][1:]) for old, n in names.items()}
    made["tas"] = (tuple(names.values()), other["tas"][1], {**TAS, "cell_methods": "t: mean"})
    _two(f, cube([0, 1]), made)
    return one(tas(range(4)))


def _with_height(times: list[float], as_dimension: bool, height: float = 2.0, units: str = "m") -> Made:
    made = cube(times)
    if not as_dimension:
        made["height"] = ((), np.float64(height), {**HEIGHT, "units": units})
        return changed(made, "tas", coordinates="height")
    made["height"] = (("height",), np.array([height]), {**HEIGHT, "units": units})
    made["tas"] = (("time", "height", "lat", "lon"), made["tas"][1][:, None], TAS)
    return made


@cases
def a_height_dimension_first_and_a_scalar_height(f: Folder) -> Outcome:
    """A size-1 height, then a scalar one: the first's dimensions remain."""
    _two(f, _with_height([0, 1], True), _with_height([2, 3], False))
    dimensions = ("time", "height", "lat", "lon")
    return one(tas(range(4), values=field(range(4), LATS, LONS)[:, None], coords={"height": [2.0]}, dimensions=dimensions))


@cases
def a_scalar_height_first_and_a_height_dimension(f: Folder) -> Outcome:
    """A scalar height, then a size-1 one: the dimension is dropped."""
    _two(f, _with_height([0, 1], False), _with_height([2, 3], True))
    return one(tas(range(4), coords={"height": 2.0}))


@cases
def a_scalar_height_in_two_units(f: Folder) -> Outcome:
    """2 m and 200 cm are one height."""
    _two(f, _with_height([0, 1], False), _with_height([2, 3], False, 200.0, "cm"))
    return one(tas(range(4), coords={"height": 2.0}))


@cases
def stored_otherwise(f: Folder) -> Outcome:
    """Chunks, compression, shuffling, checksums and byte order do not matter."""
    ways = [
        {"zlib": True, "chunksizes": (1, 2, 2)},
        {"contiguous": True, "endian": "big"},
        {"zlib": True, "shuffle": False, "complevel": 9, "fletcher32": True},
        {"chunksizes": (2, 1, 1), "endian": "big"},
    ]
    for n, way in enumerate(ways):
        f.stored(f"f{(n * 3) % 4}", cube([2 * n, 2 * n + 1]), **way)
    return one(tas(range(8)))


@cases
def six_file_formats(f: Folder) -> Outcome:
    """Files of netCDF-3 (two kinds), netCDF-4, HDF5, Zarr 2 and 3 are joined."""
    f("f4", cube([0, 1]), format="NETCDF3_CLASSIC", unlimited=("time",))
    f("f1", cube([2, 3]), format="NETCDF3_64BIT_OFFSET")
    f("f5", cube([4, 5]))
    f.hdf5("f0", cube([6, 7]))
    f.zarr("f3", cube([8, 9]), 2)
    f.zarr("f2", cube([10, 11]), 3)
    return one(tas(range(12)))


@cases
def the_commonest_name(f: Folder) -> Outcome:
    """Names differ under one standard name: the master takes the commonest."""
    for n, (name, variable) in enumerate((("d", "t2m"), ("a", "tas"), ("c", "tas"), ("b", "T2"))):
        made = cube([n])
        made[variable] = made.pop("tas")
        f(name, made)
    return one(tas(range(4), name="tas"))


@cases
def long_name_only(f: Folder) -> Outcome:
    """Without a standard name, the long name identifies an array."""
    for name, variable, start in (("b", "x", 0), ("a", "x", 2), ("c", "y", 4)):
        made = cube([start, start + 1])
        dimensions, values, _ = made.pop("tas")
        f(name, {**made, variable: (dimensions, values, {"long_name": "an index", "units": "1"})})
    return one(tas(range(6), name="x", units="1"))


@cases
def other_attributes(f: Folder) -> Outcome:
    """Equal attributes and the first's long name are kept."""
    first = changed(cube([0, 1]), "tas", comment="x", source="s", long_name="early")
    _two(f, first, changed(cube([2, 3]), "tas", comment="y", source="s", long_name="late"))
    return one(tas(range(4), attrs={"comment": None, "source": "s", "long_name": "early"}))


@cases
def text(f: Folder) -> Outcome:
    """Strings in one file, characters in the other, joined along time."""

    def made(times: list[float], names: Any) -> Made:
        dimensions = ("time",) if np.ndim(names) == 1 else ("time", "length")
        return {"time": (("time",), np.array(times), TIME), "name": (dimensions, names, {"long_name": "name"})}

    f("b", made([0.0, 1.0], np.array(["Ä", "bc"])))
    f("a", made([2.0, 3.0], np.array([b"def", b"g  "]).view("S1").reshape(2, 3)))
    expected = np.array(["Ä", "bc", "def", "g"], object)
    return one(Expected(expected, {"time": range(4)}, ("time",), "name", None))


@cases
def text_coordinates(f: Folder) -> Outcome:
    """Basins by name: strings and characters are equal where their text is."""

    def made(times: list[float], basins: Any) -> Made:
        dimensions = ("basin",) if np.ndim(basins) == 1 else ("basin", "length")
        result = cube(times, lat=None, lon=None)
        result["region"] = (dimensions, basins, {"standard_name": "region"})
        result["tas"] = (("time", "basin"), np.array(times)[:, None] * 10 + [0.0, 1.0], {**TAS, "coordinates": "region"})
        return result

    f("b", made([0.0, 1.0], np.array(["atlantic", "indian"])))
    f("a", made([2.0, 3.0], np.array([b"atlantic", b"indian"]).view("S1").reshape(2, 8)))
    values = np.arange(4.0)[:, None] * 10 + [0.0, 1.0]
    return one(Expected(values, {"region": np.array(["atlantic", "indian"])}, ("time", "basin")))


@cases
def text_coordinates_that_differ(f: Folder) -> Outcome:
    """Other basins, other arrays."""
    expected = []
    for name, start, basins in (("b", 0, ["atlantic", "indian"]), ("a", 2, ["atlantic", "pacific"])):
        made = cube([start, start + 1], lat=None, lon=None)
        made["region"] = (("basin",), np.array(basins), {"standard_name": "region"})
        made["tas"] = (("time", "basin"), np.full((2, 2), start * 1.0), {**TAS, "coordinates": "region"})
        f(name, made)
        expected.append(Expected(made["tas"][1], {"region": np.array(basins)}, ("time", "basin")))
    return Outcome(expected, [ExpectedRefusal("coordinate", ("region", "indian", "pacific", "a.nc", "b.nc"))])


@cases
def everything_at_once(f: Folder) -> Outcome:
    """Order, direction, units, packing, name, epoch and format differ."""
    other = cube([0, 1], LATS[::-1])
    celsius = (field([2, 3], LATS[::-1], LONS, "f8") - 273.15).transpose(2, 1, 0)
    attrs = {"standard_name": "air_temperature", "units": "degC", "cell_methods": "time:   mean", "scale_factor": 0.01}
    made = {
        "time": (("time",), np.array([0, 24], "i4"), {**TIME, "units": "hours since 2000-01-03"}),
        "lat": other["lat"],
        "lon": other["lon"],
        "t": (("lon", "lat", "time"), np.round(celsius * 100).astype("i4"), attrs),
    }
    f("c", cube([0, 1]))
    f("b", made, format="NETCDF3_CLASSIC")
    f("a", cube([4, 5]))
    return one(tas(range(6), rtol=1e-4))


@cases
def time_bounds_in_some_order(f: Folder) -> Outcome:
    """Bounds are joined as their coordinate is."""
    for name, start in (("c", 0), ("a", 2), ("b", 4)):
        f(name, with_bounds(cube([start, start + 1]), "time", 0.5))
    expected = np.stack([np.arange(6) - 0.5, np.arange(6) + 0.5], axis=-1)
    return one(tas(range(6), coords={"time_bnds": expected}))
