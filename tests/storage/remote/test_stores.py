"""Files in an object store of S3, in memory, and in archives: the same values as of local files."""

import io
import json
import logging
import os
import pickle
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import aggarray as aa
from aggarray.cli import commands
from aggarray.storage.remote import objects
from tests.support.netcdf import cube, field, write
from tests.support.servers import free_of_proxies, upload, web_server

fsspec = pytest.importorskip("fsspec")


def same(found: aa.Aggregation, wanted: aa.Aggregation) -> None:
    """Hold values and coordinates against those of local files."""
    assert (found.names, found.skipped) == (wanted.names, ())
    for array in wanted:
        other = found[str(array.name)]
        np.testing.assert_array_equal(other[...], array[...])
        np.testing.assert_array_equal(other[::-3, 2], array[::-3, 2])
        for name, coordinate in array.coords.items():
            np.testing.assert_array_equal(other.coords[name][...], coordinate[...])


# S3


@pytest.fixture(scope="module")
def s3(sample_archive: Path) -> Iterator[dict[str, Any]]:
    """Options for a server of S3 on this machine, whose bucket ``data`` holds the sample archive."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    kept = {name: os.environ.get(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")}
    os.environ.update(free_of_proxies())
    os.environ.update({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_DEFAULT_REGION": "us-east-1"})
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    host, port = server.get_host_and_port()
    options = {"key": "me", "secret": "hidden", "client_kwargs": {"endpoint_url": f"http://{host}:{port}"}}
    try:
        fs = fsspec.filesystem("s3", **options, skip_instance_cache=True)
        fs.mkdir("data")
        upload(fs, sample_archive, "data/archive")
        yield options
    finally:
        server.stop()
        for name, value in kept.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def test_a_bucket(s3: dict[str, Any], sample_archive: Path) -> None:
    expected = aa.open(sample_archive)
    same(aa.open("s3://data/archive", storage_options=s3), expected)
    assert aa.open("s3://data/**/tas_20010[1-3]*", storage_options=s3)["tas"].shape[0] == 90
    result = aa.open("s3://data/archive/", storage_options={"s3": s3})
    assert result["tas"].partitions[0].data.uri == "s3://data/archive/tas_200101.nc"
    assert np.array_equal(pickle.loads(pickle.dumps(result["tas"]))[3], expected["tas"][3], equal_nan=True)


@pytest.mark.heavy
def test_credentials_that_are_looked_up(
    s3: dict[str, Any], sample_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bucket_credentials.py").write_text(f"def login():\n    return {dict(s3)!r}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("BUCKET_SECRET", "hidden")
    expected = aa.open(sample_archive)
    for options in ({**s3, "secret": {"env": "BUCKET_SECRET"}}, {"s3": {"provider": "bucket_credentials:login"}}):
        agg = aa.open("s3://data/archive", storage_options=options)
        same(agg, expected)
        content = pickle.dumps((agg, agg["tas"], agg["tas"].to_dask().dask))
        assert b"hidden" not in content
        assert np.array_equal(pickle.loads(content)[1][3], expected["tas"][3], equal_nan=True)


@pytest.mark.parametrize("month", [1, 5, 6, 7])
def test_every_file_of_a_bucket(s3: dict[str, Any], sample_archive: Path, month: int) -> None:
    path = next(sample_archive.glob(f"tas_2001{month:02}.*"))
    same(aa.open(f"s3://data/archive/{path.name}", storage_options=s3), aa.open(path))


def test_an_index_in_a_bucket(s3: dict[str, Any], sample_archive: Path, tmp_path: Path) -> None:
    fs = fsspec.filesystem("s3", **s3, skip_instance_cache=True)
    months = [f"s3://data/archive/tas_20010{month}.nc" for month in (1, 2, 3)]
    expected = aa.open([sample_archive / f"tas_20010{month}.nc" for month in (1, 2, 3)])
    aa.open(months, storage_options=s3).save(tmp_path / "far.nca")
    assert b"hidden" not in (tmp_path / "far.nca").read_bytes()
    same(aa.open(tmp_path / "far.nca", roots=["s3://data/archive"], storage_options=s3), expected)
    with pytest.raises(aa.IndexFileError, match="roots="):
        aa.open(tmp_path / "far.nca", storage_options=s3)["tas"][0]
    fs.pipe_file("data/far.nca", (tmp_path / "far.nca").read_bytes())
    same(aa.open("s3://data/far.nca", storage_options=s3), expected)


@pytest.mark.heavy
def test_a_bucket_from_the_shell(s3: dict[str, Any], tmp_path: Path) -> None:
    options = [f"--storage={name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in s3.items()]
    done = CliRunner().invoke(commands, ["info", "s3://data/archive", *options])
    assert done.exit_code == 0 and "(time: 365, lat: 18, lon: 36)" in done.stdout
    place = ["extract", "s3://data/archive", *options, "--sel", "lat=5", "--sel", "lon=5", "-o", str(tmp_path / "place.zarr")]
    assert CliRunner().invoke(commands, place).exit_code == 0
    assert aa.open(tmp_path / "place.zarr")["tas"].shape == (365,)
    text = "[input]\nsource = 's3://data/archive'\n[index]\npath = 'tas.nca'\n[input.storage]\nkey = 'me'\nsecret = 'hidden'\n"
    text += f"client_kwargs = {{ endpoint_url = '{s3['client_kwargs']['endpoint_url']}' }}\n"
    (tmp_path / "job.toml").write_text(text, encoding="utf-8")
    assert CliRunner().invoke(commands, ["run", str(tmp_path / "job.toml")]).exit_code == 0
    assert b"hidden" not in (tmp_path / "tas.nca").read_bytes()
    assert aa.open(tmp_path / "tas.nca", roots=["s3://data"], storage_options=s3)["tas"].shape == (365, 18, 36)


@pytest.mark.heavy
def test_errors_of_a_bucket(s3: dict[str, Any]) -> None:
    for uri in ("s3://data/none.nc", "s3://nowhere/a.nc", "s3://data/archive/*.grb"):
        with pytest.raises(aa.MissingFileError, match="no "):
            aa.open(uri, storage_options=s3)
    away = {**s3, "client_kwargs": {"endpoint_url": "http://127.0.0.1:1"}, "config_kwargs": {"retries": {"max_attempts": 0}}}
    with pytest.raises(aa.FormatError, match=r"cannot be reached.*s3://data/archive/tas_200101\.nc") as caught:
        aa.open("s3://data/archive/tas_200101.nc", storage_options=away)
    assert "hidden" not in str(caught.value)


# Memory


@pytest.fixture
def memory(sample_archive: Path) -> Iterator[Any]:
    """The sample archive in memory."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()  # which all tests of a process share
    upload(fs, sample_archive, "/archive")
    yield fs
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]


def test_memory(memory: Any, sample_archive: Path, tmp_path: Path) -> None:
    result = aa.open("memory://archive", processes=4)
    same(result, aa.open(sample_archive))
    result.save(tmp_path / "index.nca")
    same(aa.open(tmp_path / "index.nca", roots=["memory://archive"]), result)
    memory.pipe_file("/archive/index.nca", (tmp_path / "index.nca").read_bytes())
    same(aa.open("memory://archive/index.nca"), result)


def test_names_that_need_care(memory: Any, tmp_path: Path) -> None:
    for name in ("a b.nc", "ä#1.nc", "x%20y.nc"):
        write(tmp_path / "one.nc", cube([3]))
        memory.pipe_file(f"/odd/{name}", (tmp_path / "one.nc").read_bytes())
        agg = aa.open(f"memory://odd/{name}")
        np.testing.assert_array_equal(agg["tas"][...], field([3], [10.0, 20.0, 30.0], [0.0, 5.0]))
        agg.save(tmp_path / "index.nca")
        assert aa.open(tmp_path / "index.nca", roots=["memory://"])["tas"][0, 0, 0] == 310.0


def test_names_on_a_web_server_that_need_care(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    for number, name in enumerate(("a b.nc", "ä.nc", "x+y.nc", "50%.nc", "q&a.nc")):
        write(tmp_path / "served" / "in it" / name, cube([number]))
    with web_server(tmp_path / "served") as web:
        for source in (f"{web.url}/in%20it/", f"{web.url}/in%20it/*.nc", f"{web.url}/**"):
            assert aa.open(source)["tas"][:, 0, 0].tolist() == [10.0, 110.0, 210.0, 310.0, 410.0]


# Archives


def zipped(folder: Path, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return the files of a folder as a zip archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            archive.write(path, path.relative_to(folder))
    return out.getvalue()


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_archive(sample_archive: Path, tmp_path: Path, compression: int) -> None:
    (tmp_path / "x.zip").write_bytes(zipped(sample_archive, compression))
    expected = aa.open(sample_archive)
    for source in (f"zip://::{tmp_path}/x.zip", f"zip://tas_*::file://{tmp_path}/x.zip"):
        same(aa.open(source), expected)
    one = aa.open(f"zip://tas_200106.zarr::{tmp_path}/x.zip")
    same(one, aa.open(sample_archive / "tas_200106.zarr"))
    aa.open(f"zip://::{tmp_path}/x.zip").save(tmp_path / "index.nca")
    same(aa.open(tmp_path / "index.nca"), expected)
    same(aa.open(tmp_path / "index.nca", roots=[tmp_path]), expected)
    with pytest.raises(aa.IndexFileError, match="outside"):
        aa.open(tmp_path / "index.nca", roots=[tmp_path / "other"])


def test_archives_on_a_web_server(sample_archive: Path, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    (tmp_path / "x.zip").write_bytes(zipped(sample_archive))
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(sample_archive, "inner")
    expected = aa.open(sample_archive)
    with web_server(tmp_path) as web:
        same(aa.open(f"zip://::{web.url}/x.zip"), expected)
        same(aa.open(f"tar://inner/tas_*::{web.url}/x.tar"), expected)
        (tmp_path / "x.zip").write_bytes(b"no archive")
        objects.forget()
        with pytest.raises(aa.FormatError, match=r"cannot be opened.*zip://a\.nc::http"):
            aa.open(f"zip://a.nc::{web.url}/x.zip")
        with pytest.raises(aa.MissingFileError, match=r"none\.zip"):
            aa.open(f"zip://a.nc::{web.url}/none.zip")


@pytest.mark.parametrize("name", [".", "./inner", "inner"])
def test_tar_archives_however_they_were_made(sample_archive: Path, tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(sample_archive, name)
    inner = name.strip("./")
    within = f"{inner}/" if inner else ""
    assert aa.open(f"tar://{within}tas_200101.nc::{tmp_path}/x.tar")["tas"].shape[0] == 31
    same(aa.open(f"tar://{within}tas_*::{tmp_path}/x.tar"), aa.open(sample_archive))
    assert aa.open(f"tar://{inner}::{tmp_path}/x.tar")["tas"].shape[0] == 365


def test_a_zip_archive_that_is_a_store(tmp_path: Path) -> None:
    values = np.arange(60.0).reshape(6, 10)
    with zarr.storage.ZipStore(tmp_path / "s.zip", mode="w") as store:
        made = zarr.create_array(store, name="tas", shape=(6, 10), chunks=(4, 4), dtype="f8", dimension_names=("y", "x"))
        made[...] = values
    group = zarr.storage.ZipStore(tmp_path / "s.zip", mode="a")
    zarr.open_group(group, mode="a")
    group.close()
    np.testing.assert_array_equal(aa.open(f"zip://::{tmp_path}/s.zip")["tas"][...], values)


def test_an_archive_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(aa.MissingFileError, match=r"x\.zip"):
        aa.open(f"zip://a.nc::{tmp_path}/x.zip")
    (tmp_path / "x.zip").write_bytes(zipped(tmp_path))
    with pytest.raises(aa.MissingFileError, match="no such file"):
        aa.open(f"zip://a.nc::{tmp_path}/x.zip")
    with pytest.raises(aa.MissingFileError, match="no file matches"):
        aa.open(f"zip://*.nc::{tmp_path}/x.zip")
