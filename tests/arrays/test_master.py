"""Tests of master arrays against NumPy, in memory and through files."""

import pickle
import threading
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray import MasterArray, SubArray
from aggarray.read import executor
from aggarray.storage import byte_source
from tests.support.examples import examples
from tests.support.tilings import FILL, Tile, Tiling, keys, pick, same, same_masked, tilings


def whole(array: Any, **options: Any) -> MasterArray:
    """Return a master array of one piece in memory."""
    piece = SubArray.from_array(array, **options)
    names = tuple(f"d{i}" for i in range(len(piece.shape))) if "dimensions" not in options else piece.dimensions
    return MasterArray.from_subarrays([([(0, n) for n in piece.shape], piece)], dimensions=names)


def expected(tiling: Tiling) -> np.ndarray:
    """Return the expected ``a[:]``: NaN or the fill value in missing elements."""
    missing = np.nan if tiling.dtype.kind == "f" else FILL
    return np.where(tiling.mask, missing, tiling.values).astype(tiling.dtype)


# Against NumPy


@given(st.data())
@settings(max_examples=examples(200))
def test_tilings_and_keys(data: st.DataObject) -> None:
    tiling = data.draw(tilings())
    a = tiling.master()
    key = data.draw(keys(a.shape))
    assert (a.shape, a.dtype, a.dimensions, a.directions) == (
        tiling.values.shape,
        tiling.dtype,
        tiling.dimensions,
        tiling.directions,
    )
    same(a[key], pick(expected(tiling), key))
    masked = a.read(key, masked=True)
    same_masked(masked, pick(tiling.values, key), pick(tiling.mask, key))
    same(a[...], expected(tiling))


def write(tile: Tile, path: Path, form: str) -> SubArray:
    """Write a tile as a variable of a netCDF file; coordinates give its directions."""
    with netCDF4.Dataset(path, "w", format=form) as file:
        for name, size, forward in zip(tile.dimensions, tile.values.shape, tile.directions, strict=True):
            file.createDimension(name, size)
            line = np.arange(float(size))
            file.createVariable(name, "f8", (name,))[:] = line if forward else line[::-1]
        variable = file.createVariable("v", tile.values.dtype.newbyteorder("="), tile.dimensions, fill_value=FILL)
        variable.units = tile.units
        variable[...] = tile.values.filled(FILL)
    piece = SubArray.from_file(path, "v")
    # A single position has no direction of its own.
    expected = [forward or size < 2 for size, forward in zip(tile.values.shape, tile.directions, strict=True)]
    assert list(piece.directions) == expected
    return piece


@given(st.data())
@settings(max_examples=examples(25))
def test_tilings_of_files(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("tiles")
    tiling = data.draw(tilings(min_size=1, native=True))
    forms = st.sampled_from(["NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA", "NETCDF4"])
    number = iter(range(100))

    def stored(tile: Tile) -> SubArray:
        # netCDF has no dimensions of size 0 but unlimited ones.
        if 0 in tile.values.shape:
            return tile.in_memory()
        return write(tile, folder / f"{next(number)}.nc", data.draw(forms))

    a = tiling.master(stored)
    key = data.draw(keys(a.shape))
    same(a[key], pick(expected(tiling), key))
    same_masked(a.read(key, masked=True, threads=2), pick(tiling.values, key), pick(tiling.mask, key))


# What a[key] is


@pytest.mark.parametrize("key", [..., 0, slice(1, 3), [2, 0], (slice(None), 1)])
def test_results_are_fresh_native_and_writable(key: Any) -> None:
    source = np.arange(12, dtype=">f4").reshape(4, 3)
    before = source.copy()
    result = whole(source)[key]
    assert isinstance(result, np.ndarray) and result.dtype == np.dtype("f4") and result.dtype.isnative
    assert result.flags.writeable and not np.shares_memory(result, source)
    result[...] = -1
    np.testing.assert_array_equal(source, before)


@pytest.mark.parametrize("dtype", ["f8", "i4", "M8[D]", "?", "c16"])
def test_scalars_are_arrays(dtype: str) -> None:
    a = whole(np.ones((2, 2)).astype(dtype))
    assert isinstance(a[0, 1], np.ndarray) and a[0, 1].shape == () and a[0, 1].flags.writeable
    assert isinstance(a.lazy[0, 1][()], np.ndarray) and isinstance(a.read((0, 1), copy=None), np.ndarray)


@pytest.mark.parametrize(
    "values",
    [
        np.array(["a", "", "ü\0x"], dtype=np.dtypes.StringDType()),
        np.array(["a", "bcd"]),
        np.array([b"a", b"bcd"]),
        np.array(["2000-01-01", "NaT"], "M8[s]"),
        np.array([1, 2], "m8[h]"),
        np.array([True, False]),
        np.array([1 + 2j, np.nan]),
        np.array([1, 2], ">u8"),
        np.array([1.5, 2], "f2"),
    ],
    ids=lambda v: str(v.dtype),
)
def test_dtypes(values: np.ndarray) -> None:
    if values.dtype.kind == "S":
        expected = np.char.decode(values).astype(np.dtypes.StringDType())
    else:
        text = values.dtype.kind in "UT"
        expected = values.astype(np.dtypes.StringDType() if text else values.dtype.newbyteorder("="))
    a = whole(values)
    same(a[:], expected)
    same(a.lazy[::-1][:], expected[::-1])
    same(np.array(list(a), dtype=expected.dtype), expected)
    assert [item.dtype for item in a] == [expected.dtype] * len(expected)
    same_masked(a.read(masked=True), expected, np.zeros(expected.shape, bool))
    same(pickle.loads(pickle.dumps(a))[:], expected)


def test_holes_of_every_dtype() -> None:
    text = np.dtypes.StringDType()
    cases = [
        ("f4", np.nan),
        ("i2", -32767),
        ("?", False),
        ("M8[s]", np.datetime64("NaT", "s")),
        (text, ""),
        ("c8", complex("nan+nanj")),
    ]
    for dtype, fill in cases:
        piece = SubArray.from_array(np.ones(1, "i1").astype(dtype))
        a = MasterArray.from_subarrays([([(1, 2)], piece)], dimensions=("x",), shape=(3,))
        expected = np.array([fill, piece.read()[0], fill], dtype)
        np.testing.assert_array_equal(a[:], expected)
        np.testing.assert_array_equal(np.ma.getmaskarray(a.read(masked=True)), [True, False, True])
        assert a.fill_value == fill or a.fill_value != a.fill_value


# Missing values


def test_mask_comes_from_the_files() -> None:
    one = SubArray.from_array(np.array([1, -1, -999], "i4"), fill_value=-1)
    other = SubArray.from_array(np.array([-1, 5], "i4"), fill_value=-999)
    a = MasterArray.from_subarrays([([(0, 3)], one), ([(3, 5)], other)], dimensions=("x",), fill_value=-999)
    assert a[:].tolist() == [1, -999, -999, -1, 5]
    assert a.read(masked=True).mask.tolist() == [False, True, False, False, False]
    assert a.lazy[::-1].read(masked=True).mask.tolist() == [False, False, False, True, False]


def test_undeclared_nan_is_a_value() -> None:
    a = whole(np.array([np.nan, 1, -9], "f4"), fill_value=-9)
    np.testing.assert_array_equal(a[:], np.array([np.nan, 1, np.nan], "f4"))
    assert a.read(masked=True).mask.tolist() == [False, False, True]
    declared = whole(np.array([np.nan, 1], "f4"), fill_value=np.nan)
    assert declared.read(masked=True).mask.tolist() == [True, False]


def test_mask_survives_units_and_dtypes() -> None:
    a = whole(np.ma.MaskedArray([1, 2, 3], [0, 1, 0]), units="km").to_units("m").astype("i2")
    assert a.read(masked=True).tolist() == [1000, None, 3000]
    assert a[:].tolist() == [1000, a.fill_value, 3000]


# read(out=, threads=)


def test_out() -> None:
    a = whole(np.arange(6.0).reshape(2, 3))
    out = np.empty((3, 2))[::-1].T
    assert a.read(out=out) is out
    np.testing.assert_array_equal(out, np.arange(6.0).reshape(2, 3))
    masked = a.read(out=out, masked=True)
    assert np.shares_memory(masked, out)
    locked = np.empty((2, 3))
    locked.flags.writeable = False
    for wrong, words in (
        (np.empty((3, 2)), "shape (3, 2)"),
        (np.empty((2, 3), "f4"), "float32"),
        (np.empty((2, 3), ">f8"), ">f8"),
        (locked, "read-only"),
        ([], "list"),
    ):
        with pytest.raises(aa.SelectionError) as caught:
            a.read(out=wrong)  # type: ignore[arg-type]
        assert words in str(caught.value) and "float64 and shape (2, 3)" in str(caught.value)
    with pytest.raises(aa.AggregationError, match="contradict"):
        a.read(out=np.empty((2, 3)), copy=False)


def test_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = []
    for i in range(6):
        with netCDF4.Dataset(tmp_path / f"{i}.nc", "w", format="NETCDF3_CLASSIC") as file:
            file.createDimension("x", 2)
            file.createVariable("v", "f8", ("x",))[:] = [i, i + 0.5]
        pieces.append(([(2 * i, 2 * i + 2)], SubArray.from_file(tmp_path / f"{i}.nc", "v")))
    a = MasterArray.from_subarrays(pieces, dimensions=("x",))
    seen = set()
    check = byte_source.LocalSource.check

    def noted(*args: Any) -> Any:
        seen.add(threading.get_ident())
        return check(*args)

    monkeypatch.setattr(byte_source.LocalSource, "check", noted)
    # So little is no work for threads.
    monkeypatch.setattr(executor, "_PIECES", 1)
    same(a.read(threads=1), np.arange(0, 6, 0.5))
    assert seen == {threading.get_ident()}
    same(a.read(threads=3), np.arange(0, 6, 0.5))
    assert len(seen) > 1
    with pytest.raises(aa.SelectionError, match="threads=0"):
        a.read(threads=0)


# Python protocols


def test_numpy_iteration_len_and_repr() -> None:
    values = np.arange(6, dtype="i2").reshape(3, 2)
    a = whole(values, units="m")
    same(np.asarray(a), values)
    same(np.asarray(a, dtype="f4"), values.astype("f4"))
    with pytest.raises(ValueError, match="copy"):
        np.asarray(a, copy=False)
    assert len(a) == 3 and (a.ndim, a.size, a.nbytes) == (2, 6, 12)
    rows = list(a)
    assert all(isinstance(row, np.ndarray) and row.flags.owndata for row in rows)
    same(np.stack(rows), values)
    assert [x.shape for x in a.lazy[:, 0]] == [(), (), ()]
    assert repr(a) == "<aggarray.MasterArray (d0: 3, d1: 2) int16 m>\n  partitions: 1"
    scalar = a.lazy[0, 0]
    with pytest.raises(TypeError):
        len(scalar)
    with pytest.raises(TypeError):
        list(scalar)
    same(np.asarray(scalar), np.array(0, "i2"))


@given(st.data())
@settings(max_examples=examples(30))
def test_pickling(data: st.DataObject) -> None:
    tiling = data.draw(tilings())
    a = tiling.master()
    b = pickle.loads(pickle.dumps(a))
    same(b[...], a[...])
    assert (b.pmshape, b.units, b.directions, repr(b)) == (a.pmshape, a.units, a.directions, repr(a))
    chosen = a.lazy[data.draw(keys(a.shape))]
    same(pickle.loads(pickle.dumps(chosen))[...], chosen[...])


def test_pickles_of_selections_are_small() -> None:
    pieces = [([(i, i + 1)], SubArray.from_array(np.full(1, float(i)))) for i in range(500)]
    a = MasterArray.from_subarrays(pieces, dimensions=("x",))
    few = a.lazy[[7, 450, 7]]
    assert len(pickle.dumps(few)) < 3000 < 20_000 < len(pickle.dumps(a))
    assert pickle.loads(pickle.dumps(few))[:].tolist() == [7, 450, 7]


# Times


def test_datetimes_have_one_type_per_array() -> None:
    a = whole(np.array([-200000.0, 0, 1.5, -1]), units="days since 2000-01-01", fill_value=-1)
    assert a.calendar == "standard"
    times = a.datetimes()
    assert times.dtype == object and a.datetimes(slice(1, 3)).dtype == object and times[3] is None
    assert times[2].isoformat() == "2000-01-02T12:00:00"
    late = a.lazy[1:]
    assert late.datetimes().dtype == np.dtype("M8[us]") and late.datetimes(0).shape == ()
    assert late.datetimes().tolist()[2] is None
    noleap = whole(np.array([59]), units="days since 2000-01-01", calendar="noleap").datetimes()
    assert noleap[0].month == 3 and noleap[0].calendar == "noleap"
    with pytest.raises(aa.UnitsError, match="not a reference time"):
        whole(np.ones(2), units="m").datetimes()


# sel


def labelled() -> MasterArray:
    """Return an array of shape (2, 3) with decreasing and increasing coordinates."""
    from dataclasses import replace

    a = whole(np.arange(6.0).reshape(2, 3), dimensions=("lat", "time"))
    lat = whole(np.array([45.0, -45.0]), dimensions=("lat",), units="degrees_north")
    time = whole(np.array([0, 1, 2]), dimensions=("time",), units="days since 2000-01-01")
    return replace(a, coords={"lat": lat, "time": time})


def test_sel_matches_xarray() -> None:
    xarray = pytest.importorskip("xarray")
    a = labelled()
    times = np.array(["2000-01-01", "2000-01-02", "2000-01-03"], "M8[ns]")
    x = xarray.DataArray(a[:], dims=("lat", "time"), coords={"lat": [45.0, -45.0], "time": times})
    cases: list[dict[str, Any]] = [
        {"lat": 45.0},
        {"lat": slice(50, 0)},
        {"time": "2000-01-02"},
        {"time": slice("2000-01-02", None), "lat": [-45.0, 45.0]},
        {"lat": 40.0, "method": "nearest"},
    ]
    for case in cases:
        result = a.sel(**case)
        np.testing.assert_array_equal(result[...], x.sel(**case).values)
        for name, coordinate in result.coords.items():
            assert coordinate.shape == x.sel(**case)[name].shape
    with pytest.raises(aa.NotFoundError, match="depth"):
        a.sel(depth=1)
    with pytest.raises(aa.NotFoundError, match="lat"):
        a.sel(lat=44.0)
    with pytest.raises(aa.SelectionError, match="no coordinate"):
        whole(np.ones(3)).sel(d0=1, method="nearest")
