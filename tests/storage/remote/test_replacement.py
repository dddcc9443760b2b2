"""Indexes saved to object stores: read back, never overwriting another process, with errors that say what to do."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from click.testing import CliRunner

import aggarray as aa
from aggarray.cli import commands
from aggarray.storage.remote import objects, replacement
from tests.support.clouds import azure_server, google_server
from tests.support.examples import heavy
from tests.support.netcdf import cube, write
from tests.support.paths import ROOT
from tests.support.servers import s3_server, upload

fsspec = pytest.importorskip("fsspec")

#: Schemes of stores other than S3.
CLOUDS = {"azure": "az", "google": "gs"}
#: Appends files to an index, one after the other, opening it again after each refusal; prints the number of refusals.
WRITER = """
import json, sys
import aggarray as aa
url, options, *files = sys.argv[1:]
refused = 0
for file in files:
    while True:
        try:
            aa.open(url, storage_options=json.loads(options)).append(file).save(url)
            break
        except aa.IndexFileError as error:
            assert "open" in str(error) or "again" in str(error), error
            refused += 1
print(refused)
"""


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, Any]]:
    """Options for a server of S3 on this machine, with a bucket ``indexes``."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    with s3_server() as options:
        fsspec.filesystem("s3", **options, skip_instance_cache=True).mkdir("indexes")
        yield options


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Options for a server of Azure on this machine, with a container ``indexes``."""
    with azure_server(tmp_path_factory.mktemp("azure")) as options:
        fsspec.filesystem("az", **options, skip_instance_cache=True).mkdir("indexes")
        yield options


@pytest.fixture(scope="module")
def google() -> Iterator[dict[str, Any]]:
    """Options for a server of Google Cloud Storage on this machine, with a bucket ``indexes``."""
    with google_server() as options:
        fsspec.filesystem("gs", **options, skip_instance_cache=True).mkdir("indexes")
        yield options


@pytest.fixture(params=heavy(["s3", "azure", "google", "memory", "unconditional", "renaming"], but=["s3", "memory"]))
def store(
    request: pytest.FixtureRequest, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> tuple[str, dict[str, Any]]:
    """A folder of each kind of store, new for each test, and the options for it."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    if request.param == "memory":
        return f"memory://data/{name}", {}
    if request.param in CLOUDS:
        return f"{CLOUDS[request.param]}://indexes/{name}", request.getfixturevalue(request.param)
    if request.param == "unconditional":  # a service of S3 that does not know conditions
        return f"s3://indexes/{name}", {**options, "local_expiry_check": True}
    if request.param == "renaming":
        from fsspec.implementations.memory import MemoryFileSystem

        def mv(self: Any, one: str, other: str, **how: Any) -> None:
            self.store[self._strip_protocol(other)] = self.store.pop(self._strip_protocol(one))

        monkeypatch.setattr(MemoryFileSystem, "mv", mv)
        return f"memory://data/{name}", {}
    return f"s3://indexes/{name}", options


def _days(path: Path, day: int) -> str:
    write(path / f"{day}.nc", cube([day, day + 1.0]))
    return str(path / f"{day}.nc")


def _bytes(url: str, options: dict[str, Any]) -> bytes:
    fs, _, (path,) = fsspec.get_fs_token_paths(url, storage_options={**options, "skip_instance_cache": True})
    return bytes(fs.cat_file(path))


def _refused(error: aa.IndexFileError) -> bool:
    return "modified by another process since it was opened" in str(error) and error.hint is not None


def test_saved_and_opened(store: tuple[str, dict[str, Any]], sample_archive: Path) -> None:
    url, options = store
    upload(fsspec.filesystem(url.partition(":")[0], **options), sample_archive, f"{url}/archive")
    agg = aa.open(f"{url}/archive", storage_options=options)
    agg.save(f"{url}/index/all.nca")
    objects.forget()
    again = aa.open(f"{url}/index/all.nca", storage_options=options)
    np.testing.assert_array_equal(again["tas"][::40], aa.open(sample_archive)["tas"][::40])
    content = _bytes(f"{url}/index/all.nca", options)
    assert b"hidden" not in content and b"endpoint_url" not in content
    with netCDF4.Dataset("index", memory=content) as file:
        assert "aggarray" in file.groups
    assert pickle.loads(pickle.dumps(again["tas"]))[3].shape == (18, 36)


def test_names_are_relative_to_the_folder(options: dict[str, Any], tmp_path: Path) -> None:
    fs = fsspec.filesystem("s3", **options)
    fs.put(_days(tmp_path, 0), "indexes/moved/a b.nc")
    aa.open("s3://indexes/moved/a b.nc", storage_options=options).save("s3://indexes/moved/index/all.nca")
    fs.copy("indexes/moved/a b.nc", "indexes/elsewhere/a b.nc")
    fs.copy("indexes/moved/index/all.nca", "indexes/elsewhere/index/all.nca")
    again = aa.open("s3://indexes/elsewhere/index/all.nca", storage_options=options)
    assert again["tas"].partitions[()].data is not None
    assert again["tas"].partitions[()].data.uri == "s3://indexes/elsewhere/a b.nc"


def test_local_files_are_absolute(options: dict[str, Any], tmp_path: Path) -> None:
    aa.open(_days(tmp_path, 0), storage_options=options).save("s3://indexes/local.nca")
    again = aa.open("s3://indexes/local.nca", storage_options=options, roots=[tmp_path])
    assert again["tas"].shape == (2, 3, 2) and np.isfinite(again["tas"][:]).all()


@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_roots_need_not_contain_a_named_index(store: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    url, options = store
    fs = fsspec.filesystem(url.partition(":")[0], **options)
    for day in (0, 2):
        fs.put(_days(tmp_path, day), f"{url}/data/{day}.nc")
        aa.open(f"{url}/data/{day}.nc", storage_options=options).save(f"{url}/{day}.nca")
    how: dict[str, Any] = {"storage_options": options, "roots": [f"{url}/data"]}
    assert aa.open(f"{url}/0.nca", **how)["tas"][:].shape == (2, 3, 2)
    both = aa.open([f"{url}/0.nca", f"{url}/2.nca"], **how)
    assert pickle.loads(pickle.dumps(both))["tas"][:].shape == (4, 3, 2)
    aa.open(f"{url}/0.nca", **how).append(f"{url}/data/2.nc").save(f"{url}/0.nca")
    how["roots"] = [f"{url}/other"]
    for source in (f"{url}/0.nca", [f"{url}/0.nca", f"{url}/2.nca"], f"{url}/data/0.nc", f"{url}/data", f"{url}/data/*.nc"):
        with pytest.raises(aa.ForbiddenPathError):
            aa.open(source, **how)


def test_another_index_is_replaced_as_on_a_disk(tmp_path: Path) -> None:
    for path in ("memory://data/other/x.nca", str(tmp_path / "x.nca")):
        saved, new = (aa.open(_days(tmp_path, day)) for day in (0, 2))
        saved.save(path)
        opened = aa.open(path, roots=[tmp_path])
        new.save(path)
        for earlier in (saved, opened):
            with pytest.raises(aa.IndexFileError, match="modified by another process since it was opened"):
                earlier.save(path)
        assert aa.open(path, roots=[tmp_path])["tas"].coords["time"][:].tolist() == [2.0, 3.0]


def test_concurrent_changes_are_refused(store: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    url, options = store
    aa.open(_days(tmp_path, 0), storage_options=options).save(f"{url}/x.nca")
    roots = [tmp_path, url]
    one, other = (aa.open(f"{url}/x.nca", storage_options=options, roots=roots) for _ in range(2))
    one, other = one.append(_days(tmp_path, 2)), other.append(_days(tmp_path, 4))
    one.save(f"{url}/x.nca")
    kept = _bytes(f"{url}/x.nca", options)
    with pytest.raises(aa.IndexFileError, match="modified by another process since it was opened") as refused:
        other.save(f"{url}/x.nca")
    assert _refused(refused.value) and _bytes(f"{url}/x.nca", options) == kept
    one.append(_days(tmp_path, 6)).save(f"{url}/x.nca")  # the generation that was saved is known
    assert aa.open(f"{url}/x.nca", storage_options=options, roots=roots)["tas"].shape == (6, 3, 2)


@pytest.mark.parametrize("existing", [False, True])
def test_replaced_between_check_and_write(
    store: tuple[str, dict[str, Any]], existing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, options = store
    agg = aa.open(_days(tmp_path, 0), storage_options=options)
    fs = fsspec.filesystem(url.partition(":")[0], **options)
    if existing:
        agg.save(f"{url}/x.nca")
    replace = replacement.replace_object

    def late(uri: str, *arguments: Any) -> None:
        fs.pipe_file(uri, b"of another process")
        replace(uri, *arguments)

    monkeypatch.setattr(replacement, "replace_object", late)
    with pytest.raises(aa.IndexFileError, match="modified by another process since it was opened"):
        agg.save(f"{url}/x.nca")
    assert _bytes(f"{url}/x.nca", options) == b"of another process"
    assert [name for name in fs.ls(url.partition("://")[2], detail=False) if "tmp" in name] == []


def test_readers_of_the_old_object(options: dict[str, Any], tmp_path: Path) -> None:
    url = "s3://indexes/read.nca"
    aa.open(_days(tmp_path, 0), storage_options=options).save(url)
    how: dict[str, Any] = {"storage_options": options, "roots": [tmp_path, "s3://indexes"]}
    old = aa.open(url, **how)
    values = old["tas"][:]
    aa.open(url, **how).append(_days(tmp_path, 2)).save(url)
    np.testing.assert_array_equal(old["tas"][:], values)
    with pytest.raises(aa.IndexFileError, match="modified by another process since it was opened"):
        old.append(_days(tmp_path, 4))
    assert aa.open(url, **how)["tas"].shape == (4, 3, 2)


@pytest.mark.parametrize("store", ["s3", *CLOUDS], indirect=True)
def test_racing_writers_lose_nothing(store: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    (folder, options), writers, each = store, 3, 2
    url, fs = f"{folder}/race.nca", fsspec.filesystem(folder.partition(":")[0], **options)
    names = [f"{folder}/{day}.nc" for day in range(0, 2 * (writers * each + 1), 2)]
    for number, name in enumerate(names):
        fs.put(_days(tmp_path, 2 * number), name)
    first, *names = names
    aa.open(first, storage_options=options).save(url)
    order = [sys.executable, "-c", WRITER, url, json.dumps(options)]
    running = [
        subprocess.Popen(
            [*order, *names[n::writers]], cwd=ROOT, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for n in range(writers)
    ]
    try:
        for process in running:
            _, errors = process.communicate(timeout=100)
            assert process.returncode == 0, errors.decode()
    finally:
        for process in running:
            process.kill()
            process.wait()
    objects.forget()
    array = aa.open(url, storage_options=options)["tas"]
    assert {p.data.uri for p in array.partitions if p.data} == {first, *names}


def test_a_write_whose_answer_was_lost(options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is repeated meets the object that it wrote before."""
    put = replacement._put_s3

    async def twice(*arguments: Any) -> str:
        await put(*arguments)
        return await put(*arguments)

    monkeypatch.setattr(replacement, "_put_s3", twice)
    agg = aa.open(_days(tmp_path, 0), storage_options=options)
    agg.save("s3://indexes/twice.nca")
    agg.save("s3://indexes/twice.nca")


def test_other_objects_are_not_replaced(store: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    url, options = store
    agg = aa.open(_days(tmp_path, 0), storage_options=options)
    fs = fsspec.filesystem(url.partition(":")[0], **options)
    fs.pipe_file(f"{url}/notes.txt", b"not an index")
    with pytest.raises(aa.IndexFileError, match="exists and is not an index"):
        agg.save(f"{url}/notes.txt")
    assert _bytes(f"{url}/notes.txt", options) == b"not an index"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://127.0.0.1/x.nca", "a web server"),
        ("zip://x.nca::/tmp/x.zip", "an archive"),
        ("s3://indexes/folder/", "a folder"),
        ("s3://absent-bucket/x.nca", "no such bucket or folder"),
        ("nosuch://x/y.nca", "Protocol not known"),
    ],
)
def test_addresses_that_cannot_be_written(url: str, reason: str, options: dict[str, Any], tmp_path: Path) -> None:
    agg = aa.open(_days(tmp_path, 0), storage_options={"s3": options})
    with pytest.raises(aa.IndexFileError, match="cannot be written") as refused:
        agg.save(url)
    assert reason in str(refused.value) and "hidden" not in str(refused.value)
    assert refused.value.path is not None and refused.value.hint is not None


@pytest.mark.heavy
def test_an_error_leaves_the_old_object(options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agg = aa.open(_days(tmp_path, 0), storage_options=options)
    agg.save("s3://indexes/kept.nca")
    before = _bytes("s3://indexes/kept.nca", options)

    def fail(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("aggarray.index.store.Writer.write", fail)
        with pytest.raises(aa.IndexFileError, match="No space left"):
            agg.save("s3://indexes/kept.nca")
    assert _bytes("s3://indexes/kept.nca", options) == before


def test_commands(options: dict[str, Any], tmp_path: Path) -> None:
    def run(*arguments: str) -> Any:
        storage = [
            f"--storage={name}={json.dumps(value) if name == 'client_kwargs' else value}" for name, value in options.items()
        ]
        return CliRunner().invoke(commands, [*arguments, *storage])

    url = "s3://indexes/shell/all.nca"
    fs = fsspec.filesystem("s3", **options)
    for day in (0, 2):
        fs.put(_days(tmp_path, day), f"indexes/shell/{day}.nc")
    made = run("aggregate", "s3://indexes/shell/0.nc", "-o", url)
    assert made.exit_code == 0, made.output
    assert run("append", url, "s3://indexes/shell/2.nc").exit_code == 0
    objects.forget()
    assert aa.open(url, storage_options=options)["tas"].shape == (4, 3, 2)
    refused = run("append", url, "s3://indexes/shell/2.nc", "--resume")
    assert refused.exit_code == 2 and "--resume does not apply" in refused.output
    assert not list(Path().glob("s3:*"))
