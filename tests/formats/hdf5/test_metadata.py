"""Scans without the library equal those of netCDF4 for files that netCDF4 writes."""

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray import formats
from aggarray.formats.hdf5 import library
from aggarray.formats.hdf5.metadata.headers import _IGNORED
from tests.support.paths import ROOT
from tests.support.scans import check, check_against_h5py, differences

DATA = ROOT.parent / "shared" / "data"

NUMBERS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")

#: Patterns of messages that do not describe values (HDF5 file format specification, IV.A.2).
PATTERNS = {
    **{0x00: rb".*", 0x0A: rb"\0[\x00-\x03].*", 0x0D: rb"[^\0]*\0+", 0x0E: rb"\d{14}\0*"},
    **{0x0F: rb"\0.{9}\0*", 0x12: rb"\x01\0\0\0.{4}", 0x16: rb"\0.{4}\0*"},
}
PARTS = (b"", b"\0", b"\1\0\0\0", b"\0\3", b"\0\4", b"2026", b"1129123456", b"a", b"abcd", b"\xff" * 9, b"\0" * 5)


def files_in(folder: Path) -> list[Path]:
    """Return the first HDF5 file of each folder under a folder."""
    result: dict[Path, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in (".nc", ".h5") and path.read_bytes()[:4] == b"\x89HDF":
            result.setdefault(path.parent if folder == DATA else path, path)
    return list(result.values())


@pytest.mark.parametrize("path", files_in(ROOT / "sample_data"), ids=lambda p: p.name)
def test_sample_data(path: Path) -> None:
    check(path)


@given(st.sampled_from(sorted(PATTERNS)), st.lists(st.sampled_from(PARTS), max_size=5).map(b"".join))
def test_ignored_messages_match_patterns(code: int, body: bytes) -> None:
    assert _IGNORED[code](body) == (re.fullmatch(PATTERNS[code], body, re.DOTALL) is not None)


def test_real_data() -> None:
    paths = files_in(DATA) if DATA.is_dir() else []
    if not paths:
        pytest.skip(f"no real data in {DATA}")
    for path in paths:
        check(path)


def test_netcdf4_is_not_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.nc"
    write_all(path)
    expected = formats.scan(path)

    def fail(*arguments: Any, **named: Any) -> None:
        raise AssertionError("netCDF4 was called")

    monkeypatch.setattr(netCDF4, "Dataset", fail)
    monkeypatch.setattr(library, "scan_structure", fail)
    result = formats.scan(path)
    assert result.stamp == expected.stamp
    assert not list(differences(result, expected))
    assert not list(differences(pickle.loads(pickle.dumps(result)), expected))


def write_all(path: Path, kind: str = "NETCDF4") -> None:
    """Write a file with every dtype, number of dimensions and type of storage."""
    with netCDF4.Dataset(path, "w", format=kind) as file:
        file.setncatts({"title": "all", "history": "x" * 5000, "Conventions": "CF-1.8"})
        for name, size in (("time", None), ("y", 4), ("x", 3), ("length", 5), ("none", None if kind == "NETCDF4" else 9)):
            file.createDimension(name, size)
        file.createVariable("time", "f8", ("time",))[:] = np.arange(6.0)
        for number, dtype in enumerate(NUMBERS if kind == "NETCDF4" else ("i1", "i2", "i4", "f4", "f8")):
            for endian in ("little", "big") if dtype[1] != "1" else ("native",):
                name = f"{dtype}_{endian}"
                stored = np.dtype(dtype).newbyteorder({"little": "<", "big": ">", "native": "="}[endian])
                made = file.createVariable(name, stored, ("time", "y", "x")[number % 3 :], endian=endian, zlib=number % 2 == 0)
                made.setncatts({"number": np.array(number, dtype), "several": np.arange(3, dtype=dtype), "coordinates": name})
                made[...] = np.arange(72).reshape(6, 4, 3)[(0,) * (number % 3)]
        file.createVariable("scalar", "i4", ())[...] = 5
        file.createVariable("names", "S1", ("y", "length"))[:] = np.full((4, 5), b"a")
        file.createVariable("letter", "S1", ())[...] = b"z"
        file.createVariable("empty", "f4", ("none", "x"))
        file["scalar"].coordinates = "scalar letter names empty i4_big f8_little f4_big i1_native u2_little"


def test_every_dtype(tmp_path: Path) -> None:
    write_all(tmp_path / "a.nc")
    result = check(tmp_path / "a.nc")
    assert len([v for v in result.variables if v.values is not None]) > 15
    write_all(tmp_path / "b.nc", "NETCDF4_CLASSIC")
    check(tmp_path / "b.nc")


def test_variable_length_text(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 4)
        file.createDimension("t", None)
        file.createVariable("x", str, ("x",))[:] = np.array(["a", "", "größer ", "x" * 3000], object)
        file.createVariable("t", str, ("t",))[2] = "late"
        file.createVariable("one", str, ())[...] = "ü"
        file.createVariable("unwritten", str, ("x",))
        file["x"].coordinates = "one unwritten"
        file.setncattr_string("texts", ["a", "é", ""])
        file.setncattr_string("text", "é" * 2000)
        file["x"].setncattr_string("long_name", "name")
        file["one"].setncattr("non_ascii", "ö")
    result = check(path)
    assert result.variables[0].values is not None
    assert result.attrs["texts"] == ["a", "é", ""]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 40, 300])
def test_many_attributes(tmp_path: Path, count: int) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 2)
        made = file.createVariable("x", "f4", ("x",), fill_value=1e20)
        for item in (file, made, file.createGroup("g")):
            for number in range(count):
                value: Any = f"text {number}" * (number % 5) if number % 3 else np.float32(number)
                item.setncattr(f"attribute_{(number * 7919) % 1000}", value)
    check(path)


@pytest.mark.parametrize("length", [100, 4000, 5000, 60_000, 70_000, 500_000])
def test_long_attributes(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 2)
        made = file.createVariable("x", "f4", ("x",))
        made.setncattr("history", "h" * length)
        file.setncatts({"first": 1.0, "long": "l" * length, "numbers": np.arange(length // 4), "last": "end"})
    check(path)


@pytest.mark.parametrize("count", [1, 8, 9, 100, 1500])
def test_many_variables(tmp_path: Path, count: int) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 2)
        for number in range(count):
            file.createVariable(f"v{(number * 7919) % 10007}", "i2", ("x",) if number % 2 else ())
    assert len(check(path).variables) == count


def test_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 3)
        file.createDimension("t", None)
        file.createVariable("x", "f8", ("x",))[:] = [1, 2, 3]
        for name in ("b", "a", "größe"):
            group = file.createGroup(name)
            group.setncattr("title", name)
            group.createDimension("y", 2)
            inner = group.createGroup("deep/er")
            inner.createDimension("t", None)
            inner.createVariable("t", "i4", ("t",))[:] = range(4)
            inner.createVariable("v", "f4", ("t", "y", "x"))[:2] = 1.0
            group.createVariable("t", "i4", ("t",))[: len(name)] = 1
            group.createVariable("y", "i4", ("x",))
        file.createGroup("empty")
    result = check(path)
    expected = [f"{name}{rest}" for name in ("b", "a", "größe") for rest in ("", "/deep", "/deep/er")]
    assert list(result.groups) == [*expected, "empty"]


def test_names_and_dimensions(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("x", 3), ("length", 4), ("name", 2), ("t", None), ("unused", 7), ("free", None)):
            file.createDimension(name, size)
        # Names of dimensions: of a variable that is not a coordinate, of a two-dimensional coordinate, and one used twice.
        file.createVariable("length", "i4", ("x",))[:] = [4, 5, 6]
        file.createVariable("name", "S1", ("name", "length"))[:] = np.full((2, 4), b"c")
        file.createVariable("square", "f4", ("x", "x"))
        file.createVariable("t", "f8", ("t", "x"))[:2] = 1.0
        file.createVariable("flag", "S1", ("t",))[:2] = b"y"
        file.createVariable("a-b.c d", "i1", ("x",))
    check(path)


def test_lengthened_dimensions(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 3)
        file.createVariable("long", "i4", ("time",))[:5] = range(5)
        file.createVariable("time", "f8", ("time",))[:2] = [1, 2]
        file.createVariable("short", "f4", ("time", "x"), fill_value=-7.0)[:2] = 1.0
        file.createVariable("unwritten", "i2", ("time",))
        file.createVariable("text", str, ("time",))[0] = "a"
        file["long"].coordinates = "short unwritten text"
    result = check(path)
    assert {v.name: v.shape for v in result.variables}["time"] == (5,)


def test_renamed_and_deleted(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 3)
        file.createVariable("x", "f8", ("x",))[:] = [1, 2, 3]
        file.createVariable("v", "f8", ("x",))
        file.setncatts({f"a{n}": n for n in range(20)})
        for n in range(0, 20, 3):
            file.delncattr(f"a{n}")
        file.renameVariable("v", "w")
        file.renameDimension("x", "station")
    with netCDF4.Dataset(path, "a") as file:
        file.setncattr("a4", "longer than before " * 30)
        file["w"].setncatts({f"b{n}": "text" * n for n in range(12)})
        file.renameAttribute("a5", "renamed")
    check(path)


@pytest.mark.parametrize(
    "storage",
    [
        {"contiguous": True},
        {"chunksizes": (1, 2)},
        {"chunksizes": (5, 7), "zlib": True},
        {"chunksizes": (2, 3), "zlib": True, "shuffle": True, "fletcher32": True},
        {"chunksizes": (20, 2), "fletcher32": True},
        {"chunksizes": (3, 3), "compression": "zstd"},
        {"chunksizes": (3, 3), "compression": "szip"},
        {"chunksizes": (20, 11), "zlib": True, "complevel": 9},
    ],
    ids=str,
)
def test_storage_of_coordinates(tmp_path: Path, storage: dict[str, Any]) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("y", 20)
        file.createDimension("x", 11)
        values = np.random.default_rng(1).standard_normal((20, 11)).round(2)
        for dtype in ("f4", "f8", "i2"):
            file.createVariable(dtype, dtype, ("y", "x"), **storage)[:] = values * 100
        file.createVariable("part", "i4", ("y", "x"), fill_value=-3, **storage)[4:7, 1:3] = 1
        file.createVariable("nothing", "i4", ("y", "x"), **storage)
        file["part"].coordinates = "f4 f8 i2 part nothing"
    assert all(v.values is not None for v in check(path).variables)


def test_many_chunks(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("bnds", 2)
        file.createVariable("time", "f8", ("time",), chunksizes=(1,))
        file.createVariable("time_bnds", "f8", ("time", "bnds"), chunksizes=(3, 1), zlib=True)
        file["time"].bounds = "time_bnds"
        for start in range(0, 3000, 50):
            file["time"][start : start + 50] = np.arange(start, start + 50)
            file["time_bnds"][start : start + 50] = np.arange(100).reshape(50, 2)
            file.sync()
    check(path)


def only_a_dimension(file: netCDF4.Dataset) -> None:
    file.title = "no dimensions"
    file.createVariable("scalar", "f4", ())[...] = 1


def nothing(file: netCDF4.Dataset) -> None:
    pass


@pytest.mark.parametrize("write", [nothing, only_a_dimension])
def test_nearly_empty_files(tmp_path: Path, write: Callable[[netCDF4.Dataset], None]) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        write(file)
    check(tmp_path / "a.nc")


def enumeration(file: netCDF4.Dataset) -> None:
    kind = file.createEnumType("i1", "kind_t", {"a": 1})
    file.createVariable("enum", kind, ("x",))


def compound(file: netCDF4.Dataset) -> None:
    kind = file.createCompoundType(np.dtype([("a", "f8"), ("b", "i4")]), "pair_t")
    file.createVariable("pair", kind, ("x",))


def ragged(file: netCDF4.Dataset) -> None:
    file.createVariable("ragged", file.createVLType("i4", "rows_t"), ("x",))


@pytest.mark.parametrize("write", [enumeration, compound, ragged])
def test_other_types_equal_the_scan_by_h5py(tmp_path: Path, write: Callable[[netCDF4.Dataset], None]) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 2)
        write(file)
    assert check_against_h5py(path).format == "netCDF4"
