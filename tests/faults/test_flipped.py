"""Files with flipped bits and overwritten bytes in headers and data.

Reads return values or raise one error that names the file: never a crash, a hang or an exception of another package. Damage of
raw values without a checksum, and of headers that remain valid without one, is not detectable.
"""

import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray import formats
from aggarray.formats.hdf5 import FORMAT, isolated, library
from aggarray.formats.hdf5.metadata.data import InvalidError
from aggarray.formats.hdf5.metadata.validation import validate
from aggarray.index import end_of_hdf5
from tests.faults.conftest import matching
from tests.faults.running import Case, faults_in, flips, outcomes
from tests.support.examples import examples
from tests.support.netcdf import write

#: Signatures of structures with a checksum in their last four bytes.
_CHECKED = re.compile(rb"OHDR|OCHK|FAHD|FADB|EAHD|EAIB|EADB|EASB|BTHD|BTLF|BTIN|FRHP|FHDB|FHIB")


def _here(path: str) -> None:
    raise AssertionError(f"a library is asked for {path} in this process")


def test_random_damage(group: list[str], tmp_path: Path) -> None:
    cases = [case for path in group for case in flips(path, max(1, examples(250) // len(group)), 3)]
    result = outcomes(tmp_path, cases)
    assert not faults_in(result)
    assert len(result) == len(cases)
    assert {one.kind for one in result} >= {"right", "error"}


@pytest.mark.heavy
def test_metadata_checksums_are_verified(made: Callable[[str], str], tmp_path: Path) -> None:
    """Newer HDF5 structures have checksums: damage raises an error, or lies in unread structures."""
    names = ("hdf5-growing-latest", "hdf5-growing-twice-latest", "hdf5-deflate-latest", "hdf5-groups-latest", "netcdf4_many")
    cases: list[Case] = []
    for path in map(made, names):
        data = Path(path).read_bytes()
        for number, result in enumerate(_CHECKED.finditer(data)):
            # Blocks of links and attributes come first: they are many and similar.
            if number % (1 + len(data) // 8000) == 0:
                cases += [(path, "", ["flip", [[result.start() + 5 + number % 9, 1 << number % 8]]])]
    assert len(cases) > 40
    outcome = outcomes(tmp_path, cases)
    assert not faults_in(outcome)
    assert not [one for one in outcome if one.kind == "wrong" and not one.told[1]]
    assert sum(one.kind == "error" for one in outcome) > len(outcome) / 3


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("bit", [9, 20, 133])
def test_chunks_lost_by_the_library_raise(tmp_path: Path, many: bool, bit: int) -> None:
    """netCDF-4 chunk indexes have no checksum: for a damaged chunk position the library returns fill values.

    The last bit is one of the address: the library returns another chunk.
    """
    path, size = tmp_path / "a.nc", 600 if many else 20
    with netCDF4.Dataset(path, "w") as made:
        made.createDimension("x", size)
        made.createVariable("tas", "f8", ("x",), chunksizes=(4,))[:] = np.arange(1.0, size + 1)
    data = bytearray(path.read_bytes())
    # The key of the third chunk: size, filters, offset of its first element, zero, address.
    at = data.index((32).to_bytes(8, "little") + (8).to_bytes(8, "little") + bytes(8)) + 8
    data[at + bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    with h5py.File(path) as file:
        assert (np.asarray(file["tas"]) != np.arange(1.0, size + 1)).any()
    array = aa.open(path)["tas"]
    for key in (..., slice(None, None, 7)):
        with pytest.raises(aa.errors.FormatError, match=r"damaged: .*chunk.*variable 'tas' in .*a\.nc"):
            array[key]


def test_dataset_without_dataspace_raises(tmp_path: Path) -> None:
    """h5py takes it for a named type, which has no values; the coordinate of other variables would be missing."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", data=np.arange(7.0))
        x.make_scale("x")
        file.create_dataset("y", data=np.arange(7.0)).dims[0].attach_scale(x)
        file["type"] = np.dtype("f8")
        start = h5py.h5o.get_info(x.id).addr
    aa.open(path)
    data = bytearray(path.read_bytes())
    # The first message of the header, which has no checksum.
    assert data[start + 16 : start + 18] == b"\1\0"
    data[start + 16] = 33
    path.write_bytes(data)
    with h5py.File(path) as file:
        assert isinstance(file["x"], h5py.Datatype)
    with pytest.raises(aa.errors.FormatError, match=r"x: damaged: values without a dataspace.*a\.h5"):
        aa.open(path)


def test_damaged_attribute_raises(tmp_path: Path) -> None:
    """Every header of a netCDF-4 file has a checksum: a flipped letter cannot change the units."""
    path = Path(write(tmp_path / "a.nc", {"tas": (("x",), np.arange(3.0), {"units": "kelvin"})}))
    data = path.read_bytes()
    assert aa.open(path)["tas"].units == "kelvin" and data.count(b"kelvin") == 1
    path.write_bytes(data.replace(b"kelvin", b"kelvim"))
    with pytest.raises(aa.FormatError, match=r"a\.nc"):
        aa.open(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="helpers fork")
def test_libraries_that_crash_or_hang_give_errors(made: Callable[[str], str], tmp_path: Path) -> None:
    """netCDF-C 4.10 crashes when it closes the first of these files."""
    crashing: list[Case] = [
        (made("hdf5-groups-earliest"), "", ["flip", [[39036, 2]]]),
        (made("hdf5-one-chunk-earliest"), "", ["flip", [[10470, 221], [2467, 60]]]),
    ]
    result = outcomes(tmp_path, crashing)
    assert not faults_in(result)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="helpers fork")
def test_inconsistent_files_are_read_in_isolation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a library crashes over a file depends on memory contents: the library is not called in this process."""
    path = Path(write(tmp_path / "a.nc", {"tas": (("x",), np.arange(3.0), {"units": "kelvin"})}))
    with pytest.raises(aa.FormatError, match=r"the HDF5 library crashed.*variable 'tas' in .*a\.nc.*; rewrite the file"):
        isolated.call_isolated(str(path), "dataset", "tas")  # a value that does not pickle ends the isolated process
    path.write_bytes(path.read_bytes().replace(b"kelvin", b"kelvim"))

    monkeypatch.setattr(library, "scan_by_library", _here)
    with pytest.raises(aa.FormatError, match=r"a\.nc"):
        aa.open(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="helpers fork")
def test_hung_library_times_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may have many variables; the library times out once. A file that replaces it is read normally."""
    asked = []

    def endless(helper: isolated._IsolatedProcess, question: tuple[Any, ...], until: float) -> None:
        asked.append(question[2])

    path = write(tmp_path / "a.nc", {name: (("x",), np.arange(3.0)) for name in "ab"})
    with monkeypatch.context() as patched:
        patched.setattr(isolated, "time_limit", lambda path: 0.0)
        patched.setattr(isolated._IsolatedProcess, "answer", endless)
        for name in "ab":
            with pytest.raises(aa.FormatError, match=rf"the HDF5 library timed out after 0 s.*variable '{name}' in .*a\.nc"):
                isolated.call_isolated(path, "chunks", name)
    assert asked == ["a"]
    assert 15 <= isolated.time_limit(path) < 16 and isolated.time_limit(str(tmp_path / "none")) == 15
    os.utime(path, ns=(1, 1))
    assert isolated.call_isolated(path, "values", "b", (slice(0, 3, 1),)).tolist() == [0, 1, 2]


def test_negative_decoded_size(made: Callable[[str], str], tmp_path: Path) -> None:
    """Blosc's header states the decoded size, which numcodecs reads as a signed number."""
    path = tmp_path / "a.zarr"
    shutil.copytree(made("zarr2-blosc"), path)
    data = bytearray((path / "lon/0").read_bytes())
    data[4:8] = b"\xff\xff\xff\xff"
    (path / "lon/0").write_bytes(data)
    with pytest.raises(aa.FormatError, match=r"variable 'lon' in .*a\.zarr"):
        aa.open(path)


def test_index_with_damaged_group_is_not_data(made: Callable[[str], str], tmp_path: Path) -> None:
    path = tmp_path / "a.nca"
    shutil.copy(made("index"), path)
    with h5py.File(path) as file:
        at = h5py.h5o.get_info(file["aggarray"].id).addr
    data = bytearray(path.read_bytes())
    data[at + 20] ^= 1
    path.write_bytes(data)
    assert aa.open(path).names  # by its directory, which states the same
    path.write_bytes(data[: end_of_hdf5(data)])
    with pytest.raises(aa.IndexFileError, match=r"damaged.*a\.nca"):
        aa.open(path)


def test_libraries_read_no_strings_of_a_damaged_heap(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("tas", data=np.arange(4.0)).attrs["units"] = "K"
    whole = path.read_bytes()
    at = whole.index(b"GCOL")
    for place in (at, at + 30):  # the signature; the size of the first object
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x40]) + whole[place + 1 :])
        with pytest.raises(aa.FormatError, match=r"cannot be read.*a\.h5"):
            aa.open(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="helpers fork")
def test_damaged_strings_raise_before_libraries_read_them(tmp_path: Path) -> None:
    """Over an inconsistent heap of strings h5py loops endlessly and netCDF-C corrupts memory."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("tas", data=np.arange(4.0)).attrs["units"] = "K"
    data = path.read_bytes()
    assert formats.scan(path).variables[0].attrs == {"units": "K"}
    at = data.index(b"GCOL")
    for damage in (data[:at] + b"W" + data[at + 1 :], data[: at + 8] + bytes([3]) + data[at + 9 :]):
        path.write_bytes(damage)
        with pytest.raises(InvalidError):
            validate(str(path))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="helpers fork")
def test_validation_before_a_library_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """User-defined types are left to the libraries, but not if a heap elsewhere in the file is damaged."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file["odd"] = np.zeros(2, [("a", "i4"), ("b", "f8")])
        file.create_dataset("tas", data=np.arange(4.0)).attrs["units"] = "K"
    assert [v.name for v in formats.scan(str(path)).variables] == ["tas"]
    data = path.read_bytes()
    path.write_bytes(data.replace(b"GCOL", b"GCOW"))

    monkeypatch.setattr(library, "scan_by_library", _here)
    with pytest.raises(aa.FormatError, match=r"a\.h5"):
        aa.open(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="helpers fork")
def test_validation_before_a_library_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scan read only dimensions, and no strings: h5py loops endlessly over some of these."""
    texts, numbers = np.array(["one", "two", "a longer text"]), np.arange(3.0)
    path = Path(write(tmp_path / "a.nc", {"name": (("x",), texts), "tas": (("x",), numbers), "x": (("x",), numbers)}))
    data = path.read_bytes()
    at = data.index(b"GCOL") + 16
    # The first object claims more than the whole collection.
    path.write_bytes(data[: at + 8] + b"\xff\xff" + data[at + 10 :])

    monkeypatch.setattr("aggarray.formats.hdf5.h5py_files.open_file", _here)
    file = FORMAT.open(str(path))
    for ask in (lambda: file.chunks("name"), lambda: file.read("name", (slice(0, 3, 1),)), lambda: file.mapped("name")):
        with suppress(aa.FormatError):
            assert ask() is None
    assert file.read("tas", (slice(0, 3, 1),)).tolist() == [0, 1, 2]
    file.close()


def test_intact_file_beyond_the_metadata_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library reads such a file without validation, however long it takes."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for number in range(300):
            file.create_group(f"group_{number}")["data"] = np.arange(3.0)
    monkeypatch.setattr("aggarray.formats.hdf5.metadata.data.MOST", 1 << 14)
    validate(str(path))
    assert len(formats.scan(str(path)).variables) == 300


def test_damaged_attributes_are_not_left_out(tmp_path: Path) -> None:
    """Also where a link by name makes the non-strict library read it; what h5py does not support at all is skipped."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        made = file.create_dataset("tas", data=np.arange(4.0))
        made.attrs["units"], file["soft"] = "K", h5py.SoftLink("/tas")
        h5py.h5a.create(made.id, b"odd", h5py.h5t.UNIX_D32LE, h5py.h5s.create_simple((2,)))
    assert {v.name: v.attrs["units"] for v in formats.scan(str(path)).variables} == {"tas": "K", "soft": "K"}
    data = path.read_bytes()
    path.write_bytes(data.replace(b"GCOL", b"GCOW"))
    with pytest.raises(aa.FormatError, match=r"attribute 'units'.*a\.h5"):
        aa.open(path)


def test_damaged_objects_are_named_and_others_read(tmp_path: Path) -> None:
    """In files with soft links, which are scanned link by link."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["tas"], file["pr"], file["a"] = np.arange(4.0), np.arange(3.0), h5py.SoftLink("/nowhere")
        at = h5py.h5o.get_info(file["pr"].id).addr
    data = path.read_bytes()
    path.write_bytes(data[: at + 20] + bytes([data[at + 20] ^ 1]) + data[at + 21 :])
    agg = aa.open(path)
    assert agg["tas"][...].tolist() == [0, 1, 2, 3]
    reasons = {skipped.variable: skipped.reason.partition(":")[0] for skipped in agg.skipped}
    assert reasons == {"pr": "damaged", "a": "a broken link"}


@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_links_by_name_need_no_isolation(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=version) as file:
        file.create_dataset("tas", data=np.arange(8.0), chunks=(2,), compression="gzip")
        file["soft"], file["circle"] = h5py.SoftLink("/tas"), h5py.SoftLink("/circle")
        file["elsewhere"] = h5py.ExternalLink("other.h5", "/tas")

    def there(*question: Any) -> None:
        raise AssertionError("in another process")

    monkeypatch.setattr(isolated, "call_isolated", there)
    agg = aa.open(path)
    assert {str(a.name): a[...].tolist() for a in agg} == {name: list(range(8)) for name in ("tas", "soft")}
    assert sorted(s.variable for s in agg.skipped if s.variable) == ["circle", "elsewhere"]


def test_validation_accepts_intact_files(made: Callable[[str], str]) -> None:
    for name in matching("hdf5", "netcdf4"):
        validate(made(name))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="helpers fork")
@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_validation_of_virtual_dataset_sources(version: str, made: Callable[[str], str], tmp_path: Path) -> None:
    """A damaged source list makes the library crash at the end of the process."""
    data, path = Path(made(f"hdf5-virtual-{version}")).read_bytes(), tmp_path / "a.h5"
    at = data.index(b"part_1", data.index(b"GCOL"))
    path.write_bytes(data[:at] + b"qart_1" + data[at + 6 :])
    with pytest.raises(InvalidError, match="checksum"):
        validate(str(path))
    with pytest.raises(aa.FormatError, match=r"a\.h5"):
        aa.open(path)["joined"].read()


def test_validation_of_variable_length_types(tmp_path: Path) -> None:
    """Variable-length types are sequences or strings; the library crashes over attributes of any other class."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("tas", data=np.arange(4.0)).attrs["units"] = "K"
    data = path.read_bytes()
    at = data.index(b"units\0\0\0") + 8
    assert data[at] == 0x19 and data[at + 1] & 15 == 1
    validate(str(path))
    path.write_bytes(data[: at + 1] + b"\x7f" + data[at + 2 :])
    with pytest.raises(InvalidError):
        validate(str(path))


@pytest.mark.parametrize("many", [1 << 12, 10])
def test_validation_of_chunk_indexes(
    made: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """The library crashes over some damaged indexes when it opens a dataset."""
    monkeypatch.setattr("aggarray.formats.hdf5.metadata.chunks._MANY", many)
    result = set()
    for name in ("hdf5-scales-latest", *matching("hdf5-many-chunks")):
        data, path = Path(made(name)).read_bytes(), tmp_path / "a.h5"
        validate(made(name))
        # The leaves of a tree of very many chunks are not validated.
        for signature in (b"BTHD", b"FAHD", b"EAHD", *([b"TREE\1"] if many > 10 else [])):
            at = data.rfind(signature)
            if at >= 0:
                path.write_bytes(data[: at + 5] + bytes([data[at + 5] ^ 0x40]) + data[at + 6 :])
                with pytest.raises(InvalidError):
                    validate(str(path))
                result.add(signature)
    assert len(result) >= 3


@pytest.mark.parametrize("storage", [{}, {"chunks": (2,), "compression": "gzip"}], ids=str)
def test_damaged_rows_raise(tmp_path: Path, storage: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    # The library loops over one of these files until it times out.
    monkeypatch.setattr(isolated, "PATIENCE", 2.0)
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        rows = file.create_dataset("rows", (3,), h5py.vlen_dtype("f4"), **storage)
        for i in range(3):
            rows[i] = np.arange(i + 1.0)
        where = None if storage else rows.id.get_offset()
    data = path.read_bytes()
    # The size of the second object in the heap, also one within the heap; then an unbounded count.
    at = data.index(b"GCOL") + 16 + 24 + 8
    assert data[at] == 8
    for damaged in (data[:at] + b"\x04" + data[at + 1 :], data[:at] + b"\xff" + data[at + 1 :]):
        path.write_bytes(damaged)
        with pytest.raises(aa.FormatError, match=r"variable 'rows' in .*a\.h5"):
            aa.open(path)["rows"].read()
    if where is not None:
        path.write_bytes(data[: where + 3] + b"\x7f" + data[where + 4 :])
        with pytest.raises(aa.FormatError, match=r"row longer than the file.*variable 'rows' in .*a\.h5"):
            aa.open(path)
