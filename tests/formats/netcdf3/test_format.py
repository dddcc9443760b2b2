"""Tests of the netCDF-3 reader against netCDF4, and with damaged files."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray import formats
from aggarray.errors import FormatError
from aggarray.formats.base import full_box
from aggarray.formats.netcdf3 import format as netcdf3_format

MODELS = {
    "NETCDF3_CLASSIC": ["i1", "i2", "i4", "f4", "f8"],
    "NETCDF3_64BIT_OFFSET": ["i1", "i2", "i4", "f4", "f8"],
    "NETCDF3_64BIT_DATA": ["i1", "i2", "i4", "f4", "f8", "u1", "u2", "u4", "i8", "u8"],
}


@st.composite
def boxes(draw: Callable[[Any], Any], shape: tuple[int, ...]) -> tuple[slice, ...]:
    box = []
    for n in shape:
        start = draw(st.integers(0, n))
        box.append(slice(start, draw(st.integers(start, n)), draw(st.integers(1, 3))))
    return tuple(box)


@st.composite
def layouts(draw: Callable[[Any], Any]) -> tuple[str, int, list[int], list[tuple[str, bool, int]]]:
    """Draw a data model, the number of records, sizes of fixed dimensions and (dtype, record?, rank) of variables."""
    model = draw(st.sampled_from(sorted(MODELS)))
    sizes = draw(st.lists(st.integers(1, 5), min_size=2, max_size=2))
    variable = st.tuples(st.sampled_from(MODELS[model]), st.booleans(), st.integers(0, 2))
    return model, draw(st.integers(0, 4)), sizes, draw(st.lists(variable, min_size=1, max_size=4))


def write(path: Path, layout: tuple[str, int, list[int], list[tuple[str, bool, int]]]) -> None:
    model, records, sizes, variables = layout
    random = np.random.default_rng(1)
    with netCDF4.Dataset(path, "w", format=model) as file:
        file.createDimension("record", None)
        for i, size in enumerate(sizes):
            file.createDimension(f"d{i}", size)
        for i, (dtype, record, rank) in enumerate(variables):
            dimensions = (("record",) if record else ()) + tuple(f"d{j}" for j in range(rank))
            made = file.createVariable(f"v{i}", dtype, dimensions)
            made.set_auto_mask(False)
            shape = tuple(records if d == "record" else sizes[int(d[1:])] for d in dimensions)
            if 0 not in shape:
                made[...] = random.integers(0, 100, shape).astype(dtype)


@given(data=st.data(), layout=layouts())
def test_boxes_equal_netcdf4(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, layout: Any) -> None:
    path = tmp_path_factory.mktemp("boxes") / "a.nc"
    write(path, layout)
    structure = formats.scan(path)
    handle = formats.open_file(path)
    with netCDF4.Dataset(path) as oracle:
        oracle.set_auto_maskandscale(False)
        assert [v.name for v in structure.variables] == list(oracle.variables)
        for variable in structure.variables:
            source = oracle.variables[variable.name]
            assert (variable.shape, variable.dimensions) == (source.shape, source.dimensions)
            expected = source[...]
            assert variable.dtype == expected.dtype.newbyteorder("=")
            box = data.draw(boxes(variable.shape))
            values = handle.read(variable.name, box)
            np.testing.assert_array_equal(values, expected[box])
            assert values.dtype == variable.dtype
            view = handle.mapped(variable.name)
            if expected.size:
                assert view is not None
                np.testing.assert_array_equal(view, expected)
    handle.close()


@pytest.mark.parametrize("span", [1, 7, 64, 1 << 20])
def test_sparse_boxes_are_read_in_short_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, span: int) -> None:
    monkeypatch.setattr(netcdf3_format, "_SPAN", span)
    path = tmp_path / "a.nc"
    write(path, ("NETCDF3_CLASSIC", 4, [5, 3], [("i2", True, 2), ("f8", True, 1), ("f4", False, 2)]))
    handle = formats.open_file(path)
    with netCDF4.Dataset(path) as oracle:
        oracle.set_auto_maskandscale(False)
        box = (slice(0, 4, 3), slice(1, 5, 2), slice(2, 3, 1))
        np.testing.assert_array_equal(handle.read("v0", box), oracle["v0"][box])
        np.testing.assert_array_equal(handle.read("v1", box[:2]), oracle["v1"][box[:2]])
        np.testing.assert_array_equal(handle.read("v2", box[1:]), oracle["v2"][box[1:]])
    handle.close()


@pytest.mark.parametrize("model", sorted(MODELS))
def test_attributes_equal_netcdf4(tmp_path: Path, model: str) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format=model) as file:
        file.setncatts({"title": "hé\x00llo", "empty": "", "one": np.float32(2.5), "many": np.arange(3, dtype="i2")})
        for dtype in MODELS[model]:
            file.setncattr(f"a_{dtype}", np.array([1, 2, 3], dtype))
        file.createVariable("naïve name", "i4", ()).setncattr("units", "K")
    structure = formats.scan(path)
    with netCDF4.Dataset(path) as oracle:
        assert list(structure.attrs) == oracle.ncattrs()
        for name in oracle.ncattrs():
            expected = oracle.getncattr(name)
            assert type(structure.attrs[name]) is type(expected)
            np.testing.assert_array_equal(structure.attrs[name], expected)
            assert np.asarray(structure.attrs[name]).dtype == np.asarray(expected).dtype
    assert [v.name for v in structure.variables] == ["naïve name"]


def test_empty_file(tmp_path: Path) -> None:
    netCDF4.Dataset(tmp_path / "a.nc", "w", format="NETCDF3_CLASSIC").close()
    structure = formats.scan(tmp_path / "a.nc")
    assert (structure.variables, dict(structure.attrs), structure.format) == ((), {}, "netCDF3")


def test_text(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        for name, size in (("station", 3), ("length", 4)):
            file.createDimension(name, size)
        raw = np.array(["é".encode("latin-1"), b"ab  ", b""], "S4").view("S1").reshape(3, 4)
        file.createVariable("station", "S1", ("station", "length"))[:] = raw
        file.createVariable("named", "S1", ("station", "length"))[:] = raw
        file["named"].setncattr("_Encoding", "latin-1")
        file.createVariable("letter", "S1", ())[...] = "x"
    station = {v.name: v for v in formats.scan(path).variables}["station"]
    assert station.dimensions == ("station",)
    assert station.values is not None and station.values.tolist() == ["é", "ab", ""]
    handle = formats.open_file(path)
    assert handle.read("named", full_box((3,))).tolist() == ["é", "ab", ""]
    assert handle.read("letter", ()).tolist() == "x"
    assert handle.read("station", full_box((3,))).tolist() == ["é", "ab", ""]
    handle.close()


@pytest.mark.parametrize("model", sorted(MODELS))
def test_record_count_of_streamed_file(tmp_path: Path, model: str) -> None:
    path = tmp_path / "a.nc"
    write(path, (model, 3, [5, 2], [("i2", True, 1), ("f8", True, 2), ("i4", False, 1)]))
    data = bytearray(path.read_bytes())
    width = 8 if model.endswith("DATA") else 4
    before = formats.open_file(path).read("v0", full_box((3, 5)))
    data[4 : 4 + width] = b"\xff" * width
    path.write_bytes(data)
    structure = formats.scan(path)
    assert structure.variables[0].shape == (3, 5)
    np.testing.assert_array_equal(formats.open_file(path).read("v0", full_box((3, 5))), before)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_truncated_files_raise_format_error(tmp_path: Path, model: str) -> None:
    path, cut = tmp_path / "a.nc", tmp_path / "cut.nc"
    write(path, (model, 2, [3, 2], [("f8", True, 1), ("i4", False, 2), ("f8", True, 2)]))
    data = path.read_bytes()
    for length in range(4, len(data)):
        cut.write_bytes(data[:length])
        with pytest.raises(FormatError, match=r"(truncated|damaged netCDF-3 header).*cut.nc"):
            formats.scan(cut)
    cut.write_bytes(data[:-1])
    words = rf"truncated: .* byte {len(data)}, the file has {len(data) - 1} bytes.*variable 'v2' in .*cut.nc"
    with pytest.raises(FormatError, match=words):
        formats.open_file(cut)


def test_truncated_while_open(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    write(path, ("NETCDF3_CLASSIC", 2, [3, 2], [("f8", True, 1)]))
    handle = formats.open_file(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 4)
    with pytest.raises(FormatError, match=r"truncated: 48 bytes at offset 112.*variable 'v0' in .*a.nc"):
        handle.read("v0", full_box((2, 3)))
    handle.close()


@given(data=st.data())
def test_damaged_headers_raise_format_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("damaged") / "a.nc"
    write(path, ("NETCDF3_CLASSIC", 2, [3, 2], [("f8", True, 1), ("i4", False, 2), ("i2", False, 0)]))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(4, 250))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        structure = formats.scan(path)
    except FormatError:
        return
    for variable in structure.variables:
        assert variable.values is None or variable.values.nbytes <= len(content)


def test_counts_are_checked_before_allocation(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    path.write_bytes(b"CDF\x01" + struct.pack(">III", 0, 0x0A, 0x7FFFFFFF) + b"\0" * 64)
    with pytest.raises(FormatError, match=r"damaged netCDF-3 header.*2147483647 items"):
        formats.scan(path)
    path.write_bytes(b"CDF\x05" + struct.pack(">QIQ", 0, 0x0C, 2**62) + b"\0" * 64)
    with pytest.raises(FormatError, match=r"damaged netCDF-3 header"):
        formats.scan(path)


def test_header_longer_than_one_read(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        for i in range(50):
            file.createVariable(f"v{i}", "i4", ()).setncattr("comment", "x" * 5000)
            file[f"v{i}"][...] = i
    structure = formats.scan(path)
    assert len(structure.variables) == 50
    assert formats.open_file(path).read("v49", ()) == 49


def test_sparse_file_of_huge_shape_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_DATA") as file:
        file.set_fill_off()
        for name in "xy":
            file.createDimension(name, 1 << 17)
        file.createVariable("v", "f8", ("x", "y"))[-1, -1] = 5.0
    handle = formats.open_file(path)
    last = slice((1 << 17) - 1, 1 << 17, 1)
    assert handle.read("v", (last, last)).tolist() == [[5.0]]
    far = (slice(0, 1 << 17, (1 << 17) - 1), last)
    assert handle.read("v", far).tolist() == [[0.0], [5.0]]
    handle.close()


def test_name_ends_at_null_byte(tmp_path: Path) -> None:
    """Old Fortran writers count the null byte that ends a name. Oracle: netCDF4."""
    path = tmp_path / "a.nc"
    write(path, ("NETCDF3_CLASSIC", 0, [3, 2], [("i4", False, 1)]))
    data = path.read_bytes()
    path.write_bytes(data.replace(b"\0\0\0\2v0\0\0", b"\0\0\0\2v\0\0\0").replace(b"\0\0\0\2d0\0\0", b"\0\0\0\2d\0\0\0"))
    with netCDF4.Dataset(path) as file:
        assert list(file.variables) == ["v"]
        assert file["v"].dimensions == ("d",)
    (variable,) = formats.scan(path).variables
    assert (variable.name, variable.dimensions) == ("v", ("d",))
