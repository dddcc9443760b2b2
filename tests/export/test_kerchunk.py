"""Kerchunk references: read by other programs, or refused with a reason."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from tests.support.kerchunk import FOLDER, KINDS, write_grid
from tests.support.netcdf import cube, field, write

LATS, LONS = (10.0, 20.0, 30.0), (0.0, 5.0)


def zarr_values(references: dict[str, Any], name: str) -> np.ndarray:
    """Return the stored values of an array, read by zarr-python through a plain store."""
    store = zarr.storage.MemoryStore()
    files = {}
    for key, given_ in references["refs"].items():
        if isinstance(given_, str):
            data = base64.b64decode(given_[7:]) if given_.startswith("base64:") else given_.encode()
        elif len(given_) == 1:
            data = Path(given_[0]).read_bytes()
        else:
            data = files.setdefault(given_[0], Path(given_[0]).read_bytes())[given_[1] : given_[1] + given_[2]]
            assert len(data) == given_[2]
        store._store_dict[key] = zarr.core.buffer.cpu.Buffer.from_bytes(data)
    return np.asarray(zarr.open_array(store, path=name, mode="r", zarr_format=2)[...])


def check(agg: aa.Aggregation, tmp_path: Path, tables: bool = False) -> dict[str, Any]:
    """Write references, read them back, and compare the values with those of the files."""
    result = agg.to_kerchunk()
    for path in [tmp_path / "out.json", *([tmp_path / "out.parq"] if tables else [])]:
        assert agg.to_kerchunk(path) == result
        again = aa.open(path)
        assert (sorted(again.names), again.skipped) == (sorted(agg.names), ())
        for a in agg:
            b = again[a.name or ""]
            assert (a.dtype, a.units, a.calendar) == (b.dtype, b.units, b.calendar)
            assert (a.dimensions, a.directions) == (b.dimensions, b.directions)
            np.testing.assert_array_equal(a[...], b[...])
            np.testing.assert_array_equal(a.read(masked=True).mask, b.read(masked=True).mask)
            assert set(a.coords) == set(b.coords)
            for name, coordinate in a.coords.items():
                np.testing.assert_array_equal(coordinate[...], b.coords[name][...])
    return result


@pytest.fixture
def years(tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that writes files of consecutive times: sizes, storage, attributes."""

    def make(sizes: Sequence[int], **stored: Any) -> list[str]:
        result, start = [], 0
        for number, size in enumerate(sizes):
            changes = stored.get(f"file{number}", {})
            kind = {"format": "NETCDF4", "dtype": "f4", "lats": LATS, "attrs": {}, **stored, **changes}
            path = tmp_path / f"f{number}.nc"
            with netCDF4.Dataset(path, "w", format=kind["format"]) as file:
                for name, values, units in (
                    ("time", start + np.arange(size), "days since 2000-01-01"),
                    ("lat", np.array(kind["lats"]), "degrees_north"),
                    ("lon", np.array(LONS), "degrees_east"),
                ):
                    file.createDimension(name, None if name == "time" and kind.get("unlimited") else len(values))
                    file.createVariable(name, "f8", (name,)).units = units
                    file[name][:] = values
                how = dict(kind.get("how", {}))
                made = file.createVariable("tas", kind["dtype"], ("time", "lat", "lon"), **how)
                made.set_auto_maskandscale(False)
                made.setncatts({"units": "K", **kind["attrs"]})
                made[:] = field(start + np.arange(size), kind["lats"], LONS, kind["dtype"])
            result.append(str(path))
            start += size
        return result

    return make


# Arrays with references


@pytest.mark.parametrize("kind", KINDS)
def test_references_to_files(tmp_path: Path, kind: str) -> None:
    result = check(aa.open(str(FOLDER / f"y?.{kind}")), tmp_path)
    assert result["version"] == 1
    assert all(os.path.isabs(v[0]) for v in result["refs"].values() if isinstance(v, list))
    assert isinstance(result["refs"]["time/0"], str)
    with netCDF4.Dataset(FOLDER / f"y1.{kind}") as file:
        file.set_auto_maskandscale(False)
        np.testing.assert_array_equal(zarr_values(result, "tas")[4:], file["tas"][:])
        np.testing.assert_array_equal(zarr_values(result, "pr")[4:], file["pr"][:])


@pytest.mark.parametrize("kind", KINDS)
def test_parquet(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("pyarrow")
    check(aa.open(str(FOLDER / f"y?.{kind}")), tmp_path, tables=True)


@pytest.mark.parametrize("kind", KINDS)
def test_references_to_references(tmp_path: Path, kind: str) -> None:
    result = check(aa.open(str(FOLDER / f"y?.{kind}.json")), tmp_path)
    direct = aa.open(str(FOLDER / f"y?.{kind}")).to_kerchunk()
    np.testing.assert_array_equal(zarr_values(result, "pr"), zarr_values(direct, "pr"))


def test_xarray_reads_them_through_fsspec(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    pytest.importorskip("dask")
    path = tmp_path / "out.json"
    agg = aa.open(str(FOLDER / "y?.nc4"))
    agg.to_kerchunk(path)
    # In a separate process: the event loop thread of fsspec outlives a test.
    program = """
import sys, numpy as np, xarray as xr
ds = xr.open_dataset("reference://", engine="zarr", decode_times=False,
                     backend_kwargs={"consolidated": False, "storage_options": {"fo": sys.argv[1]}})
np.savez(sys.argv[2], tas=ds.tas.values, pr=ds.pr.values, time=ds.time.values)
print(ds.pr.attrs["units"], ds.time.attrs["calendar"])
"""
    arrays = str(tmp_path / "out.npz")
    done = subprocess.run([sys.executable, "-c", program, str(path), arrays], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["mm", "noleap"]
    with np.load(arrays) as result:
        for name in ("tas", "pr"):
            np.testing.assert_array_equal(result[name], agg[name][...])
        np.testing.assert_array_equal(result["time"], agg["tas"].coords["time"][...])


@pytest.mark.heavy
def test_kerchunk_reads_them(tmp_path: Path) -> None:
    pytest.importorskip("kerchunk")
    agg = aa.open(str(FOLDER / "y?.nc3"))
    paths = [tmp_path / "out.json"]
    agg.to_kerchunk(paths[0])
    pytest.importorskip("pyarrow")
    paths.append(tmp_path / "out.parq")
    agg.to_kerchunk(paths[1])
    # fsspec requires fastparquet and None for null text, and has no option for either.
    program = """
import sys, numpy as np, pandas, xarray as xr
pandas.options.future.infer_string = False
from fsspec.implementations import reference
class Tables(reference.LazyReferenceMapper):
    def __init__(self, *given, **named):
        super().__init__(*given, **{**named, "engine": "pyarrow"})
reference.LazyReferenceMapper = Tables
ds = xr.open_dataset(sys.argv[1], engine='kerchunk', decode_times=False)
"""
    for path in paths:
        arrays = str(tmp_path / "out.npz")
        code = f"{program}np.savez(sys.argv[2], tas=ds.tas.values, pr=ds.pr.values)"
        done = subprocess.run([sys.executable, "-c", code, str(path), arrays], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        with np.load(arrays) as result:
            for name in ("tas", "pr"):
                np.testing.assert_array_equal(result[name], agg[name][...])


@pytest.mark.parametrize("format", ["NETCDF3_CLASSIC", "NETCDF4"])
def test_contiguous_data_of_different_lengths_are_cut(tmp_path: Path, years: Callable[..., list[str]], format: str) -> None:
    result = check(aa.open(years([6, 4, 2], format=format)), tmp_path)
    assert json.loads(result["refs"]["tas/.zarray"])["chunks"] == [2, 3, 2]
    np.testing.assert_array_equal(zarr_values(result, "tas"), field(np.arange(12), LATS, LONS))


def test_big_endian_records(tmp_path: Path, years: Callable[..., list[str]]) -> None:
    result = check(aa.open(years([3, 2], format="NETCDF3_CLASSIC", unlimited=True)), tmp_path)
    meta = json.loads(result["refs"]["tas/.zarray"])
    assert (meta["dtype"], meta["chunks"]) == (">f4", [1, 3, 2])


@pytest.mark.parametrize("how", [{"fletcher32": True}, {"zlib": True, "shuffle": True}, {"compression": "zstd"}])
def test_codecs(tmp_path: Path, years: Callable[..., list[str]], how: dict[str, Any]) -> None:
    result = check(aa.open(years([4, 4, 3], how={**how, "chunksizes": (2, 3, 2)})), tmp_path)
    np.testing.assert_array_equal(zarr_values(result, "tas"), field(np.arange(11), LATS, LONS))


def test_unwritten_chunks_have_no_references(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 8)
        made = file.createVariable("v", "f4", ("x",), chunksizes=(2,), fill_value=-1.0)
        made[2:4] = [1, 2]
    result = check(aa.open(path), tmp_path)
    assert [k for k in result["refs"] if k.startswith("v/") and "/." not in k] == ["v/1"]


def test_holes_have_no_references(tmp_path: Path) -> None:
    for number, (t, y) in enumerate([(0, 0), (0, 1), (1, 0)]):
        times, lats = np.arange(2) + 2 * t, np.array(LATS) + 30 * y
        write(tmp_path / f"{number}.nc", cube(times, lats), format="NETCDF3_CLASSIC")
    agg = aa.open(tmp_path)
    assert (agg["tas"]._matrix.refs < 0).sum() == 1
    check(agg, tmp_path)


def test_a_new_dimension_has_chunks_of_one(tmp_path: Path) -> None:
    for member in range(3):
        write(tmp_path / f"r{member}.nc", cube(np.arange(4)), {"member": f"r{member}"})
    agg = aa.open(tmp_path, rules=aa.Rules(new_dimension="member"))
    assert agg["tas"].shape == (3, 4, 3, 2)
    result = check(agg, tmp_path)
    assert json.loads(result["refs"]["tas/.zarray"])["chunks"] == [1, 4, 3, 2]


def test_a_part_of_an_array(tmp_path: Path, years: Callable[..., list[str]]) -> None:
    from dataclasses import replace

    agg = aa.open(years([4, 4], how={"zlib": True, "chunksizes": (2, 3, 2)}))
    part = agg["tas"].lazy[2:7]
    result = check(replace(agg, arrays=(part,)), tmp_path)
    np.testing.assert_array_equal(zarr_values(result, "tas"), field(np.arange(2, 7), LATS, LONS))
    with pytest.raises(aa.AggregationError, match=r"partition \(0, 0, 0\).*it begins at 0 of 'time' \(at 1 in the file\)"):
        replace(agg, arrays=(agg["tas"].lazy[1:7],)).to_kerchunk()


def test_references_to_zarr_stores(tmp_path: Path) -> None:
    for number in range(2):
        ds = xr.Dataset({"v": (("time", "x"), np.arange(12.0).reshape(4, 3) + number)}, {"time": np.arange(4) + 4 * number})
        ds.to_zarr(tmp_path / f"{number}.zarr", zarr_format=2, consolidated=False, encoding={"v": {"chunks": (2, 3)}})
    agg = aa.open(str(tmp_path / "*.zarr"))
    check(agg, tmp_path)


def test_arrays_in_memory_are_inline(tmp_path: Path) -> None:
    made = [
        aa.MasterArray.from_subarrays(
            [([(0, n)], aa.SubArray.from_array(np.arange(float(n))))], dimensions=(f"n{n}",), name=f"a{n}"
        )
        for n in (1, 3)
    ]
    check(aa.Aggregation(tuple(made)), tmp_path)


def test_empty_and_scalar_arrays(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", {"none": (("n",), np.zeros(0, "f4")), "one": ((), np.float32(3))}, format="NETCDF3_CLASSIC")
    check(aa.open(tmp_path / "a.nc"), tmp_path)


def test_text_and_masked_coordinates_are_inline(tmp_path: Path) -> None:
    extra = {
        "name": (("lat",), np.array(["a", "bcd", ""]), {}),
        "height": (("lat",), np.array([1.0, -9.0, 3.0]), {"_FillValue": -9.0}),
    }
    variables = {**cube([0.0, 1.0]), **extra}
    dimensions, values, attrs = variables["tas"]
    variables["tas"] = (dimensions, values, {**attrs, "coordinates": "name height"})
    agg = aa.open(write(tmp_path / "a.nc", variables))
    result = check(agg, tmp_path)
    assert json.loads(result["refs"]["tas/.zattrs"])["coordinates"].split() == ["name", "height"]


@given(data=st.data())
def test_any_grid_of_chunks(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """References read back the same, or an error has the reason."""
    folder = tmp_path_factory.mktemp("grid")
    sides = write_grid(folder, data)
    agg = aa.open(folder)
    try:
        result = check(agg, folder)
    except aa.AggregationError as error:
        assert sides is not None and "no kerchunk references" in str(error)
    else:
        np.testing.assert_array_equal(zarr_values(result, "v"), agg["v"][...])


# Arrays without references

DEFLATED = {"how": {"zlib": True, "chunksizes": (2, 3, 2)}}
REFUSED: dict[str, tuple[Sequence[int], dict[str, Any], str]] = {
    "chunks": (
        (4, 4),
        {**DEFLATED, "file1": {"how": {"zlib": True, "chunksizes": (1, 3, 2)}}},
        r"chunks of \(1, 3, 2\), but \(2, 3, 2\) in .*f0\.nc",
    ),
    "edges": ((3, 4), DEFLATED, r"it ends at 3 of 'time' with chunks of 2"),
    "codecs": (
        (4, 4),
        {**DEFLATED, "file1": {"how": {"zlib": True, "shuffle": False, "chunksizes": (2, 3, 2)}}},
        "codecs deflate",
    ),
    "byte order": (
        (4, 4),
        {"file1": {"dtype": ">f4", "how": {"endian": "big"}}},
        r"stored dtype >f4, but <f4 in .*f0\.nc",
    ),
    "dtype": ((4, 4), {"file1": {"dtype": "f8"}}, r"dtype float(32|64) differs from the array's float64|stored dtype <f8"),
    "units": ((4, 4), {"file1": {"attrs": {"units": "degC"}}}, r"units 'degC' differ from the array's 'K'"),
    "packing": (
        (4, 4),
        {"dtype": "i2", "attrs": {"scale_factor": 0.5}, "file1": {"attrs": {"scale_factor": 0.25}}},
        r"scale_factor and add_offset 0\.25, None, but 0\.5, None in .*f0\.nc",
    ),
    "missing values": ((4, 4), {"file1": {"how": {"fill_value": -9.0}}}, r"missing values and valid bounds"),
    "direction": ((4, 4), {"file1": {"lats": LATS[::-1]}}, r"'lat' is decreasing, but increasing in the array"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_conversions_and_other_layouts_are_refused(tmp_path: Path, years: Callable[..., list[str]], case: str) -> None:
    sizes, stored, message = REFUSED[case]
    agg = aa.open(years(sizes, **stored))
    assert len(agg) == 1
    path = tmp_path / "out.json"
    with pytest.raises(
        aa.AggregationError,
        match=rf"no kerchunk references: partition .*f\d\.nc.*{message}.*variable 'tas'.*; write the values",
    ):
        agg.to_kerchunk(path)
    assert not path.exists()


def test_filters_without_a_codec_are_refused(tmp_path: Path) -> None:
    import h5py

    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", data=np.arange(64.0), chunks=(8,), compression="lzf")
    with pytest.raises(aa.AggregationError, match=r"no kerchunk references: .*a\.h5.*variable 'v'"):
        aa.open(tmp_path / "a.h5").to_kerchunk()


def test_holes_of_integers_without_a_missing_value_are_refused(tmp_path: Path) -> None:
    for number, (t, y) in enumerate([(0, 0), (0, 1), (1, 0)]):
        times, lats = np.arange(2) + 2 * t, np.array(LATS) + 30 * y
        variables = cube(times, lats)
        dimensions, values, *attrs = variables["tas"]
        write(tmp_path / f"{number}.nc", {**variables, "tas": (dimensions, values.astype("i4"), *attrs)})
    with pytest.raises(aa.AggregationError, match=r"some of its partitions are missing.*variable 'tas'"):
        aa.open(tmp_path).to_kerchunk()


def test_arrays_of_one_name_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0.0], lats=(1.0, 2.0)))
    write(tmp_path / "b.nc", cube([0.0], lats=(1.5, 2.5, 7.0)))
    agg = aa.open(tmp_path)
    assert len(agg) == 2
    with pytest.raises(aa.AggregationError, match=r"no kerchunk references: .*select one of the arrays"):
        agg.to_kerchunk()


def test_invalid_names_are_refused(tmp_path: Path) -> None:
    piece = aa.SubArray.from_array([1.0, 2.0])
    for name in ("../x", ".zattrs", ""):
        a = aa.MasterArray.from_subarrays([([(0, 2)], piece)], dimensions=("n",), name=name)
        with pytest.raises(aa.AggregationError, match="is not a valid name in a Zarr store"):
            aa.Aggregation((a,)).to_kerchunk()


def zarr_store(path: Path, version: int, fill: Any, **attrs: Any) -> aa.Aggregation:
    """Write three chunks, of which the second is missing."""
    made = zarr.open_group(path, mode="w", zarr_format=version)  # type: ignore[arg-type]
    names: dict[str, Any] = {"dimension_names": ["x"]} if version == 3 else {}
    array = made.create_array("v", shape=(6,), chunks=(2,), dtype="f4", fill_value=fill, compressors=None, **names)
    array.attrs.update({**({"_ARRAY_DIMENSIONS": ["x"]} if version == 2 else {}), **attrs})
    array[:2], array[4:] = [1, 2], 3
    return aa.open(path)


@pytest.mark.parametrize(
    ("version", "fill", "attrs"),
    [(3, 0.0, {}), (3, np.nan, {"_FillValue": np.nan}), (2, 0.0, {}), (2, 7.0, {}), (2, None, {}), (2, np.nan, {})],
)
def test_missing_chunks_of_a_store(tmp_path: Path, version: int, fill: Any, attrs: dict[str, Any]) -> None:
    agg = zarr_store(tmp_path / "a.zarr", version, fill, **attrs)
    result = check(agg, tmp_path)
    assert "v/1" not in result["refs"]
    store = zarr.open_array(tmp_path / "a.zarr", path="v", mode="r")
    np.testing.assert_array_equal(zarr_values(result, "v"), store[...])


@pytest.mark.parametrize(("version", "fill", "attrs"), [(3, 7.0, {}), (3, 0.0, {"_FillValue": -1.0})])
def test_missing_chunks_that_would_read_differently_are_refused(
    tmp_path: Path, version: int, fill: Any, attrs: dict[str, Any]
) -> None:
    agg = zarr_store(tmp_path / "a.zarr", version, fill, **attrs)
    with pytest.raises(aa.AggregationError, match=rf"partition.*a\.zarr.*not stored are {fill}, but.*variable 'v'"):
        agg.to_kerchunk()


def test_an_inline_value_is_never_missing(tmp_path: Path) -> None:
    first = aa.SubArray.from_array(np.array([1, -1], "i4"), fill_value=-1)
    second = aa.SubArray.from_array(np.array([-1, -9], "i4"), fill_value=-9)
    array = aa.MasterArray.from_subarrays([([(0, 2)], first), ([(2, 4)], second)], dimensions=("x",), name="v")
    aa.Aggregation((array,)).to_kerchunk(tmp_path / "a.json")
    again = aa.open(tmp_path / "a.json")["v"].read(masked=True)
    assert again.tolist() == array.read(masked=True).tolist() == [1, None, -1, None]
    every = aa.SubArray.from_array(np.arange(256).astype("u1"))
    full = aa.MasterArray.from_subarrays([([(1, 257)], every)], dimensions=("x",), name="v")
    with pytest.raises(aa.AggregationError, match=r"every value of uint8 occurs.*variable 'v'"):
        aa.Aggregation((full,)).to_kerchunk()


def test_errors_of_files_name_them(tmp_path: Path, years: Callable[..., list[str]]) -> None:
    paths = years([4, 4])
    agg = aa.open(paths)
    os.unlink(paths[1])
    with pytest.raises(aa.MissingFileError, match=r"no such file.*variable 'tas' in .*f1\.nc"):
        agg.to_kerchunk()


# Files


def test_the_suffix_selects_the_format(tmp_path: Path) -> None:
    agg = aa.open(FOLDER / "y0.nc4")
    with pytest.raises(aa.AggregationError, match=r"ends in \.json, \.parq or \.parquet"):
        agg.to_kerchunk(tmp_path / "out.txt")
    (tmp_path / "out.parq").mkdir()
    (tmp_path / "out.parq" / "mine").write_text("mine")
    with pytest.raises(aa.IndexFileError, match="not a set of references"):
        agg.to_kerchunk(tmp_path / "out.parq")
    assert (tmp_path / "out.parq" / "mine").read_text() == "mine"


def test_existing_references_are_replaced_atomically(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for name in ("out.json", "out.parquet"):
        path = tmp_path / name
        aa.open(FOLDER / "y0.nc4").to_kerchunk(path)
        aa.open(FOLDER / "y1.nc4").to_kerchunk(path)
        assert aa.open(path)["tas"].coords["time"][0] == 4.5
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.json", "out.parquet"]


def test_a_failed_write_keeps_existing_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "out.parq"
    aa.open(FOLDER / "y0.nc4").to_kerchunk(path)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", full)
    with pytest.raises(aa.IndexFileError, match="No space left"):
        aa.open(FOLDER / "y1.nc4").to_kerchunk(path)
    assert [p.name for p in tmp_path.iterdir()] == ["out.parq"]
    assert aa.open(path)["tas"].coords["time"][0] == 0.5


# Real data


def test_real_archives(tmp_path: Path, shared_data: Path) -> None:
    """Every array of CMIP6 data reads back the same, or is refused with a reason."""
    done = refused = 0
    for folder in sorted({p.parent for p in (shared_data / "cmip6").rglob("*.nc")})[:12]:
        for array in (agg := aa.open(folder)):
            one = agg.select(array.name)
            try:
                result = one.to_kerchunk(tmp_path / "out.json")
            except aa.AggregationError as error:
                assert "no kerchunk references" in str(error)
                refused += 1
                continue
            again = aa.open(tmp_path / "out.json")[array.name or ""]
            key = (slice(0, None, max(1, array.shape[0] // 3)), ...)
            np.testing.assert_array_equal(array[key], again[key])
            assert len(result["refs"]) > 2
            done += 1
    assert done
