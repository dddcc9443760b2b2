"""Values are rounded once when conformed to the master, with their mask."""

from typing import Any

import cf_units
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aggarray.cf.encoding import encoding
from aggarray.errors import AggregationError, UnitsError
from aggarray.partition.conform import arrange, cast, conform, convert, fill_for, plain_dtype
from aggarray.partition.matrix import Step, Template
from tests.support.tilings import same

pytestmark = pytest.mark.quick

TEXT = np.dtypes.StringDType()


def step(units: str | None, dtype: Any) -> Step:
    return Step(units, None, np.dtype(dtype))


@given(
    hnp.arrays("f8", 7, elements=st.floats(-1e6, 1e6)),
    st.sampled_from([("degC", "K"), ("hPa", "Pa"), ("m s-1", "km h-1"), ("ft", "m")]),
)
def test_units_match_udunits_rounded_once(values: np.ndarray, units: tuple[str, str]) -> None:
    expected = cf_units.Unit(units[0]).convert(values.copy(), cf_units.Unit(units[1]))
    result, mask = convert(values, None, step(units[0], "f8"), step(units[1], "f8"))
    assert mask is None
    np.testing.assert_allclose(result, expected, rtol=1e-14, atol=1e-9)
    single, _ = convert(values, None, step(units[0], "f8"), step(units[1], "f4"))
    same(single, result.astype("f4"))
    whole, _ = convert(values, None, step(units[0], "f8"), step(units[1], "i8"))
    same(whole, np.rint(result).astype("i8"))


def test_identity_returns_the_input() -> None:
    values = np.arange(3.0)
    assert convert(values, None, step("K", "f8"), step("K", "f8"))[0] is values
    assert cast(values, None, np.dtype("f8"))[0] is values


@pytest.mark.parametrize("dtype", ["i1", "u2", "i8", "?"])
def test_nan_is_masked_in_integers(dtype: str) -> None:
    values = np.array([1.0, np.nan, np.inf, 0])
    result, mask = cast(values, None, np.dtype(dtype))
    assert mask is not None and mask.tolist() == [False, True, True, False]
    same(result[~mask], np.array([1, 0]).astype(dtype))
    _, more = cast(values, np.array([True, False, False, False]), np.dtype(dtype))
    assert more is not None and more.tolist() == [True, True, True, False]


def test_masked_values_are_ignored() -> None:
    values, mask = np.array([1e300, 5.0]), np.array([True, False])
    result, kept = cast(values, mask, np.dtype("i2"))
    assert result[1] == 5 and kept is not None and kept.tolist() == [True, False] and values[0] == 1e300
    text, _ = cast(np.array(["", "7"], TEXT), mask, np.dtype("i4"))
    assert text[1] == 7
    assert cast(np.array([1e300]), None, np.dtype("f4"))[0][0] == np.inf
    same(cast(np.array([1 + 0j]), None, np.dtype("f8"))[0], np.array([1.0]))


def test_errors() -> None:
    with pytest.raises(UnitsError, match="units do not convert"):
        convert(np.array(["a"], TEXT), None, step("K", TEXT), step("degC", TEXT))
    with pytest.raises(AggregationError, match="do not convert to"):
        cast(np.array(["a"], TEXT), None, np.dtype("f8"))
    for wrong in ("O", "V8", "what", object):
        with pytest.raises(AggregationError, match="dtype"):
            plain_dtype(wrong)
    assert plain_dtype(">c16") == np.dtype("c16") and plain_dtype("U3") == TEXT and plain_dtype(float) == np.dtype("f8")


def test_steps_are_applied_in_order() -> None:
    plain = Template((3,), ("x",), (True,), "m", None, encoding(np.dtype("f8"), {}))
    lossy = Template((3,), ("x",), (True,), "m", None, plain.encoding, steps=(step("m", "i4"), step("km", "f8")))
    values = np.array([1000.7, 2500.2, np.nan])
    result, mask = conform(values, None, lossy, step("m", "f8"))
    assert result[:2].tolist() == [1000.0, 2500.0] and mask is not None and mask.tolist() == [False, False, True]
    same(conform(values, None, plain, step("m", "f8"))[0], values)


@given(st.permutations(range(4)), st.lists(st.integers(0, 3), unique=True), st.booleans())
def test_arrange(order: list[int], flips: list[int], new: bool) -> None:
    block = np.arange(2 * 3 * 4 * 1).reshape(2, 3, 4, 1)
    names = ("a", "b", "c", "one")
    wanted = [names[i] for i in order if names[i] != "one"]
    target = ["new", *wanted] if new else wanted
    result = arrange(block, names, flips, target)
    expected = np.einsum("abc->" + "".join(wanted), np.flip(block, flips)[..., 0])
    np.testing.assert_array_equal(result, expected[np.newaxis] if new else expected)
    assert np.shares_memory(result, block)


@pytest.mark.parametrize(
    ("dtype", "declared", "wanted"),
    [
        ("i2", 5, 5),
        ("i2", 70000, -32767),
        ("i2", 1.5, -32767),
        ("i2", np.nan, -32767),
        ("u1", -1, 255),
        ("i4", None, -2147483647),
    ],
)
def test_fill_for(dtype: str, declared: Any, wanted: int) -> None:
    result = fill_for(np.dtype(dtype), declared)
    assert result == wanted and result.dtype == np.dtype(dtype)
    assert np.isnan(fill_for(np.dtype("f4"), declared)) and fill_for(np.dtypes.StringDType(), declared) == ""
