"""Tests of selectors against NumPy: one selection, and compositions of two."""

import doctest
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray.memory.selection as selection
from aggarray.errors import SelectionError
from aggarray.memory.selection import Range, Selector, as_range, compose, length, normalise, result_shape
from tests.support.examples import examples

pytestmark = pytest.mark.quick

NAMES = ("time", "lat", "lon", "level")


def listed(selector: Selector) -> np.ndarray:
    """Return the positions of a selector as an array."""
    if isinstance(selector, int):
        return np.array([selector])
    return selector.indices() if isinstance(selector, Range) else selector


def part_for(size: int, integers: bool = True) -> st.SearchStrategy[Any]:
    """Draw keys that fit a dimension of a size."""
    near = st.none() | st.integers(-size - 3, size + 3)
    slices = st.builds(slice, near, near, st.none() | st.integers(-4, 4).filter(bool))
    masks = st.lists(st.booleans(), min_size=size, max_size=size)
    arrays: st.SearchStrategy[list[int]] = st.just([])
    if size:
        arrays = st.lists(st.integers(-size, size - 1), max_size=6)
    kinds = [slices, masks.map(lambda m: np.array(m, bool)), arrays, arrays.map(lambda a: np.array(a, np.int32))]
    if size:
        kinds.append(masks)
        kinds.append(st.integers(0, size - 1).map(lambda i: np.array([i], np.uint64)))
        if integers:
            kinds += [st.integers(-size, size - 1), st.integers(-size, size - 1).map(np.int16)]
            kinds += [st.integers(-size, size - 1).map(np.array)]
    return st.one_of(kinds)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, list[Any], tuple[int, ...]]:
    """Draw a key, its parts (one per dimension), and a shape."""
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    parts = [draw(part_for(size)) for size in shape]
    whole = [slice(None)] * len(shape)
    start = draw(st.integers(0, len(shape)))
    stop = draw(st.integers(start, len(shape)))
    if draw(st.booleans()):
        return (*parts[:start], ..., *parts[stop:]), parts[:start] + whole[start:stop] + parts[stop:], shape
    if start == 1 and not isinstance(parts[0], tuple) and draw(st.booleans()):
        return parts[0], parts[:1] + whole[1:], shape
    return tuple(parts[:start]), parts[:start] + whole[start:], shape


@settings(max_examples=examples(200))
@given(cases())
def test_keys_equal_numpy_per_dimension(case: tuple[Any, list[Any], tuple[int, ...]]) -> None:
    key, parts, shape = case
    data = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    selectors = normalise(key, shape, NAMES[: len(shape)])
    expected, axis = data, 0
    for part in parts:
        if isinstance(part, list):
            part = np.array(part, bool if part and isinstance(part[0], bool) else np.int64)
        chosen = expected[(slice(None),) * axis + (part,)]
        axis += chosen.ndim == expected.ndim
        expected = chosen
    result = data[np.ix_(*map(listed, selectors))].reshape(result_shape(selectors)) if shape else data
    np.testing.assert_array_equal(result, expected)
    for selector in selectors:
        if isinstance(selector, np.ndarray):
            assert selector.dtype == np.int64 and not selector.flags.writeable and (selector >= 0).all()
        else:
            assert type(selector) in (int, Range)
        assert length(selector) == len(listed(selector))


@settings(max_examples=examples(200))
@given(st.data(), st.integers(0, 12))
def test_composing_equals_selecting_twice(data: st.DataObject, size: int) -> None:
    (first,) = normalise(data.draw(part_for(size, integers=False)), (size,))
    (second,) = normalise(data.draw(part_for(length(first))), (length(first),))
    both = compose(first, second, size)
    np.testing.assert_array_equal(listed(both), np.arange(size)[listed(first)][listed(second)])
    assert isinstance(both, int) == isinstance(second, int)
    if isinstance(first, Range) and isinstance(second, Range):
        assert isinstance(both, Range)


@settings(max_examples=examples(200))
@given(st.integers(0, 9), st.integers(0, 9), st.integers(-3, 3).filter(bool))
def test_ranges(start: int, count: int, step: int) -> None:
    positions = start + step * np.arange(count)
    if (positions < 0).any():
        with pytest.raises(SelectionError, match="positions >= 0"):
            Range(start, count, step)
        return
    chosen = Range(start, count, step)
    np.testing.assert_array_equal(chosen.indices(), positions)
    np.testing.assert_array_equal(chosen.reversed().indices(), positions[::-1])
    np.testing.assert_array_equal(np.arange(40)[chosen.as_slice()], positions)
    assert as_range(positions) == chosen
    assert chosen.reversed().reversed() == chosen
    assert len(chosen) == count


@settings(max_examples=examples(200))
@given(st.lists(st.integers(0, 6), max_size=5))
def test_as_range_takes_progressions_only(positions: list[int]) -> None:
    array = np.array(positions, np.int64)
    result = as_range(array)
    steps = set(np.diff(array).tolist())
    assert (result is not None) == (len(steps) <= 1 and steps != {0})
    if result is not None:
        np.testing.assert_array_equal(result.indices(), array)


def test_is_full() -> None:
    assert Range(0, 4).is_full(4) and Range(0, 0).is_full(0) and Range(0, 1, 5).is_full(1)
    assert not Range(0, 3).is_full(4) and not Range(0, 4).reversed().is_full(4) and not Range(1, 3).is_full(3)


def test_zero_dimensions() -> None:
    assert normalise((), ()) == normalise(..., ()) == normalise((...,), ()) == ()
    assert result_shape(()) == ()


def test_ranges_as_keys() -> None:
    assert normalise((range(4, 0, -2), Range(1, 2)), (5, 3)) == (Range(4, 2, -2), Range(1, 2))
    assert normalise(range(-3, 0), (5,)) == (Range(2, 3),)
    np.testing.assert_array_equal(normalise(range(-1, 2), (5,))[0], [4, 0, 1])
    assert normalise(range(3, 3), (5,)) == (Range(0, 0),)
    assert normalise(((1, 3),), (5,))[0].tolist() == [1, 3]  # type: ignore[union-attr]


def test_huge_dimensions_take_no_memory() -> None:
    size = 2**62
    started = time.perf_counter()
    key = (slice(None, None, -1), slice(5, -5, 3), -1, [0, -1], ...)
    selectors = normalise(key, (size,) * 5)
    assert selectors[0] == Range(size - 1, size, -1) and selectors[2] == size - 1 and selectors[4] == Range(0, size)
    assert selectors[3].tolist() == [0, size - 1]  # type: ignore[union-attr]
    assert compose(selectors[0], Range(size - 1, size, -1), size) == Range(0, size)
    assert selectors[0].reversed() == Range(0, size)  # type: ignore[union-attr]
    assert time.perf_counter() - started < 1


def test_index_arrays_are_copied() -> None:
    key = np.array([-1, 0])
    (result,) = normalise(key, (3,))
    assert key.tolist() == [-1, 0] and key.flags.writeable
    assert not np.shares_memory(key, np.asarray(result))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (3, "index 3 is out of range for dimension 'lat' of size 3; give -3 to 2"),
        (-4, "index -4 is out of range for dimension 'lat'"),
        (np.uint64(2**64 - 1), "out of range for dimension 'lat'"),
        ((0, [0, 9]), "index 9 is out of range for dimension 'lon' of size 4"),
        ((0, np.array([-5])), "index -5 is out of range for dimension 'lon'"),
        ((0, np.array([2**64 - 1], np.uint64)), "out of range for dimension 'lon'"),
        (range(1, 5), "index 4 is out of range for dimension 'lat'"),
        (Range(1, 3), "index 3 is out of range for dimension 'lat'"),
        ((0, 0, 0), "3 indices for 2 dimensions (lat, lon); give 2 at most"),
        ((..., 0, 0, 0), "3 indices for 2 dimensions"),
        ((..., ...), "2 Ellipses"),
        (1.0, "1.0 (float) cannot index dimension 'lat' of size 3"),
        (np.float32(1), "cannot index dimension 'lat'"),
        ([0.5], "dtype float64 for dimension 'lat'"),
        (np.array([]), "dtype float64 for dimension 'lat'"),
        (slice(0.0, 2), "slice(0.0, 2, None) cannot index dimension 'lat'"),
        (slice(None, None, 0), "step other than 0"),
        (True, "True (bool) cannot index dimension 'lat'"),
        (np.True_, "(bool) cannot index dimension 'lat'"),
        (np.array(False), "cannot index dimension 'lat'"),
        (None, "newaxis"),
        ((0, None), "newaxis"),
        ([True, False], "a mask of 2 elements for dimension 'lat' of size 3; give one of 3"),
        (np.zeros((3, 4), bool), "2 dimensions for dimension 'lat'"),
        ([[0, 1]], "an index array of 2 dimensions for dimension 'lat'"),
        ([[0], [1, 2]], "cannot index dimension 'lat'"),
        ("tas", "'tas' (str) cannot index dimension 'lat'"),
        (["a"], "for dimension 'lat'"),
        (np.ma.array([0, 1], mask=[False, True]), "cannot index dimension 'lat'"),
        ({}, "{} (dict) cannot index dimension 'lat'"),
    ],
)
def test_keys_that_do_not_fit(key: Any, words: str) -> None:
    with pytest.raises(SelectionError) as caught:
        normalise(key, (3, 4), ("lat", "lon"))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_without_names_and_of_empty_dimensions() -> None:
    with pytest.raises(SelectionError, match="index 0 is out of range for dimension 1 of size 0"):
        normalise((0, 0), (1, 0))
    with pytest.raises(SelectionError, match=r"1 indices for 0 dimensions \(none\)"):
        normalise(0, ())


def test_compose_out_of_range() -> None:
    for second in (3, Range(0, 4), Range(3, 2, -1), np.array([0, 3])):
        with pytest.raises(SelectionError, match="position 3 is out of range for a selection of 3"):
            compose(Range(0, 3), second, 10)
        with pytest.raises(SelectionError, match="position 3 is out of range for a selection of 3"):
            compose(np.array([4, 4, 5]), second, 10)
    with pytest.raises(SelectionError, match="has dropped the dimension"):
        compose(4, 0, 10)
    with pytest.raises(SelectionError, match="step other than 0"):
        Range(0, 2, 0)


def test_examples() -> None:
    assert doctest.testmod(selection).failed == 0
