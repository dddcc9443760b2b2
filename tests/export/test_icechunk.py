"""Icechunk repositories: Icechunk and xarray read the values, from the files or by value."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
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
from aggarray.errors import ChangedFileError
from aggarray.export.icechunk import references, repository
from tests.support.kerchunk import FOLDER, write_grid
from tests.support.netcdf import cube, field, write
from tests.support.paths import ROOT

icechunk = pytest.importorskip("icechunk", reason="no icechunk")
pytestmark = pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3")

LATS, LONS = (10.0, 20.0, 30.0), (0.0, 5.0)


@pytest.fixture(autouse=True)
def small_arrays_are_references(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "by_default" not in request.node.name:
        monkeypatch.setattr(references, "SMALL", 0)


def opened(path: Path) -> Any:
    storage = icechunk.local_filesystem_storage(str(path))
    folders = icechunk.Repository.fetch_config(storage).virtual_chunk_containers or {}
    access = getattr(icechunk.credentials, "LocalFileSystemAccess", None)  # None before icechunk 2
    return icechunk.Repository.open(storage, authorize_virtual_chunk_access=dict.fromkeys(folders, access))


def session(path: Path) -> Any:
    return opened(path).readonly_session("main")


def dataset(path: Path, **options: Any) -> Any:
    return xr.open_zarr(session(path).store, consolidated=False, chunks=None, **options)


def files_in(path: Path) -> set[str]:
    """Return the names of the files that the references of a repository name."""
    return {location.rpartition("/")[2] for location in session(path).all_virtual_chunk_locations()}


def check(agg: aa.Aggregation, path: Path, files: int | None = None, exact: bool = True) -> None:
    """Write an aggregation of one dataset and compare what xarray reads; ``files``: number of referenced files."""
    assert agg.to_icechunk(path) == aa.Report(True, ())
    assert files is None or len(files_in(path)) == files
    compare = xr.testing.assert_equal if exact else xr.testing.assert_allclose
    compare(dataset(path).compute(), agg.to_xarray().compute())


@pytest.fixture
def years(tmp_path: Path) -> Callable[..., aa.Aggregation]:
    """Return a function that writes files of consecutive times: sizes, storage, attributes."""

    def make(*sizes: int, **stored: Any) -> aa.Aggregation:
        start = 0
        for number, size in enumerate(sizes):
            how = {"format": "NETCDF4", "dtype": "f4", "how": {}, "attrs": {}, **stored, **stored.get(f"file{number}", {})}
            times = start + np.arange(size)
            variables = cube(times, LATS, LONS, tas=None)
            path = write(tmp_path / "in" / f"f{number}.nc", variables, format=how["format"])
            with netCDF4.Dataset(path, "a") as file:
                made = file.createVariable("tas", how["dtype"], ("time", "lat", "lon"), **how["how"])
                made.set_auto_maskandscale(False)
                made.setncatts({"units": "K", **how["attrs"]})
                made[:] = field(times, LATS, LONS, how["dtype"])
            start += size
        return aa.open(tmp_path / "in")

    return make


CHUNKS = {"chunksizes": (2, 3, 2)}
DEFLATED = {"how": {"zlib": True, **CHUNKS}}

# References

STORED: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunks": {"how": CHUNKS},
    "deflate": {"how": {"zlib": True, "shuffle": False, **CHUNKS}},
    "shuffle": DEFLATED,
    "fletcher32": {"how": {"zlib": True, "fletcher32": True, **CHUNKS}},
    "zstd": {"how": {"compression": "zstd", **CHUNKS}},
    "big-endian": {"dtype": ">f8", "how": {"endian": "big", **CHUNKS}},
    "big-endian, shuffle": {"dtype": ">i4", "how": {"endian": "big", "zlib": True, **CHUNKS}},
    "bytes": {"dtype": "i1", "how": CHUNKS},
    "missing value": {"how": {"fill_value": np.float32(1005.0), **CHUNKS}},
    "missing values": {"how": CHUNKS, "attrs": {"_FillValue": np.float32(1005.0), "missing_value": np.float32(1010.05)}},
    "missing integer": {"dtype": "i2", "how": {"fill_value": 20, **CHUNKS}},
    "packed": {"dtype": "i2", "how": {"fill_value": 20, **CHUNKS}, "attrs": {"scale_factor": 0.5, "add_offset": 270.0}},
    "unsigned": {"dtype": "i1", "how": {"fill_value": -1, **CHUNKS}, "attrs": {"_Unsigned": "true"}},
    "netCDF-3": {"format": "NETCDF3_CLASSIC"},
    "netCDF-3, 64 bits": {"format": "NETCDF3_64BIT_DATA", "dtype": "i8"},
}


@pytest.mark.filterwarnings("ignore:variable 'tas' has multiple fill values")
@pytest.mark.parametrize("case", STORED)
def test_references(years: Callable[..., aa.Aggregation], tmp_path: Path, case: str) -> None:
    if case == "zstd" and not netCDF4.__has_zstandard_support__:
        pytest.skip("netCDF-C without Zstandard")
    agg = years(4, 4, 4, **STORED[case])
    check(agg, tmp_path / "out", files=3)
    stored = zarr.open_array(session(tmp_path / "out").store, path="tas", mode="r")
    for number in range(3):
        with netCDF4.Dataset(tmp_path / "in" / f"f{number}.nc") as file:
            file.set_auto_maskandscale(False)
            np.testing.assert_array_equal(stored[4 * number : 4 * number + 4], file["tas"][:])


def test_no_values_are_copied(tmp_path: Path) -> None:
    values = np.random.default_rng(1).random((40, 100, 200)).astype("f4")
    for number in range(2):
        tas = (("time", "lat", "lon"), values[20 * number :][:20], {"units": "K"})
        variables = cube(20 * number + np.arange(20), np.arange(100) / 2, np.arange(200), tas=tas)
        write(tmp_path / "in" / f"{number}.nc", variables)
    agg = aa.open(tmp_path / "in")
    check(agg, tmp_path / "out", files=2)
    size = sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert size < 40_000 < values.nbytes
    (tmp_path / "in").rename(tmp_path / "away")
    assert dataset(tmp_path / "out").lat.size == 100
    with pytest.raises(icechunk.IcechunkError, match=r"not found|No such file"):
        dataset(tmp_path / "out").tas.load()


def test_names_of_files(years: Callable[..., aa.Aggregation], tmp_path: Path) -> None:
    years(2, 2)
    folder = tmp_path / "a b%20ü#?"
    (tmp_path / "in").rename(folder)
    (folder / "f0.nc").rename(folder / "f [1]*;'&+~\".nc")
    check(aa.open(folder), tmp_path / "out", files=2)


def test_a_changed_file_is_noticed(years: Callable[..., aa.Aggregation], tmp_path: Path) -> None:
    agg = years(4, 4, **DEFLATED)
    assert agg.to_icechunk(tmp_path / "out").ok
    path = tmp_path / "in" / "f1.nc"
    seconds = path.stat().st_mtime + 2
    os.utime(path, (seconds, seconds))
    np.testing.assert_array_equal(dataset(tmp_path / "out").tas[:4], agg["tas"][:4])
    with pytest.raises(icechunk.IcechunkError, match="has changed"):
        dataset(tmp_path / "out").tas.load()


def test_a_file_that_changed_before_is_an_error(years: Callable[..., aa.Aggregation], tmp_path: Path) -> None:
    agg = years(4, 4, **DEFLATED)
    with open(tmp_path / "in" / "f1.nc", "ab") as file:
        file.write(b"more")
    with pytest.raises(ChangedFileError, match=r"f1\.nc"):
        agg.to_icechunk(tmp_path / "out")
    (tmp_path / "in" / "f1.nc").unlink()
    with pytest.raises(aa.MissingFileError, match=r"f1\.nc"):
        agg.to_icechunk(tmp_path / "out")
    assert os.listdir(tmp_path) == ["in"]


def test_missing_partitions(tmp_path: Path) -> None:
    for number, (t, y) in enumerate([(0, 0), (0, 1), (1, 0)]):
        write(tmp_path / "in" / f"{number}.nc", cube(np.arange(2) + 2 * t, np.array(LATS) + 30 * y))
    agg = aa.open(tmp_path / "in")
    assert np.isnan(agg["tas"][...]).any()
    check(agg, tmp_path / "out", files=3)


def test_selections(years: Callable[..., aa.Aggregation], tmp_path: Path) -> None:
    agg = years(4, 4, **DEFLATED)
    check(agg.isel(time=slice(2, None)), tmp_path / "out", files=2)
    check(agg.isel(time=slice(4, 8)), tmp_path / "one", files=1)
    report = agg.isel(time=slice(1, None)).to_icechunk(tmp_path / "refused")
    assert "begins at 0 of 'time' (at 1 in the file) with chunks of 2" in report.problems[0].message


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("compressor", [None, "zstd", "blosc", "gzip"])
def test_zarr_sources(tmp_path: Path, version: Any, compressor: str | None) -> None:
    codecs: Any = {
        None: None,
        "zstd": zarr.codecs.ZstdCodec(),
        "blosc": zarr.codecs.BloscCodec(typesize=4),
        "gzip": zarr.codecs.GzipCodec(),
    }
    if version == 2:
        import numcodecs

        codecs = {None: None, "zstd": numcodecs.Zstd(), "blosc": numcodecs.Blosc(), "gzip": numcodecs.GZip()}
    group = zarr.open_group(tmp_path / "in.zarr", mode="w", zarr_format=version)
    names: dict[str, Any] = {"dimension_names": ["x"]} if version == 3 else {}
    array = group.create_array("v", shape=(10,), chunks=(4,), dtype="f4", fill_value=0, compressors=codecs[compressor], **names)
    array.attrs["_ARRAY_DIMENSIONS"] = ["x"]
    array[:4], array[8:] = [1, 2, 3, 4], [5, 6]
    agg = aa.open(tmp_path / "in.zarr")
    assert agg.to_icechunk(tmp_path / "out").ok
    assert len(files_in(tmp_path / "out")) == 2
    np.testing.assert_array_equal(dataset(tmp_path / "out").v, agg["v"][...])


def test_shards(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "in.zarr", mode="w", zarr_format=3)
    array = group.create_array("v", shape=(16,), chunks=(2,), shards=(8,), dtype="f4", dimension_names=["x"])
    array[:] = np.arange(16)
    check(aa.open(tmp_path / "in.zarr"), tmp_path / "out", files=2)


@pytest.mark.parametrize("kind", ["nc3", "nc4"])
def test_kerchunk_sources(tmp_path: Path, kind: str) -> None:
    for path in FOLDER.glob(f"y?.{kind}*"):
        shutil.copy(path, tmp_path)
    agg = aa.open(str(tmp_path / f"y?.{kind}.json"))
    assert agg.to_icechunk(tmp_path / "out").ok
    # xarray unpacks in float32.
    xr.testing.assert_allclose(dataset(tmp_path / "out").compute(), agg.to_xarray().compute())
    assert files_in(tmp_path / "out") == {f"y0.{kind}", f"y1.{kind}"}


def test_chunks_inside_references(years: Callable[..., aa.Aggregation], tmp_path: Path) -> None:
    agg = years(4, 4, **DEFLATED)
    refs = agg.to_kerchunk()
    path, offset, size = refs["refs"]["tas/1.0.0"]
    data = Path(path).read_bytes()[offset : offset + size]
    refs["refs"]["tas/1.0.0"] = f"base64:{base64.b64encode(data).decode()}"
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    assert aa.open(tmp_path / "refs.json").to_icechunk(tmp_path / "out").ok
    assert len(session(tmp_path / "out").all_virtual_chunk_locations()) == 3
    np.testing.assert_array_equal(dataset(tmp_path / "out").tas, agg["tas"][...])


def test_an_index(years: Callable[..., aa.Aggregation], tmp_path: Path) -> None:
    years(4, 4, **DEFLATED).save(tmp_path / "tas.nca")
    (tmp_path / "in").rename(tmp_path / "moved")
    agg = aa.open(tmp_path / "tas.nca", relocate={"in": "moved"})
    check(agg, tmp_path / "out", files=2)
    assert all(f"{tmp_path}/moved/" in location for location in session(tmp_path / "out").all_virtual_chunk_locations())


def test_references_inside_references_stay_below_roots(tmp_path: Path) -> None:
    folder = tmp_path / "refs"
    folder.mkdir()
    for path in FOLDER.glob("y?.nc4"):
        shutil.copy(path, tmp_path)
    for path in FOLDER.glob("y?.nc4.json"):
        (folder / path.name).write_text(path.read_text().replace('"y', f'"{tmp_path}/y'))
    with pytest.raises(aa.ForbiddenPathError):
        aa.open(str(folder / "*.json"), roots=[folder]).to_icechunk(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_groups(tmp_path: Path) -> None:
    for model, shift in (("A", 0), ("B", 50)):
        for number in range(2):
            tas = (("time", "lat", "lon"), np.full((3, 3, 2), shift + number, "f4"), {"units": "K"})
            attrs = {"source_id": model, "mip_era": "CMIP6"}
            write(tmp_path / "in" / f"{model}{number}.nc", cube(np.arange(3) + 3 * number, tas=tas), attrs)
    agg = aa.open(tmp_path / "in")
    assert agg.to_icechunk(tmp_path / "out").ok
    assert files_in(tmp_path / "out") == {"A0.nc", "A1.nc", "B0.nc", "B1.nc"}
    tree = xr.open_datatree(session(tmp_path / "out").store, engine="zarr", consolidated=False)
    xr.testing.assert_equal(tree.compute(), agg.to_xarray().compute())


@pytest.mark.heavy
def test_real_data(shared_data: Path, tmp_path: Path) -> None:
    agg = aa.open(shared_data / "cmip6")
    assert agg.to_icechunk(tmp_path / "out").ok
    tree = xr.open_datatree(session(tmp_path / "out").store, engine="zarr", consolidated=False)
    truth = agg.to_xarray()
    assert sorted(node.path for node in tree.leaves) == sorted(node.path for node in truth.leaves)
    for node in tree.leaves:
        xr.testing.assert_equal(node.to_dataset().compute(), truth[node.path].to_dataset().compute())


@given(data=st.data())
def test_any_grid_of_chunks(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """The values read back the same, or the report has the reason."""
    folder = tmp_path_factory.mktemp("grid")
    sides, copy = write_grid(folder, data), data.draw(st.booleans(), "copy")
    agg = aa.open(folder)
    report = agg.to_icechunk(folder / "out", copy)
    assert report.ok or (sides is not None and not copy and not (folder / "out").exists())
    if report.ok:
        np.testing.assert_array_equal(dataset(folder / "out").v, agg["v"][...])


# Values


REFUSED: dict[str, tuple[tuple[int, ...], dict[str, Any], str]] = {
    "chunks": (
        (4, 4),
        {**DEFLATED, "file1": {"how": {"zlib": True, "chunksizes": (1, 3, 2)}}},
        "chunks of (1, 3, 2), but (2, 3, 2) in",
    ),
    "uneven files": ((3, 4), DEFLATED, "it ends at 3 of 'time' with chunks of 2"),
    "codecs": ((4, 4), {**DEFLATED, "file1": {"how": {"zlib": True, "shuffle": False, **CHUNKS}}}, "codecs deflate"),
    "byte order": ((4, 4), {"file1": {"dtype": ">f4", "how": {"endian": "big"}}}, "stored dtype >f4, but <f4 in"),
    "dtype": ((4, 4), {"file1": {"dtype": "f8"}}, "dtype float32 differs from the array's float64"),
    "units": ((4, 4), {"file1": {"attrs": {"units": "degC"}}}, "units 'degC' differ from the array's 'K'"),
    "packing": (
        (4, 4),
        {"dtype": "i2", "attrs": {"scale_factor": 0.5}, "file1": {"attrs": {"scale_factor": 0.25}}},
        "scale_factor and add_offset 0.25, None, but 0.5, None in",
    ),
    "missing values": ((4, 4), {"file1": {"how": {"fill_value": -9.0}}}, "missing values and valid bounds"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_arrays(years: Callable[..., aa.Aggregation], tmp_path: Path, case: str) -> None:
    sizes, stored, reason = REFUSED[case]
    agg = years(*sizes, **stored)
    assert len(agg) == 1
    report = agg.to_icechunk(tmp_path / "out")
    (problem,) = report.problems
    assert not report.ok and problem.kind == "refused" and problem.file is not None
    assert problem.message.startswith("tas: no references: partition ") and reason in problem.message
    assert problem.message.endswith("; pass copy=True to write its values")
    # Nothing remains to be written.
    assert os.listdir(tmp_path) == ["in"]
    assert agg.to_icechunk(tmp_path / "out", copy=True) == aa.Report(True, ())
    assert files_in(tmp_path / "out") == set()
    xr.testing.assert_equal(dataset(tmp_path / "out").compute(), agg.to_xarray().compute())


def test_some_arrays_are_refused(years: Callable[..., aa.Aggregation], tmp_path: Path) -> None:
    years(4, 4, **DEFLATED)
    for number, units in enumerate(("mm", "cm")):
        with netCDF4.Dataset(tmp_path / "in" / f"f{number}.nc", "a") as file:
            file.createDimension("depth", 2)
            made = file.createVariable("pr", "f4", ("time", "lat", "lon"))
            made.units, made[:] = units, np.arange(24).reshape(4, 3, 2)
    agg = aa.open(tmp_path / "in")
    report = agg.to_icechunk(tmp_path / "out")
    assert [problem.message.partition(":")[0] for problem in report.problems] == ["pr"]
    assert set(dataset(tmp_path / "out").variables) == {"time", "lat", "lon", "tas"}
    assert agg.to_icechunk(tmp_path / "copy", copy=True).ok
    xr.testing.assert_equal(dataset(tmp_path / "copy").compute(), agg.to_xarray().compute())
    assert len(files_in(tmp_path / "copy")) == 2
    (commit, _) = opened(tmp_path / "copy").ancestry(branch="main")
    assert commit.message == "Add 1 array by reference, 4 by value (aggarray)"


def test_copies_are_written_by_chunks(years: Callable[..., aa.Aggregation], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("aggarray.export.zarr_view.layout.MOST_BYTES", 100)
    agg = years(31, 30, 31, **DEFLATED)
    with aa.set_options(threads=3):
        assert agg.to_icechunk(tmp_path / "out", copy=True).ok
    copied = zarr.open_array(session(tmp_path / "out").store, path="tas", mode="r")
    view = zarr.open_array(agg.to_zarr_store(), path="tas", mode="r")
    assert copied.chunks == view.chunks and copied.nchunks == view.nchunks > 10
    np.testing.assert_array_equal(copied[...], agg["tas"][...])


def test_arrays_in_memory_and_small_arrays_by_default(tmp_path: Path) -> None:
    piece = aa.SubArray.from_array(np.arange(30_000, dtype="f4"))
    memory = aa.MasterArray.from_subarrays([([(0, 30_000)], piece)], dimensions=("n",), name="memory")
    write(tmp_path / "a.nc", cube([0.0, 1.0]))
    agg = aa.Aggregation((memory, *aa.open(tmp_path / "a.nc")))
    assert agg.to_icechunk(tmp_path / "out").ok
    (tmp_path / "a.nc").unlink()
    read = dataset(tmp_path / "out")
    np.testing.assert_array_equal(read.memory, np.arange(30_000))
    np.testing.assert_array_equal(read.tas, field([0.0, 1.0], LATS, LONS))


@pytest.mark.parametrize("sample", ["archive", "tiles", "stations"])
def test_values_of_the_samples(sample: str, sample_archive: Path, tmp_path: Path) -> None:
    agg = aa.open(sample_archive.parent / sample)
    assert not agg.to_icechunk(tmp_path / "out").ok
    assert agg.to_icechunk(tmp_path / "out", copy=True).ok
    xr.testing.assert_equal(dataset(tmp_path / "out").compute(), agg.to_xarray().compute())


def test_files_that_are_gone(years: Callable[..., aa.Aggregation], tmp_path: Path) -> None:
    years(4, 4)
    agg = aa.open(tmp_path / "in", missing="fill")
    (tmp_path / "in" / "f1.nc").unlink()
    assert [problem.kind for problem in agg.to_icechunk(tmp_path / "out").problems] == ["refused"]
    assert agg.to_icechunk(tmp_path / "out", copy=True).ok
    np.testing.assert_array_equal(dataset(tmp_path / "out").tas, agg["tas"][...])


def test_assumed_files(years: Callable[..., aa.Aggregation], tmp_path: Path) -> None:
    years(4, 4, 4, 4, **DEFLATED)
    check(aa.open(tmp_path / "in", rules=aa.Rules(trust="assume")), tmp_path / "out", files=4)


# Places


def test_existing_folders(years: Callable[..., aa.Aggregation], tmp_path: Path) -> None:
    agg = years(2, 2)
    (tmp_path / "empty").mkdir()
    check(agg, tmp_path / "empty", files=2)
    before = sorted(path.name for path in (tmp_path / "empty").rglob("*"))
    (tmp_path / "file").touch()
    for name in ("empty", "file", "in"):
        with pytest.raises(aa.IndexFileError, match=r"exists and is not an empty folder.*; give the path of a new folder"):
            agg.to_icechunk(tmp_path / name)
    assert sorted(path.name for path in (tmp_path / "empty").rglob("*")) == before
    with pytest.raises(aa.IndexFileError, match="cannot be written: No such file or directory"):
        agg.to_icechunk(tmp_path / "none" / "out")
    with pytest.raises(aa.FormatError, match=r"s3://bucket/a.*write a local file and upload it"):
        agg.to_icechunk("s3://bucket/a")


def test_repositories_can_be_moved(years: Callable[..., aa.Aggregation], tmp_path: Path) -> None:
    agg = years(2, 2)
    assert agg.to_icechunk(tmp_path / "out").ok
    (tmp_path / "out").rename(tmp_path / "moved")
    xr.testing.assert_equal(dataset(tmp_path / "moved").compute(), agg.to_xarray().compute())


def test_an_error_leaves_nothing(years: Callable[..., aa.Aggregation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agg = years(3, 4, **DEFLATED)

    def fail(*_: Any) -> None:
        raise icechunk.IcechunkError("x object store error: no space left\n  | context")

    monkeypatch.setattr(repository._Writer, "_copy", fail)
    with pytest.raises(aa.IndexFileError, match=r"cannot be written: object store error: no space left \(.*out\)"):
        agg.to_icechunk(tmp_path / "out", copy=True)
    monkeypatch.undo()
    (tmp_path / "in" / "f1.nc").write_bytes(b"")
    with pytest.raises(aa.AggarrayError):
        agg.to_icechunk(tmp_path / "out", copy=True)
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.heavy
def test_a_full_disk(years: Callable[..., aa.Aggregation], tmp_path: Path) -> None:
    years(3, 4, **DEFLATED)
    program = """
import resource, signal, sys
import aggarray as aa
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
agg = aa.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
try:
    agg.to_icechunk(sys.argv[2], copy=True)
except aa.IndexFileError as error:
    sys.exit(f"aggarray: {error}")
"""
    for size in (0, 100, 300):
        command = [sys.executable, "-c", program, tmp_path / "in", tmp_path / "out", str(size)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 1 and re.search(r"aggarray: cannot be written: .*File too large .*out\);", done.stderr), done
        assert os.listdir(tmp_path) == ["in"]


def test_readers_must_authorize_the_folders(years: Callable[..., aa.Aggregation], tmp_path: Path) -> None:
    assert years(2, 2).to_icechunk(tmp_path / "out").ok
    storage = icechunk.local_filesystem_storage(str(tmp_path / "out"))
    assert list(icechunk.Repository.fetch_config(storage).virtual_chunk_containers) == [f"file://{tmp_path}/in/"]
    store = icechunk.Repository.open(storage).readonly_session("main").store
    with pytest.raises(icechunk.IcechunkError, match="authorize"):
        zarr.open_array(store, path="tas", mode="r")[...]
