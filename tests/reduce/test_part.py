"""Sums and weights of blocks, against NumPy."""

from math import prod

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggarray.reduce import reduce_array
from aggarray.reduce.part import Part, overwrite
from tests.reduce.arrays import array
from tests.support.examples import examples

SHAPES = npst.array_shapes(min_dims=1, max_dims=3, max_side=40)


@settings(max_examples=examples(60), deadline=None)
@given(
    shape=SHAPES,
    dtype=st.sampled_from(["f2", "f4", "f8", "g", "i2"]),
    fraction=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    step=st.sampled_from([1, 2]),
)
def test_missing_values_are_overwritten(shape: tuple[int, ...], dtype: str, fraction: float, step: int) -> None:
    random = np.random.default_rng(prod(shape))
    values = random.normal(0, 100, shape).astype(dtype)[..., ::step]
    missing = random.random(values.shape) < fraction
    if values.dtype.kind == "f":
        values[missing] = np.nan
    expected = np.where(missing, 0, values)
    overwrite(values, missing)
    np.testing.assert_array_equal(values, expected)


@settings(max_examples=examples(60), deadline=None)
@given(
    axes=st.sampled_from([(0,), (1, 2), (0, 2), (0, 1, 2)]),
    weighted=st.lists(st.booleans(), min_size=3, max_size=3),
    kept_weights=st.booleans(),
    missing=st.sampled_from(["none", "cells", "some", "all"]),
)
def test_weights_of_values_that_are_not_missing(
    axes: tuple[int, ...], weighted: list[bool], kept_weights: bool, missing: str
) -> None:
    random = np.random.default_rng(len(axes))
    shape = (3, 4, 5)
    factors = [
        random.random([n if d == axis else 1 for d, n in enumerate(shape)])
        for axis, own in enumerate(weighted)
        if own and (axis in axes or kept_weights)
    ]
    absent = np.zeros(shape, bool)
    if missing == "cells":  # all the values of some cells
        absent |= random.random([1 if axis in axes else n for axis, n in enumerate(shape)]) < 0.5
    elif missing != "none":
        absent |= random.random(shape) < (0.3 if missing == "some" else 1)
    values = np.where(absent, np.nan, random.random(shape))
    weights = np.broadcast_to(prod(factors, start=np.ones(1)), shape)
    part = Part(values, absent if absent.any() else None, axes, factors, range(shape[0]))
    kept = tuple(n for axis, n in enumerate(shape) if axis not in axes)
    assert np.size(part.weight) == 1 or np.shape(part.weight) == kept
    np.testing.assert_allclose(np.broadcast_to(part.weight, kept), np.where(absent, 0, weights).sum(axis=axes), rtol=1e-14)
    np.testing.assert_allclose(part.total(np.dtype("f8")), np.where(absent, 0, values * weights).sum(axis=axes), rtol=1e-14)


@pytest.mark.parametrize("axes", [(0,), (1, 2)])
def test_weights_without_missing_values_are_one_number(axes: tuple[int, ...]) -> None:
    """What is the same in all cells is not computed for each."""
    factor = np.arange(1.0, 5.0).reshape([4 if d == axes[0] else 1 for d in range(3)])
    part = Part(np.ones((4, 4, 4)), None, axes, [factor], range(4))
    assert np.size(part.weight) == 1
    assert np.reshape(part.weight, ()) == 10 * 4 ** (len(axes) - 1)


@pytest.mark.parametrize("operation", ["mean", "std"])
def test_weights_over_a_kept_dimension_and_strips_of_cells(monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    """Large cells are merged strip by strip, with weights that depend on one of two kept dimensions."""
    monkeypatch.setattr("aggarray.reduce.accumulators._TOGETHER", 64)
    monkeypatch.setattr("aggarray.reduce.streaming.BLOCK", 256)
    random = np.random.default_rng(1)
    values, weights = random.normal(5, 2, (8, 20, 30)), random.random((8, 20)) + 0.1
    weighing = array(weights, ("lon", "lat"), {}, name="w")
    result = reduce_array(array(values, ("lon", "lat", "time"), {}), [operation], ["lon"], weights=weighing)[operation]
    w = np.broadcast_to(weights[:, :, None], values.shape)
    mean = np.average(values, axis=0, weights=w)
    expected = mean if operation == "mean" else np.sqrt(np.average((values - mean) ** 2, axis=0, weights=w))
    np.testing.assert_allclose(np.asarray(result.values), expected, rtol=1e-12)
