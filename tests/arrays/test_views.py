"""Tests of reading without copies, and of the reasons when that is not possible."""

import gc
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray import MasterArray, SubArray
from aggarray.read import close_files
from tests.support.examples import heavy_product
from tests.support.tilings import same

VALUES = np.arange(24, dtype="f4").reshape(4, 6)


def whole(piece: SubArray, **options: Any) -> MasterArray:
    location = [(0, n) for n in piece.shape]
    return MasterArray.from_subarrays([(location, piece)], dimensions=piece.dimensions, directions=piece.directions, **options)


def stored(folder: Path, kind: str) -> SubArray:
    """Write `VALUES` and return them as a sub-array."""
    path = folder / f"{kind}.nc"
    if kind == "hdf5":
        with h5py.File(path, "w") as file:
            file["v"] = VALUES
            file["v"].dims[0].label, file["v"].dims[1].label = "t", "x"
        return SubArray.from_file(path, "v")
    form = "NETCDF4" if kind in ("netcdf4", "deflated") else "NETCDF3_CLASSIC"
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.createDimension("t", None if kind == "records" else 4)
        file.createDimension("x", 6)
        options = {"contiguous": True} if kind == "netcdf4" else {"zlib": True} if kind == "deflated" else {}
        variable = file.createVariable("v", "f4", ("t", "x"), **options)
        other = file.createVariable("w", "i2", ("t",))
        variable[:], other[:] = VALUES, np.arange(4)
    return SubArray.from_file(path, "v")


@pytest.mark.parametrize(
    ("kind", "copy", "key"),
    heavy_product(
        ["classic", "records", "netcdf4", "hdf5"],
        [None, False],
        [..., (slice(1, 3), slice(None, None, -2)), (2, slice(None)), ([0, 2], 1), (1, 1)],
    ),
)
def test_views_of_mapped_files(tmp_path: Path, kind: str, copy: bool | None, key: Any) -> None:
    piece = stored(tmp_path, kind)
    a = whole(piece)
    result = a.read(key, copy=copy)
    own = piece.read(key, copy=copy)
    for view in (result, own):
        assert isinstance(view, np.ndarray) and not view.flags.writeable and not view.flags.owndata
        assert view.dtype.byteorder == (">" if kind in ("classic", "records") else "=")
    expected = VALUES[key if key is not ... else slice(None)]
    del a, piece, own, view
    close_files()
    for path in tmp_path.iterdir():
        path.unlink()
    gc.collect()
    np.testing.assert_array_equal(result, expected)
    with pytest.raises(ValueError, match=r"read-only|WRITEABLE|writeable"):
        result[...] = 0


def test_views_of_memory() -> None:
    source = VALUES.copy()
    a = whole(SubArray.from_array(source))
    for key in (..., slice(None, None, -1), (1, slice(2, 4))):
        view = a.read(key, copy=False)
        assert np.shares_memory(view, source) and not view.flags.writeable
    flipped = a.flip(*a.dimensions).transpose()
    view = flipped.read(copy=False)
    assert np.shares_memory(view, source)
    np.testing.assert_array_equal(view, source[::-1, ::-1].T)
    del a
    source[0, 0] = 99
    assert view[-1, -1] == 99
    assert not np.shares_memory(whole(SubArray.from_array(source)).read(copy=True), source)


def test_reasons_without_views(tmp_path: Path) -> None:
    two = MasterArray.from_subarrays(
        [([(0, 2)], SubArray.from_array(np.ones(2))), ([(2, 4)], SubArray.from_array(np.ones(2)))],
        dimensions=("x",),
        shape=(6,),
    )
    cases: list[tuple[MasterArray, Any, str]] = [
        (two, slice(0, 4), "2 partitions"),
        (two, slice(4, 6), "missing"),
        (whole(SubArray.from_array(np.arange(9))), [0, 1, 5], "evenly spaced"),
        (whole(SubArray.from_array(np.ones(2), units="m"), units="km"), ..., "converted"),
        (whole(SubArray.from_array(np.ones(2))).astype("f4"), ..., "converted"),
        (whole(SubArray.from_array(np.array([1, -1]), fill_value=-1), fill_value=-2), ..., "missing values"),
        (whole(stored(tmp_path, "deflated")), ..., "contiguous"),
    ]
    for a, key, words in cases:
        with pytest.raises(aa.AggregationError, match=words) as caught:
            a.read(key, copy=False)
        assert "copy=None or copy=True" in str(caught.value) and "\n" not in str(caught.value)
        fresh = a.read(key, copy=None)
        same(fresh, a[key])
        assert fresh.flags.writeable


def test_missing_values_in_views() -> None:
    a = whole(SubArray.from_array(np.array([1, -1, 3]), fill_value=-1))
    assert a.fill_value == -1 and a.read(copy=False).tolist() == [1, -1, 3]
    with pytest.raises(aa.AggregationError, match="missing values"):
        a.read(copy=False, masked=True)
    assert a.read(copy=None, masked=True).mask.tolist() == [False, True, False]
    assert a.read(slice(0, 1), copy=False, masked=True).tolist() == [1]
    floating = whole(SubArray.from_array(np.array([1, np.nan]), fill_value=np.nan))
    assert not floating.read(copy=False).flags.writeable
    other = whole(SubArray.from_array(np.array([1.0, -1]), fill_value=-1))
    with pytest.raises(aa.AggregationError, match="missing values"):
        other.read(copy=False)
    assert other.read(0, copy=False) == 1
