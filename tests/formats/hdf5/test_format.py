"""Values and structures of netCDF-4 and HDF5 files equal those of netCDF4 and h5py; skipped items are reported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray import formats
from aggarray.errors import FormatError, NotFoundError
from aggarray.formats.base import Structure, full_box
from aggarray.formats.hdf5 import library

DTYPES = [f"{order}{code}" for order in "<>" for code in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")]


@st.composite
def boxes(draw: Callable[[Any], Any], shape: tuple[int, ...]) -> tuple[slice, ...]:
    result = []
    for n in shape:
        start = draw(st.integers(0, n))
        result.append(slice(start, draw(st.integers(start, n)), draw(st.integers(1, 3))))
    return tuple(result)


shapes = st.lists(st.integers(0, 6), max_size=3).map(tuple)


def variables(structure: Structure) -> dict[str, Any]:
    return {v.name: v for v in structure.variables}


@st.composite
def datasets(draw: Callable[[Any], Any]) -> tuple[tuple[int, ...], str, dict[str, Any]]:
    """Draw a shape, a dtype and the storage options of h5py."""
    shape = draw(shapes)
    options: dict[str, Any] = {}
    if shape and draw(st.booleans()):
        options["chunks"] = tuple(max(1, min(n, draw(st.integers(1, 4)))) for n in shape)
        options["maxshape"] = (None,) * len(shape) if 0 in shape or draw(st.booleans()) else shape
        options["shuffle"] = draw(st.booleans())
        options["compression"] = draw(st.sampled_from([None, "gzip", "lzf"]))
        options["fletcher32"] = draw(st.booleans())
    return shape, draw(st.sampled_from(DTYPES)), options


@given(data=st.data(), made=datasets(), userblock=st.sampled_from([0, 512, 2048]))
def test_boxes_equal_h5py(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, made: tuple[Any, str, Any], userblock: int
) -> None:
    path = tmp_path_factory.mktemp("boxes") / "a.h5"
    shape, dtype, options = made
    values = np.random.default_rng(1).integers(0, 100, shape).astype(dtype)
    with h5py.File(path, "w", userblock_size=userblock) as file:
        file.create_dataset("v", data=values, **options)
    result = formats.scan(path)
    variable = result.variables[0]
    assert (result.format, variable.shape, variable.dtype) == ("HDF5", shape, np.dtype(dtype).newbyteorder("="))
    assert variable.dimensions == tuple(f"dim_{i}" for i in range(len(shape)))
    handle = formats.open_file(path)
    box = data.draw(boxes(shape))
    got = handle.read("v", box)
    np.testing.assert_array_equal(got, values[box])
    assert got.dtype == variable.dtype
    assert got.dtype.isnative
    view = handle.mapped("v")
    handle.close()
    assert (view is not None) == (not options and values.size > 0)
    if view is not None:
        assert view.dtype == np.dtype(dtype)
        assert not view.flags.writeable
        np.testing.assert_array_equal(view, values)


@given(data=st.data(), shape=shapes, dtype=st.sampled_from([d for d in DTYPES if "f2" not in d]), zlib=st.booleans())
def test_boxes_equal_netcdf4(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, shape: tuple[int, ...], dtype: str, zlib: bool
) -> None:
    path = tmp_path_factory.mktemp("boxes") / "a.nc"
    unlimited = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    with netCDF4.Dataset(path, "w") as file:
        for i, (size, free) in enumerate(zip(shape, unlimited, strict=True)):
            file.createDimension(f"d{i}", None if free or size == 0 else size)
        names = tuple(f"d{i}" for i in range(len(shape)))
        endian = "native" if dtype[2:] == "1" else "big" if dtype[0] == ">" else "little"
        made = file.createVariable("v", dtype, names, zlib=zlib and bool(shape), endian=endian)
        if 0 not in shape:
            made[...] = np.random.default_rng(1).integers(0, 100, shape).astype(dtype)
    variable = formats.scan(path).variables[0]
    handle = formats.open_file(path)
    with netCDF4.Dataset(path) as oracle:
        oracle.set_auto_maskandscale(False)
        expected = oracle["v"][...]
    assert (variable.shape, variable.dimensions) == (expected.shape, names)
    box = data.draw(boxes(expected.shape))
    np.testing.assert_array_equal(handle.read("v", box), expected[box])
    handle.close()


def test_a_dimension_lengthened_by_another_variable_reads_as_fill_value(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 3)
        file.createVariable("long", "i4", ("time",))[:5] = range(5)
        file.createVariable("short", "f4", ("time", "x"), fill_value=-7.0)[:2] = 1.0
        file.createVariable("unwritten", "i2", ("time",))
        file.createVariable("text", str, ("time",))[0] = "a"
    with netCDF4.Dataset(path) as oracle:
        oracle.set_auto_maskandscale(False)
        for structure in (formats.scan(path), through_h5py(path)):
            handle = formats.open_file(path)
            for name, variable in variables(structure).items():
                expected = oracle[name][...]
                assert (variable.shape, variable.dimensions) == (expected.shape, oracle[name].dimensions)
                np.testing.assert_array_equal(handle.read(name, full_box(variable.shape)), expected.astype(variable.dtype))
            part = (slice(1, 5, 2), slice(1, 3, 1))
            np.testing.assert_array_equal(handle.read("short", part), oracle["short"][part])
            assert handle.read("short", (slice(4, 5, 1), slice(2, 3, 1))).tolist() == [[-7.0]]
            handle.close()


def test_two_dimensions_lengthened_by_other_variables(tmp_path: Path) -> None:
    # There is no oracle: netCDF-C 4.10 returns uninitialised memory here.
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("time", 5), ("x", 4)):
            file.createDimension(name, None)
            file.createVariable(name, "i4", (name,))[:size] = range(size)
        file["time"].bounds = "short"
        file.createVariable("short", "f4", ("time", "x"), fill_value=-7.0)[:2, :3] = 1.0
    expected = np.full((5, 4), -7.0, "f4")
    expected[:2, :3] = 1.0
    result = variables(formats.scan(path))["short"]
    assert (result.shape, result.dimensions) == ((5, 4), ("time", "x"))
    np.testing.assert_array_equal(result.values, expected)
    np.testing.assert_array_equal(formats.open_file(path).read("short", full_box((5, 4))), expected)


def through_h5py(path: Path) -> Structure:
    """Return the scan by the library."""
    return library.scan_by_library(str(path))


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and np.array_equal(one, other) and np.asarray(one).dtype == np.asarray(other).dtype


def write_groups(path: Path) -> None:
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"title": "hé", "many": np.arange(3.0), "one": np.int16(1), "Conventions": "CF-1.8"})
        file.createDimension("x", 3)
        file.createDimension("length", 4)
        file.createDimension("name", 2)
        file.createVariable("x", "f8", ("x",))[:] = [1.0, 2.0, 3.0]
        group = file.createGroup("out put").createGroup("größe")
        group.setncattr("units", "m")
        group.createDimension("y", 2)
        deep = group.createVariable("deep", "i4", ("y", "x"))
        deep[:] = np.arange(6).reshape(2, 3)
        deep.setncattr_string("flags", ["a", "bc"])
        # A variable with the name of a dimension that is not its coordinate, and a two-dimensional one that is.
        file.createVariable("length", "i4", ("x",))[:] = [4, 5, 6]
        file.createVariable("name", "S1", ("name", "length"))[:] = np.array([b"ab", b"cdef"], "S4").view("S1").reshape(2, 4)
        kind = file.createEnumType("i1", "kind_t", {"a": 1, "b": 2})
        file.createVariable("enum", kind, ("x",))[:] = [1, 2, 1]
        flag = file.createEnumType("i1", "flag_t", {"FALSE": 0, "TRUE": 1})
        file.createVariable("flag", flag, ("x",))[:] = [1, 0, 1]
        pair = file.createCompoundType(np.dtype([("a", "f8"), ("b", "i4")]), "pair_t")
        file.createVariable("pair", pair, ("x",))
        rows = file.createVLType("i4", "rows_t")
        file.createVariable("ragged", rows, ("x",))


def test_groups_types_and_names(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    write_groups(path)
    result = formats.scan(path)
    assert result.format == "netCDF4"
    assert [name for name, _ in result.skipped] == ["pair"]
    assert "compound" in result.skipped[0][1]
    assert set(result.groups) == {"out put", "out put/größe"}
    assert result.groups["out put/größe"] == {"units": "m"}
    there = variables(result)
    assert set(there) == {"x", "out put/größe/deep", "length", "name", "enum", "flag", "ragged", "ragged_row_size"}
    assert there["ragged_row_size"].attrs["sample_dimension"] == there["ragged"].dimensions[0] == "ragged_sample"
    assert there["out put/größe/deep"].dimensions == ("y", "x")
    assert there["out put/größe/deep"].attrs["flags"] == ["a", "bc"]
    handle = formats.open_file(path)
    assert handle.read("out put/größe/deep", full_box((2, 3))).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert handle.read("length", full_box((3,))).tolist() == [4, 5, 6]
    assert handle.read("name", full_box((2,))).tolist() == ["ab", "cdef"]
    assert handle.read("enum", full_box((3,))).tolist() == [1, 2, 1]
    assert handle.read("enum", full_box((3,))).dtype == there["enum"].dtype == np.dtype("i1")
    assert handle.read("flag", full_box((3,))).dtype == there["flag"].dtype == np.dtype(bool)
    assert handle.mapped("enum") is not None
    with pytest.raises(FormatError, match=r"compound.*variable 'pair' in .*a.nc"):
        handle.read("pair", full_box((3,)))
    for name in ("out put", "", "out put/none", "none/none"):
        with pytest.raises(NotFoundError, match="no variable"):
            handle.read(name, ())
    handle.close()


def test_both_scanners_agree(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    write_groups(path)
    one, other = formats.scan(path), through_h5py(path)
    assert one.attrs.keys() == other.attrs.keys()
    assert all(same(one.attrs[k], other.attrs[k]) for k in one.attrs)
    assert one.groups == other.groups
    assert sorted(one.skipped) == sorted(other.skipped)
    assert variables(one).keys() == variables(other).keys()
    for name, variable in variables(one).items():
        twin = variables(other)[name]
        assert (variable.dtype, variable.shape, variable.dimensions) == (twin.dtype, twin.shape, twin.dimensions)
        assert variable.attrs.keys() == twin.attrs.keys()
        assert all(same(variable.attrs[k], twin.attrs[k]) for k in variable.attrs)
        np.testing.assert_array_equal(variable.values, twin.values)


def test_plain_hdf5(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["b/scalar"] = 5
        file["text"] = np.array([b"ab", b"c"], "S10")
        file.create_dataset("vlen", data=["é", "longer"], dtype=h5py.string_dtype())
        file["flag"] = np.array([True, False])
        file["complex"] = np.array([1 + 2j])
        file.create_dataset("null", dtype="f4", data=h5py.Empty("f4"))
        file.create_dataset("unwritten", (4,), "i4", chunks=(2,), fillvalue=9)
        file.create_dataset("late", (4,), "i4", fillvalue=9)
        file["pair"] = np.zeros(2, [("a", "f8"), ("b", "i4")])
        file["opaque"] = np.zeros(2, "V4")
        file.create_dataset("reference", (1,), h5py.ref_dtype)
        file.create_dataset("ragged", (1,), h5py.vlen_dtype("i4"))
        file.create_dataset("array", (2,), np.dtype(("i4", (3,))))
        file["soft"] = h5py.SoftLink("/b/scalar")
        file["dangling"] = h5py.SoftLink("/nowhere")
        file["outside"] = h5py.ExternalLink("other.h5", "/x")
        file["b/circle"] = file["/"]
        file.attrs.update({"bytes": np.bytes_("hé".encode()), "one": np.array([1.5]), "texts": ["a", "b"]})
        file.attrs["null"] = h5py.Empty("f4")
        file["text"].attrs["region"] = file["text"].ref
    result = formats.scan(path)
    assert result.format == "HDF5"
    assert {name for name, _ in result.skipped} == {
        *("pair", "opaque", "reference", "dangling", "outside", "array"),
    } - ({"array"} if "array" in variables(result) else set())
    there = variables(result)
    assert "_FillValue" not in there["unwritten"].attrs
    assert there["text"].attrs == {}
    assert result.attrs["bytes"] == "hé"
    assert type(result.attrs["one"]) is np.float64
    assert result.attrs["texts"] == ["a", "b"]
    handle = formats.open_file(path)
    read = {name: handle.read(name, full_box(v.shape)) for name, v in there.items()}
    assert all(read[name].dtype == v.dtype and read[name].shape == v.shape for name, v in there.items())
    assert read["b/scalar"] == read["soft"] == 5
    assert read["text"].tolist() == ["ab", "c"]
    assert read["vlen"].tolist() == ["é", "longer"]
    assert read["flag"].dtype == bool
    assert read["complex"].tolist() == [1 + 2j]
    assert read["null"].shape == (0,)
    assert read["unwritten"].tolist() == read["late"].tolist() == [9, 9, 9, 9]
    (tmp_path / "other.h5").write_bytes(path.read_bytes())
    with pytest.raises(NotFoundError):
        handle.read("outside", ())
    assert handle.mapped("late") is None
    assert handle.mapped("vlen") is None
    handle.close()


def test_dimension_scales_of_h5py(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = [1.0, 2.0, 3.0]
        file["v"] = np.arange(6).reshape(3, 2)
        file["x"].make_scale("x")
        file["v"].dims[0].attach_scale(file["x"])
        file["square"] = np.zeros((3, 3))
        for dimension in file["square"].dims:
            dimension.attach_scale(file["x"])
    there = variables(formats.scan(path))
    assert there["v"].dimensions == ("x", "dim_1")
    assert there["square"].dimensions == ("x", "x_2")
    assert there["x"].dimensions == ("x",)
    assert there["x"].values.tolist() == [1.0, 2.0, 3.0]


def test_items_that_netcdf4_skips_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = [1.0, 2.0]
        file["x"].make_scale("x")
        file["v"] = [1, 2]
        file["v"].dims[0].attach_scale(file["x"])
        file.create_dataset("reference", (), h5py.ref_dtype)
    result = formats.scan(path)
    assert set(variables(result)) == {"x", "v"}
    assert [name for name, _ in result.skipped] == ["reference"]


def test_text_that_does_not_decode(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 2)
        file.createDimension("length", 2)
        raw = np.array([b"\xe9", b"ab"], "S2").view("S1").reshape(2, 2)
        file.createVariable("x", "S1", ("x", "length"))[:] = raw
        file.createVariable("named", "S1", ("x", "length"))[:] = raw
        file["named"].setncattr("_Encoding", "latin-1")
        file.createVariable("odd", "S1", ("x", "length"))[:] = raw
        file["odd"].setncattr("_Encoding", "no such encoding")
    known = variables(formats.scan(path))["x"].values
    assert known is not None and known.tolist() == ["é", "ab"]
    handle = formats.open_file(path)
    assert handle.read("named", full_box((2,))).tolist() == ["é", "ab"]
    assert handle.read("x", full_box((2,))).tolist() == ["é", "ab"]
    with pytest.raises(FormatError, match=r"unknown encoding: no such encoding.*variable 'odd' in .*a.nc"):
        handle.read("odd", full_box((2,)))
    handle.close()


def test_an_empty_file(tmp_path: Path) -> None:
    h5py.File(tmp_path / "a.h5", "w").close()
    netCDF4.Dataset(tmp_path / "a.nc", "w").close()
    assert formats.scan(tmp_path / "a.h5").variables == formats.scan(tmp_path / "a.nc").variables == ()


def test_huge_sparse_datasets_take_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", (1 << 40, 1 << 20), "f8", chunks=(64, 64), fillvalue=1.0)
        file.create_dataset("x", (1 << 40,), "f8", chunks=(64,))
    result = variables(formats.scan(path))
    assert result["v"].shape == (1 << 40, 1 << 20)
    last = slice((1 << 40) - 1, 1 << 40, 1)
    assert formats.open_file(path).read("v", (last, slice(0, 2, 1))).tolist() == [[1.0, 1.0]]


def test_truncated_and_damaged_files(tmp_path: Path) -> None:
    path, cut = tmp_path / "a.nc", tmp_path / "cut.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 1000)
        file.createVariable("v", "f8", ("x",), zlib=True)[:] = np.random.default_rng(1).random(1000)
    data = path.read_bytes()
    for length in (8, 100, len(data) // 2, len(data) - 1):
        cut.write_bytes(data[:length])
        with pytest.raises(FormatError, match=r"cut.nc"):
            formats.scan(cut)
        with pytest.raises(FormatError, match=r"cut.nc"):
            formats.open_file(cut)
    with h5py.File(path) as file:
        offset = file["v"].id.get_chunk_info(0).byte_offset
    cut.write_bytes(data[: offset + 10] + b"\xff" * 50 + data[offset + 60 :])
    formats.scan(cut)
    with pytest.raises(FormatError, match=r"cannot be read:.*variable 'v' in .*cut.nc"):
        formats.open_file(cut).read("v", full_box((1000,)))


def test_external_and_virtual_storage_is_read_but_not_mapped(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    values = np.arange(4, dtype="i4")
    (tmp_path / "raw").write_bytes(values.tobytes())
    with h5py.File(tmp_path / "source.h5", "w") as file:
        file["s"] = values
    with h5py.File(path, "w") as file:
        file.create_dataset("external", (4,), "i4", external=[(str(tmp_path / "raw"), 0, 16)])
        layout = h5py.VirtualLayout((4,), "i4")
        layout[:] = h5py.VirtualSource(str(tmp_path / "source.h5"), "s", (4,))
        file.create_virtual_dataset("virtual", layout)
    handle = formats.open_file(path)
    for name in ("external", "virtual"):
        assert handle.mapped(name) is None
        np.testing.assert_array_equal(handle.read(name, full_box((4,))), values)
    handle.close()


def test_unusual_precisions_are_not_mapped(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    odd = h5py.h5t.STD_I32LE.copy()
    odd.set_precision(20)
    odd.set_offset(4)
    with h5py.File(path, "w") as file:
        made = h5py.h5d.create(file.id, b"v", odd, h5py.h5s.create_simple((3,)))
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([1, -2, 3], "i4"))
    handle = formats.open_file(path)
    assert handle.mapped("v") is None
    assert handle.read("v", full_box((3,))).tolist() == [1, -2, 3]
    handle.close()


@pytest.mark.parametrize("library", ["h5py", "netCDF4"])
def test_a_file_that_another_library_has_open(tmp_path: Path, library: str) -> None:
    path = tmp_path / "a.nc"
    write_groups(path)
    opener: Callable[[Path], Any] = h5py.File if library == "h5py" else netCDF4.Dataset
    with opener(path):
        handle = formats.open_file(path)
        assert handle.read("x", full_box((3,))).tolist() == [1.0, 2.0, 3.0]
        assert len(formats.scan(path).variables) == 8
        handle.close()
