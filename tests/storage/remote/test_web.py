"""Files on a web server: values, few requests, servers that misbehave, indexes, and what is not gone to."""

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray.storage.remote import filesystems, objects
from aggarray.storage.remote import web as asking
from tests.support.examples import examples
from tests.support.index_files import changed
from tests.support.messages import says
from tests.support.netcdf import cube, field, write
from tests.support.paths import ROOT
from tests.support.servers import Web, web_server

pytest.importorskip("aiohttp")


@pytest.fixture(scope="module")
def archive(sample_archive: Path) -> Iterator[Web]:
    """The sample archive on a web server."""
    with web_server(sample_archive) as web:
        yield web


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    """A web server of a folder with one file of ten months, chunk by chunk, beside a small one."""
    folder = tmp_path / "served"
    write(folder / "a.nc", cube([0, 1]))
    write(folder / "b.nc", cube([2, 3]))
    with web_server(folder) as web:
        yield web


def same(found: aa.Aggregation, wanted: aa.Aggregation) -> None:
    """Hold values, coordinates and attributes against those of local files."""
    assert found.names == wanted.names
    for array in wanted:
        other = found[str(array.name)]
        assert (other.shape, other.dtype, other.units) == (array.shape, array.dtype, array.units)
        np.testing.assert_equal(dict(other.attrs), dict(array.attrs))
        np.testing.assert_array_equal(other[...], array[...])
        for name, coordinate in array.coords.items():
            np.testing.assert_array_equal(other.coords[name][...], coordinate[...])


# Values


@pytest.mark.parametrize("month", range(1, 13))
def test_every_file_of_the_archive(archive: Web, sample_archive: Path, month: int) -> None:
    path = next(sample_archive.glob(f"tas_2001{month:02}.*"))
    archive.forget()
    same(aa.open(f"{archive.url}/{path.name}"), aa.open(path))
    if path.is_file():
        assert len(archive.requests) <= 6


def test_the_archive_as_one(archive: Web, sample_archive: Path) -> None:
    archive.forget()
    for source in (archive.url, f"{archive.url}/", f"{archive.url}/tas_*", f"{archive.url}/**"):
        same(aa.open(source), aa.open(sample_archive))
    assert archive.asked("/c/0") < 40
    some = aa.open([f"{archive.url}/*0[1-3].nc", str(sample_archive / "tas_200104.nc")])
    assert some["tas"].shape[0] == 31 + 28 + 31 + 30


@pytest.fixture(scope="module")
def both(archive: Web, sample_archive: Path) -> tuple[aa.MasterArray, aa.MasterArray]:
    """The array of the archive, remote and local."""
    return aa.open(f"{archive.url}/")["tas"], aa.open(sample_archive)["tas"]


@given(st.data())
@settings(max_examples=examples(20))
def test_random_selections(both: tuple[aa.MasterArray, aa.MasterArray], data: st.DataObject) -> None:
    far, near = both
    key = tuple(
        data.draw(
            st.one_of(
                st.integers(0, n - 1),
                st.slices(n),
                st.lists(st.integers(0, n - 1), min_size=1, max_size=5).map(np.array),
            )
        )
        for n in near.shape
    )
    np.testing.assert_array_equal(far[key], near[key])


def test_a_file_alone_is_not_fetched_twice(web: Web) -> None:
    assert aa.open(f"{web.url}/a.nc")["tas"].shape == (2, 3, 2)
    size = (web.root / "a.nc").stat().st_size
    assert web.asked("a.nc", "HEAD") == 1 and web.sent <= size
    piece = aa.SubArray.from_file(f"{web.url}/a.nc", "tas")
    assert piece.uri == f"{web.url}/a.nc" and piece.read().shape == (2, 3, 2)


# Few requests


def large(path: Path, format: str, steps: int = 64) -> np.ndarray:
    """Write 64 steps of 256 KiB, and return them."""
    values = np.random.default_rng(7).random((steps, 256, 256)).astype("f4")
    with netCDF4.Dataset(path, "w", format=format) as file:
        for name, n in (("time", None), ("y", 256), ("x", 256)):
            file.createDimension(name, n)
        chunk = {"chunksizes": (1, 256, 256)} if format == "NETCDF4" else {}
        made = file.createVariable("tas", "f4", ("time", "y", "x"), **chunk)
        other = file.createVariable("other", "f4", ("time", "y"))
        made[:], other[:] = values, values[:, 0]
    return values


@pytest.mark.parametrize("format", ["NETCDF4", "NETCDF3_64BIT_OFFSET"])
def test_little_is_fetched_for_little(web: Web, format: str) -> None:
    values = large(web.root / "large.nc", format)
    tas = aa.open(f"{web.url}/large.nc")["tas"]
    assert web.sent < 1 << 20
    for key, most, times in (((5, 3, 4), 1 << 16, 2), ((slice(2, 4),), 3 << 18, 4), ((slice(None), 3, 4), 5 << 20, 70)):
        web.forget()
        np.testing.assert_array_equal(tas[key], values[key])
        assert web.sent <= most and len(web.requests) <= times
    web.forget()
    np.testing.assert_array_equal(tas[...], values)
    assert len(web.requests) < 20


def test_neighbouring_chunks_come_together(web: Web) -> None:
    values = np.arange(400 * 50, dtype="f8").reshape(400, 50)
    with h5py.File(web.root / "small.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(1, 50), compression="gzip")
    x = aa.open(f"{web.url}/small.h5")["x"]
    web.forget()
    np.testing.assert_array_equal(x[...], values)
    assert len(web.requests) <= 10


# Stores


def store(path: Path, values: np.ndarray, **how: Any) -> None:
    """Write a Zarr store of one array beside a group of another, as version 2 or 3, consolidated or not."""
    version, consolidated = how.pop("zarr_format", 3), how.pop("consolidated", False)
    group = zarr.open_group(str(path), mode="w", zarr_format=version)
    names = {"dimension_names": ("y", "x")} if version == 3 else {}
    made = group.create_array("my tas", shape=values.shape, dtype=values.dtype, fill_value=-1, **names, **how)
    if version == 2:
        made.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]
    made[:8] = values[:8]
    if consolidated:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(str(path))


@pytest.mark.parametrize("listing", [True, False])
@pytest.mark.parametrize(
    "how",
    [
        {"zarr_format": 2, "consolidated": True},
        {"zarr_format": 3, "consolidated": True},
        {"consolidated": True, "compressors": None},
        {"consolidated": True, "shards": (8, 6)},
        {"consolidated": True, "shards": (8, 6), "compressors": None},
        {"zarr_format": 2, "consolidated": True, "order": "F"},
        {"zarr_format": 2},
        {},
    ],
)
def test_stores(web: Web, how: dict[str, Any], listing: bool) -> None:
    values = np.arange(12 * 6, dtype="i4").reshape(12, 6)
    store(web.root / "s.zarr", values, chunks=(4, 3), **how)
    web.listing = listing
    if not listing and not how.get("consolidated"):
        with pytest.raises(aa.FormatError, match="consolidate"):
            aa.open(f"{web.url}/s.zarr")
        return
    far, near = aa.open(f"{web.url}/s.zarr"), aa.open(web.root / "s.zarr")
    same(far, near)
    assert (far["my tas"][8:] == -1).all()
    np.testing.assert_array_equal(far["my tas"][3:7, 1:5], values[3:7, 1:5])


def test_rows_of_a_large_chunk_without_codecs(web: Web) -> None:
    values = np.arange(600 * 60, dtype="f8").reshape(600, 60)
    store(web.root / "s.zarr", values, chunks=(300, 60), consolidated=True, compressors=None)
    far = aa.open(f"{web.url}/s.zarr")["my tas"]
    web.forget()
    np.testing.assert_array_equal(far[:4, 5], values[:4, 5])
    np.testing.assert_array_equal(far[450:, 5], -1)
    assert web.sent < 50_000


# What only a library reads


def test_files_that_h5py_reads(web: Web) -> None:
    with h5py.File(web.root / "odd.h5", "w") as file:
        file.create_dataset("x", data=np.arange(6.0).reshape(2, 3), compression="lzf", scaleoffset=None)
        file["x"].attrs["note"] = np.array([1.5, 2.5])
        file.create_dataset("pairs", data=np.zeros(3, [("a", "i4"), ("b", "f4")]))
        file.create_dataset("packed", data=np.arange(40), chunks=(10,), scaleoffset=0)
        file.create_dataset("text", data=np.array([b"ab", b"cd"]))
    far, near = aa.open(f"{web.url}/odd.h5"), aa.open(web.root / "odd.h5")
    same(far, near)
    assert [s.variable for s in far.skipped] == [s.variable for s in near.skipped] == ["pairs"]


def test_values_in_other_files_are_not_looked_for(web: Web, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(np.arange(4.0).tobytes())
    with h5py.File(web.root / "outer.h5", "w") as file:
        file.create_dataset("x", shape=(4,), dtype="f8", external=[(str(tmp_path / "secret"), 0, 32)])
        file["link"] = h5py.ExternalLink(str(web.root / "a.nc"), "tas")
    far = aa.open(f"{web.url}/outer.h5")
    with pytest.raises(aa.FormatError, match="other files"):
        far["x"][...]
    assert "link" not in far


# Indexes


def test_an_index_of_remote_files(web: Web, tmp_path: Path) -> None:
    aa.open(f"{web.url}/*.nc").save(tmp_path / "index.nca")
    objects.forget()
    web.forget()
    agg = aa.open(tmp_path / "index.nca")
    assert agg["tas"].shape == (4, 3, 2) and not web.requests
    with pytest.raises(aa.IndexFileError, match=r"b\.nc.*roots="):
        agg["tas"][3]
    with pytest.raises(aa.IndexFileError, match="roots="):
        agg["tas"].partitions[0].data.read()
    assert not web.requests
    for roots in ([web.url], [f"{web.url}/", tmp_path]):
        web.forget()
        with_roots = aa.open(tmp_path / "index.nca", roots=roots)
        assert not web.asked("a.nc")
        np.testing.assert_array_equal(with_roots["tas"][2:], field([2, 3], [10.0, 20.0, 30.0], [0.0, 5.0]))
        assert not web.asked("a.nc") and web.asked("b.nc", "GET") == 1
    assert agg["tas"].partitions[1].data.uri == f"{web.url}/b.nc"
    moved = aa.open(tmp_path / "index.nca", relocate={web.url: str(web.root)})
    np.testing.assert_array_equal(moved["tas"][...], with_roots["tas"][...])


def test_an_index_on_a_server(web: Web, tmp_path: Path) -> None:
    aa.open(web.root).save(web.root / "index.nca")
    far = aa.open(f"{web.url}/index.nca")
    assert not web.asked("a.nc") and len(web.requests) <= 6
    np.testing.assert_array_equal(far["tas"][...], field(range(4), [10.0, 20.0, 30.0], [0.0, 5.0]))
    assert far["tas"].partitions[0].data.uri == f"{web.url}/a.nc" and far.check().ok
    sent = pickle.loads(pickle.dumps(far["tas"]))
    np.testing.assert_array_equal(sent[...], far["tas"][...])
    write(web.root / "c.nc", cube([4]))
    assert far.append(f"{web.url}/c.nc")["tas"].shape == (5, 3, 2)
    with pytest.raises(aa.IndexFileError, match="upload"):
        far.save(f"{web.url}/other.nca")
    far.save(tmp_path / "here.nca")
    assert aa.open(tmp_path / "here.nca", roots=[web.url])["tas"][0, 0, 0] == 10.0


@pytest.mark.parametrize(
    "name", ["/etc/a.nc", "file:///etc/a.nc", "http://127.0.0.2:1/a.nc", "s3://bucket/a.nc", "memory://a.nc"]
)
def test_an_index_on_a_server_names_nothing_elsewhere(web: Web, name: str) -> None:
    aa.open(web.root / "a.nc").save(web.root / "index.nca")
    changed(web.root / "index.nca", lambda d: d.update(files={"is": [name]}))
    agg = aa.open(f"{web.url}/index.nca")
    if name.startswith("/"):
        # An absolute path is one of the same server.
        assert agg["tas"].partitions[()].data.uri == f"{web.url}{name}"
        return
    with pytest.raises(aa.IndexFileError, match="roots="):
        agg["tas"][...]
    with pytest.raises(aa.AggarrayError, match="roots"):
        aa.open(f"{web.url}/index.nca", roots=[web.url])


def test_redirections(web: Web) -> None:
    with web_server(web.root) as other:
        web.moved["/near.nc"] = f"{web.url}/a.nc"
        web.moved["/far.nc"] = f"{other.url}/a.nc"
        assert aa.open(f"{web.url}/near.nc").names == ("tas",)
        with pytest.raises(aa.IndexFileError, match=r"redirects to .*roots="):
            aa.open(f"{web.url}/far.nc")
        assert not other.requests
        assert aa.open(f"{web.url}/far.nc", roots=[web.url, other.url]).names == ("tas",)


# Servers that misbehave


def quiet(web: Web) -> None:
    web.ranges = False


def without_heads(web: Web) -> None:
    web.heads = False


def without_tags(web: Web) -> None:
    web.tags = False


def failing(web: Web) -> None:
    web.fail = 2


@pytest.mark.parametrize("how", [quiet, without_heads, without_tags, failing])
def test_servers_that_do_less(web: Web, how: Callable[[Web], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_PAUSE", 0.001)
    how(web)
    same(aa.open(f"{web.url}/*.nc"), aa.open(web.root))


def test_a_large_file_of_a_server_without_ranges(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "MOST_WHOLE", 1000)
    web.ranges = False
    with pytest.raises(aa.FormatError, match=r"sends only whole files.*a\.nc.*fetch"):
        aa.open(f"{web.url}/a.nc")


@pytest.mark.parametrize(
    ("behaviour", "kind", "words"),
    [
        ({"status": {"/a.nc": 404}}, aa.MissingFileError, "no such file"),
        ({"status": {"/a.nc": 403}}, aa.FormatError, "access denied.*; give credentials in storage_options"),
        ({"status": {"/a.nc": 500}}, aa.FormatError, "the server answers 500"),
        ({"cut": 10}, aa.FormatError, "truncated: .*breaks off"),
        ({"tells": False}, aa.FormatError, "other bytes than requested"),
        ({"delay": 3.0}, aa.FormatError, "no answer in time"),
    ],
)
def test_errors(
    web: Web, behaviour: dict[str, Any], kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_PAUSE", 0.001)
    monkeypatch.setattr(filesystems, "PATIENCE", 0.3)
    for name, value in behaviour.items():
        setattr(web, name, value)
    with pytest.raises(kind, match=says(words, rf"{web.url}/a\.nc")) as caught:
        aa.open(f"{web.url}/a.nc")
    assert "\n" not in str(caught.value)
    result = aa.open([f"{web.url}/a.nc", str(web.root / "b.nc")])
    assert [s.file for s in result.skipped] == [f"{web.url}/a.nc"]


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(aa.FormatError, match=r"cannot be reached.*http://127\.0\.0\.1:1/a\.nc"):
        aa.open("http://127.0.0.1:1/a.nc")


def test_folders_and_patterns_that_name_nothing(web: Web) -> None:
    for source in (f"{web.url}/*.grb", f"{web.url}/none/*.nc"):
        with pytest.raises(aa.MissingFileError, match="no file matches"):
            aa.open(source)
    (web.root / "empty").mkdir()
    with pytest.raises(aa.MissingFileError, match="no files in this folder"):
        aa.open(f"{web.url}/empty/")


def test_folders_that_match_are_searched(web: Web) -> None:
    write(web.root / "later" / "2000" / "c.nc", cube([4]))
    write(web.root / "last" / "d.nc", cube([5]))
    (web.root / "later" / "notes.txt").write_text("words")
    (web.root / "plot.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    for pattern, count in (("*", 6), ("l*", 2), ("later/*", 1), ("*/2000", 1), ("**/2000", 1), ("[ab].nc", 4), ("**", 6)):
        agg = aa.open(f"{web.url}/{pattern}")
        assert (agg["tas"].shape[0], agg.skipped) == (count, ()), pattern
    assert aa.open(f"{web.url}/").skipped == ()


def test_a_page_without_an_end(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "MOST_PAGE", 10)
    with pytest.raises(aa.FormatError, match="more than 10 bytes in one object"):
        aa.open(f"{web.url}/")


def test_no_data_file(web: Web) -> None:
    (web.root / "note.txt").write_text("hello")
    (web.root / "nothing.nc").write_bytes(b"")
    for name, words in (("note.txt", "not a data file"), ("nothing.nc", "empty file")):
        with pytest.raises(aa.FormatError, match=words):
            aa.open(f"{web.url}/{name}")
    damaged = (web.root / "a.nc").read_bytes()
    (web.root / "short.nc").write_bytes(damaged[: len(damaged) // 2])
    with pytest.raises(aa.FormatError, match=r"short\.nc"):
        aa.open(f"{web.url}/short.nc")["tas"][...]


# Changes


def replaced(path: Path, times: list[int]) -> None:
    """Write other values of the same size, later."""
    later = path.stat().st_mtime_ns + 5 * 10**9
    write(path, cube(times))
    os.utime(path, ns=(later, later))


def test_a_changed_file_is_noticed(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    values = large(web.root / "large.nc", "NETCDF4", 8)
    tas = aa.open(f"{web.url}/large.nc")["tas"]
    np.testing.assert_array_equal(tas[0, 0, :5], values[0, 0, :5])
    later = (web.root / "large.nc").stat().st_mtime_ns + 5 * 10**9
    os.utime(web.root / "large.nc", ns=(later, later))
    with pytest.raises(aa.FormatError, match="changed while it was read"):
        tas[5]  # told by its tag at once
    monkeypatch.setattr(objects, "FRESH", 0.0)
    np.testing.assert_array_equal(tas[5], values[5])  # the same bytes after all
    agg = aa.open(f"{web.url}/a.nc")
    replaced(web.root / "a.nc", [7, 8])
    with pytest.raises(aa.IndexFileError, match="changed since it was scanned"):
        agg["tas"][...]
    assert not agg.check().ok and agg.append(f"{web.url}/a.nc")["tas"][0, 0, 0] == 710.0


def test_a_file_that_is_gone(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "FRESH", 0.0)
    agg, filled = aa.open(f"{web.url}/*.nc"), aa.open(f"{web.url}/*.nc", missing="fill")
    (web.root / "b.nc").unlink()
    with pytest.raises(aa.MissingFileError, match=r"variable 'tas' in .*b\.nc.*missing='fill'"):
        agg["tas"][...]
    result = filled["tas"][...]
    assert np.isnan(result[2:]).all() and not np.isnan(result[:2]).any()
    assert [p.kind for p in agg.check().problems] == ["missing"]


# Who else


def test_credentials_travel_and_are_not_shown(web: Web, tmp_path: Path) -> None:
    web.secret = "Bearer hidden"
    with pytest.raises(aa.FormatError, match="access denied"):
        aa.open(f"{web.url}/a.nc")
    for options in ({"headers": {"Authorization": web.secret}}, {"http": {"headers": {"Authorization": web.secret}}}):
        agg = aa.open(f"{web.url}/*.nc", storage_options=options)
        assert agg["tas"][0, 0, 0] == 10.0
    agg.save(tmp_path / "index.nca")
    assert b"hidden" not in (tmp_path / "index.nca").read_bytes() and "hidden" not in f"{agg!r} {agg['tas']!r}"
    assert b"hidden" in pickle.dumps(agg["tas"])
    again = aa.open(tmp_path / "index.nca", roots=[web.url])
    with pytest.raises(aa.FormatError, match="access denied") as caught:
        again["tas"][...]
    assert "hidden" not in str(caught.value)
    again = aa.open(tmp_path / "index.nca", roots=[web.url], storage_options=options)
    assert again["tas"].partitions[0].data.read()[0, 0, 0] == 10.0
    (tmp_path / "array").write_bytes(pickle.dumps(again["tas"]))
    code = f"import pickle; print(pickle.load(open({str(tmp_path / 'array')!r}, 'rb'))[3, 0, 0])"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.stdout.split() == ["310.0"], done.stderr


def test_a_forked_process_reads_too(web: Web) -> None:
    tas = aa.open(f"{web.url}/*.nc")["tas"]
    tas[...]
    code = f"""
import os
import aggarray as aa
tas = aa.open({web.url + "/*.nc"!r})["tas"]
tas[...]
child = os.fork()
if not child:
    os._exit(0 if tas[3, 0, 0] == 310.0 else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("processes", [None, 3])
def test_many_files(web: Web, processes: int | None) -> None:
    for step in range(4, 60):
        write(web.root / f"c{step:02}.nc", cube([step]))
    told: list[int] = []
    agg = aa.open(f"{web.url}/*.nc", processes=processes, progress=lambda done, total, what: told.append(done))
    np.testing.assert_array_equal(agg["tas"][:, 0, 0], np.arange(60) * 100.0 + 10)
    assert told == list(range(1, 59))
    assumed = aa.open(f"{web.url}/*.nc", rules=aa.Rules(trust="assume"))
    np.testing.assert_array_equal(assumed["tas"][...], agg["tas"][...])


def test_what_is_not_installed_is_named(web: Web) -> None:
    code = f"""
import sys
sys.modules[{{lacking!r}}] = None
import aggarray as aa
try:
    aa.open({web.url + "/a.nc"!r})
except aa.FormatError as error:
    print(error)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    for lacking in ("aiohttp", "fsspec"):
        done = subprocess.run(
            [sys.executable, "-c", code.format(lacking=lacking)], capture_output=True, text=True, env=env, check=False
        )
        assert "pip install 'aggarray[remote]'" in done.stdout and not done.stderr, done.stderr


def test_local_files_load_no_library_for_remote_ones(sample_archive: Path) -> None:
    code = f"""
import sys
import aggarray as aa
aa.open({str(sample_archive / "tas_200101.nc")!r})["tas"][0]
print(*sorted({{"fsspec", "aiohttp", "s3fs", "asyncio"}} & set(sys.modules)))
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert (done.stdout.split(), done.stderr) == ([], "")


def test_a_copy_on_a_server_serves_an_index_of_local_files(web: Web, tmp_path: Path) -> None:
    shutil.copytree(web.root, tmp_path / "here")
    aa.open(tmp_path / "here").save(tmp_path / "index.nca")
    moved = aa.open(tmp_path / "index.nca", relocate={str(tmp_path / "here"): web.url})
    np.testing.assert_array_equal(moved["tas"][...], aa.open(web.root)["tas"][...])
