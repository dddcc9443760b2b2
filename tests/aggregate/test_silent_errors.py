"""Cases in which a plausible shortcut would give wrong values silently."""

from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray.scan.files import scan_files
from tests.support.netcdf import TAS, TIME, check, cube, field, one_array, write

pytestmark = pytest.mark.quick

DAYS = {"standard_name": "time", "units": "days since 2000-01-01"}


def times(values: Any, dtype: str, units: str) -> tuple[tuple[str, ...], np.ndarray, dict[str, str]]:
    return ("time",), np.array(values, dtype), {**TIME, "units": units}


def test_integer_times_do_not_overflow(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0, 1], time=times([0, 86400], "i4", "seconds since 2000-01-01")))
    write(tmp_path / "b.nc", cube([30000, 30001], time=times([30000, 30001], "i4", "days since 2000-01-01")))
    time = one_array(aa.open(tmp_path)).coords["time"]
    assert time.dtype == np.int64 and time[...].tolist() == [0, 86400, 30000 * 86400, 30001 * 86400]


def test_integer_times_that_fit_keep_their_dtype(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0, 1], time=times([0, 24], "i4", "hours since 2000-01-01")))
    write(tmp_path / "b.nc", cube([2], time=times([0], "i4", "days since 2000-01-03")))
    time = one_array(aa.open(tmp_path)).coords["time"]
    assert time.dtype == np.int32 and time[...].tolist() == [0, 24, 48]


def test_integer_overflow_is_an_error_with_a_hint() -> None:
    pieces = [
        ([(0, 1)], aa.SubArray.from_array(np.array([5], "i2"), dimensions=("x",), units="mm")),
        ([(1, 2)], aa.SubArray.from_array(np.array([40], "i2"), dimensions=("x",), units="m")),
    ]
    rain = aa.MasterArray.from_subarrays(pieces, dimensions=("x",))
    assert rain.dtype == np.int16 and rain[:1].tolist() == [5]
    with pytest.raises(aa.UnitsError, match=r"40000 mm is out of range of the array's int16; .*astype\('int64'\)"):
        rain[:]
    assert rain.astype("int64")[:].tolist() == [5, 40000]
    assert rain.astype("float64")[:].tolist() == [5.0, 40000.0]


def test_groups_of_one_file_are_not_mixed(tmp_path: Path) -> None:
    for name, start in (("a", 0), ("b", 10)):
        result = {}
        for group, offset in (("forecast", 0), ("observed", 2)):
            steps = np.array([start + offset, start + offset + 1], "f8")
            result[f"{group}/time"] = (("time",), steps, DAYS)
            result[f"{group}/tas"] = (("time",), (steps + (1000 if group == "observed" else 0)).astype("f4"), TAS)
        write(tmp_path / f"{name}.nc", result)
    agg = aa.open(tmp_path)
    assert agg.names == ("forecast/tas", "observed/tas")
    assert agg["forecast/tas"][...].tolist() == [0, 1, 10, 11]
    assert agg["observed/tas"][...].tolist() == [1002, 1003, 1012, 1013]
    assert [r.rule for r in agg.refusals] == ["group"]


def test_groups_of_different_files_are_not_mixed(tmp_path: Path) -> None:
    for group, start in (("forecast", 0), ("observed", 2)):
        steps = np.array([start, start + 1], "f8")
        write(tmp_path / f"{group}.nc", {f"{group}/time": (("time",), steps, DAYS), f"{group}/tas": (("time",), steps, TAS)})
    assert len(aa.open(tmp_path)) == 2


@pytest.mark.parametrize(("step", "fraction"), [(0.9e-5, 1e-5), (0.3, 0.3), (0.45, 0.5)])
def test_small_differences_do_not_add_up(tmp_path: Path, step: float, fraction: float) -> None:
    lats = np.array([0.0, 1.0, 2.0])
    for number in range(8):
        write(tmp_path / f"{number}.nc", cube([number], lats + number * step))
    agg = aa.open(tmp_path, rules=aa.Rules(tolerance=fraction))
    assert len(agg) > 1
    for array in agg:
        for partition in (p for p in array.partitions if p.data is not None):
            with netCDF4.Dataset(partition.data.uri) as file:
                lat = file["lat"][:][partition.part[1]]
            ours = array.coords["lat"][slice(*partition.location[1])]
            assert np.abs(lat - ours).max() <= min(fraction, 0.49) * (1 + 1e-9)


def test_one_coarse_time_does_not_make_exact_ones_equal(tmp_path: Path) -> None:
    units = "days since 0001-01-01"
    for hour in range(6):
        kind = "f4" if hour == 5 else "f8"
        write(tmp_path / f"{hour}.nc", cube([hour], time=times([730000 + hour / 24], kind, units)))
    agg = aa.open(tmp_path)
    assert sorted(a.shape[0] for a in agg) == [1, 5] and [r.rule for r in agg.refusals] == ["overlap"]
    joined = max(agg, key=lambda a: a.shape[0])
    np.testing.assert_array_equal(joined[...], field(range(5), [10, 20, 30], [0, 5]))


def test_variables_may_be_an_iterator(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.nc", cube([number]))
    check(one_array(aa.open(tmp_path, variables=iter(["tas"]))), range(3))


def test_sel_takes_a_mapping(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0, 1, 2]))
    array = one_array(aa.open(tmp_path))
    assert array.sel({"time": "2000-01-02"}).shape == (3, 2) == array.sel(time="2000-01-02").shape
    assert array.sel({"lat": 10.0}, lon=5.0).shape == (3,)


def test_attributes_do_not_change(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0]), {"title": "x"})
    array = one_array(aa.open(tmp_path))
    for attrs in (array.attrs, array.file_attrs, array.coords):
        with pytest.raises(TypeError, match="make a copy"):
            attrs["new"] = 1
        with pytest.raises(TypeError, match="make a copy"):
            attrs.pop("title", None)
    assert array.coords["lat"].file_attrs["title"] == "x" and {**array.file_attrs, "y": 1}["y"] == 1


def test_equal_coordinates_are_held_once(tmp_path: Path) -> None:
    lats = np.linspace(-90, 90, 500)
    for number in range(3):
        write(tmp_path / f"{number}.nc", cube([number], lats))
    scanned = scan_files([str(tmp_path / f"{n}.nc") for n in range(3)])
    result = [next(v.values for v in structure.variables if v.name == "lat") for _, structure in scanned]
    assert result[0] is result[1] is result[2]
