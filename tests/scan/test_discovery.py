"""File discovery, and scanning of each file once, in order, with any number of processes."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest

import aggarray as aa
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
        (folder / name).write_bytes(b"CDF\x01")
    return [str(folder / n) for n in names]


def test_items_keep_their_order_each_sorted_within(tmp_path: Path) -> None:
    b, a, deep, _ = made(tmp_path, "b", "a", "sub/c", ".hidden")
    assert find_files([b, a]) == [b, a]
    assert find_files(tmp_path) == [a, b, deep]
    assert find_files([f"{tmp_path}/sub", tmp_path]) == [deep, a, b]
    assert find_files([b, f"{tmp_path}/*"]) == [b, a, deep] and find_files(f"{tmp_path}/[ab]") == [a, b]
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


# Folders that match patterns


def test_folders_that_match_are_searched(tmp_path: Path) -> None:
    names = ["2000/01/a.nc", "2000/02/b.nc", "2001/c.nc", "d.nc", "2001/.hidden/e.nc", "2002/store.zarr/zarr.json"]
    paths = made(tmp_path, *names, "2002/store.zarr/tas/c/0")
    store = os.path.dirname(paths[5])
    everything = [*paths[:3], store, paths[3]]
    for pattern in ("*", "**", "**/", "./**", "**/*"):
        assert find_files(f"{tmp_path}/{pattern}") == everything
    assert find_files(f"{tmp_path}/200?") == everything[:4]
    assert find_files(f"{tmp_path}/*/0*") == paths[:2] and find_files(f"{tmp_path}/**/01") == paths[:1]
    assert find_files(f"{tmp_path}/2002/*") == find_files(f"{tmp_path}/**/*.zarr") == [store]
    assert find_files(f"{tmp_path}/**/*.nc") == paths[:4]
    (tmp_path / "empty").mkdir()
    assert find_files(f"{tmp_path}/[de]*") == paths[3:4]
    with pytest.raises(MissingFileError, match="no file matches"):
        find_files(f"{tmp_path}/em*")


def test_links_to_folders_that_match(tmp_path: Path) -> None:
    (a,) = made(tmp_path, "one/a.nc")
    os.symlink(tmp_path / "one", tmp_path / "link")
    assert find_files(f"{tmp_path}/l*") == [str(tmp_path / "link" / "a.nc")]
    os.unlink(tmp_path / "link")
    os.symlink(tmp_path, tmp_path / "one" / "round")
    assert find_files(f"{tmp_path}/*") == [a] and a in find_files(f"{tmp_path}/**")


# Files that are not data

OTHER = {
    **{
        name: b"some words\n"
        for name in ("notes.txt", "README", "README.md", "a.sh", "run.log", "Makefile", "job.slurm", "x.R")
    },
    **{name: b'{"title": "a catalogue"}' for name in ("catalog.json", "a.ipynb")},
    "table.csv": b"time,tas\n2000,1\n",
    "plot.png": b"\x89PNG\r\n\x1a\n\0\0",
    "paper.pdf": b"%PDF-1.7\n\0",
    "picture": b"\x89PNG\r\n\x1a\n\0\0",
    "clip.gif": b"GIF89a\0\1",
    "cache.idx": b"\x80\x04\x95\0\0",
    "_SUCCESS": b"",
    "empty.log": b"",
    "latin": "caf\u00e9".encode("latin-1"),
}


def folder_of_everything(folder: Path) -> list[str]:
    """Write two data files, and files that are not data; return the data files."""
    for name, content in OTHER.items():
        (folder / name).write_bytes(content)
    return [write(folder / "a.nc", cube([0])), write(folder / "no_suffix", cube([1]))]


def test_other_files_are_left_out(tmp_path: Path) -> None:
    data = folder_of_everything(tmp_path)
    for source in (tmp_path, f"{tmp_path}/*", f"{tmp_path}/**", [f"{tmp_path}/[!n]*", f"{tmp_path}/n*"]):
        assert find_files(source) == data
    agg = aa.open(tmp_path)
    assert agg.skipped == () and agg["tas"].shape[0] == 2 and agg.check().ok
    agg.save(tmp_path / "index.nca")
    (tmp_path / "more.txt").write_text("more")
    again = aa.open(tmp_path / "index.nca").append(f"{tmp_path}/[!i]*")
    assert again.skipped == () and again.check().ok


@pytest.mark.parametrize("name", OTHER)
def test_other_files_that_are_named_are_errors(tmp_path: Path, name: str) -> None:
    folder_of_everything(tmp_path)
    assert find_files(tmp_path / name) == [str(tmp_path / name)]
    with pytest.raises(FormatError, match=re.escape(name)):
        aa.open(tmp_path / name)
    assert [Path(s.file).name for s in aa.open([tmp_path / "a.nc", tmp_path / name]).skipped] == [name]


def test_a_folder_of_other_files_is_an_error_that_names_one(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("words")
    for source in (tmp_path, f"{tmp_path}/*"):
        with pytest.raises(FormatError, match=r"not a data file.*notes\.txt"):
            aa.open(source)


DAMAGED = {
    "empty.nc": b"",
    "text.nc": b"words",
    "pointer": b"version https://git-lfs.github.com/spec/v1\n",
    "page": b"<!doctype html><title>Login",
    "page.nc": b"<!doctype html><title>Login",
    "image.nc": b"\x89PNG\r\n\x1a\n\0",
    "field.grb": b"GRIB\0\0",
    "field": b"GRIB\0\0",
    "noise": b"\0\1\2\3",
    "a.nc.part": b"words",
    "values.npy": b"\x93NUMPY",
    "refs.json": b'{"version": 1, "refs": {"tas/0": ',
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_looks_like_data_is_a_problem(tmp_path: Path, name: str) -> None:
    write(tmp_path / "good.nc", cube([0]))
    (tmp_path / name).write_bytes(DAMAGED[name])
    agg = aa.open(tmp_path)
    assert [Path(s.file).name for s in agg.skipped] == [name]
    assert [p.kind for p in agg.check().problems] == ["unreadable"]


def test_references_in_a_folder_are_opened(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.nc", cube([0]))
    (tmp_path / "refs").mkdir()
    aa.open(tmp_path / "data").to_kerchunk(tmp_path / "refs" / "a.json")
    (tmp_path / "refs" / "catalog.json").write_text('{"title": "a catalogue"}')
    agg = aa.open(tmp_path / "refs", roots=[tmp_path])
    assert agg.names == ("tas",) and agg.skipped == ()
    assert find_files(f"{tmp_path}/refs/*.json") == [str(tmp_path / "refs" / "a.json")]


def test_only_files_without_the_suffix_of_data_are_read(tmp_path: Path) -> None:
    made(tmp_path, *(f"{n}{suffix}" for n in range(3) for suffix in (".nc", ".nc4", ".h5", ".grb")), "other")
    OPENED.clear()
    assert len(find_files(tmp_path)) == 13
    assert {Path(p).name for p in OPENED if p.startswith(str(tmp_path)) and os.path.isfile(p)} == {"other"}
