"""Comparison and join of coordinates in all formats, against NumPy."""

from pathlib import Path
from typing import Any

import cftime
import h5py
import netCDF4
import numpy as np
import pytest
import zarr

import aggarray as aa
from tests.support.netcdf import LAT, LON, NOLEAP, TAS, TIME, check, cube, field, one_array, write

pytestmark = pytest.mark.quick


def test_bounds_without_units_are_joined(tmp_path: Path) -> None:
    for name, times, since in (("a", [0.0, 1.0], "2000-01-01"), ("b", [0.0, 1.0], "2000-01-03")):
        attrs = {"standard_name": "time", "units": f"days since {since}", "bounds": "time_bnds"}
        bounds = np.stack([np.array(times) - 0.5, np.array(times) + 0.5], axis=-1)
        at = [0, 1] if name == "a" else [2, 3]
        write(tmp_path / f"{name}.nc", cube(at, time=(("time",), np.array(times), attrs), time_bnds=(("time", "nv"), bounds)))
    array = one_array(aa.open(tmp_path))
    check(array, range(4))
    bounds = array.coords["time_bnds"]
    np.testing.assert_array_equal(bounds[...], [[n - 0.5, n + 0.5] for n in range(4)])
    assert bounds.units == "days since 2000-01-01"


def test_bounds_of_a_flipped_latitude(tmp_path: Path) -> None:
    for times, lats in (([0], [10.0, 20.0, 30.0]), ([1], [30.0, 20.0, 10.0])):
        pairs = np.stack([np.array(lats) - 5, np.array(lats) + 5], axis=-1)
        pairs = pairs if times == [0] else pairs[:, ::-1]
        lat = (("lat",), np.array(lats), {**LAT, "bounds": "lat_bnds"})
        made = cube(times, lats, lat=lat, lat_bnds=(("lat", "nv"), pairs))
        write(tmp_path / f"{times[0]}.nc", made)
    array = one_array(aa.open(tmp_path))
    check(array, [0, 1])
    np.testing.assert_array_equal(array.coords["lat_bnds"][...], [[5, 15], [15, 25], [25, 35]])


def test_auxiliary_coordinate_along_time(tmp_path: Path) -> None:
    for times in ([2, 3], [0, 1]):
        made = cube(times, run=(("time",), np.array(times) * 7.0, {"long_name": "run"}))
        made["tas"] = (*made["tas"][:2], {**TAS, "coordinates": "run"})
        write(tmp_path / f"{9 - times[0]}.nc", made)
    array = one_array(aa.open(tmp_path))
    np.testing.assert_array_equal(array.coords["run"][...], np.arange(4) * 7.0)


def test_string_coordinate(tmp_path: Path) -> None:
    for name, stations in (("z", ["aa", "bb"]), ("y", ["cc"])):
        values = np.array([[float(ord(s[0])) for s in stations]]).T
        variables = {
            "station": (("station",), np.array(stations)),
            "tas": (("station", "time"), values, TAS),
            "time": (("time",), np.array([0.0]), TIME),
        }
        write(tmp_path / f"{name}.nc", variables)
    array = one_array(aa.open(tmp_path))
    assert array.coords["station"][...].tolist() == ["aa", "bb", "cc"]
    np.testing.assert_array_equal(array[:, 0], [ord(c) for c in "abc"])


def test_character_coordinate_and_data(tmp_path: Path) -> None:
    def characters(words: list[str], length: int) -> np.ndarray:
        return np.array([list(w.ljust(length, "\0")) for w in words], "S1")

    for name, stations, length in (("a", ["aa", "b"], 3), ("b", ["ccc"], 5)):
        variables = {
            "station": (("station", "length"), characters(stations, length)),
            "label": (("station", "length"), characters([s.upper() for s in stations], length), {"long_name": "label"}),
            "tas": (("station",), np.arange(len(stations)) * 1.0, {**TAS, "coordinates": "station"}),
        }
        write(tmp_path / f"{name}.nc", variables, format="NETCDF3_CLASSIC")
    agg = aa.open(tmp_path)
    assert agg["label"][...].tolist() == ["AA", "B", "CCC"]
    assert agg["label"].coords["station"][...].tolist() == ["aa", "b", "ccc"]
    np.testing.assert_array_equal(agg["tas"][...], [0, 1, 0])


def test_coordinates_of_two_widths(tmp_path: Path) -> None:
    lats = np.array([10.1, 20.2, 30.3])
    write(tmp_path / "a.nc", cube([0, 1], lats))
    write(tmp_path / "b.nc", cube([2, 3], lats, lat=(("lat",), lats.astype("f4"), LAT)))
    array = one_array(aa.open(tmp_path))
    assert array.shape == (4, 3, 2)
    np.testing.assert_array_equal(array.coords["lat"][...], lats)


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "u1"])
def test_integers_far_apart(tmp_path: Path, dtype: str) -> None:
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max) - 2
    for name, first in (("a", high), ("b", low)):
        times = np.arange(first, first + 3).astype(dtype)
        write(tmp_path / f"{name}.nc", cube(times, time=(("time",), times, {**TIME, "units": "seconds since 2000-01-01"})))
    array = one_array(aa.open(tmp_path))
    assert array.coords["time"].dtype == dtype
    np.testing.assert_array_equal(array.coords["time"][...], [*range(low, low + 3), *range(high, high + 3)])


@pytest.mark.parametrize("minutes", [1, 5, 10])
def test_close_float32_times_stay_different(tmp_path: Path, minutes: int) -> None:
    """Different float32 steps stay different despite coarse rounding."""
    start, step = 40000.0, minutes / 1440
    times = (start + np.arange(8) * max(step, 1 / 128)).astype("f4")
    for name, part in (("a", times[:4]), ("b", times[4:])):
        write(tmp_path / f"{name}.nc", cube(part, time=(("time",), part, TIME)))
    array = one_array(aa.open(tmp_path))
    np.testing.assert_array_equal(array.coords["time"][...], times)


@pytest.mark.parametrize(("shift", "equal"), [(1e-5, True), (9e-5, True), (1.1e-4, False), (1e-3, False)])
def test_tolerance_is_a_fraction_of_the_spacing(tmp_path: Path, shift: float, equal: bool) -> None:
    lats = np.array([10.0, 20.0, 30.0])  # spacing 10: equal within 1e-4
    write(tmp_path / "a.nc", cube([0, 1], lats))
    write(tmp_path / "b.nc", cube([2, 3], lats + np.array([0, shift, 0])))
    agg = aa.open(tmp_path)
    assert (len(agg) == 1) is equal
    if not equal:
        (refusal,) = agg.refusals
        assert refusal.rule == "coordinate_values" and "lat" in refusal.reason
        assert "20" in refusal.reason and f"{20 + shift:.10g}" in refusal.reason
        assert refusal.arrays == ("tas", "tas") and [Path(f).name for f in refusal.files] == ["a.nc", "b.nc"]
        assert "a.nc" in refusal.reason and "b.nc" in refusal.reason
    wider = aa.open(tmp_path, rules=aa.Rules(tolerance=1e-3))
    assert len(wider) == 1 and wider["tas"].shape == (4, 3, 2)


@pytest.mark.parametrize(("lat", "equal"), [(20 + 5e-5, True), (20 + 1e-2, False)])
def test_a_single_value_takes_the_spacing_of_the_others(tmp_path: Path, lat: float, equal: bool) -> None:
    write(tmp_path / "a.nc", cube([0], [10.0, 20.0]))
    write(tmp_path / "b.nc", cube([1], [lat]))
    agg = aa.open(tmp_path)
    assert [a.shape for a in agg] == ([(2, 2, 2)] if equal else [(1, 2, 2), (1, 1, 2)])
    if equal:
        np.testing.assert_array_equal(np.isnan(agg["tas"][:, :, 0]), [[False, False], [True, False]])


@pytest.mark.parametrize(("dtype", "equal"), [("f8", False), ("f4", True)])
def test_without_spacing_only_rounding_counts(tmp_path: Path, dtype: str, equal: bool) -> None:
    for step, lat in enumerate((10.1, np.float64(10.1).astype(dtype) + 1e-12 * (dtype == "f8"))):
        made = cube([step], [10.1], lat=(("lat",), np.array([lat], dtype if step else "f8"), LAT))
        write(tmp_path / f"{step}.nc", made)
    assert len(aa.open(tmp_path)) == (1 if equal else 2)


def test_bounds_take_the_tolerance_of_their_coordinate(tmp_path: Path) -> None:
    lats = np.array([10.0, 20.0, 30.0])
    pairs = np.stack([lats - 5, lats + 5], axis=-1)
    for name, times, shift in (("a", [0], 0.0), ("b", [1], 5e-5), ("c", [2], 5e-4)):
        made = cube(times, lat=(("lat",), lats, {**LAT, "bounds": "lat_bnds"}), lat_bnds=(("lat", "nv"), pairs + shift))
        write(tmp_path / f"{name}.nc", made)
    agg = aa.open(tmp_path)
    assert [a.shape[0] for a in agg] == [2, 1]
    (refusal,) = agg.refusals
    assert refusal.rule == "coordinate" and "lat_bnds" in refusal.reason and "c.nc" in refusal.reason


def test_coordinates_with_the_names_of_others(tmp_path: Path) -> None:
    """The names x and y swapped: identities decide."""
    lats, lons = [10.0, 20.0], [0.0, 5.0]
    for name, times, (y, x) in (("a", [0], ("y", "x")), ("b", [1], ("x", "y"))):
        variables = {
            "time": (("time",), np.array(times, "f8"), TIME),
            y: ((y,), np.array(lats), LAT),
            x: ((x,), np.array(lons), LON),
            "tas": (("time", y, x), field(times, lats, lons), TAS),
        }
        write(tmp_path / f"{name}.nc", variables)
    array = one_array(aa.open(tmp_path))
    np.testing.assert_array_equal(array[...], field([0, 1], lats, lons))
    np.testing.assert_array_equal(array.coords["y"][...], lats)


# Formats


def test_mixed_formats(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0]))
    write(tmp_path / "b.nc", cube([1]), format="NETCDF3_CLASSIC")
    write(tmp_path / "c.nc", cube([2]), format="NETCDF3_64BIT_OFFSET")
    made = cube([3])
    with h5py.File(tmp_path / "d.h5", "w") as file:
        for name, (dimensions, values, attrs) in made.items():
            file[name] = values
            file[name].attrs.update(attrs)
            if dimensions == (name,):
                file[name].make_scale(name)
        for name, (dimensions, *_) in made.items():
            for axis, d in enumerate(dimensions):
                if dimensions != (name,):
                    file[name].dims[axis].attach_scale(file[d])
    for number, version in ((4, 2), (5, 3)):
        store = zarr.open_group(tmp_path / f"{number}.zarr", mode="w", zarr_format=version)
        for name, (dimensions, values, attrs) in cube([number]).items():
            # In version 2 the fill value counts as a missing value; zero is none here.
            more: dict[str, Any] = {"dimension_names": dimensions} if version == 3 else {"fill_value": None}
            made_array = store.create_array(name, data=values, **more)
            made_array.attrs.update(attrs if version == 3 else {**attrs, "_ARRAY_DIMENSIONS": list(dimensions)})
    array = one_array(aa.open(tmp_path))
    check(array, range(6))
    assert len({p.data.format for p in array.partitions}) >= 3


def test_groups(tmp_path: Path) -> None:
    """Coordinates are found by proximity: in the group, else in the root."""
    for start in (0, 2):
        times = [start, start + 1]
        variables = {
            "lat": (("lat",), np.array([10.0, 20.0]), LAT),
            "model/time": (("time",), np.array(times, "f8"), TIME),
            "model/tas": (("time", "lat"), field(times, [10.0, 20.0], [0])[..., 0], TAS),
        }
        write(tmp_path / f"{start}.nc", variables)
    array = one_array(aa.open(tmp_path), "model/tas")
    np.testing.assert_array_equal(array[...], field(range(4), [10.0, 20.0], [0])[..., 0])
    np.testing.assert_array_equal(array.coords["time"][...], range(4))
    np.testing.assert_array_equal(array.coords["lat"][...], [10, 20])


def test_nameless_dimensions(tmp_path: Path) -> None:
    for number in range(2):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["x"] = np.arange(6).reshape(2, 3) + 6 * number
    agg = aa.open(tmp_path)
    assert len(agg) == 2 and agg.refusals[0].rule in ("overlap", "no_coordinate")
    assert all(a.dimensions == ("dim_0", "dim_1") for a in agg)
    array = aa.open(tmp_path, rules=aa.Rules(order={"dim_0": "name"}))["x"]
    np.testing.assert_array_equal(array[...], np.arange(12).reshape(4, 3))


def test_datetimes_of_a_join(tmp_path: Path) -> None:
    for times in ([0, 1], [58, 59]):
        write(tmp_path / f"{times[0]}.nc", cube(times, time=(("time",), np.array(times, "f8"), NOLEAP)))
    result = one_array(aa.open(tmp_path)).coords["time"].datetimes()
    expected = cftime.num2date([0, 1, 58, 59], NOLEAP["units"], "noleap")
    assert list(result) == list(expected)


def test_netcdf4_reads_the_same(tmp_path: Path) -> None:
    """The netCDF4 library's own aggregation gives the same values."""
    paths = [write(tmp_path / f"{n}.nc", cube([n, n + 0.5]), format="NETCDF4_CLASSIC", unlimited=("time",)) for n in range(3)]
    with netCDF4.MFDataset(paths) as oracle:
        array = one_array(aa.open(paths))
        np.testing.assert_array_equal(array[...], oracle["tas"][:])
        np.testing.assert_array_equal(array.coords["time"][...], oracle["time"][:])
