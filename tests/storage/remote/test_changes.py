"""Objects on servers that are replaced: the values of one version, or an error, however soon after they were looked at."""

import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import aggarray as aa
from aggarray.errors import ChangedFileError
from aggarray.read import close_files
from aggarray.storage.remote import objects, reader, requests
from tests.support.examples import heavy, heavy_product
from tests.support.servers import Web, free_of_proxies, web_server

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

SHAPE = (40, 100, 128)
CHUNK = (4, 100, 128)


@dataclass
class Server:
    """Where objects are put: ``url``: of the folder; ``put``: makes a file an object of a name; ``options``: to read them."""

    url: str
    put: Callable[[str, bytes], None]
    options: dict[str, Any]
    web: Web | None = None


@pytest.fixture(scope="module")
def s3() -> Iterator[Server]:
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    names = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_DEFAULT_REGION": "us-east-1", **free_of_proxies()}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():
            patch.setenv(name, value)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        moto.start()
        host, port = moto.get_host_and_port()
        options = {"key": "me", "secret": "hidden", "client_kwargs": {"endpoint_url": f"http://{host}:{port}"}}
        fs = fsspec.filesystem("s3", **options, skip_instance_cache=True)
        fs.mkdir("changing")
        try:
            yield Server("s3://changing", lambda name, data: fs.pipe_file(f"changing/{name}", data), options)
        finally:
            moto.stop()


@pytest.fixture
def tagged(tmp_path: Path) -> Iterator[Server]:
    yield from _web(tmp_path, True)


@pytest.fixture
def untagged(tmp_path: Path) -> Iterator[Server]:
    """A web server that tells nothing but the time, to the second."""
    yield from _web(tmp_path, False)


def _web(tmp_path: Path, tags: bool) -> Iterator[Server]:
    root, count = tmp_path / "served", [0]

    def put(name: str, data: bytes) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".new").write_bytes(data)
        count[0] += 1
        if not tags:
            later = time.time() - 1000 + 2 * count[0]
            os.utime(path.with_suffix(".new"), (later, later))
        path.with_suffix(".new").replace(path)

    root.mkdir()
    with web_server(root) as web:
        web.tags = tags
        yield Server(web.url, put, {}, web)


@pytest.fixture(params=heavy(["s3", "tagged", "untagged"], only=["s3"]))
def server(request: pytest.FixtureRequest) -> Server:
    result: Server = request.getfixturevalue(request.param)
    return result


def values(version: int) -> np.ndarray:
    """Values that tell their version everywhere, and do not compress to little."""
    return (np.random.default_rng(0).integers(0, 1000, SHAPE) + 1000 * version).astype("f4")


HOW: dict[str, dict[str, Any]] = {
    "netcdf3": {"format": "NETCDF3_64BIT"},
    "contiguous": {"contiguous": True},
    "chunked": {"chunksizes": CHUNK},
    "deflated": {"chunksizes": CHUNK, "zlib": True, "complevel": 1},
}


def made(folder: Path, version: int, kind: str) -> bytes:
    """Return the bytes of a file; those of all versions are as many."""
    how = dict(HOW[kind])
    kept = {"format": how.pop("format", "NETCDF4"), "engine": "netcdf4"}
    data = xr.Dataset({"tas": (("time", "lat", "lon"), values(version), {"units": "K"})}, {"time": np.arange(40.0)})
    data.time.attrs["units"] = "days since 2000-01-01"
    data.to_netcdf(folder / "made.nc", encoding={"tas": how}, **kept)
    result = (folder / "made.nc").read_bytes()
    return result + bytes(3_000_000 - len(result))


def version_read(found: np.ndarray, key: Any = ...) -> int:
    """Return of which version values are: all of them."""
    version = int(found.ravel()[0] // 1000)
    np.testing.assert_array_equal(found, values(version)[key])
    return version


def refused(array: aa.MasterArray, key: Any = ...) -> None:
    with pytest.raises(ChangedFileError, match=r"changed (while it was read|since it was scanned).*variable 'tas'"):
        array[key]


@pytest.mark.parametrize("kind", heavy(HOW, but=["contiguous", "deflated"]))
def test_replaced_between_opening_and_reading(server: Server, tmp_path: Path, kind: str) -> None:
    server.put("a.nc", made(tmp_path, 1, kind))
    array = aa.open(f"{server.url}/a.nc", storage_options=server.options)["tas"]
    server.put("a.nc", made(tmp_path, 2, kind))
    refused(array, slice(20, None))
    refused(array)
    again = aa.open(f"{server.url}/a.nc", storage_options=server.options)["tas"]
    assert version_read(again[...]) == 2


@pytest.mark.parametrize("kind", heavy(HOW, but=["chunked", "netcdf3"]))
def test_replaced_between_two_reads(server: Server, tmp_path: Path, kind: str) -> None:
    server.put("a.nc", made(tmp_path, 1, kind))
    array = aa.open(f"{server.url}/a.nc", storage_options=server.options)["tas"]
    assert version_read(array[12:20], slice(12, 20)) == 1
    server.put("a.nc", made(tmp_path, 2, kind))
    refused(array, slice(20, 30))
    server.put("a.nc", made(tmp_path, 1, kind))
    if server.options:  # the tag of S3 is of the bytes
        assert version_read(array[20:30], slice(20, 30)) == 1


@pytest.mark.parametrize("kind", heavy(HOW, but=["contiguous", "chunked"]))
def test_replaced_before_an_index_is_opened_or_after(server: Server, tmp_path: Path, kind: str) -> None:
    server.put("a.nc", made(tmp_path, 1, kind))
    aa.open(f"{server.url}/a.nc", storage_options=server.options).save(tmp_path / "i.nca")
    close_files()
    early = aa.open(tmp_path / "i.nca", roots=[server.url], storage_options=server.options)["tas"]
    server.put("a.nc", made(tmp_path, 2, kind))
    refused(early)
    late = aa.open(tmp_path / "i.nca", roots=[server.url], storage_options=server.options)["tas"]
    refused(late, slice(3, 30))
    close_files()
    refused(late, (slice(None), 3))
    assert not aa.open(tmp_path / "i.nca", roots=[server.url], storage_options=server.options).check().ok


@pytest.mark.parametrize(("kind", "after"), heavy_product([*HOW], [0, 1, 3]))
def test_replaced_in_the_middle_of_a_read(
    server: Server, tmp_path: Path, kind: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some ranges have come, others are asked for."""
    server.put("a.nc", made(tmp_path, 1, kind))
    later = made(tmp_path, 2, kind)
    aa.open(f"{server.url}/a.nc", storage_options=server.options).save(tmp_path / "i.nca")
    monkeypatch.setattr(reader, "SPAN", 1 << 17)
    array = aa.open(tmp_path / "i.nca", roots=[server.url], storage_options=server.options)["tas"]
    assert version_read(array[:2], slice(0, 2)) == 1
    own, count = requests._awaited, [0]

    async def late(wish: Any, system: Any) -> bytes:
        if wish.size and count[0] == after:
            server.put("a.nc", later) if server.web else await _put_s3(system, later)
        count[0] += 1
        return await own(wish, system)

    monkeypatch.setattr(requests, "AT_ONCE", 1)
    monkeypatch.setattr(requests, "_awaited", late)
    refused(array)
    assert count[0] > after


async def _put_s3(system: Any, data: bytes) -> None:
    await system.fs._pipe_file("changing/a.nc", data)


def test_no_request_more_than_before(tagged: Server, tmp_path: Path) -> None:
    tagged.put("a.nc", made(tmp_path, 1, "chunked"))
    array = aa.open(f"{tagged.url}/a.nc")["tas"]
    array[0]
    assert tagged.web is not None
    tagged.web.forget()
    array[4:8]
    assert tagged.web.asked(method="HEAD") == 0 and tagged.web.asked(method="GET") == 1


def test_weak_tags_are_compared(tmp_path: Path, tagged: Server) -> None:
    """They are not demanded: no server would find that they match."""
    assert tagged.web is not None
    tagged.web.weak = True
    tagged.put("a.nc", made(tmp_path, 1, "chunked"))
    array = aa.open(f"{tagged.url}/a.nc")["tas"]
    assert version_read(array[...]) == 1
    tagged.put("a.nc", made(tmp_path, 2, "chunked"))
    refused(array)


def test_a_server_that_ignores_conditions(tmp_path: Path, tagged: Server) -> None:
    assert tagged.web is not None
    tagged.web.conditions = False
    tagged.put("a.nc", made(tmp_path, 1, "chunked"))
    array = aa.open(f"{tagged.url}/a.nc")["tas"]
    assert version_read(array[...]) == 1
    tagged.put("a.nc", made(tmp_path, 2, "chunked"))
    refused(array)


# Stores and references, whose files have not been examined


def references(server: Server, folder: Path, kind: str) -> Path:
    """Return references to an object on a server."""
    (folder / "a.nc").write_bytes(made(folder, 1, kind))
    server.put("a.nc", (folder / "a.nc").read_bytes())
    result = aa.open(folder / "a.nc").to_kerchunk()
    text = json.dumps(result).replace(str(folder / "a.nc"), f"{server.url}/a.nc")
    server.put("refs.json", text.encode())
    return folder


@pytest.mark.parametrize("kind", ["contiguous", "chunked", "deflated"])
def test_what_references_name_is_replaced_in_the_middle_of_a_read(
    server: Server, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    references(server, tmp_path, kind)
    later = made(tmp_path, 2, kind)
    monkeypatch.setattr(reader, "SPAN", 1 << 17)
    monkeypatch.setattr(requests, "AT_ONCE", 1)
    array = aa.open(f"{server.url}/refs.json", storage_options=server.options)["tas"]
    assert version_read(array[...]) == 1
    own, count = requests._awaited, [0]

    async def late(wish: Any, system: Any) -> bytes:
        if wish.uri.endswith("a.nc") and count[0] == 3:
            server.put("a.nc", later) if server.web else await _put_s3(system, later)
        count[0] += wish.uri.endswith("a.nc")
        return await own(wish, system)

    with monkeypatch.context() as patch:
        patch.setattr(requests, "_awaited", late)
        refused(array)
    assert count[0] > 3


def test_shards_that_are_replaced(server: Server, tmp_path: Path) -> None:
    """Their indexes are kept: what they tell is not believed of others."""

    def write(version: int) -> None:
        group = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=3)
        how: dict[str, Any] = {"chunks": (2, 100, 128), "shards": (20, 100, 128), "compressors": None, "filters": None}
        group.create_array("tas", data=values(version), dimension_names=("t", "y", "x"), **how)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(group.store)
        for path in sorted((tmp_path / "s.zarr").rglob("*")):
            if path.is_file():
                server.put(f"s.zarr/{path.relative_to(tmp_path / 's.zarr').as_posix()}", path.read_bytes())

    write(1)
    array = aa.open(f"{server.url}/s.zarr", storage_options=server.options)["tas"]
    assert version_read(array[:3], slice(0, 3)) == 1
    shard = next(p for p in (tmp_path / "s.zarr").rglob("0") if p.is_file())
    name = f"s.zarr/{shard.relative_to(tmp_path / 's.zarr').as_posix()}"
    whole = shard.read_bytes()
    # Chunks in another order: each lies where another one did.
    size = 2 * 100 * 128 * 4
    index = np.frombuffer(whole[-164:-4], "<u8").reshape(-1, 2).copy()
    turned = b"".join(whole[o : o + n] for o, n in index[::-1].tolist())
    index[:, 0] = np.arange(10)[::-1] * size
    import google_crc32c

    text = index.astype("<u8").tobytes()
    server.put(name, turned + text + int(google_crc32c.value(text)).to_bytes(4, "little"))
    with pytest.raises(ChangedFileError, match="changed while it was read"):
        array[:3]
    assert version_read(array[:20], slice(0, 20)) == 1


@pytest.mark.parametrize("kind", ["netcdf3", "chunked"])
def test_archives_that_are_replaced(server: Server, tmp_path: Path, kind: str) -> None:
    import io
    import zipfile

    def zipped(version: int) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(zipfile.ZipInfo("a.nc"), made(tmp_path, version, kind))
        return out.getvalue()

    server.put("a.zip", zipped(1))
    array = aa.open(f"zip://a.nc::{server.url}/a.zip", storage_options=server.options)["tas"]
    assert version_read(array[:4], slice(0, 4)) == 1
    server.put("a.zip", zipped(2))
    objects.blocks.clear()
    refused(array, slice(20, None))
    again = aa.open(f"zip://a.nc::{server.url}/a.zip", storage_options=server.options)["tas"]
    assert version_read(again[20:], slice(20, None)) == 2


def test_memory(tmp_path: Path) -> None:
    """Nothing is remembered of what costs nothing to ask."""
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/there/a.nc", made(tmp_path, 1, "chunked"))
    try:
        array = aa.open("memory://there/a.nc")["tas"]
        assert version_read(array[:4], slice(0, 4)) == 1
        fs.pipe_file("/there/a.nc", made(tmp_path, 2, "chunked"))
        refused(array)
        assert version_read(aa.open("memory://there/a.nc")["tas"][...]) == 2
    finally:
        fs.store.clear()
        fs.pseudo_dirs[:] = [""]


def test_what_is_remembered_is_forgotten_by_an_error(tagged: Server, tmp_path: Path) -> None:
    """A file opened again after an error is read anew, however soon."""
    assert objects.FRESH >= 30
    tagged.put("a.nc", made(tmp_path, 1, "netcdf3"))
    array = aa.open(f"{tagged.url}/a.nc")["tas"]
    tagged.put("a.nc", made(tmp_path, 2, "netcdf3")[:-8])
    refused(array)
    assert version_read(aa.open(f"{tagged.url}/a.nc")["tas"][...]) == 2
