"""Missing values in xarray, for any declared fill value.

The oracle is `read(masked=True)`, and netCDF4 for written copies.
"""

from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

pytest.importorskip("xarray", reason="the engine needs xarray: install the extra 'xarray'")

import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray import MasterArray, SubArray
from aggarray.xarray_engine import AggarrayBackendEntrypoint as Engine
from tests.support.netcdf import write


def piece(path: Path, values: Any, start: int = 0, dtype: str = "i4", **attrs: Any) -> str:
    """Write stored values along a time that begins at ``start``; missing values and limits get the dtype."""
    kind = np.dtype(dtype)
    stated = {k: kind.type(v) if k in ("_FillValue", "missing_value", "valid_min") else v for k, v in attrs.items()}
    time = (("time",), np.arange(start, start + len(values)) * 1.0, {"units": "days since 2000-01-01"})
    write(path, {"time": time, "v": (("time",), np.array(values, kind), {"units": "m", **stated})})
    return str(path)


def expected(array: MasterArray) -> np.ndarray:
    """Return values with NaN for missing ones."""
    result = array.read(masked=True)
    return np.ma.filled(result.astype("f8"), np.nan)


def check(source: Any, folder: Path, **options: Any) -> xr.DataArray:
    """Compare the engine, an array, and a written copy with `read`."""
    array = aa.open(source, **options)["v"]
    result = xr.open_dataset(source, engine=Engine, **options)["v"]
    for one in (result, array.to_xarray()):
        np.testing.assert_array_equal(one.values, expected(array))
    result.to_netcdf(folder / "back.written")
    with xr.open_dataset(folder / "back.written", engine="netcdf4") as again:
        np.testing.assert_allclose(again["v"].values, expected(array), rtol=1e-6)
    return result


@pytest.mark.parametrize(
    "pieces",
    [
        ([1, -1], {"_FillValue": -1}, [-1, -9], {"_FillValue": -9}),
        ([1, -1], {}, [5, -1], {"_FillValue": -1}),
        ([1, -1, -9], {"_FillValue": -1, "missing_value": -9}, [-9, -1], {"_FillValue": -1}),
        ([1, -2147483647], {"valid_min": -2147483647}, [3, -1], {"_FillValue": -1}),
    ],
)
def test_files_of_other_fill_values(tmp_path: Path, pieces: Any) -> None:
    piece(tmp_path / "a.nc", pieces[0], **pieces[1])
    piece(tmp_path / "b.nc", pieces[2], start=len(pieces[0]), **pieces[3])
    check([tmp_path / "a.nc", tmp_path / "b.nc"], tmp_path)


@given(st.data())
def test_any_fill_values(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("fills")
    small = st.integers(-3, 3)
    for number in range(2):
        attrs = data.draw(st.dictionaries(st.sampled_from(["_FillValue", "missing_value", "valid_min"]), small))
        kind = data.draw(st.sampled_from(["i1", "i2", "i4", "f4"]))
        piece(folder / f"{number}.nc", data.draw(st.lists(small, min_size=1, max_size=4)), number * 4, kind, **attrs)
    check(str(folder / "*.nc"), folder)


def test_the_default_fill_value_may_be_data(tmp_path: Path) -> None:
    path = piece(tmp_path / "a.nc", [1, 255, 2, 3], dtype="u1", valid_min=2)
    assert check(path, tmp_path).dtype == "f4"
    assert check(piece(tmp_path / "b.nc", [7, -1], _FillValue=-1), tmp_path).encoding["dtype"] == "i4"


@pytest.mark.parametrize("attrs", [{}, {"scale_factor": 0.5}, {"_FillValue": 3, "scale_factor": 0.5}])
@pytest.mark.parametrize(("kind", "real"), [("u1", 255), ("i2", -32767)])
def test_holes(tmp_path: Path, kind: str, real: int, attrs: dict[str, Any]) -> None:
    sub = SubArray.from_file(piece(tmp_path / "a.nc", [1, 3, real], dtype=kind, **attrs), "v")
    array = MasterArray.from_subarrays([([(1, 4)], sub)], dimensions=("time",), shape=(5,), name="v")
    result = array.to_xarray()
    np.testing.assert_array_equal(result.values, expected(array))
    result.to_netcdf(tmp_path / "back.nc")
    with xr.open_dataset(tmp_path / "back.nc", engine="netcdf4") as again:
        np.testing.assert_array_equal(again["v"].values, expected(array))


@pytest.mark.parametrize("attrs", [{}, {"scale_factor": 0.5}])
def test_missing_fill_without_missing_files(tmp_path: Path, attrs: dict[str, Any]) -> None:
    variables = {
        "x": (("x",), np.array([2**60 + 1, 2**60 + 2])),
        "c": (("x",), np.array([1, 255], "u1")),
        "n": (("x",), np.array([2**60 + 1, 2**60 + 3]), {"coordinates": "c", **attrs}),
        "u": (("x",), np.array([1, 255], "u1"), attrs),
    }
    path = write(tmp_path / "a.nc", variables)
    aa.open(path).save(tmp_path / "a.nca")
    for source in (path, tmp_path / "a.nca"):
        plain = xr.open_dataset(source, engine=Engine)
        filling = xr.open_dataset(source, engine=Engine, missing="fill")
        xr.testing.assert_identical(filling, plain)
        for name in plain.variables:
            assert filling[name].dtype == plain[name].dtype and filling[name].encoding == plain[name].encoding
    filling = xr.open_dataset(tmp_path / "a.nca", engine=Engine, missing="fill", cache=False)
    Path(path).unlink()
    with pytest.raises(aa.MissingFileError, match=r"a\.nc"):
        filling["u"].load()  # the opened form has no missing value
    gone = xr.open_dataset(tmp_path / "a.nca", engine=Engine, missing="fill")
    assert np.isnan(gone["u"].values).all() and gone["x"].values.tolist() == [2**60 + 1, 2**60 + 2]


def test_fill_values_of_other_units(tmp_path: Path) -> None:
    a = piece(tmp_path / "a.nc", [5.0, 6.0], dtype="f8", _FillValue=0, units="degC")
    b = piece(tmp_path / "b.nc", [0, 273.15], 2, dtype="f8", _FillValue=0, units="K")
    check([a, b], tmp_path)
    result = aa.open(b)["v"].to_units("degC").to_xarray()
    assert result.values[1] == 0 and np.isnan(result.encoding["_FillValue"])
    result.to_netcdf(tmp_path / "back.nc")
    with xr.open_dataset(tmp_path / "back.nc") as again:
        np.testing.assert_array_equal(again["v"].values, result.values)
    assert aa.open(b)["v"].to_xarray().encoding["_FillValue"] == 0


def test_packing_of_unpacked_values_is_kept(tmp_path: Path) -> None:
    packing = {"scale_factor": 0.5, "add_offset": 1.0}
    variables = {
        "x": (("x",), np.array([1, 2, 4], "i2"), packing),
        "t": (("x",), np.array([1, 2, 5], "i2"), {"units": "days since 2000-01-01", "scale_factor": 0.5}),
        "v": (
            ("x",),
            np.array([1, -1, -2], "i2"),
            {"_FillValue": np.int16(-1), "missing_value": np.int16(-2), "coordinates": "t", **packing},
        ),
    }
    path = write(tmp_path / "a.nc", variables)
    result = xr.open_dataset(path, engine=Engine)
    result.to_netcdf(tmp_path / "back.nc")
    with netCDF4.Dataset(path) as first, netCDF4.Dataset(tmp_path / "back.nc") as again:
        assert again["t"][:].tolist() == [0.5, 1, 2.5]  # unpacked: xarray would round them
        for name in ("x", "v"):
            np.testing.assert_array_equal(np.ma.filled(again[name][:], np.nan), np.ma.filled(first[name][:], np.nan))
            assert again[name].dtype == "i2" and (again[name].scale_factor, again[name].add_offset) == (0.5, 1)
        assert again["v"]._FillValue == -1
