"""Reductions of arrays in memory equal those of NumPy in double precision."""

from itertools import pairwise, product
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import aggarray as aa
from aggarray.reduce import blocks, reduce_array
from aggarray.reduce.operations import OPERATIONS, ORDERED
from tests.support.reductions import assert_reduced, deviation_scale, reduced

pytestmark = pytest.mark.quick

NAMES = ("t", "y", "x")
NUMBERS = {
    "f": st.one_of(st.integers(-8, 8).map(float), st.floats(-1e3, 1e3, width=32), st.sampled_from([np.inf, -0.0])),
    "i": st.integers(-100, 100),
    "u": st.integers(0, 200),
    "b": st.booleans(),
}


@st.composite
def masked_values(draw: st.DrawFn) -> np.ma.MaskedArray:
    """Draw values of any dtype of numbers, with a mask."""
    shape = tuple(draw(st.lists(st.integers(0, 6), min_size=1, max_size=3)))
    dtype = np.dtype(draw(st.sampled_from(["f4", "f8", "i2", "i4", "i8", "u1", "u8", "?"])))
    values = draw(hnp.arrays(dtype, shape, elements=NUMBERS[dtype.kind]))
    share = draw(st.sampled_from([0, 1, 5, 9, 10])) if dtype.kind != "b" else 0
    mask = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 10, shape) < share
    return np.ma.MaskedArray(values, mask)


def joined(values: np.ma.MaskedArray, cuts: list[list[int]], hole: int = -1) -> tuple[aa.MasterArray, np.ndarray]:
    """Return an array of pieces between the cuts, and its mask; ``hole``: the piece that is left out."""
    names = NAMES[: values.ndim]
    ends = [sorted({0, n, *(c for c in own if c < n)}) for n, own in zip(values.shape, cuts, strict=True)]
    locations = list(product(*([(0, 0)] if len(e) < 2 else list(pairwise(e)) for e in ends)))
    fill = None if values.dtype.kind in "fb" else values.dtype.type(np.iinfo(values.dtype).max)
    mask, pieces = np.ma.getmaskarray(values).copy(), []
    for number, location in enumerate(locations):
        key = tuple(slice(*ends) for ends in location)
        if number == hole and len(locations) > 1:
            mask[key] = True
            continue
        data = values.data[key].copy()
        if fill is not None or values.dtype.kind == "f":
            data[mask[key]] = np.nan if fill is None else fill
        pieces.append((location, aa.SubArray.from_array(data, dimensions=names, fill_value=fill)))
    array = aa.MasterArray.from_subarrays(pieces, dimensions=names, shape=values.shape, dtype=values.dtype, name="v")
    return array, mask


@st.composite
def arrays(draw: st.DrawFn) -> tuple[aa.MasterArray, np.ndarray, np.ndarray]:
    """Draw an array, perhaps selected and flipped, and its values and mask."""
    values = draw(masked_values())
    cuts = [draw(st.lists(st.integers(1, 5), max_size=2)) for _ in values.shape]
    array, mask = joined(values, cuts, draw(st.sampled_from([-1, 0, 1])) if values.dtype.kind != "b" else -1)
    data = values.data.copy()
    if draw(st.booleans()):
        key = tuple(draw(st.sampled_from([slice(None), slice(1, None, 2), slice(None, None, -1)])) for _ in values.shape)
        array, data, mask = array.lazy[key], data[key], mask[key]
    return array, data, mask


def small_blocks(elements: int, partial: int) -> Any:
    """Make blocks and partial results so small that arrays have several."""
    return mock.patch.multiple(blocks, BLOCK=elements, PARTIAL=partial)


@given(arrays(), st.sampled_from([1, 5, 1000]), st.sampled_from([1, 300, 10**6]), st.booleans(), st.integers(0, 3), st.data())
def test_reductions_equal_those_of_numpy(
    drawn: tuple[aa.MasterArray, np.ndarray, np.ndarray],
    elements: int,
    partial: int,
    skipna: bool,
    min_count: int,
    data: st.DataObject,
) -> None:
    array, values, mask = drawn
    axes = data.draw(st.lists(st.integers(0, values.ndim - 1), unique=True).map(sorted))
    operations = [o for o in OPERATIONS if len(axes) == 1 or o not in ORDERED]
    if data.draw(st.booleans()):
        operations = data.draw(st.lists(st.sampled_from(["mean", "sum", "count"]), min_size=1, unique=True))
    if np.isinf(values).any():
        operations = [o for o in operations if o not in ("std", "var")]
    with small_blocks(elements, partial), np.errstate(all="ignore"):
        results = reduce_array(
            array,
            operations,
            [NAMES[d] for d in axes],
            skipna=skipna,
            min_count=min_count,
            threads=data.draw(st.integers(1, 2)),
        )
    for operation, result in results.items():
        with np.errstate(all="ignore"):
            expected = reduced(operation, values, mask, axes, skipna=skipna, min_count=min_count)
        assert result.dimensions == tuple(n for d, n in enumerate(array.dimensions) if d not in axes)
        assert_reduced(result, expected, operation, deviation_scale(operation, values))


def example() -> aa.MasterArray:
    values = np.ma.MaskedArray(np.arange(24.0).reshape(4, 6), np.eye(4, 6, dtype=bool))
    return joined(values, [[2], []])[0]


@pytest.mark.parametrize("operation", ["count", "sum", "mean"])
@pytest.mark.parametrize("skipna", [True, False])
def test_missing_values_stay_missing_without_reduced_dimensions(operation: str, skipna: bool) -> None:
    values = np.ma.masked_invalid(np.array([[1.0, np.nan, 3.0]]))
    array, mask = joined(values, [[], []])
    result = reduce_array(array, [operation], [], skipna=skipna, min_count=0)[operation]
    expected = reduced(operation, values.data, mask, [], skipna=skipna, min_count=0)
    assert_reduced(result, expected, operation)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_methods(operation: str) -> None:
    array = example()
    result = getattr(array, operation)("t")
    same = array.reduce(operation, dims=["t"])
    assert np.array_equal(result[:], same[:]) and result.dimensions == ("x",) if "x" in array.dimensions else ("y",)


def test_functions_of_numpy_read_all_values() -> None:
    array = joined(np.ma.MaskedArray(np.arange(24.0).reshape(4, 6)), [[2], []])[0]
    for function in (np.mean, np.std, np.var, np.any, np.all, np.argmin, np.argmax):
        assert np.array_equal(function(array), function(array[...]))  # type: ignore[operator]
        assert np.array_equal(function(array, axis=1), function(array[...], axis=1))  # type: ignore[operator]
    for function in (np.sum, np.min, np.max):
        with pytest.raises(TypeError, match=r"no arithmetic \((sum|min|max)\): v; use .to_xarray\(\)"):
            function(array)  # type: ignore[operator]
    with pytest.raises(TypeError, match=r"mean\(\) got an .*'dim'; .*dims=...\); the other arguments are by, weights, skipna"):
        array.mean(dim="t")


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("men", "t"), aa.AggregationError, r"unknown operation: 'men'.*did you mean 'mean'\? the operations are: mean, sum"),
        (("mean", "tt"), aa.NotFoundError, r"no dimension 'tt' to reduce.*the dimensions are: t, y"),
        (("argmin",), aa.AggregationError, r"argmin is along one dimension: 2 are given \(t, y\)"),
        (("first", []), aa.AggregationError, r"first is along one dimension: 0 are given \(none\)"),
        (("mean", None, {"skipna": 3}), aa.AggregationError, "invalid skipna=3"),
        (("mean", None, {"min_count": -1}), aa.AggregationError, "invalid min_count=-1"),
        (("mean", None, {"min_count": True}), aa.AggregationError, "invalid min_count=True"),
        (("mean", None, {"by": "month"}), aa.AggregationError, r"by groups one dimension: 2 are given \(t, y\)"),
    ],
)
def test_errors_come_before_anything_is_read(arguments: tuple[Any, ...], error: type[Exception], text: str) -> None:
    *positional, options = arguments if isinstance(arguments[-1], dict) else (*arguments, {})
    with mock.patch.object(aa.MasterArray, "read", side_effect=AssertionError), pytest.raises(error, match=text):
        example().reduce(*positional, **options)


def test_values_that_cannot_be_reduced() -> None:
    text = aa.SubArray.from_array(np.array(["a", "b"]), dimensions=("t",))
    array = aa.MasterArray.from_subarrays([([(0, 2)], text)], dimensions=("t",), name="names")
    with pytest.raises(aa.AggregationError, match="text cannot be reduced: max"):
        array.max()
    pair = aa.SubArray.from_array(np.array([1j]), dimensions=("t",))
    with pytest.raises(aa.AggregationError, match="values of dtype complex128 cannot be reduced: mean"):
        aa.MasterArray.from_subarrays([([(0, 1)], pair)], dimensions=("t",)).mean()


def test_reference_times() -> None:
    times = aa.SubArray.from_array(np.array([3.0, 1.0, np.nan]), dimensions=("t",), units="days since 2000-01-01")
    array = aa.MasterArray.from_subarrays([([(0, 3)], times)], dimensions=("t",), name="time")
    for operation, value in ("min", 1), ("max", 3), ("first", 3), ("last", 1), ("argmin", 1):
        result = array.reduce(operation)
        assert result[...] == value and (result.units == array.units or operation == "argmin")
    assert array.count()[...] == 2
    with pytest.raises(
        aa.AggregationError, match=r"reference times have no mean: 'days since.*they have argmax, argmin, count"
    ):
        array.mean()


def test_precision_of_deviations() -> None:
    values = np.ma.MaskedArray(1e8 + np.arange(1000.0))
    array = joined(values, [[]])[0]
    with small_blocks(7, 10**6):
        assert np.isclose(array.var()[...], np.arange(1000).var(), rtol=1e-12)


def test_large_integers() -> None:
    values = np.array([2**62, 2**62, -(2**62)], "i8")
    array = aa.MasterArray.from_subarrays([([(0, 3)], aa.SubArray.from_array(values))], dimensions=("t",))
    assert array.mean()[...] == 2.0**62 / 3 and array.sum()[...] == 2**62


def test_arrays_without_dimensions() -> None:
    array = joined(np.ma.MaskedArray(np.arange(4.0)), [[]])[0].lazy[2]
    assert array.ndim == 0
    results = reduce_array(array, ["mean", "sum", "min", "max", "count", "std", "any", "all"])
    assert [result[...].item() for result in results.values()] == [2, 2, 2, 2, 1, 0, True, True]
    assert array.median()[...] == 2


def test_empty_arrays_and_groups_warn_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    array = joined(np.ma.MaskedArray(np.ones((0, 3))), [[], []])[0]
    assert np.isnan(array.mean("t")[:]).tolist() == [True] * 3 and array.sum("t", min_count=0)[:].tolist() == [0] * 3
    assert array.mean("y")[:].size == 0 and array.count()[...] == 0 and np.isnan(array.median("t")[:]).all()
    no_group = example().mean("t", by=[np.nan] * 4)
    assert no_group.shape == (0, 6) and example().median("t", by=[np.nan] * 4).shape == (0, 6)
    assert not recwarn.list


def test_half_precision() -> None:
    values = np.array([[60000, 60000, np.nan], [1, 2, 3]], "f2")
    array = joined(np.ma.MaskedArray(values), [[], []])[0]
    assert array.mean("y")[:].tolist() == [60000, 2] and array.max("y")[:].dtype == np.float16 and array.std("y")[0] == 0


def test_names_of_dimensions() -> None:
    with pytest.raises(aa.NotFoundError, match="no dimension 0 to reduce"):
        example().mean(0)  # type: ignore[arg-type]
    with pytest.raises(aa.AggregationError, match=r"unknown operation: 'median'.*call \.median\("):
        example().reduce("median")
    assert example().mean(("t", "t")).dimensions == ("y",) and example().mean([]).shape == example().shape
