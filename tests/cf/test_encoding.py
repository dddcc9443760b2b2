"""Tests of packing and missing values against netCDF4-python, and of the rules of the attributes."""

import warnings
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import netCDF4
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggarray.cf.encoding import Encoding, default_fill, encoding
from aggarray.errors import FormatError
from tests.support.examples import examples

pytestmark = pytest.mark.quick

INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
TEXT = np.dtypes.StringDType()


def through_netcdf4(path: Path, stored: np.ndarray, attrs: dict[str, Any]) -> np.ma.MaskedArray:
    """Return stored values with these attributes as decoded by netCDF4-python from a netCDF-4 file."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", stored.size)
        fill = attrs.get("_FillValue", False)
        variable = file.createVariable("v", stored.dtype, ("x",), fill_value=fill)
        variable.set_auto_maskandscale(False)
        variable[:] = stored
        variable.setncatts({key: value for key, value in attrs.items() if key != "_FillValue"})
    with netCDF4.Dataset(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.ma.masked_array(file["v"][:])


def assert_decodes_alike(path: Path, stored: np.ndarray, attrs: dict[str, Any]) -> None:
    expected = through_netcdf4(path, stored, attrs)
    result = encoding(stored.dtype, attrs)
    values, mask = result.decode(stored)
    expected_mask = np.ma.getmaskarray(expected)
    assert values.dtype == expected.dtype == result.dtype
    np.testing.assert_array_equal(np.zeros(stored.shape, bool) if mask is None else mask, expected_mask)
    np.testing.assert_array_equal(values[~expected_mask], expected.data[~expected_mask])


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("encoding") / "v.nc"


def scalars(dtype: str) -> st.SearchStrategy[Any]:
    """Scalars of a dtype whose products do not overflow."""
    if dtype[0] == "f":
        width = int(dtype[1]) * 8
        return st.floats(-1000, 1000, width=width, allow_subnormal=False).map(np.dtype(dtype).type)
    return st.integers(-100 if dtype[0] == "i" else 0, 100).map(np.dtype(dtype).type)


@given(data=st.data(), dtype=st.sampled_from([*INTEGERS, "f4", "f8"]))
def test_unpacking_equals_netcdf4(scratch: Path, data: st.DataObject, dtype: str) -> None:
    elements = {"allow_nan": False, "allow_infinity": False, "min_value": -1e4, "max_value": 1e4} if dtype[0] == "f" else None
    stored = data.draw(hnp.arrays(dtype, 6, elements=elements))
    stored[stored == default_fill(stored.dtype)] = 1  # netCDF4 masks these even if they are not declared
    attrs = {}
    for key in ("scale_factor", "add_offset"):
        kind = data.draw(st.sampled_from([None, "f4", "f8", "i2", "i4"]))
        if kind is not None:
            neutral = np.dtype(kind).type(1 if key == "scale_factor" else 0)
            attrs[key] = data.draw(st.one_of(st.just(neutral), scalars(kind)))
    attrs["_FillValue"] = stored[0]
    assert_decodes_alike(scratch, stored, attrs)


@given(data=st.data(), dtype=st.sampled_from(INTEGERS))
def test_missing_integers_equal_netcdf4(scratch: Path, data: st.DataObject, dtype: str) -> None:
    stored = data.draw(hnp.arrays(dtype, 12, elements=st.integers(1, 9)))
    few = st.integers(0, 10)
    attrs: dict[str, Any] = {"_FillValue": np.dtype(dtype).type(data.draw(few))}
    # netCDF returns a vector of one as a scalar: a vector has a number at least twice.
    attrs["missing_value"] = np.array(
        data.draw(st.lists(few, min_size=1, max_size=3)), data.draw(st.sampled_from([dtype, "f8", "i4"]))
    )
    if data.draw(st.booleans()):
        attrs["valid_min"] = np.dtype(dtype).type(data.draw(few))
    if data.draw(st.booleans()):
        attrs["valid_max"] = np.dtype(dtype).type(data.draw(few))
    if data.draw(st.booleans()):
        attrs["valid_range"] = np.array(sorted([data.draw(few), data.draw(few)]), dtype)
    assert_decodes_alike(scratch, stored, attrs)


@given(data=st.data(), dtype=st.sampled_from(["f4", "f8"]))
def test_missing_floats_equal_netcdf4(scratch: Path, data: st.DataObject, dtype: str) -> None:
    some = st.sampled_from([np.nan, np.inf, -0.0, 1e20, -999.0, 0.5, 3.0, 7.25])
    stored = data.draw(hnp.arrays(dtype, 12, elements=some.map(lambda v: float(np.dtype(dtype).type(v)))))
    attrs = {"_FillValue": np.dtype(dtype).type(data.draw(some)), "missing_value": np.dtype(dtype).type(data.draw(some))}
    if data.draw(st.booleans()):
        attrs["valid_range"] = np.array([0, 5], dtype)
    assert_decodes_alike(scratch, stored, attrs)


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4"])
@pytest.mark.parametrize("packed", [False, True])
def test_unsigned_equals_netcdf4(scratch: Path, dtype: str, packed: bool) -> None:
    stored = np.array([-1, -2, 0, 5, 100, -128], dtype)
    attrs = {"_Unsigned": "true", "_FillValue": np.dtype(dtype).type(-1), "valid_max": np.dtype(dtype).type(-2)}
    if packed:
        attrs |= {"scale_factor": np.float32(0.1), "add_offset": np.float32(2)}
    assert_decodes_alike(scratch, stored, attrs)


def test_double_attribute_is_cast_to_float() -> None:
    result = encoding(np.dtype("f4"), {"missing_value": 1e20, "_FillValue": np.float64(-9999.9)})
    _, mask = result.decode(np.array([1e20, -9999.9, 1.0], "f4"))
    assert mask is not None and mask.tolist() == [True, True, False]


@pytest.mark.parametrize("value", [1e20, np.nan, 0.5, np.inf, 40_000, "abc", "", b"\xff", None, [], {}, 1j, 10**30, "1e999"])
@pytest.mark.parametrize("key", ["_FillValue", "missing_value", "valid_min", "valid_max"])
def test_missing_value_out_of_range_is_dropped(key: str, value: Any) -> None:
    if key.startswith("valid") and value in (0.5,):
        return
    raw = np.array([0, 1, -32768], "i2")
    result = encoding(raw.dtype, {key: value})
    assert result == encoding(raw.dtype, {}) and result.trivial
    values, mask = result.decode(raw)
    assert values is raw and mask is None


@pytest.mark.parametrize(
    "value", ["-999", b"-999", " -999.0 ", np.array(["-999"]), [-999], np.array(-999.0), np.array([-999], ">i4")]
)
def test_missing_values_may_be_text_or_vectors(value: Any) -> None:
    for dtype in ("i2", "f4", "f8", "i8"):
        _, mask = encoding(np.dtype(dtype), {"missing_value": value}).decode(np.array([-999, 1], dtype))
        assert mask is not None and mask.tolist() == [True, False]


def test_large_integers_are_not_rounded() -> None:
    for value in (2**63 - 1, str(2**63 - 1)):
        result = encoding(np.dtype("i8"), {"_FillValue": value})
        _, mask = result.decode(np.array([2**63 - 1, 2**63 - 2]))
        assert mask is not None and mask.tolist() == [True, False]


@settings(max_examples=examples(400))
@given(st.data())
def test_unsigned_of_every_type_and_word_equals_netcdf4(scratch: Path, data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])))
    bounds, unsigned = np.iinfo(dtype), np.dtype(f"u{dtype.itemsize}")
    some = st.sampled_from([0, 1, 5, 100, bounds.min, bounds.max, bounds.max - 1]) | st.integers(bounds.min, bounds.max)
    # Without the default fill values, which netCDF4 treats as missing if none is declared.
    attrs: dict[str, Any] = {"_FillValue": dtype.type(data.draw(some))}
    attrs["_Unsigned"] = data.draw(st.sampled_from(["true", "True", "false", "False", "TRUE", " true", "yes", "", "1"]))
    kind = data.draw(st.sampled_from([dtype, unsigned]))
    own = st.integers(int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    for key in data.draw(st.sets(st.sampled_from(["missing_value", "valid_min", "valid_max", "valid_range"]))):
        numbers = [data.draw(own) for _ in range(2 if key == "valid_range" else 1)]
        attrs[key] = np.array(numbers, kind) if key == "valid_range" else kind.type(numbers[0])
    factors = [{}, {"scale_factor": 0.5}, {"scale_factor": np.float32(2), "add_offset": np.float32(1)}, {"add_offset": 3.0}]
    attrs |= data.draw(st.sampled_from(factors))
    stored = np.array(data.draw(st.lists(some, min_size=1, max_size=6)), dtype)
    assert_decodes_alike(scratch, stored, attrs)


def test_unsigned_fill_value_of_json() -> None:
    result = encoding(np.dtype("i1"), {"_Unsigned": "true", "_FillValue": 255})
    assert result.decode(np.array([-1, 3], "i1"))[1].tolist() == [True, False]  # type: ignore[union-attr]


def test_undeclared_nan_is_data() -> None:
    raw = np.array([np.nan, 1, 3])
    assert encoding(raw.dtype, {"_FillValue": 1.0}).decode(raw)[1].tolist() == [False, True, False]  # type: ignore[union-attr]
    assert encoding(raw.dtype, {"valid_range": [0.0, 2.0]}).decode(raw)[1].tolist() == [False, False, True]  # type: ignore[union-attr]


def test_valid_bounds_of_packed_data() -> None:
    raw = np.array([0, 10, 20, 30], "i2")
    packing = {"scale_factor": 0.5}
    for bounds in (
        {"valid_range": np.array([10, 20], "i2")},
        {"valid_range": np.array([5.0, 10.0])},
        {"valid_min": 5.0, "valid_max": 20},
    ):
        _, mask = encoding(raw.dtype, packing | bounds).decode(raw)
        assert mask is not None and mask.tolist() == [True, False, False, True]
    # Values that are not packed have only one scale.
    _, mask = encoding(raw.dtype, {"valid_min": 0.5, "valid_max": 29.5}).decode(raw)
    assert mask is not None and mask.tolist() == [True, False, False, True]


def test_encodings_with_nan_are_equal() -> None:
    one, other = (encoding(np.dtype("f4"), {"_FillValue": np.float32("nan"), "missing_value": np.float64("nan")}) for _ in "12")
    assert one == other and hash(one) == hash(other) and one.missing_nan and one.missing == ()
    assert len({one, other, encoding(np.dtype("f4"), {})}) == 2


@pytest.mark.parametrize(
    ("dtype", "attrs", "expected"),
    [
        ("i2", {"_FillValue": np.int16(-5), "missing_value": np.int16(-6)}, -5),
        ("i2", {"_FillValue": 1e20, "missing_value": np.int16(-6)}, -6),
        ("i2", {}, None),
        ("i2", {"_FillValue": np.int16(-5), "scale_factor": np.int16(2)}, None),
        ("u1", {"_FillValue": 255}, 255),
        ("?", {"_FillValue": False}, False),
        (TEXT, {"_FillValue": "-"}, ""),
    ],
)
def test_fill_value(dtype: Any, attrs: dict[str, Any], expected: Any) -> None:
    assert encoding(np.dtype(dtype), attrs).fill_value == expected


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16", "M8[s]", "m8[D]"])
def test_fill_value_nan(dtype: str) -> None:
    fill = encoding(np.dtype(dtype), {"_FillValue": 0}).fill_value
    assert fill != fill and np.asarray(fill).dtype == np.dtype(dtype)


def test_fill_values_of_netcdf() -> None:
    for name in INTEGERS:
        assert default_fill(np.dtype(name)) == netCDF4.default_fillvals[name]
        assert default_fill(np.dtype(name)).dtype == np.dtype(name)


def test_text() -> None:
    raw = np.array(["a", "none", "", "-"], dtype=TEXT)
    values, mask = encoding(TEXT, {"_FillValue": "-", "missing_value": "none", "scale_factor": 2.0}).decode(raw)
    assert values is raw and mask is not None and mask.tolist() == [False, True, False, True]


@pytest.mark.parametrize("raw", [np.array([True, False]), np.array(["2000", "NaT"], "M8[s]"), np.array([0, 1], "m8[D]")])
def test_other_dtypes_pass_through(raw: np.ndarray) -> None:
    values, mask = encoding(raw.dtype, {"_FillValue": raw[0], "scale_factor": 2.0, "valid_min": 1}).decode(raw)
    assert values is raw and mask is None


def test_complex() -> None:
    raw = np.array([1 + 1j, 1e20, np.nan], "c8")
    values, mask = encoding(raw.dtype, {"_FillValue": 1e20, "missing_value": np.nan}).decode(raw)
    assert values is raw and mask is not None and mask.tolist() == [False, True, True]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2, 3), (1, 1, 1)])
def test_shapes_are_kept(shape: tuple[int, ...]) -> None:
    raw = np.ones(shape, "i2")
    raw.flags.writeable = False
    result = encoding(raw.dtype, {"scale_factor": 0.5, "add_offset": 1.0, "_FillValue": 1, "missing_value": 2, "valid_max": 7})
    values, mask = result.decode(raw)
    assert isinstance(values, np.ndarray) and values.shape == shape and (values == 1.5).all()
    assert (mask is None) == (raw.size == 0)
    assert mask is None or (isinstance(mask, np.ndarray) and mask.shape == shape and mask.dtype == bool)


def test_big_endian() -> None:
    result = encoding(np.dtype(">i2"), {"_FillValue": np.array(-1, ">i2"), "scale_factor": np.array([0.5], ">f4")})
    values, mask = result.decode(np.array([4, -1], ">i2"))
    assert result.stored == np.dtype("i2") and values.dtype == np.float32 and values.dtype.isnative
    assert values[0] == 2 and mask is not None and mask.tolist() == [False, True]


def test_missing_values_may_overflow() -> None:
    raw = np.array([9.96921e36, 1], "f4")
    values, mask = encoding(raw.dtype, {"_FillValue": raw[0], "scale_factor": np.float32(1e9)}).decode(raw)
    assert values[1] == np.float32(1e9) and mask is not None and mask.tolist() == [True, False]


@pytest.mark.parametrize("value", ["abc", [1.0, 2.0], np.nan, {}, [], np.inf, 1j])
@pytest.mark.parametrize("key", ["scale_factor", "add_offset"])
def test_packing_attribute_that_is_not_a_number(key: str, value: Any) -> None:
    with pytest.raises(FormatError, match=rf"{key} .* is not one finite number.*variable 't2m'"):
        encoding(np.dtype("i2"), {key: value}, "t2m")


def test_packing_as_text_or_blank() -> None:
    assert encoding(np.dtype("i2"), {"scale_factor": "0.5"}).decode(np.array([4], "i2"))[0].tolist() == [2.0]
    assert not encoding(np.dtype("i2"), {"scale_factor": " "}).packed


def test_real_archive_decodes_as_netcdf4(shared_data: Path) -> None:
    names = ("_FillValue", "missing_value", "valid_min", "valid_max", "valid_range", "scale_factor", "add_offset", "_Unsigned")
    seen: set[Encoding] = set()
    for path in sorted(shared_data.rglob("*.nc"))[:6]:
        with netCDF4.Dataset(path) as file:
            for variable in file.variables.values():
                if not isinstance(variable.dtype, np.dtype) or variable.dtype.kind not in "iuf" or 0 in variable.shape:
                    continue
                key = tuple(slice(0, 2) if size < 100 else slice(0, 100) for size in variable.shape)
                expected = np.ma.masked_array(variable[key])
                variable.set_auto_maskandscale(False)
                attrs = {name: variable.getncattr(name) for name in names if name in variable.ncattrs()}
                result = encoding(variable.dtype, attrs, variable.name)
                values, mask = result.decode(np.asarray(variable[key]))
                hidden = np.ma.getmaskarray(expected)
                np.testing.assert_array_equal(np.zeros(hidden.shape, bool) if mask is None else mask, hidden)
                np.testing.assert_array_equal(values[~hidden], expected.data[~hidden])
                seen.add(result)
    assert seen
