"""The ASGI application: contents, validators, ranges, encodings, errors and limits."""

import gzip
import html
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import aggarray as aa
from tests.support.netcdf import cube, write
from tests.support.paths import ROOT

pytest.importorskip("starlette", reason="no starlette")
pytest.importorskip("uvicorn", reason="no uvicorn")

from numcodecs.zstd import Zstd

import aggarray.serve
from aggarray.export.zarr_view.contents import ViewArray
from aggarray.serve.limits import Limits
from tests.support.http_server import Answer, request, serving

ARCHIVE = ROOT / "sample_data" / "archive"
CHUNK = "/archive/tas/c/0/0/0"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(aggarray.serve.app(ARCHIVE, chunks={"time": 100})) as bound:
        yield bound


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    array: np.ndarray = aa.open(ARCHIVE)["tas"][...]
    return array


def test_contents(port: int, values: np.ndarray) -> None:
    chunk = request(port, CHUNK)
    assert (chunk.status, chunk.headers["content-type"]) == (200, "application/octet-stream")
    assert int(chunk.headers["content-length"]) == len(chunk.body) == values[:100].nbytes
    np.testing.assert_array_equal(np.frombuffer(chunk.body).reshape(100, 18, 36), values[:100])
    assert request(port, "/archive/tas/0.0.0").body == chunk.body
    document = request(port, "/archive/zarr.json")
    assert json.loads(document.body)["consolidated_metadata"]["metadata"]["tas"]["shape"] == [365, 18, 36]
    assert document.headers["content-type"] == "application/json"
    assert json.loads(request(port, "/archive/tas/.zarray").body)["chunks"] == [100, 18, 36]
    for answer in (chunk, document):
        assert answer.headers["cache-control"] == "public, max-age=300" and answer.headers["accept-ranges"] == "bytes"


def test_pages_and_listings(port: int, values: np.ndarray) -> None:
    front, page = request(port, "/"), request(port, "/archive/")
    assert front.status == 200 and front.body == page.body and b"<h1>archive</h1>" in page.body
    assert front.headers["content-type"].startswith("text/html")
    (line,) = re.findall(r"import xarray.*\['tas'\]", html.unescape(page.body.decode()))
    assert f"'http://127.0.0.1:{port}/archive/'" in line
    np.testing.assert_array_equal(eval(line.removeprefix("import xarray as xr; "), {"xr": xr}), values)
    arrays = {facts["path"]: facts for facts in json.loads(request(port, "/arrays").body)}
    tas = arrays["tas"]
    assert (tas["index"], tas["shape"], tas["chunks"], tas["units"]) == ("archive", [365, 18, 36], [100, 18, 36], "K")
    assert tas["url"] == f"http://127.0.0.1:{port}/archive/tas" and arrays["time"]["dtype"] == "float64"
    assert json.loads(request(port, "/health").body) == {"status": "ok", "reading": 0, "waiting": 0, "bytes": 0}
    assert request(port, "/archive").status == 307  # to the page


def test_head(port: int) -> None:
    for path in (CHUNK, "/archive/zarr.json", "/", "/arrays"):
        head, whole = request(port, path, "HEAD"), request(port, path)
        assert head.status == 200 and not head.body and int(head.headers["content-length"]) == len(whole.body)
        assert head.headers.get("etag") == whole.headers.get("etag")


def test_head_reads_nothing(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ViewArray, "read", None)
    assert request(port, "/archive/tas/c/1/0/0", "HEAD").status == 200


@pytest.mark.parametrize("path", [CHUNK, "/archive/tas/zarr.json", "/archive/", "/arrays"])
def test_conditional_requests(port: int, path: str) -> None:
    tag = request(port, path).headers["etag"]
    for header in (tag, f'"other", W/{tag}', "*"):
        unchanged = request(port, path, If_None_Match=header)
        assert (unchanged.status, unchanged.body, unchanged.headers["etag"]) == (304, b"", tag)
    assert request(port, path, If_None_Match='"other"').status == 200
    encoded = request(port, path, Accept_Encoding="gzip").headers["etag"]
    assert encoded != tag and request(port, path, If_None_Match=encoded).status == 304


def test_tags_follow_what_is_served(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0, 1]))
    tags = []
    for chunks, compressor in ((None, None), ({"time": 1}, None), (None, "zstd")):
        with serving(aggarray.serve.app(tmp_path / "a.nc", chunks=chunks, compressor=compressor)) as port:
            tags.append(request(port, "/a/tas/c/0/0/0").headers["etag"])
    write(tmp_path / "a.nc", cube([0, 1], tas=(("time", "lat", "lon"), np.zeros((2, 3, 2), "f4"), {})))
    with serving(aggarray.serve.app(tmp_path / "a.nc")) as port:
        tags.append(request(port, "/a/tas/c/0/0/0").headers["etag"])
    assert len(set(tags)) == 4


@pytest.mark.parametrize("path", [CHUNK, "/archive/zarr.json"])
@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-9", slice(0, 10)),
        ("bytes=7-", slice(7, None)),
        ("bytes=-5", slice(-5, None)),
        ("Bytes = 3 - 999999999", slice(3, None)),
        ("bytes=-999999999", slice(0, None)),
    ],
)
def test_ranges(port: int, path: str, header: str, expected: slice) -> None:
    whole, part = request(port, path).body, request(port, path, Range=header, Accept_Encoding="gzip")
    start, stop, _ = expected.indices(len(whole))
    assert (part.status, part.body) == (206, whole[expected])
    assert part.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(whole)}"
    assert "content-encoding" not in part.headers


@pytest.mark.parametrize("path", [CHUNK, "/archive/zarr.json"])
@pytest.mark.parametrize("header", ["bytes=999999999-", "bytes=9-3", "bytes=-0", "bytes=-", "bytes=a-b", "bytes=", "bytes"])
def test_bad_ranges(port: int, path: str, header: str) -> None:
    answer, size = request(port, path, Range=header), len(request(port, path).body)
    assert (answer.status, answer.headers["content-range"]) == (416, f"bytes */{size}")


def test_ranges_that_are_ignored(port: int) -> None:
    tag = request(port, CHUNK).headers["etag"]
    assert request(port, CHUNK, Range="bytes=0-1,4-5").status == request(port, CHUNK, Range="pages=1-2").status == 200
    assert request(port, CHUNK, Range="bytes=0-1", If_Range='"old"').status == 200
    assert request(port, CHUNK, Range="bytes=0-1", If_Range=tag).status == 206


@pytest.mark.parametrize("path", [CHUNK, "/archive/zarr.json"])
def test_encodings(port: int, path: str) -> None:
    whole = request(port, path)
    assert "content-encoding" not in whole.headers and "Accept-Encoding" in whole.headers["vary"]
    gzipped, zstd = (request(port, path, Accept_Encoding=name) for name in ("gzip", "zstd"))
    assert (gzipped.headers["content-encoding"], zstd.headers["content-encoding"]) == ("gzip", "zstd")
    assert gzip.decompress(gzipped.body) == bytes(Zstd().decode(zstd.body)) == whole.body
    assert len(gzipped.body) < len(whole.body) and len({a.headers["etag"] for a in (whole, gzipped, zstd)}) == 3
    assert request(port, path, Accept_Encoding="gzip;q=0").body == request(port, path, Accept_Encoding="br").body == whole.body


def test_chunks_are_encoded_for_other_machines(port: int) -> None:
    usual = "gzip, deflate, br, zstd"
    assert "content-encoding" not in request(port, CHUNK, Accept_Encoding=usual).headers
    assert request(port, "/archive/zarr.json", Accept_Encoding=usual).headers["content-encoding"] == "zstd"
    by_proxy = request(port, CHUNK, Accept_Encoding=usual, X_Forwarded_For="192.0.2.7")
    assert by_proxy.headers["content-encoding"] == "zstd"


def test_cross_origin(port: int) -> None:
    answer = request(port, CHUNK, Origin="https://map.example.org", Range="bytes=0-1")
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "Content-Range" in answer.headers["access-control-expose-headers"]
    preflight = request(
        port,
        CHUNK,
        "OPTIONS",
        Origin="https://map.example.org",
        Access_Control_Request_Method="GET",
        Access_Control_Request_Headers="range",
    )
    assert preflight.status == 200 and "range" in preflight.headers["access-control-allow-headers"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_read_only(port: int, method: str) -> None:
    answer = request(port, CHUNK, method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert "read-only" in json.loads(answer.body)["error"]


@pytest.mark.parametrize(
    "path",
    [
        *("/none/zarr.json", "/archive/none", "/archive/tas/c/9/0/0", "/archive/tas/c/00/0/0", "/archive/tas/c/0/0/0/"),
        *("/archive/../../etc/passwd", "/archive/%2e%2e/%2e%2e/etc/passwd", "/archive//etc/passwd", "/archive/%2Fetc%2Fpasswd"),
        *("/archive/tas%00/c/0/0/0", "/archive/tas/c/0/0/0%00", "/archive/tas_200101.nc", "/archive/..%5c..%5cetc", "/%2e%2e/"),
        *("/../archive.nca", "/archive/tas/c/0/0/0?/../../x=1&", "/etc/passwd", "//etc/passwd", "/archive/%ff%fe", "/%00"),
        *(
            "/archive/file:///etc/passwd",
            "/archive/tas/c/-1/0/0",
            "/archive/tas/c/0/0/%30%30",
            f"/archive/tas/c/{'9' * 5000}/0/0",
            "/archive/.zarray",
            "/ARCHIVE/",
            "/none",
        ),
    ],
)
def test_nothing_else_is_reachable(port: int, path: str) -> None:
    answer = request(port, path)
    if "?" in path:  # the query is ignored
        assert answer.status == 200
    else:
        assert answer.status == 404 and json.loads(answer.body)["error"] and b"root:" not in answer.body


def test_lost_file(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / f"{number}.nc", cube(np.arange(3) + 3 * number))
    aa.open(tmp_path).save(tmp_path / "both.nca")
    with serving(aggarray.serve.app(tmp_path / "both.nca", chunks={"time": 3})) as port:
        (tmp_path / "1.nc").unlink()
        assert request(port, "/both/tas/c/0/0/0").status == 200
        answer = request(port, "/both/tas/c/1/0/0")
        facts = json.loads(answer.body)
        assert answer.status == 502 and facts["path"] == str(tmp_path / "1.nc") and "1.nc" in facts["error"]
        assert answer.headers["cache-control"] == "no-store"


def test_roots(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.nc", cube([0]))
    aa.open(tmp_path / "in").save(tmp_path / "a.nca")
    with serving(aggarray.serve.app(tmp_path / "a.nca", roots=[str(tmp_path / "in")])) as port:
        assert request(port, "/a/tas/c/0/0/0").status == 200
    with pytest.raises(aa.ForbiddenPathError), serving(aggarray.serve.app(tmp_path / "a.nca", roots=[str(tmp_path / "x")])):
        pass


# Several indexes, and their names


def test_several(tmp_path: Path) -> None:
    write(tmp_path / "my data.nc", cube([0]))
    agg = aa.open(ARCHIVE)
    with serving(aggarray.serve.app(tmp_path / "my data.nc", agg)) as port:
        front = request(port, "/").body
        assert b'href="my%20data/"' in front and b"aggregation2" in front
        assert request(port, "/my%20data/tas/zarr.json").status == request(port, "/aggregation2/tas/zarr.json").status == 200
        assert json.loads(request(port, "/none/x").body)["indexes"] == ["my data", "aggregation2"]


def test_names_that_conflict(tmp_path: Path) -> None:
    write(tmp_path / "health.nc", cube([0]))
    with pytest.raises(aa.AggregationError, match="'archive' is the name of two indexes; rename the index"):
        aggarray.serve.app(ARCHIVE, ARCHIVE)
    with pytest.raises(aa.AggregationError, match="'health' is an address of the server"):
        aggarray.serve.app(tmp_path / "health.nc")
    with pytest.raises(aa.AggregationError, match="no index is given"):
        aggarray.serve.app()


def test_mounted_elsewhere() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    with serving(Starlette(routes=[Mount("/data", aggarray.serve.app(ARCHIVE))])) as port:
        assert request(port, f"/data{CHUNK}").status == request(port, "/data/").status == 200
        (facts, *_) = json.loads(request(port, "/data/arrays").body)
        assert facts["url"].startswith(f"http://127.0.0.1:{port}/data/archive/")


# Limits


class SlowReads:
    """Reads of chunks that wait until `free` is set; ``begun``: their number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free, self.begun, read = threading.Event(), 0, ViewArray.read

        def slow(array: Any, position: Any, threads: Any = None) -> Any:
            self.begun += 1
            assert self.free.wait(60)
            return read(array, position, threads)

        monkeypatch.setattr(ViewArray, "read", slow)


def until(condition: Any) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def health(port: int) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(request(port, "/health").body)
    return facts


def test_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(reads=1, waiting=2, cache=0)
    with serving(aggarray.serve.app(ARCHIVE, chunks={"time": 10}, limits=limits)) as port, ThreadPoolExecutor(3) as pool:
        slow = SlowReads(monkeypatch)
        first = [pool.submit(request, port, f"/archive/tas/c/{n}/0/0") for n in range(3)]
        until(lambda: health(port)["waiting"] == 2)
        refused = request(port, "/archive/tas/c/9/0/0")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert request(port, "/archive/zarr.json").status == 200
        slow.free.set()
        assert [one.result().status for one in first] == [200] * 3 and slow.begun == 3
        assert request(port, "/archive/tas/c/9/0/0").status == 200


def test_memory_in_use_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = 10 * 18 * 36 * 8
    limits = Limits(reads=8, memory=2 * chunk, cache=0)
    with serving(aggarray.serve.app(ARCHIVE, chunks={"time": 10}, limits=limits)) as port, ThreadPoolExecutor(5) as pool:
        slow = SlowReads(monkeypatch)
        answers = [pool.submit(request, port, f"/archive/tas/c/{n}/0/0") for n in range(5)]
        until(lambda: health(port)["waiting"] == 3)
        assert slow.begun == 2 and health(port)["bytes"] == 2 * chunk
        slow.free.set()
        assert [one.result().status for one in answers] == [200] * 5
        until(lambda: health(port)["bytes"] == 0)


def test_too_large() -> None:
    with serving(aggarray.serve.app(ARCHIVE, limits=Limits(chunk_bytes=10_000))) as port:
        answer = request(port, CHUNK)
        assert answer.status == 413 and "smaller chunks" in json.loads(answer.body)["error"]
        assert request(port, "/archive/time/c/0").status == 200


def test_equal_requests_share_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(aggarray.serve.app(ARCHIVE)) as port, ThreadPoolExecutor(6) as pool:
        slow = SlowReads(monkeypatch)
        answers = [pool.submit(request, port, CHUNK) for _ in range(6)]
        until(lambda: health(port)["bytes"] == 6 * 365 * 18 * 36 * 8)
        slow.free.set()
        assert len({one.result().body for one in answers}) == 1 and slow.begun == 1
        assert request(port, CHUNK).status == 200 and slow.begun == 1  # cached


def test_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = 100 * 18 * 36 * 8
    with serving(aggarray.serve.app(ARCHIVE, chunks={"time": 100}, limits=Limits(cache=2 * chunk))) as port:
        slow = SlowReads(monkeypatch)
        slow.free.set()
        for number in (0, 1, 0, 2, 0, 1):  # 2 evicts 1
            request(port, f"/archive/tas/c/{number}/0/0")
        assert slow.begun == 4


def hang_up(port: int, path: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    return connection


def test_closed_connections_free_their_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(reads=1, waiting=5, cache=0)
    with serving(aggarray.serve.app(ARCHIVE, chunks={"time": 10}, limits=limits)) as port:
        slow = SlowReads(monkeypatch)
        connections = [hang_up(port, f"/archive/tas/c/{n}/0/0") for n in range(4)]
        until(lambda: health(port)["waiting"] == 3 and slow.begun == 1)
        for connection in connections:
            connection.close()
        until(lambda: health(port)["waiting"] == 0 and health(port)["bytes"] == 0)
        slow.free.set()
        until(lambda: health(port)["reading"] == 0)
        assert slow.begun == 1  # the others were never begun
        assert request(port, "/archive/tas/c/7/0/0").status == 200


def test_clients_that_accept_nothing_time_out() -> None:
    limits = Limits(seconds=0.5, memory=1 << 26)
    with serving(aggarray.serve.app(ARCHIVE, limits=limits)) as port:
        stuck = []
        for _ in range(8):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", port))
            connection.sendall(f"GET {CHUNK} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            stuck.append(connection)
        until(lambda: health(port)["bytes"] == 0)
        assert request(port, CHUNK).status == 200
        for connection in stuck:
            connection.close()


def test_errors_of_the_program_do_not_end_the_server(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(ViewArray, "read", fail)
    with serving(aggarray.serve.app(ARCHIVE)) as port:
        answer: Answer = request(port, CHUNK)
        assert answer.status == 500 and b"secret" not in answer.body and "secret detail" in caplog.text
        assert health(port) == {"status": "ok", "reading": 0, "waiting": 0, "bytes": 0}


@pytest.mark.parametrize("raised", [aa.AggregationError, FileNotFoundError])
def test_errors_have_no_secrets(raised: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    address = "https://me:word@host/a.nc?sig=abc"

    def fail(*_: Any) -> None:
        raise raised("no such file", path=address) if raised is aa.AggregationError else FileNotFoundError(2, "gone", address)

    monkeypatch.setattr(ViewArray, "read", fail)
    with serving(aggarray.serve.app(ARCHIVE)) as port:
        answer = request(port, CHUNK)
    assert answer.status == 502 and json.loads(answer.body)["path"] == "https://...@host/a.nc?sig=..."
    assert b"word" not in answer.body and b"abc" not in answer.body


def test_errors_without_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise aa.AggregationError("it cannot be")

    monkeypatch.setattr(ViewArray, "read", fail)
    with serving(aggarray.serve.app(ARCHIVE)) as port:
        assert json.loads(request(port, CHUNK).body) == {"error": "it cannot be", "path": None}


def test_many_clients(port: int, values: np.ndarray) -> None:
    truth = [values[n : n + 100] for n in range(0, 300, 100)]

    def read(number: int) -> bool:
        body = request(port, f"/archive/tas/c/{number % 3}/0/0").body
        return np.array_equal(np.frombuffer(body).reshape(100, 18, 36), truth[number % 3], equal_nan=True)

    with ThreadPoolExecutor(64) as pool:
        assert all(pool.map(read, range(256)))
