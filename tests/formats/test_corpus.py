"""Test files of HDF5, netCDF and PyTables: aggarray's values compared with those of h5py, netCDF4 and zarr.

`.ci/corpus build/corpus` fetches and unpacks them; the environment variable ``CORPUS`` sets another folder. Without the files
the test is skipped. Every reader has a process of its own: a file that crashes it, or takes longer than `SECONDS`, is reported.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

#: Time limit for one file in seconds: five times that of the slowest file.
SECONDS = 20
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_STORE_MARKS = ("zarr.json", ".zgroup", ".zarray")
_NUMBERS = set("biufc")

#: Files for which aggarray rightly differs from the libraries, and the reason.
KNOWN = {
    "hdf5/test/corrupted_name_len.h5": "an attribute is damaged: aggarray refuses the file, where h5py reads its datasets",
    "pytables/tables/tests/vlunicode_endian.h5": "h5py hands out big-endian elements of variable length unswapped",
}


class Reader:
    """Process that reads files with one library; restarted after a file that crashes it."""

    def __init__(self, name: str):
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None

    def view(self, path: Path) -> dict[str, Any]:
        """Return what it sees in a file; {"died": why} where the file ends it."""
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(str(path)).encode() + b"\n")
        process.stdin.flush()
        answer = b""
        while not answer.endswith(b"\n"):
            ready = select.select([process.stdout], [], [], SECONDS)[0]
            part = os.read(process.stdout.fileno(), 1 << 20) if ready else b""
            if not part:
                self.close()
                return {"died": f"signal or exit {process.returncode}" if ready else f"no answer within {SECONDS} s"}
            answer += part
        result: dict[str, Any] = json.loads(answer)
        return result

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.support.corpus_process", self._name]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, bufsize=0
        )

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            # Wait for a crashed process, so that its exit status is known.
            process.wait(0.5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def corpus_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the kind, "HDF5", "netCDF3" or "Zarr", and the path of every data file and store."""
    for at, folders, names in os.walk(folder):
        folders.sort()
        if any(mark in names for mark in _STORE_MARKS):
            folders.clear()
            yield "Zarr", Path(at)
            continue
        for name in sorted(names):
            path = Path(at, name)
            if path.is_file() and not path.is_symlink() and (kind := _kind(path)):
                yield kind, path


def _kind(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(1 << 16)
    if head[:3] == b"CDF" and head[3:4] in b"\1\2\5":
        return "netCDF3"
    signed = any(head[at : at + 8] == _SIGNATURE for at in (0, *(512 << i for i in range(7))))
    # Files with these suffixes and without a signature must be refused.
    return "HDF5" if signed or path.suffix in (".h5", ".nc") else ""


def faults(kind: str, found: dict[str, Any], oracles: dict[str, dict[str, Any]]) -> list[str]:
    """Return the faults of aggarray's contents of a file, compared with those of libraries."""
    if "died" in found:
        return [f"aggarray: {found['died']}"]
    objects = _objects(oracles)
    if "error" in found:
        if not found["ours"]:
            return [f"{found['error']}: {found['message']}"]
        readable = [o["names"][0] for o in objects if "digest" in o]
        return [f"refused, though {readable[:5]} can be read: {found['message']}"] if readable else []
    others = oracles.get("netCDF4", {}).get("variables", {}) if kind == "HDF5" else {}
    return [fault for o in objects for fault in _object_faults(o, found, others)] + [
        f"{name}: {told['error']}: {told['message']}"
        for name, told in found["variables"].items()
        if "error" in told and told["error"] not in ("FormatError", "MissingFileError", "NotFoundError")
    ]


def _objects(oracles: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the arrays, with their names, of the first library that opens the file."""
    for view in oracles.values():
        if "objects" in view:
            return list(view["objects"])
        if "variables" in view:
            return [told | {"names": [name]} for name, told in view["variables"].items()]
    return []


def _object_faults(one: dict[str, Any], found: dict[str, Any], others: dict[str, Any]) -> Iterator[str]:
    """Yield the faults of an array; ``others``: contents by netCDF4, whose variables have the lengths of their dimensions."""
    name = next((name for name in one["names"] if name in found["variables"]), None)
    if name is None:
        skipped = any(_within(n, s) for n in one["names"] for s in found["skipped"])
        if not skipped and not one.get("pure"):
            yield f"{one['names'][0]} ({one['kind']}): neither a variable nor skipped"
        return
    if "digest" not in one:
        return
    seen = [found["variables"][name]] + ([found["arrays"][name]] if name in found["arrays"] else [])
    right = [one] + ([others[name]] if name in others else [])
    for told in seen:
        if not any(_same(told, other) for other in right):
            yield f"{name}: {_brief(told)}, not {_brief(one)}"


def _within(name: str, skipped: str) -> bool:
    return name == skipped or name.startswith(f"{skipped}/")


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one["shape"] == other["shape"] and one.get("digest") == other.get("digest")


def _brief(told: dict[str, Any]) -> str:
    if "error" in told:
        return f"{told['error']}: {told['message']}"
    return f"{told['kind']} {told['shape']} {told.get('digest', '')} {told.get('begins', '')}"


def _folder() -> Path:
    return Path(os.environ.get("CORPUS") or ROOT / "build" / "corpus")


#: Libraries by format; each is used only if the results of the previous ones differ from those of aggarray.
ORACLES = {"HDF5": ("h5py", "netCDF4"), "netCDF3": ("netCDF4",), "Zarr": ("zarr",)}


def file_faults(kind: str, path: Path, readers: dict[str, Reader]) -> list[str]:
    """Return the faults of aggarray's contents of a file."""
    result, oracles, wrong = readers["aggarray"].view(path), {}, []
    for name in ORACLES[kind]:
        oracles[name] = readers[name].view(path)
        wrong = faults(kind, result, oracles)
        if not wrong:
            break
    return wrong


def wrong_files(folder: Path) -> dict[str, list[str]]:
    """Return the faults by path in the folder."""
    readers = {name: Reader(name) for name in ("aggarray", "h5py", "netCDF4", "zarr")}
    try:
        result = {path: file_faults(kind, path, readers) for kind, path in corpus_files(folder)}
    finally:
        for reader in readers.values():
            reader.close()
    return {path.relative_to(folder).as_posix(): wrong for path, wrong in result.items() if wrong}


@pytest.mark.heavy
def test_files_of_the_libraries_tests_equal_the_libraries_values() -> None:
    folder = _folder()
    if not any(corpus_files(folder)):
        pytest.skip(f"no test files of the libraries: .ci/corpus {folder} fetches them")
    wrong = wrong_files(folder)
    assert not {name: told for name, told in wrong.items() if name not in KNOWN}
    gone = [name for name in KNOWN if (folder / name).is_file() and name not in wrong]
    assert not gone, "known differences that are none any more"
