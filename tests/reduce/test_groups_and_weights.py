"""Reductions by groups and with weights equal those of NumPy, group by group."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.reduce import reduce_array
from aggarray.reduce.operations import OPERATIONS
from tests.reduce.test_operations import NAMES, arrays, joined, small_blocks
from tests.support.reductions import assert_reduced, deviation_scale, reduced

pytestmark = pytest.mark.quick

DRAWN = tuple[aa.MasterArray, np.ndarray, np.ndarray]
SIZES = st.sampled_from([1, 5, 1000]), st.sampled_from([1, 300, 10**6])


@given(arrays(), *SIZES, st.booleans(), st.integers(0, 2), st.data())
def test_groups(drawn: DRAWN, elements: int, partial: int, skipna: bool, min_count: int, data: st.DataObject) -> None:
    array, values, mask = drawn
    axis = data.draw(st.integers(0, values.ndim - 1))
    labels = np.array(data.draw(st.lists(st.integers(0, 3), min_size=values.shape[axis], max_size=values.shape[axis])), "i8")
    operations = [o for o in OPERATIONS if not (o in ("std", "var") and np.isinf(values).any())]
    operations = data.draw(st.sampled_from([operations, ["mean", "sum"]]))
    with small_blocks(elements, partial), np.errstate(all="ignore"):
        results = reduce_array(array, operations, NAMES[axis], by=labels, skipna=skipna, min_count=min_count)
    for operation, result in results.items():
        assert result.dimensions == tuple("group" if d == axis else n for d, n in enumerate(array.dimensions))
        for number, label in enumerate(np.unique(labels)):
            own = np.flatnonzero(labels == label)
            with np.errstate(all="ignore"):
                expected = reduced(
                    operation, values.take(own, axis), mask.take(own, axis), [axis], skipna=skipna, min_count=min_count
                )
            if operation in ("argmin", "argmax"):
                expected = np.ma.where(expected < 0, -1, own[expected]) if expected.size else expected
            scale = deviation_scale(operation, values)
            assert_reduced(result.lazy[(slice(None),) * axis + (number,)], expected, (operation, label), scale)


@given(arrays(), *SIZES, st.booleans(), st.data())
def test_weights(drawn: DRAWN, elements: int, partial: int, skipna: bool, data: st.DataObject) -> None:
    array, values, mask = drawn
    axes = data.draw(st.lists(st.integers(0, values.ndim - 1), unique=True, min_size=1).map(sorted))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    names = [NAMES[d] for d in axes]
    weights: Any
    if data.draw(st.booleans()):
        weights = {n: rng.integers(0, 4, values.shape[d]) * 0.37 for n, d in zip(names, axes, strict=True)}
        assume(all(own.any() or not own.size for own in weights.values()))  # weights of 0 alone are an error
        factors = np.ones(values.shape)
        for d, own in zip(axes, weights.values(), strict=True):
            factors = factors * own.reshape([-1 if other == d else 1 for other in range(values.ndim)])
    else:
        weights = rng.integers(0, 4, [values.shape[d] for d in axes]) / 3
        assume(weights.any() or not weights.size)
        factors = np.broadcast_to(weights.reshape([n if d in axes else 1 for d, n in enumerate(values.shape)]), values.shape)
    operations = ["mean", "sum", "count", "max"] + ([] if np.isinf(values).any() else ["std", "var"])
    with small_blocks(elements, partial), np.errstate(all="ignore"):
        results = reduce_array(array, operations, names, weights=weights, skipna=skipna)
        assert list(results) == operations
        for operation, result in results.items():
            expected = reduced(operation, values, mask, axes, weights=factors, skipna=skipna)
            if operation == "sum":
                expected = expected.astype("f8")
            assert_reduced(result, expected, operation, deviation_scale(operation, values))


def test_groups_with_weights() -> None:
    values = np.ma.MaskedArray(np.arange(60.0).reshape(10, 6), np.arange(60).reshape(10, 6) % 7 == 0)
    array, mask = joined(values, [[3, 8], []])
    weights, labels = np.arange(10) / 3, np.arange(10) % 3
    with small_blocks(12, 1000):
        results = reduce_array(array, ["mean", "std"], "t", by=labels, weights={"t": weights})
    for operation, result in results.items():
        for label in range(3):
            own = labels == label
            factors = np.broadcast_to(weights[own, None], values[own].shape)
            expected = reduced(operation, values.data[own], mask[own], [0], weights=factors)
            assert_reduced(result.lazy[label], expected, operation)


def test_positions_without_a_group_count_in_none() -> None:
    array, _ = joined(np.ma.MaskedArray(np.arange(8.0)), [[3]])
    labels = np.array([1.0, np.nan, 2.0, 1.0, np.nan, 2.0, 2.0, 1.0])
    results = reduce_array(array, ["sum", "count"], by=labels)
    assert results["sum"][:].tolist() == [10.0, 13.0] and results["count"][:].tolist() == [3, 3]
