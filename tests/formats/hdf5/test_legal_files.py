"""Valid files of other programs that other readers crash on, misread or refuse: the smallest file of each type.

Each is scanned without the library and compared with h5py, which runs in a process of its own if it may crash.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from h5py import h5a, h5p, h5s, h5t
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray import formats
from aggarray.formats.hdf5 import isolated, library
from aggarray.formats.hdf5.metadata.lookup import H5File
from tests.support.paths import ROOT
from tests.support.scans import check_against_h5py, direct


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test fail if a scan needs the library, in this process or another."""

    def fail(*given: Any) -> None:
        raise AssertionError("the library is asked")

    monkeypatch.setattr(isolated, "call_isolated", fail)
    monkeypatch.setattr(library, "scan_by_library", fail)


def test_netcdf_c_is_never_loaded(tmp_path: Path) -> None:
    """netCDF-C crashes on valid files; scans, reads, joins and worker processes do not need it."""
    for number in range(2):
        with netCDF4.Dataset(tmp_path / f"{number}.nc", "w") as file:
            file.createDimension("t", None)
            file.createVariable("t", "f8", ("t",))[:] = [number]
            file.createVariable("tas", "f4", ("t",))[:] = [number]
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        file.create_dataset("s", (10,), dtype="S2", fillvalue=b"ab")
        file["pair"] = np.zeros(2, [("a", "i4")])
    program = (
        "import sys, aggarray as aa; agg = aa.open(sys.argv[1]); agg['tas'][...]; agg['s'][...]; agg.check();"
        "sys.exit('netCDF4' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, check=True)


def test_text_of_fixed_size_with_a_fill_value(tmp_path: Path, alone: None) -> None:
    """netCDF-C crashes on it."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("s", (10,), dtype="S2", fillvalue=b"ab")
        file.create_dataset("pr", data=np.arange(3.0))
    check_against_h5py(path)
    agg = aa.open(path)
    assert agg["s"][...].tolist() == ["ab"] * 10
    assert agg["pr"][...].tolist() == [0, 1, 2]


@given(st.data())
def test_text_of_fixed_size_of_any_kind(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("text") / "a.h5"
    size, shape = data.draw(st.integers(2, 6)), (data.draw(st.integers(0, 4)),)
    fill = data.draw(st.none() | st.sampled_from([b"ab", b"", b"x"]))
    how = data.draw(st.sampled_from([{}, {"maxshape": (None,)}, {"maxshape": (None,), "compression": "gzip"}]))
    with h5py.File(path, "w", libver=data.draw(st.sampled_from(["earliest", "latest"]))) as file:
        dataset = file.create_dataset("s", shape, f"S{size}", fillvalue=fill, **how)
        if shape[0] and data.draw(st.booleans()):
            dataset[0] = data.draw(st.sampled_from([b"q", b"rs", b""]))
        dataset.attrs["coordinates"] = "s"
        expected = [text.decode() for text in dataset[...].tolist()]
    check_against_h5py(path)
    assert aa.open(path)["s"][...].tolist() == expected


def scales(file: h5py.File, **sizes: int) -> None:
    for name, size in sizes.items():
        file[name] = np.arange(size) * 1.0
        file[name].make_scale(name)


def references(file: h5py.File, names: tuple[str, ...]) -> np.ndarray:
    return np.array([file[name].ref for name in names], dtype=h5py.ref_dtype)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_dimensions_listed_as_plain_references(libver: str, tmp_path: Path, alone: None) -> None:
    """h4toh5 writes them; netCDF-C crashes on them."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        scales(file, y=2, x=3)
        file["v"] = np.arange(6.0).reshape(2, 3)
        file["v"].attrs.create("DIMENSION_LIST", references(file, ("y", "x")), dtype=h5py.ref_dtype)
    assert {v.name: v.dimensions for v in check_against_h5py(path).variables} == {"v": ("y", "x"), "x": ("x",), "y": ("y",)}
    assert aa.open(path)["v"].sel(x=2.0)[...].tolist() == [2, 5]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_scale_with_a_null_dataspace(libver: str, tmp_path: Path, alone: None) -> None:
    """netCDF-C crashes on it."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        scales(file, x=3)
        h5py.h5ds.set_scale(file.create_dataset("y", data=h5py.Empty("f4")).id, b"y")
        file["v"] = np.arange(6.0).reshape(2, 3)
        listed = np.empty(2, object)
        listed[:] = [references(file, ("y",)), references(file, ("x",))]
        file["v"].attrs.create("DIMENSION_LIST", listed, dtype=h5py.vlen_dtype(h5py.ref_dtype))
    result = {v.name: v for v in check_against_h5py(path).variables}
    assert (result["v"].dimensions, result["v"].shape, result["y"].shape) == (("y", "x"), (2, 3), (0,))
    assert aa.open(path)["v"][...].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("kind", [h5t.STD_REF_DSETREG, h5t.STD_REF_OBJ, h5t.STD_I32LE, h5t.UNIX_D32LE])
def test_attributes_of_rows_of_types_without_a_dtype(kind: h5t.TypeID, tmp_path: Path) -> None:
    """h5py crashes on rows of region references; a scan by h5py checks the type first."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["v"] = np.arange(6.0)
        h5a.create(file["v"].id, b"rows", h5t.vlen_create(kind), h5s.create_simple((2,)))
    check_against_h5py(path)
    assert aa.open(path)["v"][...].tolist() == list(range(6))


def test_a_class_name_as_long_as_that_of_scales(tmp_path: Path, alone: None) -> None:
    """HDF5 2.0 frees memory twice in its check whether this is a scale."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.arange(6.0), maxshape=(None,))
        kind = h5t.C_S1.copy()
        kind.set_size(16)
        h5a.create(file["v"].id, b"CLASS", kind, h5s.create(h5s.SCALAR)).write(np.array(b"NO_SCALE_AT_ALL", "S16"))
    check_against_h5py(path)
    assert aa.open(path)["v"][...].tolist() == list(range(6))


# Dimensions are identified by objects, not by names


def hiding(path: Path, own: int) -> None:
    """Write ``g/v(x, /y)`` and ``g/w(x, g/y)``, where the group's own ``y`` hides that of the file."""
    with h5py.File(path, "w") as file:
        scales(file, x=2, y=4)
        group = file.create_group("g")
        group["y"] = np.arange(own) + 100.0
        group["y"].make_scale("y")
        group["v"], group["w"] = np.arange(8.0).reshape(2, 4), np.arange(2.0 * own).reshape(2, own)
        for name, y in (("v", file["y"]), ("w", group["y"])):
            group[name].dims[0].attach_scale(file["x"])
            group[name].dims[1].attach_scale(y)


@pytest.mark.parametrize("own", [3, 4])
def test_a_parent_dimension_hidden_by_a_group(own: int, tmp_path: Path, alone: None) -> None:
    """netCDF4-python looks dimensions up by name and returns (2, 3) instead of the stored (2, 4)."""
    path = tmp_path / "a.nc"
    hiding(path, own)
    check_against_h5py(path)
    agg = aa.open(path)
    v, w = agg["g/v"], agg["g/w"]
    assert v[...].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert (v.shape, w.shape) == ((2, 4), (2, own))
    assert v.coords["y"][...].tolist() == [0, 1, 2, 3]
    assert w.coords["y"][...].tolist() == [100.0 + n for n in range(own)]


def test_hidden_dimensions_stay_separate_in_workers_and_indexes(tmp_path: Path) -> None:
    for number in range(2):
        hiding(tmp_path / f"{number}.nc", 4)
        with h5py.File(tmp_path / f"{number}.nc", "r+") as file:
            file["x"][:] = [2 * number, 2 * number + 1]
    aa.open(str(tmp_path / "*.nc"), processes=2).save(tmp_path / "i.nca")
    agg = aa.open(tmp_path / "i.nca")
    assert agg["g/v"].shape == (4, 4)
    assert agg["g/v"].coords["y"][...].tolist() == [0, 1, 2, 3]
    hiding(tmp_path / "2.nc", 4)
    with h5py.File(tmp_path / "2.nc", "r+") as file:
        file["x"][:] = [4, 5]
    more = agg.append(tmp_path / "2.nc")
    assert more["g/v"].shape == (6, 4)
    assert more["g/w"].coords["y"][...].tolist() == [100, 101, 102, 103]


@given(st.data())
def test_trees_of_groups_whose_dimensions_have_the_same_names(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Every variable has the coordinates of its attached scales, whatever their names."""
    path = tmp_path_factory.mktemp("tree") / "a.h5"
    groups = ["", *data.draw(st.lists(st.sampled_from(["a", "a/b", "c"]), unique=True))]
    truth: dict[str, list[float]] = {}
    with h5py.File(path, "w") as file:
        made: list[tuple[str, h5py.Dataset]] = []
        for at, group in enumerate(groups):
            where = file.require_group(group or "/")
            for name in data.draw(st.lists(st.sampled_from("xy"), unique=True)):
                where[name] = np.arange(data.draw(st.integers(2, 3))) + 10.0 * (1 + at) + ord(name) % 2
                where[name].make_scale(name)
                made.append((group, where[name]))
        for at, group in enumerate(groups):
            above = [d for owner, d in made if owner == "" or group == owner or group.startswith(f"{owner}/")]
            if above:
                scale = data.draw(st.sampled_from(above))
                variable = file.require_group(group or "/").create_dataset(f"v{at}", data=np.zeros(len(scale)))
                variable.dims[0].attach_scale(scale)
                truth[f"{group}/v{at}".strip("/")] = scale[...].tolist()
    check_against_h5py(path)
    agg = aa.open(path)
    for name, values in truth.items():
        (coordinate,) = agg[name].coords.values()
        assert coordinate[...].tolist() == values


# Skipped items


def unsupported_types() -> dict[str, h5t.TypeID]:
    pair = h5t.create(h5t.COMPOUND, 8)
    pair.insert(b"a", 0, h5t.STD_I32LE)
    pair.insert(b"b", 4, h5t.IEEE_F32LE)
    odd = {
        **{"ldouble": h5t.NATIVE_LDOUBLE, "quad": h5t.IEEE_F128LE, "opaque": h5t.create(h5t.OPAQUE, 5), "time": h5t.UNIX_D32LE},
        **{"pair": pair, "reference": h5t.STD_REF_OBJ, "region": h5t.STD_REF_DSETREG},
        "array": h5t.array_create(h5t.STD_I16BE, (3,)),
    }
    return {name: kind for name, kind in odd.items() if kind is not None}


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("name", list(unsupported_types()))
def test_items_without_a_dtype_are_skipped_with_a_reason(name: str, libver: str, tmp_path: Path, alone: None) -> None:
    """Only the dataset or attribute is skipped; the rest of the file opens."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file["v"] = np.arange(6.0)
        file["v"].attrs["units"] = "K"
        h5py.h5d.create(file.id, b"odd", unsupported_types()[name], h5s.create_simple((2,)))
        h5a.create(file["v"].id, b"odd", unsupported_types()[name], h5s.create_simple((2,)))
    agg = aa.open(path)
    assert agg["v"].units == "K"
    assert agg["v"][...].tolist() == list(range(6))
    told = {s.variable: s.reason for s in agg.skipped}
    # References to other objects of the file have no meaning outside it.
    assert set(told) == ({"odd"} if name == "reference" else {"odd", "v:odd"})
    assert "type; aggarray reads numbers and text" in told["odd"]


def test_bit_fields_and_enumerations_are_integers(tmp_path: Path, alone: None) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for name, kind in (("bits", h5t.STD_B16BE), ("byte", h5t.STD_B8LE)):
            h5py.h5d.create(file.id, name.encode(), kind, h5s.create_simple((3,)))
            file[name][...] = [1, 2, 255]
            h5a.create(file[name].id, b"flag", kind, h5s.create(h5s.SCALAR)).write(np.array(7, kind.dtype))
        file["named"] = np.array([1, 3], h5py.enum_dtype({"a": 1, "b": 3}, ">i2"))
        file["named"].attrs["which"] = np.array(3, h5py.enum_dtype({"a": 1, "b": 3}, "i2"))
        file["named"].attrs["yes"] = True
    check_against_h5py(path)
    agg = aa.open(path)
    assert {str(a.name): a[...].tolist() for a in agg} == {"bits": [1, 2, 255], "byte": [1, 2, 255], "named": [1, 3]}
    flags = agg["named"].attrs
    assert (flags["which"], flags["yes"], flags["flag_values"].tolist(), flags["flag_meanings"]) == (3, True, [1, 3], "a b")
    assert agg["bits"].attrs["flag"] == 7


def test_pytables_classes_are_no_scales(tmp_path: Path, alone: None) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for name, what in (("earray", "EARRAY"), ("index", "INDEX"), ("last", "LASTROW")):
            file[name] = np.arange(4)
            file[name].attrs["CLASS"] = np.bytes_(what)
            file[name].attrs["VERSION"] = "1.1"
    check_against_h5py(path)
    assert len(aa.open(path)) == 3


# Files of older libraries, and rare features


def old_superblock(raw: bytes) -> bytes:
    """Return a file with the consistency flags that version 1.6 of the library set."""
    assert raw[8] == 0
    return raw[:20] + bytes([3, 0, 0, 0]) + raw[24:]


def test_the_superblock_of_version_1_6(tmp_path: Path, alone: None) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("v", data=np.arange(6.0), chunks=(2,), compression="gzip")
        file["s"] = h5py.SoftLink("/v")
    path.write_bytes(old_superblock(path.read_bytes()))
    check_against_h5py(path)
    assert aa.open(path)["v"][...].tolist() == aa.open(path)["s"][...].tolist() == list(range(6))


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_soft_links(libver: str, tmp_path: Path, alone: None) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file["g/inner/v"] = np.arange(3.0)
        file["absolute"], file["g/relative"] = h5py.SoftLink("/g/inner/v"), h5py.SoftLink("inner/v")
        file["chain"], file["through"] = h5py.SoftLink("g/relative"), h5py.SoftLink("/group/inner/v")
        file["group"], file["nowhere"] = h5py.SoftLink("/g"), h5py.SoftLink("/no/such")
        file["circle"], file["outside"] = h5py.SoftLink("circle"), h5py.ExternalLink("b.h5", "/v")
    check_against_h5py(path)
    agg = aa.open(path)
    assert {str(a.name) for a in agg} == {"absolute", "chain", "g/inner/v", "g/relative", "through"}
    assert all(a[...].tolist() == [0, 1, 2] for a in agg)
    assert {s.variable: s.reason for s in agg.skipped} == {
        **dict.fromkeys(("nowhere", "circle"), "a broken link"),
        "outside": "a link into another file; open that file instead",
    }
    # A read does not need the library either.
    file = H5File(str(path))
    assert file.dataset("through").space == file.dataset("g/inner/v").space


def named_type(file: h5py.File) -> None:
    file["kind"] = np.dtype("f4")
    file.create_dataset("v", data=np.arange(3), dtype=file["kind"])
    file["v"].attrs.create("a", 3.0, dtype=file["kind"])


def no_order(file: h5py.File) -> None:
    file["v"] = np.arange(3.0)
    for number in range(20):
        file["v"].attrs[f"a{number}"] = number


def unusual_numbers(file: h5py.File) -> None:
    short = h5t.STD_I32BE.copy()
    short.set_precision(24)
    h5py.h5d.create(file.id, b"v", short, h5s.create_simple((3,)))
    file["v"][...] = [1, -2, 3]


def comments(file: h5py.File) -> None:
    file["v"] = np.arange(3.0)
    h5py.h5g.open(file.id, b"/").set_comment(b"v", b"a comment")


def never_filled(file: h5py.File) -> None:
    made = h5p.create(h5p.DATASET_CREATE)
    made.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    made.set_chunk((2,))
    h5py.h5d.create(file.id, b"v", h5t.IEEE_F32LE, h5s.create_simple((3,)), made)
    file["v"][...] = [1, 2, 3]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("write", [named_type, no_order, unusual_numbers, comments, never_filled])
def test_rare_features_of_valid_files(write: Callable[[h5py.File], None], libver: str, tmp_path: Path, alone: None) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        write(file)
        expected = file["v"][...].tolist()
    check_against_h5py(path)
    assert aa.open(path)["v"][...].tolist() == expected


def test_coordinates_that_only_the_library_decodes(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(5), chunks=(5,), scaleoffset=0)
        file["x"].make_scale("x")
        file["v"] = np.arange(5.0)
        file["v"].dims[0].attach_scale(file["x"])
    scanned = {v.name: v for v in formats.scan(path).variables}
    assert scanned["x"].values is not None
    assert scanned["x"].values.tolist() == list(range(5))
    assert aa.open(path)["v"].sel(x=3)[...] == 3


@pytest.mark.parametrize("dates", [np.array(["2000-01-01"], "M8[D]"), np.array([1, 2], "m8[s]"), np.array(3, "M8[ns]")])
def test_only_attributes_of_dates_are_skipped(dates: np.ndarray, tmp_path: Path, alone: None) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["v"] = np.arange(4.0)
        file["v"].attrs["when"] = dates.astype(h5py.opaque_dtype(dates.dtype))
        file["v"].attrs["units"] = "m"
    check_against_h5py(path)
    agg = aa.open(path)
    assert agg["v"].units == "m"
    assert [(s.variable, "opaque" in s.reason) for s in agg.skipped] == [("v:when", True)]


def test_sources_beside_a_virtual_dataset_are_within_its_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source in the working directory counts if it exists, because HDF5 may read it."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside):
        folder.mkdir()
    with h5py.File(inside / "source.h5", "w") as file:
        file["s"] = np.arange(3.0)
    layout = h5py.VirtualLayout((6,), "f8")
    layout[::2] = h5py.VirtualSource("source.h5", "s", (3,))  # interleaved: HDF5 reads it
    whole = h5py.VirtualLayout((3,), "f8")
    whole[:] = h5py.VirtualSource("source.h5", "s", (3,))
    with h5py.File(inside / "a.h5", "w") as file:
        file.create_virtual_dataset("v", layout)
        file.create_virtual_dataset("w", whole)
    monkeypatch.chdir(outside)
    agg = aa.open(inside / "a.h5", roots=[inside])
    assert agg["v"][::2].tolist() == agg["w"][...].tolist() == [0, 1, 2]
    (outside / "source.h5").symlink_to(outside / "gone.h5")
    with pytest.raises(aa.IndexFileError, match=r"gone\.h5|lies outside.*source\.h5"):
        aa.open(inside / "a.h5", roots=[inside])["v"][...]
    # A source that is read directly is the one beside the file.
    assert aa.open(inside / "a.h5", roots=[inside])["w"][...].tolist() == [0, 1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="helpers fork")
def test_unsupported_files_are_scanned_in_an_isolated_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = h5p.create(h5p.FILE_CREATE)
    made.set_sizes(4, 4)
    path = tmp_path / "a.h5"
    with h5py.File(h5py.h5f.create(bytes(path), fcpl=made)) as file:
        file["v"] = np.arange(4.0)

    def here(path: str) -> None:
        raise AssertionError("in this process")

    monkeypatch.setattr(library, "scan_by_library", here)
    assert [v.name for v in formats.scan(path).variables] == ["v"]
    with pytest.raises(Exception, match=r"superblock|addresses of another size"):
        direct(path)


@pytest.mark.parametrize("most", [5, None])
def test_a_scale_that_was_deleted(most: int | None, tmp_path: Path) -> None:
    """The dimension has no name, which is reported; values are read."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        scales(file, x=5)
        file.create_dataset("v", data=np.arange(5.0), maxshape=(most,), chunks=(5,)).dims[0].attach_scale(file["x"])
        del file["x"]
    result = check_against_h5py(path)
    assert result.skipped == (("v:DIMENSION_LIST", "a reference to a missing object; the dimension has no name"),)
    agg = aa.open(path)
    assert agg["v"].dimensions == ("dim_0",)
    assert agg["v"][...].tolist() == [0, 1, 2, 3, 4]
