"""Chunk indexes stored in an index: reads open no file through a library."""

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from click.testing import CliRunner

import aggarray as aa
from aggarray import formats
from aggarray.cli import commands
from aggarray.read import close_files
from aggarray.read.chunk_index import chunk_tables
from tests.support.index_files import changed, document
from tests.support.netcdf import LAT, NOLEAP, TAS

LATS = np.arange(4.0)


def forget() -> None:
    """Clear the cached chunk indexes."""
    chunk_tables.clear()
    close_files()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return a list that receives the names of data files opened through a library."""
    result: list[str] = []
    open_file = formats.open_file

    def noted(path: str) -> Any:
        result.append(os.path.basename(path))
        return open_file(path)

    forget()
    monkeypatch.setattr(formats, "open_file", noted)
    monkeypatch.setattr(formats, "open_file", noted)
    yield result
    forget()


def made(path: Path, start: int, steps: int = 6, **how: Any) -> np.ndarray:
    """Write a file of a few days and return its values; ``how``: chunks, filters and dtype of the variable."""
    values = (start * 4 + np.arange(steps * 4) * 7 % 50).reshape(steps, 4).astype(how.pop("dtype", "f4"))
    with netCDF4.Dataset(path, "w", format=how.pop("format", "NETCDF4")) as file:
        file.createDimension("time", None)
        file.createDimension("lat", 4)
        time = file.createVariable("time", "f8", ("time",))
        time.setncatts(NOLEAP)
        time[:] = np.arange(start, start + steps)
        lat = file.createVariable("lat", "f8", ("lat",))
        lat.setncatts(LAT)
        lat[:] = LATS
        tas = file.createVariable("tas", values.dtype, ("time", "lat"), **how)
        tas.setncatts(TAS)
        tas[:] = values
    return values


KINDS: dict[str, dict[str, Any]] = {
    "deflated and shuffled": {"compression": "zlib", "shuffle": True, "chunksizes": (4, 4)},
    "checked": {"compression": "zlib", "fletcher32": True, "chunksizes": (4, 4)},
    "big-endian": {"dtype": ">f8", "endian": "big", "chunksizes": (1, 4)},
    "netCDF-3": {"format": "NETCDF3_CLASSIC"},
    "netCDF-3, 64 bits": {"format": "NETCDF3_64BIT_DATA", "dtype": "i8"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_is_opened(tmp_path: Path, opened: list[str], kind: str) -> None:
    expected = np.concatenate([made(tmp_path / f"{n}.nc", 6 * n, **KINDS[kind]) for n in range(3)])
    aa.open(tmp_path / "*.nc").save(tmp_path / "index.nca")
    forget()
    opened.clear()
    a = aa.open(tmp_path / "index.nca")["tas"]
    np.testing.assert_array_equal(a[:], expected)
    np.testing.assert_array_equal(a[::5, 2], expected[::5, 2])
    assert opened == []


def test_contiguous_and_skipped_filters(tmp_path: Path, opened: list[str]) -> None:
    path, raw = tmp_path / "v.h5", np.arange(24, dtype="f4").reshape(4, 6)
    with h5py.File(path, "w") as file:
        file.create_dataset("one", data=raw)
        two = file.create_dataset("two", shape=(4, 6), dtype="f4", chunks=(2, 6), compression="gzip", fillvalue=5)
        # One chunk is stored without the filter, the other is not stored.
        two.id.write_direct_chunk((0, 0), raw[:2].tobytes(), 1)
    aa.open(path).save(tmp_path / "index.nca")
    forget()
    opened.clear()
    agg = aa.open(tmp_path / "index.nca")
    np.testing.assert_array_equal(agg["one"][:], raw)
    np.testing.assert_array_equal(agg["two"][:], np.concatenate([raw[:2], np.full((2, 6), 5, "f4")]))
    assert opened == []


def test_another_process(tmp_path: Path) -> None:
    expected = np.concatenate([made(tmp_path / f"{n}.nc", 6 * n, compression="zlib") for n in range(3)])
    aa.open(tmp_path / "*.nc").save(tmp_path / "index.nca")
    a = aa.open(tmp_path / "index.nca")["tas"]
    for sent in (a, a.lazy[:, 1:3]):
        assert len(pickle.dumps(sent)) < 4000
        order = "import pickle, sys; sys.stdout.buffer.write(pickle.load(sys.stdin.buffer)[:].tobytes())"
        done = subprocess.run([sys.executable, "-c", order], input=pickle.dumps(sent), capture_output=True, check=True)
        part = expected if sent is a else expected[:, 1:3]
        np.testing.assert_array_equal(np.frombuffer(done.stdout, "f4").reshape(part.shape), part)


def test_without_chunk_tables(tmp_path: Path, opened: list[str]) -> None:
    made(tmp_path / "a.nc", 0, compression="zlib")
    agg = aa.open(tmp_path / "a.nc")
    agg.save(tmp_path / "with.nca")
    assert opened == ["a.nc"]
    forget()
    opened.clear()
    agg.save(tmp_path / "without.nca", chunk_table=False)
    assert opened == [] and "chunks" not in document(tmp_path / "without.nca")
    a = aa.open(tmp_path / "without.nca")
    np.testing.assert_array_equal(a["tas"][:], aa.open(tmp_path / "with.nca")["tas"][:])
    # Appended indexes have none either, those of the command line included.
    made(tmp_path / "b.nc", 6)
    for order in (["append", "without.nca", "b.nc"], ["aggregate", "a.nc", "b.nc", "-o", "new.nca", "--no-chunk-table"]):
        done = CliRunner().invoke(commands, [str(tmp_path / o) if o.endswith((".nc", ".nca")) else o for o in order])
        assert done.exit_code == 0, done.output
    assert all("chunks" not in document(tmp_path / name) for name in ("without.nca", "new.nca"))


def test_append_reads_the_chunk_indexes_of_new_files_only(tmp_path: Path, opened: list[str]) -> None:
    expected = [made(tmp_path / f"{n}.nc", 6 * n, compression="zlib") for n in range(4)]
    aa.open([tmp_path / "0.nc", tmp_path / "1.nc"]).save(tmp_path / "index.nca")
    for n in (2, 3):
        forget()
        opened.clear()
        aa.open(tmp_path / "index.nca").append(tmp_path / f"{n}.nc").save(tmp_path / "index.nca")
        assert opened == [f"{n}.nc"]
    forget()
    opened.clear()
    again = aa.open(tmp_path / "index.nca", rules=aa.Rules(overlap="first"))
    np.testing.assert_array_equal(again["tas"][:], np.concatenate(expected))
    assert opened == []


def test_tables_apply_to_copies_and_not_to_other_files(tmp_path: Path, opened: list[str]) -> None:
    expected = made(tmp_path / "a.nc", 0, compression="zlib", chunksizes=(2, 4))
    aa.open(tmp_path / "a.nc").save(tmp_path / "index.nca")
    forget()
    opened.clear()
    # A copy with the same size and time cannot be told from the file.
    os.utime(tmp_path / "a.nc", (1, 1))
    np.testing.assert_array_equal(aa.open(tmp_path / "index.nca")["tas"][:], expected)
    assert opened == []
    made(tmp_path / "a.nc", 0, steps=9)
    with pytest.raises(aa.IndexFileError, match=r"changed since it was scanned.*a\.nc"):
        aa.open(tmp_path / "index.nca")["tas"][:]


def test_index_and_data_moved_together(tmp_path: Path, opened: list[str]) -> None:
    (tmp_path / "old").mkdir()
    expected = made(tmp_path / "old" / "a.nc", 0, compression="zlib")
    aa.open(tmp_path / "old" / "a.nc").save(tmp_path / "old" / "index.nca")
    shutil.move(tmp_path / "old", tmp_path / "new")
    forget()
    opened.clear()
    np.testing.assert_array_equal(aa.open(tmp_path / "new" / "index.nca")["tas"][:], expected)
    assert opened == []


def test_an_index_saved_again_meanwhile(tmp_path: Path, opened: list[str]) -> None:
    expected = made(tmp_path / "a.nc", 0, compression="zlib")
    aa.open(tmp_path / "a.nc").save(tmp_path / "index.nca")
    a = aa.open(tmp_path / "index.nca")["tas"]
    aa.open(tmp_path / "a.nc").save(tmp_path / "index.nca")
    forget()
    np.testing.assert_array_equal(a[:], expected)
    (tmp_path / "index.nca").unlink()
    forget()
    np.testing.assert_array_equal(aa.open(tmp_path / "a.nc")["tas"][:], expected)


def test_missing_files_are_ignored(tmp_path: Path) -> None:
    made(tmp_path / "a.nc", 0, compression="zlib")
    agg = aa.open(tmp_path / "a.nc")
    (tmp_path / "a.nc").rename(tmp_path / "b.nc")
    agg.save(tmp_path / "index.nca")
    assert document(tmp_path / "index.nca")["chunks"]["names"] == []
    with pytest.raises(aa.MissingFileError, match=r"a\.nc"):
        aa.open(tmp_path / "index.nca")["tas"][:]


def _layout(found: Any, place: int, value: Any) -> None:
    found["chunks"]["layouts"][0][place] = value


HOSTILE = {
    "other counts": lambda d: d["chunks"].update(count={"is": [2]}),
    "no layout": lambda d: d["chunks"].update(layout={"is": [7]}),
    "no such file": lambda d: d["chunks"].update(file={"is": [12]}),
    "chunks of nothing": lambda d: _layout(d, 1, {"tuple": [0, 4]}),
    "sides of text": lambda d: _layout(d, 0, {"tuple": ["6", 4]}),
    "huge chunks": lambda d: _layout(d, 1, {"tuple": [1 << 40, 4]}),
    "objects": lambda d: _layout(d, 2, "|O8"),
    "fewer columns": lambda d: d["chunks"].update(columns=d["chunks"]["columns"][:1]),
    "a longer column": lambda d: d["chunks"]["columns"].__setitem__(0, {"is": [1, 2, 3, 4, 5, 6, 7]}),
    "variables": lambda d: d["chunks"].update(variable={"is": [3]}),
    "more variables": lambda d: d["chunks"].update(variable={"is": [0, 0]}),
}


@pytest.mark.parametrize("lie", HOSTILE)
def test_invalid_tables(tmp_path: Path, opened: list[str], lie: str) -> None:
    made(tmp_path / "a.nc", 0, compression="zlib", chunksizes=(2, 4))
    aa.open(tmp_path / "a.nc").save(tmp_path / "index.nca")
    changed(tmp_path / "index.nca", HOSTILE[lie])
    forget()
    with pytest.raises(aa.IndexFileError, match=r"damaged index.*index\.nca"):
        aa.open(tmp_path / "index.nca")["tas"][:]


@pytest.mark.parametrize("offset", [-7, 1 << 62, 3])
def test_wrong_offsets(tmp_path: Path, opened: list[str], offset: int) -> None:
    made(tmp_path / "a.nc", 0, compression="zlib", chunksizes=(6, 4))
    aa.open(tmp_path / "a.nc").save(tmp_path / "index.nca")
    changed(tmp_path / "index.nca", lambda d: d["chunks"]["columns"].__setitem__(0, {"is": [offset]}))
    forget()
    with pytest.raises((aa.FormatError, aa.IndexFileError), match=r"variable 'tas' in .*a\.nc|damaged index"):
        aa.open(tmp_path / "index.nca")["tas"][:]
