"""Tests of text with bytes that are invalid in its encoding: it is read and exported without loss or errors."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray import formats
from aggarray.cf.text import bytes_to_text, log_latin_1
from aggarray.export.extract import extract
from tests.support.examples import examples, heavy

WIDTH = 8
ENCODINGS = ["utf-8", "utf-16", "utf-7", "cp1252", "shift-jis", "utf-32"]
STORED = st.binary(min_size=1, max_size=WIDTH).filter(lambda w: b"\0" not in w and w.strip() == w)
WORDS = [b"caf\xe9", "zwölf".encode(), b"\xff\xfe\x80\x81", b"plain", b"\xc3", b"\xed\xa0\x80", "€".encode()]


def bytes_of(value: str, stored: bytes) -> bytes:
    """The expected text of bytes: UTF-8 if they are valid, else Latin-1."""
    try:
        stored.decode("utf-8")
    except UnicodeDecodeError:
        return value.encode("latin-1")
    return value.encode("utf-8")


def filled(words: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(w.ljust(WIDTH, b"\0") for w in words), "S1").reshape(len(words), WIDTH)


def netcdf(kind: str) -> Callable[[Path, list[bytes]], None]:
    def write(path: Path, words: list[bytes]) -> None:
        with netCDF4.Dataset(path, "w", format=kind) as file:
            file.set_auto_chartostring(False)
            file.createDimension("x", len(words))
            file.createDimension("length", WIDTH)
            file.createVariable("name", "S1", ("x", "length"))[:] = filled(words)
            file.createVariable("v", "f8", ("x",))[:] = np.arange(len(words))
            file["v"].coordinates = "name"

    return write


def hdf5(dtype: object) -> Callable[[Path, list[bytes]], None]:
    def write(path: Path, words: list[bytes]) -> None:
        with h5py.File(path, "w") as file:
            file["x"] = np.arange(float(len(words)))
            file["x"].make_scale("x")
            file["v"] = np.arange(float(len(words)))
            file["v"].dims[0].attach_scale(file["x"])
            file["v"].attrs["coordinates"] = "name"
            values = np.array(words, object) if dtype is not None else np.array(words, f"S{WIDTH}")
            file.create_dataset("name", data=values, dtype=dtype).dims[0].attach_scale(file["x"])

    return write


def netcdf_strings(path: Path, words: list[bytes]) -> None:
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", len(words))
        file.createVariable("v", "f8", ("x",))[:] = np.arange(len(words))
        file["v"].coordinates = "name"
        file.createVariable("name", str, ("x",))
    with h5py.File(path, "r+") as file:
        for number, word in enumerate(words):
            file["name"][number] = word


def zarr_text(version: int, dtype: str) -> Callable[[Path, list[bytes]], None]:
    def write(path: Path, words: list[bytes]) -> None:
        names = {"dimension_names": ("x",)} if version == 3 else {"attributes": {"_ARRAY_DIMENSIONS": ["x"]}}
        group = zarr.open_group(path, mode="w", zarr_format=version)
        group.create_array("v", data=np.arange(float(len(words))), **names).attrs["coordinates"] = "name"
        array = group.create_array("name", shape=(len(words),), dtype=dtype, compressors=None, **names)
        if dtype != "str":
            array[:] = np.array(words, dtype)
            return
        # zarr-python writes only characters: placeholders of the same number of bytes are replaced.
        array[:] = np.array([chr(ord("A") + n) * len(word) for n, word in enumerate(words)], np.dtypes.StringDType())
        [chunk] = [p for p in (path / "name").rglob("*") if p.is_file() and p.name not in (".zarray", ".zattrs", "zarr.json")]
        data = chunk.read_bytes()
        for number, word in enumerate(words):
            there = b"".join([len(word).to_bytes(4, "little"), bytes([ord("A") + number]) * len(word)])
            data = data.replace(there, there[:4] + word, 1)
        chunk.write_bytes(data)

    return write


WRITERS = {
    "three.nc": netcdf("NETCDF3_CLASSIC"),
    "five.nc": netcdf("NETCDF3_64BIT_DATA"),
    "four.nc": netcdf("NETCDF4"),
    "strings.nc": netcdf_strings,
    "fixed.h5": hdf5(None),
    "strings.h5": hdf5(h5py.string_dtype()),
    "ascii.h5": hdf5(h5py.string_dtype("ascii")),
    "fixed2.zarr": zarr_text(2, f"S{WIDTH}"),
    "fixed3.zarr": zarr_text(3, f"S{WIDTH}"),
    "strings2.zarr": zarr_text(2, "str"),
    "strings3.zarr": zarr_text(3, "str"),
}
pytestmark = pytest.mark.filterwarnings("ignore:The data type", "ignore:The codec", "ignore::FutureWarning")


@pytest.mark.parametrize("name", WRITERS)
def test_no_byte_of_a_text_is_lost(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[name](path, WORDS)
    array = aa.open(path)["v"].coords["name"]
    for result in (array[:].tolist(), aa.SubArray.from_file(path, "name").read().tolist(), array[::-1].tolist()[::-1]):
        assert [bytes_of(value, word) for value, word in zip(result, WORDS, strict=True)] == WORDS
    assert aa.SubArray.from_file(path, "name").read((slice(0, 1),)).tolist() == ["café"]
    # A scan reads equal coordinates.
    known = {v.name: v.values for v in formats.scan(path).variables}["name"]
    assert known is not None and known.tolist() == array[:].tolist()


@settings(deadline=None, max_examples=examples(200))
@given(st.lists(st.binary(max_size=6), max_size=5), st.sampled_from(ENCODINGS))
def test_any_bytes_become_text(words: list[bytes], encoding: str) -> None:
    for values in (np.array(words, object), np.array(words, "S6")):
        result = bytes_to_text(values, encoding)
        assert result.dtype == np.dtypes.StringDType() and result.shape == values.shape
        for text, word in zip(result.tolist(), words, strict=True):
            text.encode("utf-8")  # no surrogates
            wide = word.ljust(values.dtype.itemsize, b"\0") if values.dtype.kind == "S" else word
            try:
                expected = wide.decode(encoding)
                expected.encode("utf-8")
            except UnicodeDecodeError:
                expected = wide.decode("latin-1")
            except UnicodeEncodeError:
                continue
            assert text == (expected.rstrip("\0 ") if values.dtype.kind == "S" else expected)


def test_surrogates_are_decoded() -> None:
    assert bytes_to_text(np.array(["caf\udce9", "\ud800", "€"], "U4")).tolist() == ["café", "í\xa0\x80", "€"]


@pytest.mark.parametrize("name", ["four.nc", "three.nc", "strings.nc"])
@pytest.mark.parametrize("encoding", ["cp1252", "ISO-8859-1", " latin1 "])
def test_stated_encoding(tmp_path: Path, name: str, encoding: str) -> None:
    path = tmp_path / name
    words = [word.encode("latin-1") for word in ("café", "Ã©", "£", "")]
    WRITERS[name](path, words)
    with netCDF4.Dataset(path, "a") as file:
        file["name"].setncattr("_Encoding", encoding)
    result = aa.open(path)["v"].coords["name"]
    assert result[:].tolist() == ["café", "Ã©", "£", ""]
    # Extracts are UTF-8 and state no other encoding.
    extract([aa.open(path)["v"]], tmp_path / "out.nc")
    assert aa.open(tmp_path / "out.nc")["v"].coords["name"][:].tolist() == ["café", "Ã©", "£", ""]


@pytest.mark.parametrize("encoding", ["klingon", "base64", "idna", "unicode_escape", "a\0b", "rot13"])
def test_unknown_encoding_raises_format_error(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.h5"
    WRITERS["fixed.h5"](path, [b"a", b"b"])
    with h5py.File(path, "r+") as file:
        file["name"].attrs["_Encoding"] = np.bytes_(encoding.encode())
    assert aa.open(path)["v"][:].tolist() == [0, 1]
    with pytest.raises(aa.FormatError, match=r"set the attribute _Encoding.*variable 'name' in .*a\.h5"):
        aa.SubArray.from_file(path, "name").read()


def with_attributes(path: Path, name: str) -> None:
    """A file with attributes that are not UTF-8."""
    if name == "three.nc":
        WRITERS[name](path, WORDS)
        with netCDF4.Dataset(path, "a") as file:
            file.title, file["v"].units, file["v"].long_name = "cafX", "XCXX", "ccc€"
        path.write_bytes(path.read_bytes().replace(b"cafX", b"caf\xe9").replace(b"XCXX", b"\xb0C\0\0"))
        return
    WRITERS[name](path, WORDS)
    if name.endswith(".zarr"):
        group = zarr.open_group(path, mode="r+")
        group.attrs["title"] = "caf\udce9"
        group["v"].attrs.update({"units": "\udcb0C", "long_name": "ccc€", "odd": ["\ud800", {"\udce9": "\udce9"}]})
        return
    with h5py.File(path, "r+") as file:
        file.attrs["title"] = np.bytes_(b"caf\xe9")
        file["v"].attrs.create("units", b"\xb0C", dtype=h5py.string_dtype())
        file["v"].attrs["long_name"] = np.bytes_("ccc€".encode())
        file["v"].attrs.create("several", [b"caf\xe9", b"b"], dtype=h5py.string_dtype())


ATTRIBUTES = ["three.nc", "four.nc", "strings.nc", "fixed.h5", "strings3.zarr"]


@pytest.mark.parametrize("name", ATTRIBUTES)
@pytest.mark.parametrize("by_library", [False, True])
def test_attributes_that_are_not_utf8(tmp_path: Path, name: str, by_library: bool) -> None:
    path = tmp_path / name
    with_attributes(path, name)
    if by_library and name.endswith((".h5", "four.nc", "strings.nc")):
        from aggarray.formats.hdf5.library import scan_by_library

        result = scan_by_library(str(path))
    else:
        result = formats.scan(path)
    attrs = {v.name: v.attrs for v in result.variables}["v"]
    assert result.attrs["title"] == "café" and attrs["units"] == "°C" and attrs["long_name"] == "ccc€"
    if "several" in attrs:
        assert list(attrs["several"]) == ["café", "b"]
    if "odd" in attrs:
        assert attrs["odd"] == ["í\xa0\x80", {"é": "é"}]
    assert aa.open(path)["v"].to_units("K")[:1].tolist() == [273.15]


@pytest.mark.parametrize("name", heavy(ATTRIBUTES, but=[*ATTRIBUTES][:1]))
def test_exports_of_invalid_text(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with_attributes(path, name)
    agg = aa.open(path)
    array = agg["v"]
    expected = array.coords["name"][:].tolist()
    for convention in ("CF-1.13", "CFA-0.4"):
        agg.save(tmp_path / "i.nca", convention=convention)
        again = aa.open(tmp_path / "i.nca")["v"]
        assert again.coords["name"][:].tolist() == expected and again.units == "°C" and again.file_attrs["title"] == "café"
    for out in ("o.nc", "o.zarr"):
        extract([array], tmp_path / out)
        assert aa.open(tmp_path / out)["v"].coords["name"][:].tolist() == expected
    with xr.open_dataset(tmp_path / "o.nc") as result:
        assert result["name"].values.tolist() == expected and result["v"].attrs["units"] == "°C"
    dataset = array.to_xarray()
    assert dataset["name"].values.tolist() == expected
    dataset.attrs.pop("odd", None)  # netCDF4 writes no such attributes
    dataset.to_dataset().to_netcdf(tmp_path / "x.nc")
    assert "café" in repr(array.coords["name"][:]) and "°C" in repr(array) and "°C" in array._repr_html_()
    commands = (["info", "--json"], ["explain", "--json"], ["info"], ["explain"], ["view", "-o", tmp_path / "page.html"])
    for command, *options in commands:
        for encoding in ("utf-8", "ascii"):
            done = subprocess.run(
                [sys.executable, "-m", "aggarray", command, str(path), *map(str, options)],
                env={"PYTHONIOENCODING": encoding, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(aa.__file__).parents[1])},
                capture_output=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
            if "--json" in options:
                json.loads(done.stdout)
    assert "°C" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_labels_of_such_text(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.set_auto_chartostring(False)
        file.createDimension("name", len(WORDS))
        file.createDimension("length", WIDTH)
        file.createVariable("name", "S1", ("name", "length"))[:] = filled(WORDS)
        file.createVariable("v", "f8", ("name",))[:] = np.arange(len(WORDS))
    assert float(aa.open(path)["v"].sel(name="café")[()]) == 0
    assert aa.open(path)["v"].sel(name=["€", "ÿþ\x80\x81"])[:].tolist() == [6, 2]


def test_latin_1_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a\x1b[31m.nc"
    WRITERS["three.nc"](path, WORDS)
    log_latin_1.cache_clear()
    with caplog.at_level(logging.WARNING, "aggarray"):
        for _ in range(2):
            aa.SubArray.from_file(path, "name").read()
    [record] = caplog.records
    text = record.getMessage()
    assert "variable 'name': text that is not utf-8 is read as Latin-1" in text and "\x1b" not in text


def test_names_in_netcdf3_that_are_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("x", 2)
        file.createVariable("tempX", "f8", ("x",))[:] = [1, 2]
    path.write_bytes(path.read_bytes().replace(b"tempX", b"temp\xe9"))
    agg = aa.open(path)
    assert agg.names == ("tempé",) and agg["tempé"][:].tolist() == [1, 2]


@settings(deadline=None, max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(STORED, min_size=1, max_size=4))
@pytest.mark.parametrize("name", ["three.nc", "fixed.h5", "strings.h5"])
def test_random_bytes_in_files(tmp_path: Path, name: str, words: list[bytes]) -> None:
    path = tmp_path / name
    WRITERS[name](path, words)
    result = aa.SubArray.from_file(path, "name").read().tolist()
    assert [bytes_of(value, word) for value, word in zip(result, words, strict=True)] == words
