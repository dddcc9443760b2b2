"""AGGARRAY_RELOCATE: other processes find indexes and files under other names."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray.mpi.pickling import dumps
from aggarray.storage.relocation import parse, relocate
from tests.support.index_files import changed
from tests.support.netcdf import cube, field, write
from tests.support.paths import ROOT
from tests.support.servers import free_of_proxies, web_server

VARIABLE = "AGGARRAY_RELOCATE"
VALUES = field(range(6), (10, 20, 30), (0, 5))
READ = "import pickle, sys; print(float(pickle.load(open(sys.argv[1], 'rb'))[...].sum(dtype='f8')))"
READ_DATASET = "import pickle, sys; print(float(pickle.load(open(sys.argv[1], 'rb')).tas.values.sum(dtype='f8')))"
REOPEN = """
import pickle, sys
agg = pickle.load(open(sys.argv[1], 'rb'))
agg.save(sys.argv[2])
print(agg.names, len(agg.check().problems), agg["tas"][...].sum(dtype="f8"))
"""


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("/data=/mnt", {"/data": "/mnt"}),
        ("/data=/mnt/archive:/scratch=/local", {"/data": "/mnt/archive", "/scratch": "/local"}),
        ("/data=/mnt\n/scratch=/local\n", {"/data": "/mnt", "/scratch": "/local"}),
        ("/my data=/mnt/a b", {"/my data": "/mnt/a b"}),
        ("https://host:80/d=/mnt:s3://bucket=https://host:8080/e:/x=/y", None),
        ("/data=http://host:8080/a", {"/data": "http://host:8080/a"}),
        ("/a:b=/c", {"/a:b": "/c"}),
        ("file:///a%20b=file:///c", {"/a b": "/c"}),
        ('{"/a=b": "/c:/d=e"}', {"/a=b": "/c:/d=e"}),
        ("/data/=/mnt/", {"/data": "/mnt"}),
        ("memory://=/mnt", {"memory://": "/mnt"}),
        ("", {}),
    ],
)
def test_syntax(text: str, pairs: dict[str, str] | None) -> None:
    expected = pairs or {"https://host:80/d": "/mnt", "s3://bucket": "https://host:8080/e", "/x": "/y"} if text else {}
    assert dict(parse(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "/data",
        "=/mnt",
        "/data=",
        "data=/mnt",
        "/data=mnt",
        "/a=/b:/a=/c",
        "{",
        '{"/a": 3}',
        '["/a"]',
        "s3://me:pw@b=/mnt",
        "s3://me:pw@b",
        '{"s3://me:pw@b"',
    ],
)
def test_malformed_values_name_the_variable(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.nc", cube([0]))
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(aa.AggregationError, match=rf"^{VARIABLE} is malformed: .*; set it to OLD=NEW pairs") as caught:
        aa.open(tmp_path / "a.nc")
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "address", "here"),
    [
        ("/data=/mnt", "/data/a.nc", "/mnt/a.nc"),
        ("/data=/mnt", "/data", "/mnt"),
        ("/data=/mnt:", "/data/a.nc", "/mnt/a.nc"),
        ("/data=/mnt", "/data2/a.nc", "/data2/a.nc"),
        ("/data=/mnt:/data/new=/local", "/data/new/a.nc", "/local/a.nc"),
        ("/data=/mnt:/mnt=/x", "/data/a.nc", "/mnt/a.nc"),
        ("/a=/b:/b=/a", "/a/x.nc", "/b/x.nc"),
        ("/data=/data/mirror", "/data/a.nc", "/data/mirror/a.nc"),
        ("/data=/data/mirror", "/data/mirror/a.nc", "/data/mirror/a.nc"),
        ("/=/mnt", "/data/a.nc", "/mnt/data/a.nc"),
        ("/data=/", "/data/a.nc", "/a.nc"),
        ("https://host/d=/mnt", "https://host/d/a%20b.nc?key=1", "/mnt/a b.nc"),
        ("/data=https://host/d", "/data/a b.nc", "https://host/d/a%20b.nc"),
        ("s3://bucket=gs://other/x", "s3://bucket/a b.nc", "gs://other/x/a b.nc"),
        ("s3://bucket/a=/mnt", "s3://bucket/ab.nc", "s3://bucket/ab.nc"),
        ("/data=/mnt", "zip://a.nc::file:///data/x.zip", "zip://a.nc::file:///mnt/x.zip"),
        ("s3://b=/mnt", "zip://a.nc::s3://b/x.zip", "zip://a.nc::file:///mnt/x.zip"),
    ],
)
def test_addresses(text: str, address: str, here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert relocate(address) == here


# Pickles in other processes


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Return a folder of three files, an index with relative and one with absolute names."""
    folder = tmp_path / "shared"
    for number in range(3):
        write(folder / "run 1" / f"{number}.nc", cube([2 * number, 2 * number + 1]))
    agg = aa.open(folder / "run 1")
    agg.save(folder / "relative.nca")
    agg.save(folder / "absolute.nca", relative=False)
    return folder


def moved(archive: Path) -> dict[str, str]:
    """Move the folder, as if it had another name on another machine; return the environment there."""
    there = archive.parent / "node local"
    archive.rename(there)
    return {VARIABLE: f"{archive}={there}"}


def in_process(script: str, *arguments: str, environment: dict[str, str], seconds: float = 120) -> str:
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


ITEMS: dict[str, Callable[[Path], Any]] = {
    "relative names": lambda folder: aa.open(folder / "relative.nca")["tas"],
    "absolute names": lambda folder: aa.open(folder / "absolute.nca")["tas"],
    "a selection": lambda folder: aa.open(folder / "relative.nca")["tas"].flip("time"),
    "roots": lambda folder: aa.open(folder / "absolute.nca", roots=[folder])["tas"],
    "roots below": lambda folder: aa.open(folder / "absolute.nca", roots=[folder.parent])["tas"],
    "files": lambda folder: aa.open(folder / "run 1")["tas"],
    "a selection of files": lambda folder: aa.open(folder / "run 1", roots=[folder / "run 1"])["tas"].flip("time"),
}


@pytest.mark.parametrize("name", ITEMS)
def test_a_process_finds_arrays_elsewhere(name: str, archive: Path, tmp_path: Path) -> None:
    (tmp_path / "array.pickle").write_bytes(pickle.dumps(ITEMS[name](archive)))
    environment = moved(archive)
    assert float(in_process(READ, str(tmp_path / "array.pickle"), environment=environment)) == VALUES.sum(dtype="f8")
    if "names" in name:
        with pytest.raises(aa.MissingFileError, match="no such index"):
            pickle.loads((tmp_path / "array.pickle").read_bytes())


@pytest.mark.heavy
def test_a_sub_array_a_section_and_a_dataset(archive: Path, tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray", reason="no xarray")
    from aggarray.dap import Distribution

    array = aa.open(archive / "relative.nca")["tas"]
    sub = aa.SubArray.from_file(archive / "run 1" / "0.nc", "tas")
    section = array.local(Distribution.regular(array.shape, "bbb", (2, 1, 1)), 0)
    dataset = xr.open_dataset(archive / "relative.nca", engine="aggarray")
    paths = []
    for number, item in enumerate((sub, section, dataset)):
        paths.append(str(tmp_path / f"{number}.pickle"))
        Path(paths[-1]).write_bytes(pickle.dumps(item))
    environment = moved(archive)
    assert float(in_process(READ.replace("[...]", ".read()"), paths[0], environment=environment)) == VALUES[:2].sum(dtype="f8")
    assert float(in_process(READ.replace("[...]", ".buffer"), paths[1], environment=environment)) == VALUES[:3].sum(dtype="f8")
    assert float(in_process(READ_DATASET, paths[2], environment=environment)) == VALUES.sum(dtype="f8")


@pytest.mark.parametrize("source", ["relative.nca", "absolute.nca", "run 1"])
def test_aggregations_are_pickled(source: str, archive: Path, tmp_path: Path) -> None:
    agg = aa.open(archive / source)
    content = pickle.dumps(agg)
    assert len(content) < (3000 if source.endswith("nca") else 60_000)
    again = pickle.loads(content)
    assert np.array_equal(again["tas"][...], VALUES) and again.append(archive / "run 1").names == ("tas",)
    assert [s.uri for s in again._provenance.structures()] == [s.uri for s in agg._provenance.structures()]
    (tmp_path / "agg.pickle").write_bytes(content)
    environment = moved(archive)
    new = tmp_path / "node local" / "new.nca"
    printed = in_process(REOPEN, str(tmp_path / "agg.pickle"), str(new), environment=environment)
    assert printed.split() == ["('tas',)", "0", str(VALUES.sum(dtype="f8"))]
    # The saved index has the names of the process that saved it.
    assert np.array_equal(aa.open(new)["tas"][...], VALUES)


def test_an_array_returns_to_its_first_process(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = pickle.dumps(aa.open(archive / "absolute.nca", roots=[archive])["tas"])
    shutil.copytree(archive, archive.parent / "copy")
    monkeypatch.setenv(VARIABLE, f"{archive}={archive.parent / 'copy'}")
    there = pickle.loads(content)
    assert there.partitions[0].data.uri == str(archive.parent / "copy" / "run 1" / "0.nc")
    back = pickle.dumps(there.lazy[1:])
    monkeypatch.delenv(VARIABLE)
    assert pickle.loads(back).partitions[0].data.uri == str(archive / "run 1" / "0.nc")
    assert np.array_equal(pickle.loads(back)[...], VALUES[1:])


def test_files_outside_the_roots_stay_refused(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "secret.nc", cube([9]))
    content = pickle.dumps(aa.open(archive / "relative.nca", roots=[archive])["tas"])
    changed(archive / "relative.nca", lambda d: d.update(files={"is": ["run%201/0.nc", "run%201/1.nc", "../secret.nc"]}))
    environment = moved(archive)
    monkeypatch.setenv(VARIABLE, environment[VARIABLE])
    with pytest.raises(aa.ForbiddenPathError, match=r"secret\.nc"):
        pickle.loads(content)
    monkeypatch.setenv(VARIABLE, f"{archive}={tmp_path}")
    with pytest.raises(aa.MissingFileError):
        pickle.loads(content)


def test_mpi_ranks_have_names_of_their_own(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aggarray.mpi.unpickling import loads

    for source in ("relative.nca", "run 1"):
        content = dumps(aa.open(archive / source, roots=[archive]))
        shutil.copytree(archive, archive.parent / "copy", dirs_exist_ok=True)
        with monkeypatch.context() as context:
            context.setenv(VARIABLE, f"{archive}={archive.parent / 'copy'}")
            array = loads(content)["tas"]
            assert {p.data.uri.rpartition("/")[0] for p in array.partitions} == {str(archive.parent / "copy" / "run 1")}
            assert np.array_equal(array[...], VALUES)
            if source.endswith("nca"):  # the positions of chunks came with the array
                tables, references = array._matrix.references.tables, array._matrix.references
                assert tables.find(references, 0) is not None


def set_variable(value: str) -> None:
    os.environ[VARIABLE] = value


def test_scans_on_an_executor(archive: Path, tmp_path: Path) -> None:
    """Workers scan files under their own names; the result has those of the caller."""
    shutil.copytree(archive, tmp_path / "copy")
    write(archive / "run 1" / "0.nc", cube([100]))  # the workers have another one
    write(tmp_path / "copy" / "run 1" / "bad.nc", cube([101]))
    for folder in (archive, tmp_path / "copy"):
        (folder / "run 1" / "bad.nc").write_bytes(b"no netCDF file")
    with ProcessPoolExecutor(1, get_context("spawn"), set_variable, (f"{archive}={tmp_path / 'copy'}",)) as executor:
        agg = aa.open(archive / "run 1", executor=executor)
    assert agg["tas"].shape == (6, 3, 2)
    assert {s.uri for s in agg._provenance.structures()} == {str(archive / "run 1" / f"{number}.nc") for number in range(3)}
    assert [s.file for s in agg.skipped] == [str(archive / "run 1" / "bad.nc")] and "copy" not in agg.skipped[0].reason


@pytest.mark.heavy
def test_workers_of_dask(archive: Path) -> None:
    pytest.importorskip("distributed", reason="no dask.distributed")
    from distributed import Client, LocalCluster

    arrays = {name: item(archive).to_dask() for name, item in ITEMS.items()}
    assert np.array_equal(arrays["files"].compute(), VALUES)
    environment = moved(archive)
    how: dict[str, Any] = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "worker_dashboard_address": None}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, env=environment, silence_logs=50, **how) as cluster,
        Client(cluster, timeout="60s") as client,
    ):
        for name, array in arrays.items():
            expected = VALUES[::-1] if "selection" in name else VALUES
            assert np.array_equal(client.compute(array).result(timeout=60), expected), name


# Indexes and references


@pytest.mark.parametrize("name", ["relative.nca", "absolute.nca", "../outside.nca"])
def test_names_in_an_index(name: str, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aa.open(archive / "run 1").save(tmp_path / "outside.nca")
    if name == "relative.nca":
        shutil.copy(archive / name, tmp_path / "copy.nca")  # its names are relative to its folder
        shutil.copytree(archive / "run 1", tmp_path / "run 1")
        aa.open(tmp_path / "copy.nca")
    opened = str(archive.parent / "node local" / name)
    monkeypatch.setenv(VARIABLE, moved(archive)[VARIABLE])
    array = aa.open(opened, roots=[archive.parent / "node local"])["tas"]
    assert np.array_equal(array[...], VALUES)
    assert array.partitions[1].data.uri == str(archive.parent / "node local" / "run 1" / "1.nc")


def test_relocate_of_the_call_comes_first(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        shutil.copytree(archive, tmp_path / name)
    index = archive / "absolute.nca"

    def first(**given: Any) -> str:
        return Path(aa.open(index, **given)["tas"].partitions[0].data.uri).parts[-3]

    monkeypatch.setenv(VARIABLE, f"{archive}={tmp_path / 'a'}")
    assert first() == "a"
    assert first(relocate={str(archive): str(tmp_path / "b")}) == "b"
    monkeypatch.setenv(VARIABLE, f"{tmp_path / 'b'}={tmp_path / 'a'}")
    assert first() == "shared" and first(relocate={str(archive): str(tmp_path / "b")}) == "a"


def test_paths_of_the_caller_are_not_relocated(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{archive}=/nowhere")
    assert np.array_equal(aa.open(archive / "run 1")["tas"][...], VALUES)
    assert aa.open(archive / "relative.nca")["tas"].shape == (6, 3, 2)
    aa.open(archive / "run 1").save(archive / "new.nca")
    assert (archive / "new.nca").exists()


def test_indexes_of_other_programs_and_references(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agg = aa.open(archive / "run 1")
    agg.save(archive / "cfa.nca", convention="CFA-0.4", relative=False)
    agg.to_kerchunk(archive / "references.json")
    changed_names = (archive / "cfa.nca").read_bytes()
    assert str(archive).encode() in changed_names
    environment = moved(archive)
    there = archive.parent / "node local"
    monkeypatch.setenv(VARIABLE, environment[VARIABLE])
    # Without the group of aggarray, the index is one of another program.
    import h5py

    with closing(h5py.File(there / "cfa.nca", "a")) as file:
        del file["aggarray"]
    for name in ("cfa.nca", "references.json"):
        assert np.array_equal(aa.open(there / name)["tas"][...], VALUES), name


def test_the_shell(archive: Path) -> None:
    environment = moved(archive)
    index = str(archive.parent / "node local" / "absolute.nca")

    def run(*command: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-m", "aggarray", *command)
        environ = os.environ | environment | more
        return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False)

    assert run("check", index).returncode == 0
    assert run("check", index, **{VARIABLE: "/a=/b"}).returncode == 1
    out = str(archive.parent / "out.nc")
    assert run("extract", index, "-v", "tas", "-o", out).returncode == 0
    assert np.array_equal(aa.open(out)["tas"][...], VALUES)
    malformed = run("info", index, **{VARIABLE: "nonsense"})
    assert malformed.returncode == 1 and "AGGARRAY_RELOCATE is malformed" in malformed.stderr
    assert "Traceback" not in malformed.stderr


def test_local_names_on_a_web_server(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp", reason="no aiohttp")
    for name, value in free_of_proxies().items():
        monkeypatch.setenv(name, value)
    content = pickle.dumps(aa.open(archive / "absolute.nca")["tas"])
    moved(archive)
    with web_server(archive.parent / "node local") as web:
        monkeypatch.setenv(VARIABLE, json.dumps({str(archive): web.url}))
        array = pickle.loads(content)
        assert array.partitions[0].data.uri == f"{web.url}/run%201/0.nc"
        assert np.array_equal(array[...], VALUES)
