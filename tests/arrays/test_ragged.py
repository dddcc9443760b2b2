"""Tests of ragged arrays in memory, and of files with discrete sampling geometries (CF chapter 9)."""

import pickle
import sys
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray import memory
from aggarray.arrays.ragged import RaggedMasterArray
from aggarray.dap import Block, Cyclic, Distribution, validate_all
from aggarray.export.extract import extract
from aggarray.memory import Ragged
from aggarray.memory.rows import contiguous, indexed, indexed_contiguous
from sample_data.stations import CRUISES, SIZES, expected_profiles
from tests.support.messages import says

pytestmark = pytest.mark.quick

ROWS = st.lists(st.lists(st.integers(-9, 9), max_size=5), max_size=7)


# Ragged


@given(ROWS, st.data())
def test_keys_equal_those_of_lists(rows: list[list[int]], data: st.DataObject) -> None:
    r = Ragged.from_rows(rows, "i4")
    assert r.tolist() == rows == [row.tolist() for row in r] and len(r) == len(rows)
    assert r.offsets.dtype == np.int64 and r.counts.tolist() == [len(row) for row in rows]
    chosen = data.draw(st.slices(len(rows)))
    assert r[chosen].tolist() == rows[chosen]
    if rows:
        numbers = data.draw(st.lists(st.integers(-len(rows), len(rows) - 1)))
        assert r[numbers].tolist() == [rows[n] for n in numbers]
        one = data.draw(st.integers(-len(rows), len(rows) - 1))
        assert r[one].tolist() == rows[one] and np.shares_memory(r[one], r.flat) == bool(rows[one])
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), bool)
    assert r[mask].tolist() == [row for row, there in zip(rows, mask, strict=True) if there]
    assert pickle.loads(pickle.dumps(r)).tolist() == rows


@given(ROWS)
def test_to_awkward_shares_memory(rows: list[list[int]]) -> None:
    ak = pytest.importorskip("awkward", reason="ragged arrays in awkward: the extra 'ragged'")
    r = Ragged.from_rows(rows, "i4")
    result = r.to_awkward()
    assert ak.to_list(result) == rows
    assert np.asarray(result.layout.content.data).ctypes.data == r.flat.ctypes.data
    assert np.asarray(result.layout.offsets.data).ctypes.data == r.offsets.ctypes.data


def test_awkward_of_text_masks_and_big_endian() -> None:
    ak = pytest.importorskip("awkward", reason="ragged arrays in awkward: the extra 'ragged'")
    assert ak.to_list(Ragged(np.array(["a", "né", ""], np.dtypes.StringDType()), [0, 1, 3]).to_awkward()) == [["a"], ["né", ""]]
    masked = np.ma.MaskedArray([1.0, 2.0, 3.0], [False, True, False])
    assert ak.to_list(Ragged(masked, [0, 2, 3]).to_awkward()) == [[1.0, None], [3.0]]
    assert ak.to_list(Ragged(np.array([1, 2], ">i2"), [0, 2]).to_awkward()) == [[1, 2]]


@given(st.lists(st.text(), max_size=6))
def test_text_round_trips_through_bytes(words: list[str]) -> None:
    words = [w.encode("utf-8", "replace").decode() for w in words]
    r = Ragged.from_text(np.array(words, np.dtypes.StringDType()))
    assert r.to_text().tolist() == words and [bytes(row) for row in r] == [w.encode() for w in words]


@pytest.mark.parametrize(
    ("flat", "offsets", "words"),
    [
        ([1, 2], [0, 2, 1, 2], "decrease at row 1: 2 to 1"),
        ([1, 2], [0, 1], "from 0 to 1 over 2 samples"),
        ([1, 2], [1, 2], "from 1 to 2"),
        ([1, 2], [], "integers, one more"),
        ([1, 2], [0.0, 2.0], "float64"),
        ([[1, 2]], [0, 1], "1-d"),
    ],
)
def test_offsets_that_do_not_fit(flat: Any, offsets: Any, words: str) -> None:
    with pytest.raises(aa.AggregationError, match=words):
        Ragged(flat, offsets)


def test_invalid_conversions() -> None:
    r = Ragged([1.0, 2.0], [0, 1, 2])
    assert memory.type_string(r) == "2 * var * float64" and not r.offsets.flags.writeable
    with pytest.raises(aa.SelectionError, match="to_awkward"):
        np.asarray(r)
    with pytest.raises(aa.SelectionError, match="row"):
        r[2]
    with pytest.raises(aa.AggregationError, match="not text"):
        r.to_text()
    with pytest.raises(aa.AggregationError, match="UTF-8"):
        Ragged(np.array([255], "u1"), [0, 1]).to_text()
    with pytest.raises(aa.AggregationError, match="strings"):
        Ragged.from_text([1.0])
    assert Ragged.from_masked(np.array([[1.0, np.nan], [np.nan, np.nan]])).tolist() == [[1.0], []]
    with pytest.raises(aa.AggregationError, match="2-d"):
        Ragged.from_masked([1.0])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=8))
def test_indexed_contiguous_runs(runs: list[tuple[int, int]]) -> None:
    index, counts = (np.array([run[n] for run in runs], np.int64) for n in (0, 1))
    owner = np.repeat(index, counts)
    expected = [np.flatnonzero(owner == row).tolist() for row in range(4)]
    samples = np.arange(len(owner))
    for rows in (indexed_contiguous(counts, index, 4), indexed(owner, 4)):
        assert [samples[rows.take(np.array([row])).positions()].tolist() for row in range(4)] == expected
    assert contiguous(counts).offsets.tolist() == [0, *np.cumsum(counts).tolist()]


# Sample data


def by_loop(folder: Path) -> list[np.ndarray]:
    """Return every profile, read by xarray and a loop, in degC."""
    result = []
    for cruise in CRUISES:
        with xr.open_dataset(folder / cruise.name, decode_times=False) as data:
            values = data["temperature"].values.astype(float) - (273.15 if data["temperature"].units == "K" else 0)
            if "row_size" in data:
                result += np.split(values, np.cumsum(data["row_size"].values)[:-1])
            else:
                result += [values[data["profile_index"].values == n] for n in range(data.sizes["profile"])]
    return result


def test_the_sample_profiles(sample_stations: Path, tmp_path: Path) -> None:
    agg = aa.open(sample_stations)
    agg.save(tmp_path / "stations.nca")
    for one in (agg, aa.open(tmp_path / "stations.nca"), aa.open(sample_stations / "profiles_2001.nc").append(sample_stations)):
        assert not one.refusals and not one.skipped and one.check().ok
        a = one["temperature"]
        assert isinstance(a, RaggedMasterArray) and a.shape == (18,) and a.dtype == np.float32 and a.units == "degC"
        assert memory.type_string(a) == "18 * var * ?float32" and "ragged: 179 samples" in repr(a)
        for result, expected, truth in zip(a, by_loop(sample_stations), expected_profiles(), strict=True):
            np.testing.assert_allclose(result, expected, atol=1e-4)
            np.testing.assert_allclose(result, truth, atol=1e-4)
        assert a.counts.tolist() == [n for sizes in SIZES for n in sizes] and a.size == a.offsets[-1] == 179
        assert [len(row) for row in a.coords["depth"]] == a.counts.tolist()
        assert a.coords["profile_id"][[0, 8, -1]].tolist() == ["P000", "P008", "P017"]
        assert a.coords["lat"].shape == (18,) and a.coords["depth"][3][1] == 5.0
        assert pickle.loads(pickle.dumps(a))[3].tolist() == a[3].tolist()


def test_keys_of_ragged_arrays_equal_those_of_lists(sample_stations: Path) -> None:
    a = aa.open(sample_stations)["temperature"]
    rows = [row.tolist() for row in a]
    key: Any
    for key in (slice(None), slice(3, 9), slice(None, None, -2), slice(5, 5), [16, 2, 2, 0], np.arange(18) % 3 == 0):
        numbers = np.arange(18)[key].tolist()
        assert a[key].tolist() == [rows[n] for n in numbers]
        lazy = a.lazy[key]
        assert lazy.shape == (len(numbers),) and lazy[:].tolist() == [rows[n] for n in numbers]
        assert lazy.coords["profile_id"][:].tolist() == [f"P{n:03d}" for n in numbers]
        assert lazy.coords["depth"][:].counts.tolist() == lazy.counts.tolist()
        assert [row.tolist() for row in lazy.flip()] == [rows[n] for n in numbers[::-1]]
    assert a.lazy[2:9].lazy[::-2][1].tolist() == rows[6]
    one = a.lazy[16]
    assert one.dimensions == ("obs",) and one[:].tolist() == rows[16] and one.coords["lat"][()] == 44.0
    assert a.read(0, masked=True).mask.tolist() == [False] * 12
    np.testing.assert_allclose(a.to_units("K")[0], np.array(rows[0]) + 273.15, rtol=1e-6)
    assert a.astype("f8")[5:7].dtype == np.float64 and a.sel(profile=slice(2, 4)).shape == (2,)
    with pytest.raises(aa.SelectionError, match="out of range"):
        a[18]
    for refused in (a.to_dask, a.to_xarray):
        with pytest.raises(aa.AggregationError, match="flat"):
            refused()
    with pytest.raises(aa.SelectionError, match="to_awkward"):
        np.asarray(a)


def test_only_selected_samples_are_read(sample_stations: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = aa.open(sample_stations)["temperature"]
    asked: list[int] = []
    read = aa.MasterArray.read

    def noted(self: Any, key: Any = ..., **how: Any) -> Any:
        result = read(self, key, **how)
        asked.append(result.size)
        return result

    monkeypatch.setattr(aa.MasterArray, "read", noted)
    a[4], a[6:8], a[[0, 3]], a[16], a[2]
    assert asked == [9, 19, 32, 14, 0]


def test_coordinates_in_time_and_other_forms(sample_stations: Path, tmp_path: Path) -> None:
    agg = aa.open(sample_stations)
    a = agg["temperature"]
    assert str(a.coords["time"].datetimes()[0]).startswith("2001-01-01")
    flat = a.flat
    assert flat.shape == (179,) and set(flat.coords) == {"depth"} and flat.to_xarray().dims == ("obs",)
    data = agg.to_xarray()
    assert dict(data.sizes) == {"obs": 179, "profile": 18} and {"lat", "depth", "profile_index"} <= set(data.coords)
    agg.save(tmp_path / "stations.nca")
    # What CF readers find in the index is ragged for aggarray again.
    index = data["profile_index"].values
    for row, number in zip(a, range(18), strict=True):
        np.testing.assert_array_equal(row, data["temperature"].values[index == number])
    extract(a, tmp_path / "all.nc")
    again = aa.open(tmp_path / "all.nc")["temperature"]
    assert [r.tolist() for r in again] == [r.tolist() for r in a]
    extract(a.lazy[[4, 0]], tmp_path / "some.nc")
    assert [r.tolist() for r in aa.open(tmp_path / "some.nc")["temperature"]] == [a[4].tolist(), a[0].tolist()]


def test_sections_are_balanced_by_samples(sample_stations: Path) -> None:
    a = aa.open(sample_stations)["temperature"]
    rows = [row.tolist() for row in a]
    for nprocs in (1, 3, 18, 25):
        distribution = Distribution.from_partitions(a, nprocs)
        sections = [a.local(distribution, rank) for rank in range(nprocs)]
        assert [row.tolist() for s in sections for row in s.ragged] == rows
        assert max(len(s.samples.buffer) for s in sections) <= max(179 // nprocs + max(map(len, rows)), max(map(len, rows)))
        validate_all([s.__distarray__() for s in sections])
        validate_all([s.counts.__distarray__() for s in sections])
        assert all(np.shares_memory(s.ragged.flat, s.samples.buffer) for s in sections if len(s.ragged.flat))
    by_hand = a.local(Distribution((Block([0, 4, 4, 18]),)), 0)
    assert by_hand.ragged.tolist() == rows[:4] and by_hand.offsets.tolist() == [0, 12, 19, 19, 39] and "4 rows" in repr(by_hand)
    for wrong in (
        Distribution((Cyclic(18, 2),)),
        Distribution((Block.even(17, 2),)),
        Distribution((Block.even(18, 2, (1, 1)),)),
    ):
        with pytest.raises(aa.ProtocolError, match="blocks"):
            a.local(wrong, 0)
    with pytest.raises(aa.ProtocolError, match="contiguous"):
        Distribution.from_partitions(a, 2, balance="cost")


# Files


def write(path: Path, name: str, variables: dict[str, Any], values: np.ndarray, sizes: dict[str, int]) -> Path:
    """Write samples, and the variables of their rows: {name: (dimension, attribute, of, values)}."""
    with netCDF4.Dataset(path, "w") as file:
        for dimension, size in sizes.items():
            file.createDimension(dimension, size)
        for key, (dimension, attribute, of, numbers) in variables.items():
            made = file.createVariable(key, np.asarray(numbers).dtype, (dimension,))
            made.setncattr(attribute, of)
            made[:] = numbers
        made = file.createVariable(name, values.dtype, ("obs",))
        made.units = "K"
        made[:] = values
    return path


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"n": ("i", "sample_dimension", "obs", [3, -1, 2])}, ("variable 'n'", "row 1 has the negative size -1")),
        ({"n": ("i", "sample_dimension", "obs", [3, 1, 2])}, ("variable 'n'", "row sizes add up to 6, but")),
        ({"n": ("i", "sample_dimension", "obs", [2**62, 2**62, 2**62])}, ("variable 'n'", "row sizes add up to 13835058055")),
        ({"n": ("i", "sample_dimension", "obs", [1.5, 1.5, 1.0])}, ("variable 'n'", "1.5 is not an integer")),
        (
            {"x": ("obs", "instance_dimension", "i", [0, 3, 1, 0])},
            ("variable 'x'", "index 3 of element 1 is out of range for 3 instances"),
        ),
        ({"x": ("obs", "instance_dimension", "i", [0, -2, 1, 0])}, ("variable 'x'", "index -2")),
    ],
)
def test_files_with_contradictory_rows(tmp_path: Path, variables: dict[str, Any], words: tuple[str, ...]) -> None:
    sizes = {"obs": 4, "i": 3}
    good = {"n": ("i", "sample_dimension", "obs", [1, 1, 2])}
    bad = write(tmp_path / "bad.nc", "v", variables, np.arange(4.0), sizes)
    write(tmp_path / "good.nc", "v", good, np.arange(4.0), sizes)
    a = aa.open(bad)["v"]
    with pytest.raises(aa.FormatError, match=says("bad.nc", *words)):
        a[0]
    # Other files are unaffected.
    agg = aa.open(tmp_path)
    assert len(agg) == 2 and [r.rule for r in agg.refusals] == ["unreadable"] and "bad.nc" in agg.refusals[0].reason


def test_profiles_of_stations(tmp_path: Path) -> None:
    """Indexed contiguous: variables of profiles are ragged over stations."""
    sizes, index = np.array([2, 1, 0, 3]), np.array([1, 0, 1, 1])
    paths = []
    for number in range(2):
        variables = {"n": ("p", "sample_dimension", "obs", sizes), "x": ("p", "instance_dimension", "s", index)}
        path = write(tmp_path / f"{number}.nc", "v", variables, 10.0 * number + np.arange(6), {"obs": 6, "p": 4, "s": 2})
        with netCDF4.Dataset(path, "a") as file:
            file.createVariable("time", "f8", ("p",))[:] = np.arange(4) + 100 * number
            file.createVariable("height", "f8", ("s",))[:] = np.arange(2) + 5 * number
        paths.append(path)
    agg = aa.open(paths)
    agg.save(tmp_path / "both.nca")
    for a in (agg["v"], aa.open(tmp_path / "both.nca")["v"]):
        assert a[:].tolist() == [[2.0], [0.0, 1.0, 3.0, 4.0, 5.0], [12.0], [10.0, 11.0, 13.0, 14.0, 15.0]]
        assert a.coords["time"][:].tolist() == [[1.0], [0.0, 2.0, 3.0], [101.0], [100.0, 102.0, 103.0]]
        assert a.coords["n"][:].tolist() == [[1], [2, 0, 3]] * 2 and a.coords["height"][:].tolist() == [0.0, 1.0, 5.0, 6.0]
        assert a.lazy[1].coords["time"][:].tolist() == [0.0, 2.0, 3.0]
        extract(a, tmp_path / "one.nc", exists="overwrite")
        assert aa.open(tmp_path / "one.nc")["v"][:].tolist() == a[:].tolist()
        assert aa.open(tmp_path / "one.nc")["v"].coords["time"][:].tolist() == a.coords["time"][:].tolist()


def test_arrays_without_row_variables_stay_two_dimensional(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("i", 2)
        file.createDimension("obs", 3)
        file.createVariable("v", "f4", ("i", "obs"), fill_value=-9)[:] = [[1, 2, -9], [3, -9, -9]]
    a = aa.open(tmp_path / "a.nc")["v"]
    assert a.shape == (2, 3)
    assert Ragged.from_masked(a.read(masked=True)).tolist() == [[1.0, 2.0], [3.0]]


def test_different_arrays_stay_separate_in_order(tmp_path: Path) -> None:
    variables, sizes = {"n": ("i", "sample_dimension", "obs", [1, 1])}, {"obs": 2, "i": 2}
    for name in "ab":
        write(tmp_path / f"{name}.nc", "v", variables, np.full(2, ord(name), float), sizes)
    both = [tmp_path / "b.nc", tmp_path / "a.nc"]
    assert aa.open(both)["v"][:].flat.tolist() == [97, 97, 98, 98]
    assert aa.open(both, rules=aa.Rules(order={"i": "given"}))["v"][:].flat.tolist() == [98, 98, 97, 97]
    assert aa.open(both, rules=aa.Rules(trust="assume"))["v"][:].flat.tolist() == [97, 97, 98, 98]
    assert aa.open(both, rules=aa.Rules(units={"v": "degC"}))["v"].units == "degC"
    with netCDF4.Dataset(tmp_path / "b.nc", "a") as file:
        file["v"].units = "m"
    agg = aa.open(both)
    assert len(agg) == 2 and agg.refusals[0].rule == "units" and "'K' and 'm'" in agg.refusals[0].reason


def test_concat_and_exact_repeats(tmp_path: Path, sample_stations: Path) -> None:
    first, last = (aa.open(sample_stations / f"profiles_200{n}.nc")["temperature"] for n in (1, 4))
    both = aa.concat([last, first], "profile")
    assert both[:].tolist() == [*last[:].tolist(), *first[:].tolist()]
    for arrays, dimension, words in (
        ([first, first.flat], "profile", "not ragged"),
        ([first, last], "obs", "along its instances"),
        ([first, first.lazy[1:]], "profile", "join the arrays first"),
        ([first, first.coords["depth"]], "profile", "differ"),
    ):
        with pytest.raises(aa.AggregationError, match=words):
            aa.concat(arrays, dimension)
    for name in ("a.nc", "b.nc"):
        (tmp_path / name).write_bytes((sample_stations / "profiles_2001.nc").read_bytes())
    with netCDF4.Dataset(tmp_path / "b.nc", "a") as file:
        file.history = "copied"
    agg = aa.open([tmp_path, sample_stations / "profiles_2002.nc"])
    assert agg["temperature"].shape == (8,) and [Path(d.file).name for d in agg.duplicates] == ["b.nc"]
    with netCDF4.Dataset(tmp_path / "b.nc", "a") as file:
        file["temperature"][0] = 1.0
    assert aa.open(tmp_path)["temperature"].shape == (10,)


def test_debug_repr_of_rows(sample_stations: Path) -> None:
    a = aa.open(sample_stations / "profiles_2002.nc")["temperature"]
    assert "not in memory: rows of different lengths" in memory.debug_repr(a)
    one = a.read(1, copy=None)
    assert memory.view(one).block.kind == "memmap" and "type: memmap" in memory.debug_repr(a.read(slice(1, 3), copy=None))


@pytest.mark.parametrize("storage", [{}, {"chunks": (2,), "maxshape": (None,)}, {"chunks": (3,), "compression": "gzip"}])
def test_variable_length_types(tmp_path: Path, storage: dict[str, Any]) -> None:
    rows = [[1.0, 2.0], [], [3.0], [4.0, 5.0, 6.0], []]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("v", (5,), h5py.vlen_dtype("f4"), **storage)
        for number, row in enumerate(rows):
            made[number] = row
        file.create_dataset("never", (3,), h5py.vlen_dtype("i2"), **storage)
    agg = aa.open(tmp_path / "a.h5")
    assert agg["v"][:].tolist() == rows and agg["v"].dtype == np.float32 and agg["never"][:].tolist() == [[], [], []]
    assert agg["v"][3].tolist() == rows[3] and agg["v"][[4, 0]].tolist() == [[], rows[0]]
    agg.save(tmp_path / "a.nca")
    assert aa.open(tmp_path / "a.nca")["v"][1:4].tolist() == rows[1:4] and agg.check().ok


def test_variable_length_types_of_netcdf(tmp_path: Path) -> None:
    rows = [[1, 2], [3], [4, 5, 6]]
    for number in range(2):
        with netCDF4.Dataset(tmp_path / f"{number}.nc", "w") as file:
            file.createDimension("station", 3)
            made = file.createVariable("v", file.createVLType(np.int32, "rows"), ("station",))
            made.units = "m"
            for i, row in enumerate(rows):
                made[i] = np.array(row, np.int32) + 10 * number
            file.createVariable("height", "f8", ("station",))[:] = range(3)
    a = aa.open(tmp_path)["v"]
    assert (
        a[:].tolist() == [*rows, *([n + 10 for n in row] for row in rows)]
        and a.units == "m"
        and a.coords["height"][:].tolist() == [0.0, 1.0, 2.0] * 2
    )
    assert memory.type_string(a) == "6 * var * int32"
    assert aa.open(tmp_path / "0.nc")["height"][:].tolist() == [0.0, 1.0, 2.0]


def test_missing_awkward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "awkward", None)
    with pytest.raises(aa.AggregationError, match=r"to_awkward needs awkward: .*pip install '.*\[ragged\]'"):
        memory.Ragged(np.arange(3), np.array([0, 3])).to_awkward()


def test_data_of_more_dimensions(tmp_path: Path) -> None:
    """Variables along rows describe the rows; they are data too, unless they are coordinates."""
    grid = np.arange(12.0).reshape(3, 4)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        rows = file.create_dataset("rows", (3,), h5py.vlen_dtype("f4"))
        for i in range(3):
            rows[i] = np.arange(i + 1.0)
        file["grid"], file["level"], file["t"] = grid, np.arange(3.0), np.arange(3.0)
        file["t"].make_scale("t")
        for name in ("rows", "grid", "level"):
            file[name].dims[0].attach_scale(file["t"])
    agg = aa.open(tmp_path / "a.h5")
    assert sorted(str(a.name) for a in agg) == ["grid", "level", "rows"]
    np.testing.assert_array_equal(agg["grid"][:], grid)
    assert set(agg["rows"].coords) >= {"t", "level"}
