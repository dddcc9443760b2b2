"""Tests of sub-arrays: unpacked values and parameters."""

import pickle
from pathlib import Path

import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray import SubArray
from tests.support.tilings import same

pytestmark = pytest.mark.quick


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    path = tmp_path / "packed.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("lat", 3)
        file.createDimension("time", 2)
        file.createVariable("lat", "f8", ("lat",))[:] = [45, 0, -45]
        tas = file.createVariable("tas", "i2", ("time", "lat"), fill_value=-1)
        tas.setncatts({"units": "degC", "scale_factor": 0.5, "add_offset": 10.0})
        tas.set_auto_maskandscale(False)
        tas[:] = [[0, 2, -1], [4, 6, 8]]
        time = file.createVariable("when", "i4", ("time",))
        time.setncatts({"units": "days since 2000-01-01", "calendar": "noleap"})
        time[:] = [0, 1]
        count = file.createVariable("count", "u1", ("time",), fill_value=7)
        count.set_auto_maskandscale(False)
        count[:] = [7, 8]
    return path


def test_of_a_file(packed: Path) -> None:
    s = SubArray.from_file(packed, "tas")
    assert (s.uri, s.variable, s.format, s.shape) == (str(packed), "tas", "netCDF4", (2, 3))
    assert (s.dimensions, s.directions, s.units, s.calendar) == (("time", "lat"), (True, False), "degC", None)
    assert (s.scale_factor, s.add_offset, s.dtype) == (0.5, 10.0, np.dtype("f8")) and np.isnan(s.fill_value)
    same(s.read(), np.array([[10, 11, np.nan], [12, 13, 14]]))
    assert s.read((0, slice(None, None, -1)), masked=True).tolist() == [None, 11.0, 10.0]
    assert s.read().flags.writeable
    with pytest.raises(aa.AggregationError, match="converted"):
        s.read(copy=False)
    assert repr(s) == f"<aggarray.SubArray 'tas' of {packed} (time: 2, lat: 3) float64 degC>"
    same(pickle.loads(pickle.dumps(s)).read(), s.read())
    when = SubArray.from_file(packed, "when")
    assert when.calendar == "noleap" and when.fill_value is None
    count = SubArray.from_file(packed, "count")
    assert (count.fill_value, count.dtype) == (7, np.dtype("u1")) and count.read(masked=True).tolist() == [None, 8]


def test_against_netcdf4(packed: Path) -> None:
    with netCDF4.Dataset(packed) as file:
        expected = file["tas"][:]
    result = SubArray.from_file(packed, "tas").read(masked=True)
    np.testing.assert_array_equal(np.ma.getmaskarray(result), np.ma.getmaskarray(expected))
    np.testing.assert_array_equal(result.compressed(), expected.compressed())


def test_errors_of_files(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(aa.NotFoundError) as caught:
        SubArray.from_file(packed, "pr")
    assert "'pr'" in str(caught.value) and str(packed) in str(caught.value) and "tas" in str(caught.value)
    with pytest.raises(aa.MissingFileError, match="none"):
        SubArray.from_file(tmp_path / "none.nc", "v")
    s = SubArray.from_file(packed, "tas")
    packed.write_bytes(b"no data")
    with pytest.raises(aa.FormatError) as caught_format:
        s.read()
    message = str(caught_format.value)
    assert str(packed) in message and "'tas'" in message and "\n" not in message and message.count(str(packed)) == 1


def test_in_memory() -> None:
    source = np.array([[1, -9], [3, 4]], ">i2")
    s = SubArray.from_array(source, dimensions=("y", "x"), units="m", directions=(False, True), fill_value=-9)
    assert (s.uri, s.variable, s.format, s.dtype, s.fill_value) == (None, None, "memory", np.dtype("i2"), -9)
    assert s.directions == (False, True) and s.scale_factor is None and s.add_offset is None
    same(s.read(), source.astype("i2"))
    assert np.shares_memory(s.read(copy=False), source) and not np.shares_memory(s.read(), source)
    assert s.read(masked=True).mask.tolist() == [[False, True], [False, False]]
    assert SubArray.from_array(5.0).read().shape == () and SubArray.from_array([1, 2]).dimensions == ("dim_0",)
    assert repr(s) == "<aggarray.SubArray in memory (y: 2, x: 2) int16 m>"


@pytest.mark.parametrize("dtype", ["i1", "u1", "i8", "f4", "c8", "M8[s]", "m8[D]", "?"])
def test_masked_arrays_keep_their_mask(dtype: str) -> None:
    values = np.ma.MaskedArray(np.ones(3).astype(dtype), [False, True, False])
    result = SubArray.from_array(values).read(masked=True)
    assert result.mask.tolist() == [False, True, False] and (result.compressed() == values.compressed()).all()
    plain = SubArray.from_array(np.ma.MaskedArray(np.ones(3).astype(dtype))).read(masked=True)
    assert not np.ma.getmaskarray(plain).any()


def test_masked_arrays_choose_an_unused_fill_value() -> None:
    values = np.ma.MaskedArray(np.array([999999, 5, -2147483647], "i4"), [0, 1, 0])
    s = SubArray.from_array(values)
    assert s.read(masked=True).tolist() == [999999, None, -2147483647]
    nans = SubArray.from_array(np.ma.MaskedArray([np.nan, 1.0], [0, 1])).read(masked=True)
    assert nans.mask.tolist() == [False, True] and np.isnan(nans.data[0])
    with pytest.raises(aa.AggregationError, match="give another"):
        SubArray.from_array(np.ma.MaskedArray([1, 2], [0, 1]), fill_value=1)
    with pytest.raises(aa.AggregationError, match="not a value of int8"):
        SubArray.from_array(np.ma.MaskedArray(np.array([1, 2], "i1"), [0, 1]), fill_value=1000)
    with pytest.raises(aa.AggregationError, match="give another"):
        SubArray.from_array(np.ma.MaskedArray([True, False, True], [0, 0, 1]))


def test_unsupported_arrays() -> None:
    with pytest.raises(aa.AggregationError, match="Python objects"):
        SubArray.from_array(np.array([1, None]))
    with pytest.raises(aa.AggregationError, match="dtype"):
        SubArray.from_array(np.zeros(2, [("a", "i4")]))
    for options in ({"dimensions": ("x",)}, {"dimensions": ("x", "x")}, {"directions": (True,)}):
        with pytest.raises(aa.AggregationError, match="one of each"):
            SubArray.from_array(np.zeros((2, 2)), **options)  # type: ignore[arg-type]


def test_real_files_against_netcdf4(shared_data: Path) -> None:
    paths = sorted(shared_data.rglob("*.nc"))[:6]
    assert paths
    for path in paths:
        with netCDF4.Dataset(path) as file:
            for name, variable in file.variables.items():
                if variable.dtype is str or variable.dtype.kind not in "iuf" or not variable.size:
                    continue
                key = tuple(slice(n // 3, n // 3 + 5) for n in variable.shape)
                expected = np.ma.asarray(variable[key])
                result = SubArray.from_file(path, name).read(key, masked=True)
                np.testing.assert_array_equal(
                    np.ma.getmaskarray(result), np.ma.getmaskarray(expected), err_msg=f"{path} {name}"
                )
                np.testing.assert_array_equal(result.compressed(), expected.compressed(), err_msg=f"{path} {name}")
