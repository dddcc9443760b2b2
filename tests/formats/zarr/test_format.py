"""Tests of the Zarr reader against zarr-python and xarray, and with damaged or unsafe stores."""

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray import formats
from aggarray.errors import FormatError, NotFoundError
from aggarray.formats.base import Structure, full_box
from tests.support.messages import says

NUMBERS = ["bool", "i1", "u1", "<i2", ">i2", "<u4", ">u4", "<i8", "<f2", "<f4", ">f4", "<f8", ">f8", "<c8", ">c16"]


def variables(structure: Structure) -> dict[str, Any]:
    return {v.name: v for v in structure.variables}


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@st.composite
def boxes(draw: Callable[[Any], Any], shape: tuple[int, ...]) -> tuple[slice, ...]:
    box = []
    for n in shape:
        start = draw(st.integers(0, n))
        box.append(slice(start, draw(st.integers(start, n)), draw(st.integers(1, 3))))
    return tuple(box)


@given(data=st.data(), version=st.sampled_from([2, 3]), dtype=st.sampled_from(NUMBERS), consolidated=st.booleans())
def test_boxes_equal_zarr(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, version: Any, dtype: str, consolidated: bool
) -> None:
    folder = tmp_path_factory.mktemp("boxes")
    shape = tuple(data.draw(st.lists(st.integers(0, 6), max_size=3)))
    chunks = tuple(data.draw(st.integers(1, 3)) for _ in shape)
    options: dict[str, Any] = {"chunks": chunks}
    if version == 3 and shape and data.draw(st.booleans()):
        options["shards"] = tuple(2 * c for c in chunks)
    group = zarr.open_group(folder / "store", mode="w", zarr_format=version)
    made = group.create_array("deep/v", shape=shape, dtype=dtype, **options)
    made[...] = np.random.default_rng(1).integers(0, 100, shape).astype(dtype)
    if consolidated:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(folder / "store")
    structure = formats.scan(folder / "store")
    assert (structure.format, set(structure.groups)) == (f"Zarr{version}", {"deep"})
    variable = variables(structure)["deep/v"]
    assert (variable.shape, variable.dtype) == (shape, np.dtype(dtype).newbyteorder("="))
    box = data.draw(boxes(shape))
    handle = formats.open_file(folder / "store")
    got = handle.read("deep/v", box)
    np.testing.assert_array_equal(got, made[...][box])
    assert got.dtype == variable.dtype
    assert got.dtype.isnative
    assert handle.mapped("deep/v") is None
    shutil.rmtree(folder)


@pytest.mark.parametrize("version", [2, 3])
def test_text_and_times(tmp_path: Path, version: Any) -> None:
    values = {
        "fixed": np.array([b"ab", b"c"], "S4"),
        "unicode": np.array(["é", "xyz"], "U3"),
        "string": np.array(["é", "longer"], np.dtypes.StringDType()),
        "date": np.array(["2000-01-01", "NaT"], "M8[s]"),
        "span": np.array([1, 2], "m8[h]"),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group = zarr.open_group(tmp_path / "store", mode="w", zarr_format=version)
        for name, array in values.items():
            group.create_array(name, shape=array.shape, dtype=array.dtype)[:] = array
    there = variables(formats.scan(tmp_path / "store"))
    handle = formats.open_file(tmp_path / "store")
    for name, array in values.items():
        got = handle.read(name, full_box((2,)))
        assert got.dtype == there[name].dtype
        expected = [v.decode() for v in array.tolist()] if array.dtype.kind == "S" else array.tolist()
        assert got.tolist() == expected
    assert there["unicode"].dtype == np.dtypes.StringDType()
    assert there["date"].dtype == np.dtype("M8[s]")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
def test_stores_of_xarray(tmp_path: Path, version: Any, consolidated: bool) -> None:
    dataset = xr.Dataset(
        {
            "tas": (("time", "x"), np.array([[1.0, np.nan], [3.0, 4.0]], "f4"), {"units": "K", "levels": [1, 2], "real": 2.5}),
            "packed": (("x",), np.array([1.0, np.nan]), {}),
        },
        {"time": ("time", [0, 1], {"units": "days since 2000-01-01"}), "place": ("x", ["a", "bc"])},
        {"title": "hé"},
    )
    encoding = {"tas": {"_FillValue": np.float32(-9.5)}, "packed": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset.to_zarr(tmp_path / "store", encoding=encoding, zarr_format=version, consolidated=consolidated)
    structure = formats.scan(tmp_path / "store")
    there = variables(structure)
    assert structure.attrs == {"title": "hé"}
    tas = there["tas"]
    assert tas.dimensions == ("time", "x")
    assert tas.attrs["_FillValue"] == np.float32(-9.5)
    assert tas.attrs["_FillValue"].dtype == np.dtype("f4")
    assert tas.attrs["levels"].tolist() == [1, 2]
    assert tas.attrs["real"] == 2.5
    assert "_ARRAY_DIMENSIONS" not in tas.attrs
    assert there["packed"].attrs["_FillValue"] == np.int16(-1)
    assert there["packed"].attrs["_FillValue"].dtype == np.dtype("i2")
    assert there["time"].values.tolist() == [0, 1]
    assert there["place"].values.tolist() == ["a", "bc"]
    options = {"mask_and_scale": False, "decode_times": False, "zarr_format": version, "consolidated": consolidated}
    raw = xr.open_zarr(tmp_path / "store", **options)
    handle = formats.open_file(tmp_path / "store")
    for name in ("tas", "packed", "time"):
        np.testing.assert_array_equal(handle.read(name, full_box(there[name].shape)), raw[name].values)


@pytest.mark.parametrize(
    ("dtype", "fill", "expected"),
    [
        ("f4", 0, np.float32(0)),
        ("f8", "NaN", np.float64("nan")),
        ("f8", "-Infinity", np.float64("-inf")),
        ("i2", -5, np.int16(-5)),
        ("bool", True, np.bool_(True)),
        ("c8", ["NaN", 1.0], np.complex64(complex("nan+1j"))),
        ("S3", "YWI=", "ab"),
        ("<M8[s]", 5, np.datetime64(5, "s")),
        ("f4", None, None),
    ],
)
def test_fill_value_of_version_2(tmp_path: Path, dtype: str, fill: Any, expected: Any) -> None:
    zarr.create_array(tmp_path / "v.zarr", shape=(2,), dtype=dtype, zarr_format=2)
    edit(tmp_path / "v.zarr" / ".zarray", fill_value=fill)
    attrs = formats.scan(tmp_path / "v.zarr").variables[0].attrs
    if expected is None:
        assert attrs == {}
    else:
        np.testing.assert_equal(attrs["_FillValue"], expected)
        assert np.asarray(attrs["_FillValue"]).dtype == np.asarray(expected).dtype
    (tmp_path / "v.zarr" / ".zattrs").write_text('{"_FillValue": 1}')
    if np.dtype(dtype).kind in "fi":
        assert formats.scan(tmp_path / "v.zarr").variables[0].attrs["_FillValue"] == 1


def test_fill_value_attribute_of_version_3(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "store", mode="w", zarr_format=3)
    group.create_array("none", shape=(2,), dtype="f4", fill_value=3)
    group.create_array("plain", shape=(2,), dtype="f4", fill_value=3, attributes={"_FillValue": 7})
    encoded = "AAAAAAAA+H8="
    group.create_array("base64", shape=(2,), dtype="f4", attributes={"_FillValue": encoded})
    group.create_array("odd", shape=(2,), dtype="f4", attributes={"_FillValue": "no number"})
    there = variables(formats.scan(tmp_path / "store"))
    assert there["none"].attrs == {}
    assert there["plain"].attrs["_FillValue"] == np.float32(7)
    assert np.isnan(there["base64"].attrs["_FillValue"])
    assert there["odd"].attrs["_FillValue"] == "no number"
    assert formats.open_file(tmp_path / "store").read("none", full_box((2,))).tolist() == [3, 3]


@pytest.mark.parametrize("version", [2, 3])
def test_store_of_one_array(tmp_path: Path, version: Any) -> None:
    zarr.create_array(tmp_path / "tas.zarr", data=np.arange(6.0).reshape(2, 3), zarr_format=version, attributes={"units": "K"})
    structure = formats.scan(tmp_path / "tas.zarr")
    assert structure.attrs == {}
    assert [(v.name, v.dimensions) for v in structure.variables] == [("tas", ("dim_0", "dim_1"))]
    assert structure.variables[0].attrs["units"] == "K"
    assert formats.open_file(tmp_path / "tas.zarr").read("tas", full_box((2, 3))).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("version", [2, 3])
def test_empty_store(tmp_path: Path, version: Any) -> None:
    zarr.open_group(tmp_path / "store", mode="w", zarr_format=version, attributes={"a": 1})
    structure = formats.scan(tmp_path / "store")
    assert (structure.variables, structure.attrs, structure.format) == ((), {"a": 1}, f"Zarr{version}")


def test_names(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "store", mode="w", zarr_format=3)
    group.create_array("größe mit raum", shape=(2, 2), dtype="i4", dimension_names=[None, "y"])
    variable = formats.scan(tmp_path / "store").variables[0]
    assert (variable.name, variable.dimensions) == ("größe mit raum", ("dim_0", "y"))
    handle = formats.open_file(tmp_path / "store")
    assert handle.read(variable.name, full_box((2, 2))).tolist() == [[0, 0], [0, 0]]
    for name in ("../store/größe mit raum", "", "nothing", "."):
        with pytest.raises(NotFoundError, match="it holds größe"):
            handle.read(name, full_box((2, 2)))


@pytest.mark.parametrize("version", [2, 3])
def test_structured_arrays_are_skipped(tmp_path: Path, version: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group = zarr.open_group(tmp_path / "store", mode="w", zarr_format=version)
        group.create_array("pair", shape=(2,), dtype=np.dtype([("a", "i4"), ("b", "f8")]))
        group.create_array("v", shape=(2,), dtype="i4")
    structure = formats.scan(tmp_path / "store")
    assert [name for name, _ in structure.skipped] == ["pair"]
    assert list(variables(structure)) == ["v"]
    with pytest.raises(FormatError, match=r"values of type.*variable 'pair' in .*store"):
        formats.open_file(tmp_path / "store").read("pair", full_box((2,)))


@pytest.mark.parametrize("change", [{"filters": [{"id": "pickle", "protocol": 4}]}, {"compressor": {"id": "pickle"}}])
def test_pickles_are_never_decoded(tmp_path: Path, change: dict[str, Any]) -> None:
    zarr.create_array(tmp_path / "v.zarr", data=np.arange(2.0), zarr_format=2, compressors=None)
    edit(tmp_path / "v.zarr" / ".zarray", **change)
    chunk = tmp_path / "v.zarr" / "0"
    chunk.write_bytes(numcodecs.Pickle().encode(np.arange(2.0)))
    structure = formats.scan(tmp_path / "v.zarr")
    assert structure.variables == ()
    assert "pickled" in structure.skipped[0][1]
    with pytest.raises(FormatError, match=r"pickled objects.*variable 'v' in .*v.zarr"):
        formats.open_file(tmp_path / "v.zarr").read("v", full_box((2,)))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("damage", ["{", "[]", "", "\x00", '{"shape": [-1], "zarr_format": 2, "dtype": "<f4"}'])
def test_damaged_metadata(tmp_path: Path, version: Any, damage: str) -> None:
    group = zarr.open_group(tmp_path / "store", mode="w", zarr_format=version)
    group.create_array("v", shape=(2,), dtype="i4")
    target = tmp_path / "store" / "v" / (".zarray" if version == 2 else "zarr.json")
    target.write_text(damage)
    with pytest.raises(FormatError, match=says("store", "damaged")):
        formats.scan(tmp_path / "store")


@pytest.mark.parametrize("version", [2, 3])
def test_damaged_chunk_and_missing_chunk(tmp_path: Path, version: Any) -> None:
    array = zarr.create_array(tmp_path / "v.zarr", shape=(4,), chunks=(2,), dtype="f8", fill_value=9, zarr_format=version)
    array[:] = 1
    names = ["0", "1"] if version == 2 else ["c/0", "c/1"]
    (tmp_path / "v.zarr" / names[0]).write_bytes(b"rubbish")
    (tmp_path / "v.zarr" / names[1]).unlink()
    handle = formats.open_file(tmp_path / "v.zarr")
    with pytest.raises(
        FormatError, match=rf"not a Zstandard frame, in chunk \[0\] at byte 0 of {names[0]} \(variable 'v' in .*v.zarr"
    ):
        handle.read("v", (slice(0, 1, 1),))
    assert handle.read("v", (slice(2, 4, 1),)).tolist() == [9, 9]


@pytest.mark.parametrize("version", [2, 3])
def test_huge_sparse_arrays_take_no_memory(tmp_path: Path, version: Any) -> None:
    side = 1 << 40
    zarr.create_array(tmp_path / "v.zarr", shape=(side, side), chunks=(10, 10), dtype="f8", fill_value=1, zarr_format=version)
    assert formats.scan(tmp_path / "v.zarr").variables[0].shape == (side, side)
    last = slice(side - 1, side, 1)
    assert formats.open_file(tmp_path / "v.zarr").read("v", (last, last)).tolist() == [[1.0]]


def test_dimensions_of_netcdf_c(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "store", mode="w", zarr_format=2)
    attributes = {"_nczarr_array": {"dimension_references": ["/x"]}, "units": "K"}
    group.create_array("v", shape=(2,), dtype="i4", fill_value=-1, attributes=attributes)
    variable = formats.scan(tmp_path / "store").variables[0]
    assert (variable.dimensions, variable.attrs) == (("x",), {"units": "K", "_FillValue": -1})


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("consolidated", [False, True])
def test_arrays_that_lost_their_metadata(tmp_path: Path, version: Any, consolidated: bool) -> None:
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=version)
    for group, name in ((root, "v"), (root, "w"), (root.create_group("inner"), "u")):
        group.create_array(name, data=np.arange(4.0))
    (tmp_path / "a.zarr" / "notes").mkdir()
    if consolidated:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(tmp_path / "a.zarr")
    for name in ("w", "inner/u"):
        (tmp_path / "a.zarr" / name / (".zarray" if version == 2 else "zarr.json")).unlink()
    agg = aa.open(tmp_path / "a.zarr")
    if consolidated:  # the store's own copy has all of it
        assert sorted(agg.names) == ["inner/u", "v", "w"] and not agg.skipped
    else:
        assert agg.names == ("v",) and {s.variable for s in agg.skipped} == {"w", "inner/u"}
        assert all("metadata" in s.reason and "restore" in s.reason for s in agg.skipped)
