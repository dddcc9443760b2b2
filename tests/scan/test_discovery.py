"""File discovery, and scanning of each file once, in order, with any number of processes."""

import os
import sys
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest

from aggarray.cf.attributes import text_attribute
from aggarray.errors import FormatError, MissingFileError
from aggarray.formats.base import Structure
from aggarray.formats.partial_scan import PartialScanRequest
from aggarray.formats.templates import is_decreasing
from aggarray.scan.discovery import find_files, skipped_file
from aggarray.scan.files import scan_files
from aggarray.scan.workers import WorkerPool
from tests.support.netcdf import cube, write


def made(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    return [str(folder / n) for n in names]


def test_items_keep_their_order_each_sorted_within(tmp_path: Path) -> None:
    b, a, deep, _ = made(tmp_path, "b", "a", "sub/c", ".hidden")
    assert find_files([b, a]) == [b, a]
    assert find_files(tmp_path) == [a, b, deep]
    assert find_files([f"{tmp_path}/sub", tmp_path]) == [deep, a, b]
    assert find_files([b, f"{tmp_path}/*"]) == [b, a]
    assert find_files(f"{tmp_path}/**/c") == [deep]


def test_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (a,) = made(tmp_path, "a")
    monkeypatch.chdir(tmp_path)
    assert find_files("a") == find_files("./a") == find_files(["a", a]) == [a]


def test_links_to_folders_are_left_out_of_a_walk(tmp_path: Path) -> None:
    made(tmp_path, "one/a")
    os.symlink(tmp_path, tmp_path / "one" / "round")
    assert find_files(tmp_path) == [str(tmp_path / "one" / "a")]


def test_sources_without_files(tmp_path: Path) -> None:
    for source, text in (([], "no files"), (tmp_path, "no files in this folder"), (f"{tmp_path}/*.nc", "no file matches")):
        with pytest.raises(MissingFileError, match=text):
            find_files(source)


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_results_come_in_the_order_of_paths(tmp_path: Path, processes: int) -> None:
    paths = [write(tmp_path / f"{n}.nc", cube([n])) for n in range(50)]
    paths[7] = str(tmp_path / "gone.nc")
    (tmp_path / "8.nc").write_text("text")
    result = scan_files(paths, processes)
    assert [p for p, _ in result] == paths
    assert isinstance(result[7][1], MissingFileError) and isinstance(result[8][1], FormatError)
    for number, (path, structure) in enumerate(result):
        if number not in (7, 8):
            assert isinstance(structure, Structure) and structure.uri == path
            time = next(v for v in structure.variables if v.name == "time")
            assert time.values is not None and time.values.tolist() == [number]


OPENED: list[str] = []
sys.addaudithook(lambda event, given: OPENED.append(str(given[0])) if event == "open" else None)


def counting(work: Any, paths: list[str]) -> Any:
    def counted(path: Any, *given: Any, **named: Any) -> Any:
        paths.append(os.fsdecode(path))
        return work(path, *given, **named)

    return counted


@pytest.mark.parametrize("kind", ["NETCDF4", "NETCDF3_CLASSIC"])
@pytest.mark.parametrize("wanted", [None, PartialScanRequest({"time": 1})])
def test_a_file_is_opened_once_by_its_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, wanted: PartialScanRequest | None
) -> None:
    paths = [write(tmp_path / f"{n}.nc", cube([n]), format=kind) for n in range(3)]
    by_library: list[str] = []
    for home, name in ((netCDF4, "Dataset"), (h5py, "File"), (h5py.h5f, "open")):
        monkeypatch.setattr(home, name, counting(getattr(home, name), by_library))
    OPENED.clear()
    with WorkerPool(1) as pool:
        result = pool.run([(path, wanted) for path in paths])
    assert not any(isinstance(f, Exception) for f in result)
    assert sorted(p for p in OPENED if p in paths) == sorted(paths)
    assert not by_library


def test_no_paths() -> None:
    assert scan_files([], 2) == []


def test_skip_reasons_omit_the_path() -> None:
    assert skipped_file("/a/b.nc", FormatError("damaged", path="/a/b.nc", hint="fetch it again")) == "damaged; fetch it again"
    error = FormatError("damaged", path="/a/b.nc", variable="tas")
    assert skipped_file("/a/b.nc", error) == "damaged: variable 'tas' in /a/b.nc"


@pytest.mark.parametrize(
    ("values", "down"),
    [([3, 2, 1], True), ([3, 3, 1], False), ([1, 2], False), ([1], False), ([], False), ([[2], [1]], False)],
)
def test_is_decreasing(values: list[int], down: bool) -> None:
    assert is_decreasing(np.array(values)) is down
    assert is_decreasing(np.array(values, "u1")) is down


def test_is_decreasing_of_text_and_nothing() -> None:
    assert is_decreasing(None) is False
    assert is_decreasing(np.array(["b", "a"], np.dtypes.StringDType())) is False


def test_attributes_as_text() -> None:
    assert text_attribute(None) is None and text_attribute(" K ") == "K"
    assert text_attribute(np.float64(1)) == "1.0" and text_attribute(np.int32(1)) == "1"


def test_brackets_of_existing_folders_are_literal(tmp_path: Path) -> None:
    a, b, other, star = made(tmp_path, "[br]/a.nc", "[br]/deep[1]/b.nc", "b/a.nc", "what?/x[1].nc")
    assert find_files(f"{tmp_path}/[br]/*.nc") == [a]
    assert find_files(f"{tmp_path}/[br]/**/*.nc") == [a, b]
    assert find_files(f"{tmp_path}/[br]/deep[1]/*.nc") == [b]
    assert find_files(f"{tmp_path}/[[]br]/deep[[]1]/*.nc") == [b]
    assert find_files(f"{tmp_path}/[ab]/*.nc") == [other]
    assert find_files(f"{tmp_path}/what?/*[[]1].nc") == [star]
