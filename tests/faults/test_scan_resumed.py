"""Scans that are killed and resume from their partial index."""

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

import aggarray as aa
from aggarray.index.store import Reader
from tests.support.examples import heavy
from tests.support.netcdf import cube, write
from tests.support.paths import ROOT

_COMMAND = """
import sys, time, aggarray.formats, aggarray.opening.checkpoint as checkpoint
from aggarray.cli import main
from aggarray.scan import workers
checkpoint.INTERVAL, checkpoint.SHARE, pause = 0.0, 1.0, float(sys.argv[1])
scan_one = workers.scan_one
def slow(task):
    if task[1] is None:  # not the positions of its chunks
        time.sleep(pause)
        print("scans", task[0], flush=True)
    return scan_one(task)
workers.scan_one = slow
main(sys.argv[2:])
"""


def start(folder: Path, *options: str, pause: float = 0.0) -> "subprocess.Popen[str]":
    """Start the command in a process of its own."""
    line = ["aggregate", str(folder / "data"), "-o", str(folder / "index.nca"), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, "-c", _COMMAND, str(pause), *line]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def scanned(output: str) -> set[str]:
    return {line.removeprefix("scans ") for line in output.splitlines() if line.startswith("scans ")}


def content(path: Path) -> dict[str, bytes]:
    """Return everything that an index stores."""
    reader = Reader(str(path))
    with reader.opened():
        columns = reader._open._directory.columns
        return {name: reader._slice(name, 0, reader._length(name)).tobytes() for name in columns}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    for number in range(12):
        write(tmp_path / "data" / f"{number:02}.nc", cube([float(number)]))
    return tmp_path


def partial_of(folder: Path) -> Path:
    return folder / "index.nca.partial"


def count_kept(folder: Path) -> int:
    """Return the number of files in the partial index."""
    try:
        return len(list(aa.open(partial_of(folder))._provenance.structures()))
    except aa.AggarrayError:  # not there yet, or replaced while it is read
        return 0


def kill_half_way(folder: Path, number: int) -> "tuple[str, int]":
    process = start(folder, pause=0.3)
    deadline = time.monotonic() + 60
    while count_kept(folder) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate()
    assert not (folder / "index.nca").exists()
    return errors, process.returncode


@pytest.mark.parametrize("number", heavy([signal.SIGKILL, signal.SIGTERM, signal.SIGINT], but=[signal.SIGINT]))
def test_a_killed_scan_resumes(archive: Path, number: int) -> None:
    errors, status = kill_half_way(archive, number)
    assert status == (130 if number == signal.SIGINT else -number)
    assert number != signal.SIGINT or "--resume" in errors
    known = {s.uri for s in aa.open(partial_of(archive))._provenance.structures()}
    assert 2 < len(known) < 12
    changed = sorted(known)[0]
    os.utime(changed, (1, 1))  # a changed file is scanned again
    output, errors = start(archive, "--resume").communicate()
    files = {str(path) for path in (archive / "data").iterdir()}
    assert scanned(output) == files - known | {changed}, errors
    assert f"resumed: {len(known) - 1} of the files" in errors
    assert not partial_of(archive).exists()
    result = content(archive / "index.nca")
    (archive / "index.nca").unlink()
    output, _ = start(archive).communicate()
    assert scanned(output) == files
    assert content(archive / "index.nca") == result


@pytest.mark.heavy
def test_without_the_option_a_scan_starts_anew(archive: Path) -> None:
    kill_half_way(archive, signal.SIGKILL)
    output, _ = start(archive).communicate()
    assert len(scanned(output)) == 12
    assert not partial_of(archive).exists()


@pytest.mark.parametrize("damage", heavy(["absent", "garbage", "truncated", "flipped"], but=["truncated"]))
def test_a_damaged_partial_index_is_reported(archive: Path, damage: str) -> None:
    kill_half_way(archive, signal.SIGKILL)
    data = partial_of(archive).read_bytes()
    partial_of(archive).unlink()
    if damage != "absent":
        middle = data[:-200] + bytes(b ^ 255 for b in data[-200:])
        partial_of(archive).write_bytes({"garbage": b"garbage", "truncated": data[: len(data) // 2], "flipped": middle}[damage])
    process = start(archive, "--resume")
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert len(scanned(output)) == 12 or damage == "flipped"  # the directory behind the columns is not needed to read them
    assert damage == "flipped" or "all files are scanned" in errors
    assert aa.open(archive / "index.nca").arrays[0].shape[0] == 12
    assert partial_of(archive).exists() == (damage in ("garbage", "truncated"))  # it may be a file of another program


def test_a_file_that_is_no_index_is_kept(archive: Path) -> None:
    partial_of(archive).write_bytes(b"mine")
    process = start(archive)
    output, errors = process.communicate()
    assert process.returncode == 0 and len(scanned(output)) == 12
    assert partial_of(archive).read_bytes() == b"mine" and "is not an index: it is kept" in errors


@pytest.mark.heavy
def test_only_files_of_the_source_are_taken(archive: Path) -> None:
    kill_half_way(archive, signal.SIGKILL)
    first = sorted((archive / "data").iterdir())[0]
    first.rename(archive / "elsewhere.nc")
    process = start(archive, "--resume")
    process.communicate()
    assert process.returncode == 0
    assert aa.open(archive / "index.nca").arrays[0].shape[0] == 11


@pytest.mark.heavy
def test_python_resumes_by_append(archive: Path) -> None:
    kill_half_way(archive, signal.SIGKILL)
    resumed = aa.open(partial_of(archive)).append(archive / "data")
    assert resumed.arrays[0].shape == aa.open(archive / "data").arrays[0].shape


def test_assumed_files_are_not_scanned_to_be_kept(archive: Path) -> None:
    from aggarray.opening.checkpoint import Checkpoint

    table = aa.open(archive / "data", rules=aa.Rules(trust="assume"))._provenance.structures()
    Checkpoint(str(partial_of(archive)), resume=False).save(table)  # type: ignore[arg-type]
    kept = [s.uri for s in aa.open(partial_of(archive))._provenance.structures()]
    assert 0 < len(kept) < 12
    assert kept == [s.uri for s in table if s.assumed is None]


_APPEND = """
import sys, time, aggarray.opening.checkpoint as checkpoint
from aggarray.cli import main
from aggarray.opening import joining
checkpoint.INTERVAL, pause = 0.1, float(sys.argv[1])
checkpoint.SHARE = 0.5
scan_each = joining.scan_each
def counted(paths, receive, *scan):
    with open(sys.argv[2], "w") as names:  # more than a pipe holds
        print(*(f"scans {path}" for path in paths), sep="\\n", file=names)
    def slow(number, result):
        time.sleep(pause)
        return receive(number, result)
    return scan_each(paths, slow, *scan)
joining.scan_each = counted
main(sys.argv[3:])
"""


def start_append(folder: Path, *options: str, pause: float = 0.0) -> "subprocess.Popen[str]":
    line = ["append", str(folder / "index.nca"), str(folder / "more"), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, "-c", _APPEND, str(pause), str(folder / "names"), *line]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def write_copies(folder: Path, times: range) -> None:
    """Write files that differ in their time only, fast."""
    folder.mkdir()
    template = Path(write(folder / "template", cube([12345.0]), format="NETCDF3_CLASSIC"))
    data, mark = template.read_bytes(), struct.pack(">d", 12345.0)
    assert data.count(mark) == 1
    template.unlink()
    for n in times:
        (folder / f"{n:05}.nc").write_bytes(data.replace(mark, struct.pack(">d", float(n))))


@pytest.mark.heavy
def test_a_killed_append_resumes(archive: Path) -> None:
    write_copies(archive / "more", range(100, 2100))
    start(archive).communicate()
    before = (archive / "index.nca").read_bytes()
    process = start_append(archive, pause=0.002)
    deadline = time.monotonic() + 60
    while count_kept(archive) < 400 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.communicate()
    assert (archive / "index.nca").read_bytes() == before
    known = {s.uri for s in aa.open(partial_of(archive))._provenance.structures()}
    assert 400 <= len(known) < 2000
    _, errors = start_append(archive, "--resume").communicate()
    files = {str(path) for path in (archive / "more").iterdir()}
    assert scanned((archive / "names").read_text()) == files - known, errors
    assert f"resumed: {len(known):,} of the files" in errors
    assert not partial_of(archive).exists()
    result = content(archive / "index.nca")
    (archive / "index.nca").write_bytes(before)
    start_append(archive).communicate()
    assert scanned((archive / "names").read_text()) == files
    assert content(archive / "index.nca") == result
    assert aa.open(archive / "index.nca").arrays[0].shape[0] == 2012


@pytest.mark.parametrize("command", ["aggregate", "append"])
def test_assumed_files_do_not_resume(archive: Path, command: str) -> None:
    data, index = str(archive / "data"), str(archive / "index.nca")
    main = [sys.executable, "-m", "aggarray"]
    subprocess.run([*main, "aggregate", data, "-o", index, "--trust", "assume"], check=True, cwd=ROOT)
    line = ["append", index, data] if command == "append" else ["aggregate", data, "-o", index, "--trust", "assume"]
    done = subprocess.run([*main, *line, "--resume"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert "--resume does not apply with --trust assume" in done.stderr and "without --resume" in done.stderr
