"""Tests of unusual and invalid ragged files."""

import re
from itertools import chain
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray import memory
from aggarray.arrays.ragged_variables import flatten_ragged
from aggarray.dap import Distribution
from aggarray.display.report import page
from aggarray.display.report.data import page_data
from aggarray.export.extract import extract
from aggarray.memory import Ragged
from aggarray.memory.selection import Range
from aggarray.partition.plan import pieces_by_file, plan_dimension
from tests.support.messages import says

pytestmark = pytest.mark.quick


def stored(path: Path, variables: dict[str, tuple[tuple[str, ...], Any, dict[str, Any]]]) -> Path:
    """Write variables, {name: (dimensions, values, attributes)}, as a netCDF-4 file."""
    with netCDF4.Dataset(path, "w") as file:
        for name, (dimensions, values, attributes) in variables.items():
            numbers = np.asarray(values)
            for dimension, size in zip(dimensions, numbers.shape, strict=True):
                if dimension not in file.dimensions:
                    file.createDimension(dimension, size)
            made = file.createVariable(name, str if numbers.dtype.kind in "UO" else numbers.dtype, dimensions)
            made.setncatts(attributes)
            made[:] = numbers.astype(object) if numbers.dtype.kind == "U" else numbers
    return path


def by_size(sizes: Any, values: Any, **attributes: Any) -> dict[str, tuple[tuple[str, ...], Any, dict[str, Any]]]:
    """Return the variables of a contiguous representation: ``v`` along ``obs``, its row sizes ``n`` along ``i``."""
    return {"n": (("i",), sizes, {"sample_dimension": "obs"}), "v": (("obs",), values, attributes)}


@pytest.mark.parametrize("dtype", [">i2", ">f8", "<u4", ">c8"])
def test_rows_of_either_byte_order(tmp_path: Path, dtype: str) -> None:
    rows = [[1, 2], [], [300]]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("v", (3,), h5py.vlen_dtype(dtype))
        for number, row in enumerate(rows):
            made[number] = np.array(row, dtype)
    a = aa.open(tmp_path / "a.h5")["v"]
    assert a[:].tolist() == rows and a[2].tolist() == rows[2] and a.dtype == np.dtype(dtype).newbyteorder("=")


def test_row_sizes_avoid_existing_names(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file.create_group("g")
        group.create_dataset("v", (2,), h5py.vlen_dtype("f4"))[0] = [1, 2]
        group.create_dataset("v_row_size", data=[7, 8, 9])
    agg = aa.open(tmp_path / "a.h5")
    agg.save(tmp_path / "a.nca")
    for one in (agg, aa.open(tmp_path / "a.nca")):
        assert one["g/v"][:].tolist() == [[1, 2], []] and one["g/v_row_size"][:].tolist() == [7, 8, 9]


def test_unsupported_rows_are_reported(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", (2, 2), h5py.vlen_dtype("f4"))
    (skipped,) = aa.open(tmp_path / "a.h5").skipped
    assert skipped.variable == "v" and "rows of numbers along one dimension" in skipped.reason


def test_plots_show_the_samples_of_several_files(sample_stations: Path) -> None:
    agg = aa.open(sample_stations)
    a = agg["temperature"]
    for shown in (a._repr_html_(), a.lazy[3:9]._repr_html_(), agg._repr_html_()):
        assert "partitions: 4 obs, 4 files" in shown and "profile: " in shown and "<path" in shown
    drawn = page_data([a], [None])
    assert drawn["arrays"][0]["shape"] == (4,) and [Path(n).name for n in drawn["files"]] == [
        f"profiles_200{n}.nc" for n in range(1, 5)
    ]
    assert "temperature" in page(agg)


def by_index(index: Any, values: Any) -> dict[str, tuple[tuple[str, ...], Any, dict[str, Any]]]:
    """Return the variables of an indexed representation without a dimension of its instances: ``v`` along ``obs``."""
    return {"x": (("obs",), index, {"instance_dimension": "i"}), "v": (("obs",), values, {})}


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ([0.0, np.nan, 1.0], "element 1: nan is not an integer"),
        ([0.0, np.inf, 1.0], "element 1: inf is not an integer"),
        ([0.0, 1.5, 1.0], "element 1: 1.5 is not"),
        ([0.0, -1e300, 1.0], "element 1: -1e.300 is not"),
        (np.array([0, 2**63 + 5, 1], "u8"), "element 1: 9223372036854775813 is not"),
        ([0, 10**11, 1], "100000000001 instances, but the index has only 3 elements"),
        ([0, -1, 1], "index -1 of element 1"),
        (["a", "b", "c"], "StringDType"),
        (np.ma.masked_equal([0, 7, 1], 7), "element 1: the index is missing"),
    ],
)
def test_invalid_index_affects_only_its_rows(tmp_path: Path, index: Any, words: str) -> None:
    bad = stored(tmp_path / "bad.nc", by_index(np.ma.filled(index, -127), np.arange(3.0)))
    if np.ma.isMaskedArray(index):
        with netCDF4.Dataset(bad, "a") as file:
            file["x"].missing_value = -127
    stored(tmp_path / "good.nc", by_index([1, 0, 1], np.arange(3.0)))
    agg = aa.open(tmp_path)
    good, wrong = sorted(agg, key=lambda a: "bad" in str(a._matrix.references.uris))
    assert good[:].tolist() == [[1.0], [0.0, 2.0]] and [r.rule for r in agg.refusals] == ["unreadable"]
    with pytest.raises(aa.FormatError, match=says("variable 'x' in .*bad.nc", words)):
        wrong[:]


def test_sizes_and_indices_may_be_floats(tmp_path: Path) -> None:
    a = aa.open(stored(tmp_path / "a.nc", by_size([1.0, 0.0, 2.0], np.arange(3.0))))["v"]
    b = aa.open(stored(tmp_path / "b.nc", by_index(np.array([2, 0, 2], "f4"), np.arange(3.0))))["v"]
    assert a[:].tolist() == [[0.0], [], [1.0, 2.0]] and b[:].tolist() == [[1.0], [], [0.0, 2.0]]
    wrong = aa.open(stored(tmp_path / "c.nc", by_size(np.array([1, 2**63 + 1], "u8"), [1.0, 2.0])))["v"]
    with pytest.raises(aa.FormatError, match=r"element 1: 9223372036854775809 is not.*variable 'n' in .*c\.nc"):
        wrong[:]


def test_too_many_instances(tmp_path: Path) -> None:
    path = stored(tmp_path / "a.nc", by_index([1, 0, 1], np.arange(3.0)))
    with netCDF4.Dataset(path, "a") as file:
        file.createDimension("i", 2**33)
    a = aa.open(path)["v"]
    assert a.shape == (2**33,)
    with pytest.raises(aa.FormatError, match=r"8589934592 instances, but the index has only 3 elements"):
        a[0]


def apart(folder: Path, *files: dict[str, tuple[tuple[str, ...], Any, dict[str, Any]]]) -> list[tuple[str, str]]:
    """Write files and return the refusals of their arrays: (rule, reason)."""
    paths = [stored(folder / f"{number}.nc", file) for number, file in enumerate(files)]
    return [(r.rule, r.reason) for r in aa.open(paths).refusals]


def test_refusals_of_rows(tmp_path: Path) -> None:
    rows, later = by_size([1, 2], np.arange(3.0)), by_size([1, 2], np.arange(3.0) + 5)
    ((rule, reason),) = apart(tmp_path, rows, {"v": (("obs",), np.arange(3.0), {})})
    words = "ragged along i and not ragged along obs: only ragged arrays join ragged arrays: 1.nc, 0.nc"
    assert rule == "ragged" and reason == words
    ((rule, reason),) = apart(tmp_path, rows, by_size([1, 2], np.arange(3.0), standard_name="air_temperature"))
    assert rule == "identity" and "'v' and 'air_temperature'" in reason

    def at(calendar: str, lat: float = 0) -> dict[str, Any]:
        time = {"units": "days since 2000-01-01", "calendar": calendar}
        return {"time": (("i",), [0.0, 1.0], time), "lat": ((), lat, {})}

    ((rule, reason),) = apart(tmp_path, rows | at("360_day"), later | at("noleap"))
    assert rule == "coordinate" and reason.startswith("time: units differ: 'days since 2000-01-01' of calendar '360_day' and")
    times = [by_size([1, 2], np.arange(3.0), units="days since 2000-01-01", calendar=c) for c in ("360_day", "noleap")]
    ((rule, reason),) = apart(tmp_path, *times)
    assert rule == "units" and "'days since 2000-01-01' of calendar 'noleap' do not convert" in reason
    scalar = [one | at("noleap", lat) for one, lat in ((rows, 1.0), (later, 2.0))]
    for one in scalar:
        one["v"] = (("obs",), one["v"][1], {"coordinates": "lat"})
    ((rule, reason),) = apart(tmp_path, *scalar)
    assert (rule, reason) == ("coordinate", "lat: values differ: '1.0' and '2.0': 0.nc, 1.nc")


def test_rows_in_any_order_decode_a_chunk_once(tmp_path: Path) -> None:
    """Interleaved samples, with some of every row in each chunk, are read as by eager keys."""
    index = np.tile(np.arange(50), 40)
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for name, size in (("i", 50), ("obs", len(index))):
            file.createDimension(name, size)
        file.createVariable("x", "i4", ("obs",)).instance_dimension = "i"
        file["x"][:] = index
        file.createVariable("v", "f4", ("obs",), compression="zlib", chunksizes=(100,), fill_value=-9)
        file["v"][:] = np.where(np.arange(len(index)) % 7, np.arange(len(index)), -9)
    a = aa.open(tmp_path / "a.nc")["v"]
    for key in (slice(None, None, -1), [7, 3, 3, 49, 7], slice(None, None, 3), [4]):
        lazy = flatten_ragged(a.lazy[key])
        result, masked = lazy[:], lazy.read(masked=True)
        expected: Any = a.read(key, masked=True).flat
        np.testing.assert_array_equal(result, np.ma.filled(expected, np.nan))
        np.testing.assert_array_equal(np.ma.getmaskarray(np.ma.asarray(masked)), np.ma.getmaskarray(expected))
        np.testing.assert_array_equal(lazy[13:2:-3], result[13:2:-3])
        rows = [plan_dimension(Range(0, lazy.size), lazy._matrix.edges[0])]
        assert [len(group) for group in pieces_by_file(lazy._matrix, rows)] == [1]
        path = tmp_path / "out.nc"
        extract(a.lazy[key], path, exists="overwrite")
        again = aa.open(path)["v"][:]
        np.testing.assert_array_equal(again.flat, result)


def test_bounds_of_samples_follow_their_rows(tmp_path: Path) -> None:
    paths, times = [], []
    for number, sizes in enumerate(([1, 2], [2, 0, 1], [3])):
        count = sum(sizes)
        time, bounds = np.arange(count) + 10.0 * number, np.arange(2.0 * count).reshape(count, 2) + 100 * number
        times += [row.tolist() for row in np.split(bounds, np.cumsum(sizes)[:-1])]
        file = by_size(sizes, time, coordinates="t")
        file["t"] = (("obs",), time, {"units": "days since 2000-01-01", "bounds": "t_bnds"})
        file["t_bnds"] = (("obs", "nv"), bounds, {})
        file["w"] = (("obs", "nv"), bounds, {})
        paths.append(stored(tmp_path / f"{number}.nc", file))
    agg = aa.open(paths, variables=["v"])
    agg.save(tmp_path / "all.nca")
    a: Any
    for a in (agg["v"], aa.open(tmp_path / "all.nca")["v"], aa.concat([aa.open(p)["v"] for p in paths], "i")):
        assert a.coords["t_bnds"].dimensions == ("obs", "nv") and not agg.refusals
        assert a.coords["t_bnds"][:].tolist() == [*chain(*times)] == a.flat.coords["t_bnds"][:].tolist()
        some = a.lazy[::-2]
        expected = times[::-2]
        for one, rows in (
            (some, expected),
            (some.lazy[[2, 0]], [expected[2], expected[0]]),
            (a.lazy[1:3].lazy[:1], times[1:2]),
        ):
            assert one.coords["t_bnds"][:].tolist() == [*chain(*rows)] and "t_bnds" not in one.flat.coords
            extract(one, tmp_path / "some.nc", exists="overwrite")
            again = aa.open(tmp_path / "some.nc")["v"]
            assert again[:].tolist() == one[:].tolist() and again.coords["t_bnds"][:].tolist() == [*chain(*rows)]
        assert a.lazy[3].coords["t_bnds"].shape == (0, 2) and a.lazy[2].coords["t_bnds"][:].tolist() == times[2]


def test_samplings_keep_their_names(tmp_path: Path) -> None:
    file: dict[str, Any] = {}
    for name, sizes in (("a", [1, 2]), ("b", [4, 0])):
        file[f"n_{name}"] = (("i",), sizes, {"sample_dimension": name})
        file[f"v_{name}"] = ((name,), np.arange(float(sum(sizes))), {})
    agg = aa.open(stored(tmp_path / "a.nc", file))
    data = agg.to_xarray()
    assert data["n_a"].values.tolist() == [1, 2] and data["n_b"].values.tolist() == [4, 0]
    agg.to_kerchunk(tmp_path / "a.json")
    extract(list(agg), tmp_path / "b.nc")
    for other in ("a.json", "b.nc"):
        assert [a[:].tolist() for a in aa.open(tmp_path / other)] == [a[:].tolist() for a in agg]


def test_selected_rows_keep_variables_of_runs(tmp_path: Path) -> None:
    """Profiles of trajectories: sizes and variables of profiles follow the selected trajectories."""
    file: dict[str, Any] = {
        "row_size": (("p",), [2, 1, 0, 4], {"sample_dimension": "obs"}),
        "owner": (("p",), [0, 1, 0, 1], {"instance_dimension": "i"}),
        "id": (("i",), ["T0", "T1"], {"cf_role": "trajectory_id"}),
        "time": (("p",), np.arange(4.0), {"units": "days since 2000-01-01"}),
        "v": (("obs",), np.arange(7.0), {"coordinates": "time id"}),
    }
    stored(tmp_path / "a.nc", file)
    stored(tmp_path / "b.nc", {**file, "time": (("p",), np.arange(4.0) + 9, {"units": "days since 2000-01-01"})})
    a = aa.open([tmp_path / "a.nc", tmp_path / "b.nc"])["v"]
    for key in ([3, 0], slice(None, None, -1), [2], slice(0, 0)):
        one = a.lazy[key]
        extract(one, tmp_path / "some.nc", exists="overwrite")
        again = aa.open(tmp_path / "some.nc")["v"]
        assert again[:].tolist() == one[:].tolist()
        for name, coordinate in one.coords.items():
            assert again.coords[name][:].tolist() == coordinate[:].tolist(), name


def test_from_rows() -> None:
    masked = Ragged.from_rows([np.ma.masked_equal([1, 2], 2), [3], np.ma.MaskedArray([1], [True])])
    assert masked.tolist() == [[1, None], [3], [None]] and np.ma.isMaskedArray(masked.flat)
    assert not np.ma.isMaskedArray(Ragged.from_rows([[1], []]).flat) and Ragged.from_rows([]).flat.dtype == float
    for rows, words in (([[1], 2], "row 1 has shape ()"), ([[[1, 2]]], "row 0 has shape (1, 2)")):
        with pytest.raises(aa.AggregationError, match=re.escape(words)):
            Ragged.from_rows(rows)
    with pytest.raises(AttributeError, match="flat"):
        masked.flat = np.zeros(3)


def test_dtypes_without_awkward_form() -> None:
    pytest.importorskip("awkward", reason="ragged arrays in awkward: the extra 'ragged'")
    for flat in (np.array([1, None], object), np.zeros(2, "i4,f4"), np.zeros(2, "V3")):
        with pytest.raises(aa.AggregationError, match=r"Awkward does not support samples of .*; use \.flat"):
            Ragged(flat, [0, 2]).to_awkward()


def test_sections_of_rows_are_not_arrays(sample_stations: Path) -> None:
    a = aa.open(sample_stations)["temperature"]
    section = a.local(Distribution.from_partitions(a, 2), 0)
    with pytest.raises(aa.SelectionError, match=r"section\.samples\.buffer"):
        np.asarray(section)


def test_debug_repr_of_sections(sample_stations: Path) -> None:
    t = aa.open(sample_stations)["temperature"]
    mine = t.local(Distribution.from_partitions(t, 3), 1)
    assert memory.type_string(mine) == "5 * var * ?float32" and "strided * var * ?float32" in memory.debug_repr(mine)
    assert ".ragged returns them" in memory.debug_repr(mine)
    assert memory.type_string(mine.ragged) == "5 * var * float32" and "var_dim arrmeta" in memory.debug_repr(mine.ragged)


def test_missing_text_has_no_bytes() -> None:
    with pytest.raises(aa.AggregationError, match="keep a mask separately"):
        memory.Ragged.from_text(np.array(["a", np.nan], np.dtypes.StringDType(na_object=np.nan)))
