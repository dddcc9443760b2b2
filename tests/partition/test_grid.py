"""The common refinement of boxes equals painting them one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray.errors import AggregationError
from aggarray.partition.grid import GridCover, cut_points, refine
from aggarray.partition.matrix import MAX_CELLS
from tests.support.tilings import boxes as disjoint

pytestmark = pytest.mark.quick

NAMES = ("a", "b", "c", "d")


@st.composite
def any_boxes(draw: st.DrawFn) -> tuple[tuple[int, ...], np.ndarray]:
    """Draw a non-empty shape and boxes in it that may overlap or be empty."""
    shape = tuple(draw(st.lists(st.integers(1, 6), max_size=3)))
    count = draw(st.integers(0, 5))
    result = [[sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape] for _ in range(count)]
    return shape, np.array(result, np.int64).reshape(len(result), len(shape), 2)


def painted(cover: GridCover, shape: tuple[int, ...], count: int) -> np.ndarray:
    """Paint which box serves each position, from a cover."""
    canvas = np.full(shape, -1)
    for box, index in zip(cover.box, cover.index.T, strict=True):
        where = tuple(slice(e[i], e[i + 1]) for e, i in zip(cover.edges, index, strict=True))
        canvas[where] = box
    assert not len(cover.box) or cover.box.max() < count
    return canvas


@given(any_boxes())
def test_first_and_last(case: tuple[tuple[int, ...], np.ndarray]) -> None:
    shape, boxes = case
    expected = {"last": np.full(shape, -1), "first": np.full(shape, -1)}
    count = np.zeros(shape, int)
    for number, box in enumerate(boxes):
        where = tuple(slice(*pair) for pair in box)
        count[where] += 1
        expected["last"][where] = number
    for number in reversed(range(len(boxes))):
        expected["first"][tuple(slice(*pair) for pair in boxes[number])] = number
    for rule, canvas in expected.items():
        cover = refine(boxes, shape, NAMES[: len(shape)], rule)
        np.testing.assert_array_equal(painted(cover, shape, len(boxes)), canvas)
        assert len(np.unique(cover.cell)) == len(cover.cell)
        assert (cover.overlap is not None) == bool((count > 1).any())
        flat = np.ravel_multi_index(tuple(cover.index), cover.shape) if shape else np.zeros(len(cover.cell))
        np.testing.assert_array_equal(cover.cell, flat)


@given(any_boxes())
def test_overlaps_are_found(case: tuple[tuple[int, ...], np.ndarray]) -> None:
    shape, boxes = case
    count = np.zeros(shape, int)
    for box in boxes:
        count[tuple(slice(*pair) for pair in box)] += 1
    for rule in ("all", "every"):
        overlap = refine(boxes, shape, NAMES[: len(shape)], rule).overlap
        assert (overlap is not None) == bool((count > 1).any())
        if overlap is not None:
            one, other = boxes[overlap[0]], boxes[overlap[1]]
            assert overlap[0] != overlap[1]
            assert all(max(a[0], b[0]) < min(a[1], b[1]) for a, b in zip(one, other, strict=True))


@given(st.data())
def test_every_pair_of_a_tiling(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), max_size=4)))
    drawn = data.draw(disjoint(shape))
    boxes = np.array(drawn, np.int64).reshape(len(drawn), len(shape), 2)
    cover = refine(boxes, shape, NAMES[: len(shape)])
    assert cover.overlap is None and len(cover.cell) == int(np.prod(cover.shape))
    canvas = painted(cover, shape, len(boxes))
    for number, box in enumerate(boxes):
        assert (canvas[tuple(slice(*pair) for pair in box)] == number).all()


def test_empty_shapes_have_one_cell() -> None:
    boxes = np.array([[[0, 0], [0, 2]], [[0, 0], [0, 5]], [[0, 0], [0, 5]]])
    cover = refine(boxes, (0, 5), ("a", "b"))
    assert (cover.shape, cover.box.tolist(), cover.overlap) == ((1, 1), [1], None)
    assert [e.tolist() for e in cover.edges] == [[0, 0], [0, 5]]
    assert refine(boxes[:1], (0, 5), ("a", "b")).box.tolist() == []
    assert cut_points(np.zeros((0, 2), np.int64), 4).tolist() == [0, 4]


def test_large_matrices_are_refused_before_allocation() -> None:
    n = 4000
    diagonal = np.repeat(np.arange(n), 2).reshape(n, 2)
    pairs = np.add(np.stack([diagonal, diagonal, np.zeros_like(diagonal)], axis=1), [[0, 1]])
    pairs[0, 0] = [0, 2]
    with pytest.raises(AggregationError) as caught:
        refine(pairs, (n, n, 1), ("a", "b", "c"), "first")
    assert str(MAX_CELLS) in str(caught.value) and "a (3999 cuts)" in str(caught.value) and "\n" not in str(caught.value)
    assert "c (" not in str(caught.value)


def test_many_overlapping_pairs_stop_early() -> None:
    large = [[[0, 1000 - i % 7], [0, 1000 - i % 11]] for i in range(3000)]
    small = [[[i, i + 1], [i, i + 1]] for i in range(1000)]
    assert refine(np.array(large + small), (1000, 1000), ("a", "b")).overlap is not None
