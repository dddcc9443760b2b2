"""Files that are replaced, truncated, removed or made unreadable while they are open.

Reads return the values of the opened version, or raise one error that names file and variable. Plain reads memory-map no file:
truncating a mapped file crashes its reader.
"""

import json
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray.errors import ChangedFileError
from aggarray.read import close_files
from aggarray.storage.files import resized, stat_file
from tests.faults.specimens import SPECIMENS, values
from tests.support.messages import says
from tests.support.netcdf import write

Made = Callable[[str], str]
FILES = (
    *("netcdf3-CLASSIC", "netcdf3-records-64BIT_DATA", "netcdf4-contiguous", "netcdf4-deflate"),
    *("hdf5-growing-latest", "hdf5-scaleoffset-latest", "hdf5-many-chunks-earliest-both"),
)
WAYS: dict[str, Callable[[Path], Any]] = {
    "removed": lambda path: path.unlink(),
    "emptied": lambda path: os.truncate(path, 0),
    "shrunk": lambda path: os.truncate(path, path.stat().st_size * 3 // 4),
    "another": lambda path: write(path, {"tas": (("x",), np.arange(3.0))}),
    "noise": lambda path: path.write_bytes(bytes(range(256)) * 40),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link to itself": lambda path: (path.unlink(), path.symlink_to(path)),
}


def array_in(agg: aa.Aggregation) -> aa.MasterArray:
    """Return the array to read."""
    return agg["tas"] if "tas" in agg else agg["data"]


def copied(made: Made, name: str, folder: Path) -> Path:
    """Return a copy of a specimen."""
    source = Path(made(name))
    return Path((shutil.copytree if source.is_dir() else shutil.copy)(source, folder / source.name))


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", FILES)
def test_changed_while_open(made: Made, tmp_path: Path, name: str, how: str) -> None:
    """Changes after opening, after a read, and after saving an index."""
    for when in ("opened", "read", "saved"):
        folder = tmp_path / when
        folder.mkdir()
        path = copied(made, name, folder)
        agg = aa.open(path)
        array = array_in(agg)
        if when == "read":
            array[0]
        if when == "saved":
            agg.save(folder / "i.nca")
            array = array_in(aa.open(folder / "i.nca"))
        WAYS[how](path)
        with pytest.raises(aa.FormatError) as caught:
            array[...]
        assert f"variable '{array.name}' in {path}" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert isinstance(caught.value, FileNotFoundError) == (how == "removed")
        if when == "saved":
            (problem, *_) = aa.open(folder / "i.nca").check().problems
            assert problem.kind in ("missing", "changed", "unreadable") and problem.file == str(path)


@pytest.mark.parametrize("name", FILES)
def test_an_equal_copy_is_the_file(made: Made, tmp_path: Path, name: str) -> None:
    path = copied(made, name, tmp_path)
    array = array_in(aa.open(path))
    expected = array[...]
    copied(made, name, tmp_path)
    os.utime(path, ns=(1, 1))
    np.testing.assert_array_equal(array[...], expected)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run a block as an unprivileged user if this user is root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="permissions of POSIX")
@pytest.mark.parametrize("name", FILES)
def test_unreadable_while_open(made: Made, name: str) -> None:
    # Folders of pytest are private to its user.
    with tempfile.TemporaryDirectory(prefix="aggarray-test-") as folder:
        os.chmod(folder, 0o755)
        path = copied(made, name, Path(folder))
        path.chmod(0o644)
        with unprivileged():
            agg = aa.open(path)
            array = array_in(agg)
            expected = array[...]
        path.chmod(0)
        with unprivileged():
            # Open files may still be read.
            with suppress(aa.FormatError):
                np.testing.assert_array_equal(array[...], expected)
            close_files()
            with pytest.raises(aa.FormatError, match=says("variable ", "[Pp]ermission")):
                array[...]
            assert [p.kind for p in agg.check().problems] == ["unreadable"]


@pytest.mark.parametrize("name", ["zarr2-plain", "zarr2-zlib", "zarr3-zstd", "zarr3-shards-crc32c"])
def test_stores_that_change(made: Made, tmp_path: Path, name: str) -> None:
    store = copied(made, name, tmp_path)
    array = aa.open(store)["tas"]
    np.testing.assert_array_equal(array[...], values())
    chunk = next(p for p in (store / "tas/1.0.0", store / "tas/c/1/0/0") if p.exists())
    os.truncate(chunk, 7)
    with pytest.raises(aa.FormatError, match=r"variable 'tas' in .*a\.zarr"):
        array[...]
    (store / "tas" / ("zarr.json" if "zarr3" in name else ".zarray")).unlink()
    with pytest.raises((aa.FormatError, aa.NotFoundError), match=r"a\.zarr"):
        array[...]
    shutil.rmtree(store)
    with pytest.raises(aa.MissingFileError, match=r"variable 'tas' in .*a\.zarr"):
        array[...]
    store.write_text("a file")
    with pytest.raises(aa.FormatError, match=r"variable 'tas' in .*a\.zarr"):
        array[...]


def test_files_that_references_name(tmp_path: Path) -> None:
    path = Path(SPECIMENS["kerchunk-virtualizarr.json"](tmp_path))
    references = json.loads(path.read_text())["refs"]
    named = next(tmp_path / Path(value[0]).name for key, value in references.items() if key.startswith("tas/") and value[1:])
    array = aa.open(path)["tas"]
    expected, data = array[...], named.read_bytes()
    os.truncate(named, 100)
    with pytest.raises(aa.FormatError, match=says("variable 'tas'", named.name)):
        array[...]
    named.unlink()
    with pytest.raises(aa.MissingFileError, match=named.name):
        array[...]
    named.write_bytes(data)
    np.testing.assert_array_equal(array[...], expected)


@contextmanager
def meanwhile(change: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Change a file just before its values are read, after all checks."""
    with monkeypatch.context() as patch:
        for call in ("pread", "preadv"):
            own = getattr(os, call)

            def late(*given: Any, own: Callable[..., Any] = own) -> Any:
                change()
                return own(*given)

            patch.setattr(os, call, late)
        yield


@pytest.mark.parametrize("name", ["netcdf3-CLASSIC", "netcdf4-contiguous", "netcdf4-deflate", "hdf5-growing-latest"])
def test_shrinking_during_a_read(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = copied(made, name, tmp_path)
    array = array_in(aa.open(path))
    array[0]
    with (
        meanwhile(lambda: os.truncate(path, 100), monkeypatch),
        pytest.raises(aa.FormatError, match=rf"(truncated|changed).*variable 'tas' in .*{path.name}"),
    ):
        array[...]


@pytest.mark.parametrize("name", ["netcdf3-CLASSIC", "netcdf4-contiguous"])
def test_changing_during_a_read(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The size stays the same: only the modification time changes."""
    path = copied(made, name, tmp_path)
    array = array_in(aa.open(path))
    array[0]
    with (
        meanwhile(lambda: path.write_bytes(b"x" * path.stat().st_size), monkeypatch),
        pytest.raises(aa.FormatError, match=rf"changed.*variable 'tas' in .*{path.name}"),
    ):
        array[...]


def test_plain_reads_memory_map_nothing(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **named: Any) -> None:
        raise AssertionError("a file is mapped")

    monkeypatch.setattr(mmap, "mmap", refuse)
    for name in (*FILES, "zarr2-plain", "zarr3-shards", "kerchunk-both.nc4.json", "index"):
        for array in aa.open(made(name)):
            array[...]
            array.read(copy=True, masked=True)
    with pytest.raises((AssertionError, aa.AggarrayError)):
        aa.open(made("netcdf3-CLASSIC"))["tas"].read(copy=False)


def test_folder_in_place_of_a_file_raises(tmp_path: Path) -> None:
    """Also with a folder of the same size."""
    path = Path(write(tmp_path / "a.nc", {"tas": (("x",), np.arange(3.0))}))
    agg = aa.open(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ChangedFileError, match=r"a folder is in its place.*variable 'tas' in .*a\.nc"):
        agg["tas"].read()
    assert [p.kind for p in agg.check().problems] == ["unreadable"]
    assert resized(stat_file(str(path)), stat_file(str(path)).size) is not None
