"""``aggarray serve``: real processes, signals, and clients of other projects."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import aggarray as aa
from tests.support.netcdf import cube, write
from tests.support.paths import ROOT

pytest.importorskip("starlette", reason="no starlette")
pytest.importorskip("uvicorn", reason="no uvicorn")

from tests.support.http_server import request

ARCHIVE = ROOT / "sample_data" / "archive"


@contextmanager
def command(*arguments: str, addresses: int = 1) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run the command within a block; yield its process, and the addresses that it prints."""
    line = [sys.executable, "-m", "aggarray", "serve", *arguments, "--port", "0"]
    with subprocess.Popen(line, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(addresses)]
            yield process, [line.split()[-1] for line in lines]
        finally:
            process.terminate()
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()


def port_of(address: str) -> int:
    return int(address.rsplit(":", 1)[1].split("/")[0])


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with command("sample_data/archive", "--chunks", "time=100") as (_, (printed,)):
        yield printed


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    array: np.ndarray = aa.open(ARCHIVE)["tas"][...]
    return array


# Clients


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_python(address: str, values: np.ndarray, version: Any) -> None:
    group = zarr.open_group(address, mode="r", zarr_format=version)
    np.testing.assert_array_equal(group["tas"][...], values)


def test_xarray(address: str) -> None:
    opened = xr.open_zarr(address, zarr_format=3)
    xr.testing.assert_equal(opened.compute(), aa.open(ARCHIVE).to_xarray().compute())
    assert str(opened.time.values[-1]).startswith("2001-12-31")


def test_aggarray(address: str, values: np.ndarray) -> None:
    np.testing.assert_array_equal(aa.open(address)["tas"][...], values)


def test_curl(address: str, values: np.ndarray, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    done = subprocess.run(
        ["curl", "-sS", "--fail", "--compressed", "-o", str(tmp_path / "chunk"), f"{address}tas/c/1/0/0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not done.returncode, done.stderr
    np.testing.assert_array_equal(np.fromfile(tmp_path / "chunk").reshape(100, 18, 36), values[100:200])


@pytest.mark.parametrize("driver", ["zarr", "zarr3"])
def test_tensorstore(address: str, values: np.ndarray, driver: str) -> None:
    ts = pytest.importorskip("tensorstore", reason="no tensorstore")
    spec = {"driver": driver, "kvstore": {"driver": "http", "base_url": f"{address}tas/"}}
    array = ts.open(spec, read=True).result()
    np.testing.assert_array_equal(array.read().result(), values)
    np.testing.assert_array_equal(array[95:105, 3].read().result(), values[95:105, 3])


def test_gdal(address: str, values: np.ndarray) -> None:
    if shutil.which("gdalmdiminfo") is None:
        pytest.skip("no gdalmdiminfo")
    line = ["gdalmdiminfo", "-detailed", "-array", "tas", f'ZARR:"/vsicurl/{address.rstrip("/")}"']
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert not done.returncode, done.stderr
    array = json.loads(done.stdout)
    assert [d["name"] for d in array["dimensions"]] == ["time", "lat", "lon"] and array["unit"] == "K"
    np.testing.assert_array_equal(np.array(array["values"], float), values)


def test_gdal_map(address: str, values: np.ndarray) -> None:
    """As QGIS opens one step."""
    if shutil.which("gdal_translate") is None:
        pytest.skip("no gdal_translate")
    line = ["gdal_translate", "-q", "-of", "XYZ", f'ZARR:"/vsicurl/{address.rstrip("/")}":/tas:180', "/vsistdout/"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert not done.returncode, done.stderr
    points = np.array([row.split() for row in done.stdout.splitlines()], float)
    np.testing.assert_allclose(points[:, 2], values[180].ravel(), rtol=1e-6)


ZARRITA = """
const zarr = await import(process.argv[2]);
for (const open of [zarr.open.v2, zarr.open.v3]) {
  const tas = await open(zarr.root(new zarr.FetchStore(process.argv[3])).resolve("tas"), {kind: "array"});
  const part = await zarr.get(tas, [zarr.slice(95, 105), 3, null]);
  console.log(JSON.stringify([tas.shape, part.shape, Array.from(part.data), tas.attrs.units]));
}
"""


def test_zarrita(address: str, values: np.ndarray, tmp_path: Path) -> None:
    module = ROOT / "build" / "npm" / "node_modules" / "zarrita" / "dist" / "src" / "index.js"
    if shutil.which("node") is None or not module.exists():
        pytest.skip("no node, or no zarrita: npm install --prefix build/npm zarrita")
    (tmp_path / "read.mjs").write_text(ZARRITA, encoding="utf-8")
    line = ["node", str(tmp_path / "read.mjs"), module.as_uri(), address.rstrip("/")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert not done.returncode, done.stderr
    for printed in done.stdout.splitlines():
        shape, part, read, units = json.loads(printed)
        assert (shape, part, units) == ([365, 18, 36], [10, 36], "K")
        np.testing.assert_array_equal(np.reshape(read, part), values[95:105, 3])
    assert len(done.stdout.splitlines()) == 2


# Processes


def test_several_indexes(tmp_path: Path) -> None:
    write(tmp_path / "b c.nc", cube([0]))
    with command(str(ARCHIVE), str(tmp_path / "b c.nc"), addresses=2) as (_, (first, second)):
        assert first.endswith("/archive/") and second.endswith("/b%20c/") and port_of(first) == port_of(second)
        assert zarr.open_group(second, mode="r", zarr_format=3)["tas"].shape == (1, 3, 2)


@pytest.mark.heavy
def test_workers(values: np.ndarray) -> None:
    with command("sample_data/archive", "--workers", "2", "--compress", "zstd:3") as (process, (printed,)):
        np.testing.assert_array_equal(zarr.open_group(printed, mode="r", zarr_format=3)["tas"][...], values)
        tags = {request(port_of(printed), "/archive/tas/c/0/0/0").headers["etag"] for _ in range(8)}
        assert len(tags) == 1
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        assert process.returncode == 0


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_requests_first(tmp_path: Path, sent: signal.Signals) -> None:
    with command("sample_data/archive", "--chunks", "time=10") as (process, (printed,)):
        response = urllib.request.urlopen(f"{printed}tas/c/0/0/0", timeout=60)
        first = response.read(1000)
        process.send_signal(sent)
        rest = response.read()
        assert len(first + rest) == 10 * 18 * 36 * 8
        process.wait(60)
        assert process.returncode == (0 if sent == signal.SIGTERM else 130)
        with pytest.raises(OSError):
            urllib.request.urlopen(f"{printed}zarr.json", timeout=5)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_signal_before_the_first_request(workers: int) -> None:
    with command("sample_data/archive", "--workers", str(workers)) as (process, _):
        process.terminate()
        assert process.wait(60) == 0


STUCK = """
import sys, time
from aggarray.cli import main
from aggarray.export.zarr_view.contents import ViewArray
from aggarray.serve import server
server._GRACE = 1
ViewArray.read = lambda *_: time.sleep(300)
main(["serve", "sample_data/archive", "--port", "0"])
"""


@pytest.mark.heavy
def test_reads_that_hang_do_not_delay_the_end() -> None:
    line = [sys.executable, "-c", STUCK]
    with subprocess.Popen(line, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            port = port_of(process.stdout.readline().split()[-1])
            with closing(socket.create_connection(("127.0.0.1", port), timeout=60)) as client:
                client.sendall(b"GET /archive/tas/c/0/0/0 HTTP/1.1\r\nHost: a\r\n\r\n")
                _until(lambda: json.loads(request(port, "/health").body)["reading"] == 1)
                process.terminate()
                assert process.wait(60) == 0
        finally:
            process.kill()


def _workers_of(process: subprocess.Popen[str]) -> set[int]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
    return {int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def _until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_killed_processes() -> None:
    """A killed worker is replaced; workers end if their parent is killed, and free the port."""
    with command("sample_data/archive", "--workers", "2") as (process, (printed,)):
        _until(lambda: len(_workers_of(process)) == 2)
        first = _workers_of(process)
        killed = first.pop()
        os.kill(killed, signal.SIGKILL)
        _until(lambda: len(_workers_of(process) - {killed}) == 2)
        assert request(port_of(printed), "/health").status == 200
        left = _workers_of(process)
        process.kill()
        _until(lambda: not any(map(maps, left)))
        with pytest.raises(OSError):
            urllib.request.urlopen(printed, timeout=5)


def maps(pid: int) -> bytes:
    """Return the mapped files of a process, empty after it ended."""
    try:
        return Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return b""


def test_ipv6() -> None:
    with command("sample_data/archive", "--host", "::1") as (_, (printed,)):
        assert printed.startswith("http://[::1]:")
        assert json.load(urllib.request.urlopen(f"{printed}zarr.json", timeout=60))["node_type"] == "group"


@pytest.mark.heavy
def test_log(address: str) -> None:
    with command("sample_data/archive") as (process, (printed,)):
        port = port_of(printed)
        request(port, "/archive/tas/zarr.json?a=1")
        request(port, "/archive/%1b[31mred")
        request(port, "/health")
        process.terminate()
        assert process.stderr is not None
        log = process.stderr.read().splitlines()
    assert '127.0.0.1 "GET /archive/tas/zarr.json?a=1" 200 ' in log[0] and '" 404 ' in log[1] and "\x1b" not in log[1]
    with command("sample_data/archive", "--quiet") as (process, (printed,)):
        request(port_of(printed), "/health")
        process.terminate()
        assert process.stderr is not None and process.stderr.read() == ""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    line: Sequence[str] = [sys.executable, "-m", "aggarray", "serve", *arguments]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_wrong_usage(address: str) -> None:
    taken = run("sample_data/archive", "--port", str(port_of(address)))
    assert taken.returncode == 1 and "cannot listen at 127.0.0.1:" in taken.stderr and "give another port" in taken.stderr
    assert taken.stdout == ""
    for chunks, status, message in (
        ("time", 2, "is not of the form DIM=SIZE"),
        ("time=0", 1, "give a positive integer, or -1"),
    ):
        wrong = run("sample_data/archive", "--chunks", chunks)
        assert wrong.returncode == status and message in wrong.stderr and "--chunks" in wrong.stderr
    unknown = run("sample_data/archive", "--chunks", "tme=4")
    assert unknown.returncode == 1 and "did you mean 'time'" in unknown.stderr and "--chunks" in unknown.stderr
    assert run("no/such.nca").returncode == 1 and run("sample_data/archive", "sample_data/archive").returncode == 1


def test_bodies_do_not_wait_for_acknowledgements() -> None:
    from aggarray.serve.server import _listen

    with closing(_listen("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with closing(accepted):
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_requests_before_the_first_are_not_lost() -> None:
    began = time.monotonic()
    with command("sample_data/archive") as (_, (printed,)):
        # The address is printed after the server listens.
        assert request(port_of(printed), "/health").status == 200
    assert time.monotonic() - began < 60
