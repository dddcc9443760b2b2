"""Tests of text in every stored form: joined, saved in an index, opened again, returned as bytes."""

from collections.abc import Callable
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import zarr

import aggarray as aa
from aggarray.dap import Distribution, validate_all
from aggarray.memory import Ragged
from aggarray.mpi import Broadcast, ProcessGroup

pytestmark = pytest.mark.quick

WORDS = [["one", "zwölf", ""], ["€ 3", "a b", "x" * 40]]
TEXT = np.dtypes.StringDType()


def netcdf_strings(path: Path, times: list[float], words: list[str]) -> None:
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", len(times))
        file.createVariable("time", "f8", ("time",))[:] = times
        file.createVariable("name", str, ("time",))[:] = np.array(words, object)


def characters(encoding: str | None) -> Callable[[Path, list[float], list[str]], None]:
    def write(path: Path, times: list[float], words: list[str]) -> None:
        coded = [word.encode(encoding or "utf-8") for word in words]
        width = max(map(len, coded))
        with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC" if encoding is None else "NETCDF4") as file:
            file.createDimension("time", len(times))
            file.createDimension("length", width)
            file.createVariable("time", "f8", ("time",))[:] = times
            name = file.createVariable("name", "S1", ("time", "length"))
            file.set_auto_chartostring(False)
            name[:] = np.array(coded, f"S{width}").view("S1").reshape(len(words), width)
            if encoding is not None:
                name.setncattr("_Encoding", encoding)

    return write


def hdf5_strings(path: Path, times: list[float], words: list[str]) -> None:
    with h5py.File(path, "w") as file:
        file["time"] = times
        file["time"].make_scale("time")
        file.create_dataset("name", data=words, dtype=h5py.string_dtype()).dims[0].attach_scale(file["time"])


def zarr_strings(version: int) -> Callable[[Path, list[float], list[str]], None]:
    def write(path: Path, times: list[float], words: list[str]) -> None:
        group = zarr.open_group(path, mode="w", zarr_format=version)
        for name, values in (("time", np.array(times)), ("name", np.array(words, TEXT))):
            given = {"dimension_names": ("time",)} if version == 3 else {"attributes": {"_ARRAY_DIMENSIONS": ["time"]}}
            made = group.create_array(name, shape=values.shape, dtype="str" if name == "name" else values.dtype, **given)
            made[:] = values

    return write


WRITERS = {
    "strings.nc": netcdf_strings,
    "characters.nc": characters(None),
    "encoded.nc": characters("cp1252"),
    "strings.h5": hdf5_strings,
    "two.zarr": zarr_strings(2),
    "three.zarr": zarr_strings(3),
}


@pytest.mark.parametrize("name", WRITERS)
def test_text_is_joined_saved_and_opened_again(tmp_path: Path, name: str) -> None:
    for number, words in enumerate(WORDS):
        WRITERS[name](tmp_path / f"{number}_{name}", [3.0 * number + n + 1 for n in range(3)], words)
    agg = aa.open([tmp_path / f"{n}_{name}" for n in (1, 0)])
    agg.save(tmp_path / "texts.nca")
    expected = [word for words in WORDS for word in words]
    for one in (agg, aa.open(tmp_path / "texts.nca")):
        a = one["name"]
        assert a.dtype == TEXT and a.shape == (6,) and aa.memory.type_string(a).endswith("string")
        assert (
            a[:].tolist() == expected
            and a[[4, 1]].tolist() == [expected[4], expected[1]]
            and a[::-2].tolist() == expected[::-2]
        )


def test_export_of_text_gives_a_hint(tmp_path: Path) -> None:
    netcdf_strings(tmp_path / "a.nc", [0.0, 1.0, 2.0], WORDS[0])
    a = aa.open(tmp_path / "a.nc")["name"]
    sections = [a.local(Distribution.regular(a.shape, "b", (2,)), rank) for rank in range(2)]
    with pytest.raises(aa.ProtocolError, match=r"UTF-8 bytes, those of aggarray\.memory\.Ragged\.from_text"):
        sections[0].__distarray__()
    letters = [Ragged.from_text(section.buffer) for section in sections]
    ends = np.cumsum([0, *(len(one.flat) for one in letters)])
    whole = Distribution((aa.dap.Block(ends),))
    exports = [aa.dap.LocalArray.holding(one.flat, whole, rank).__distarray__() for rank, one in enumerate(letters)]
    validate_all(exports)
    taken = [aa.dap.LocalArray.from_distarray(export).buffer for export in exports]
    assert [w for flat, one in zip(taken, letters, strict=True) for w in Ragged(flat, one.offsets).to_text()] == WORDS[0]


BLANKS = ["trail ", " lead", "  ", "", "end"]


@pytest.mark.parametrize("name", ["strings.nc", "strings.h5", "two.zarr", "three.zarr"])
def test_blanks_of_text_of_any_length_are_kept(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, [1.0, 2.0, 3.0, 4.0, 5.0], BLANKS)
    assert aa.open(tmp_path / name)["name"][:].tolist() == BLANKS


@pytest.mark.parametrize("encoding", [None, "utf-8", "iso-8859-1", "utf-16-le", "utf-16-be", "utf-32-le"])
def test_blanks_that_fill_characters_are_dropped(tmp_path: Path, encoding: str | None) -> None:
    words = ["abc", "zwölf", "", "Ā" if encoding and encoding.startswith("utf") else "a", "d  "]
    path = tmp_path / "a.nc"
    coded = [word.encode(encoding or "utf-8") for word in words]
    width = max(map(len, coded)) + 4
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("n", len(words))
        file.createDimension("length", width)
        name = file.createVariable("name", "S1", ("n", "length"))
        file.set_auto_chartostring(False)
        name[:] = np.frombuffer(b"".join(one.ljust(width, b"\0") for one in coded), "S1").reshape(len(words), width)
        if encoding is not None:
            name.setncattr("_Encoding", encoding)
    assert aa.SubArray.from_file(path, "name").read().tolist() == [word.rstrip() for word in words]


@pytest.mark.parametrize("encoding", ["klingon", "base64", "rot13"])
def test_unknown_encoding_raises_on_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("name", 2)
        file.createDimension("length", 2)
        name = file.createVariable("name", "S1", ("name", "length"))
        file.set_auto_chartostring(False)
        name[:] = np.frombuffer("éé".encode(), "S1").reshape(2, 2)
        name.setncattr("_Encoding", encoding)
        file.createVariable("v", "f8", ("name",))[:] = [1, 2]
    assert aa.open(path)["v"][:].tolist() == [1, 2]
    with pytest.raises(aa.FormatError, match=r"set the attribute _Encoding.*variable 'name' in .*a\.nc"):
        aa.SubArray.from_file(path, "name").read()


@pytest.mark.parametrize("absent", [None, np.nan])
def test_text_with_missing_values_of_its_dtype(absent: object) -> None:
    values = np.array(["a", absent, ""], np.dtypes.StringDType(na_object=absent))
    piece = aa.SubArray.from_array(values)
    assert aa.memory.type_string(piece) == "3 * ?string" and piece.dtype == TEXT
    assert piece.read(masked=True).mask.tolist() == [False, True, False]
    assert piece.read(masked=True).tolist() == ["a", None, ""]
    full = aa.SubArray.from_array(values[[0, 2]])
    assert aa.memory.type_string(full) == "2 * string" and full.read().dtype == TEXT


def test_text_of_other_byte_orders_and_encodings() -> None:
    assert aa.SubArray.from_array(np.array(["né", "€"], ">U3")).read().tolist() == ["né", "€"]
    with pytest.raises(aa.AggregationError, match=r"not UTF-8 .*numpy\.char\.decode"):
        aa.SubArray.from_array(np.array(["né".encode("latin-1")]))


@pytest.mark.parametrize("absent", [None, np.nan])
def test_missing_text_is_not_exported_as_a_word(absent: object) -> None:
    kind = np.dtypes.StringDType(na_object=absent)
    with ProcessGroup.serial() as root:
        move = Broadcast(root.grid((1,)), root.grid((1,)))
        assert move(np.array(["a", "b"], kind)).tolist() == ["a", "b"]
        with pytest.raises(aa.ExchangeError, match=r"missing text of .* cannot be sent"):
            move(np.array(["a", absent], kind))
