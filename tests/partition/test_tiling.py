"""Operations on matrices keep the values of every cell, against NumPy."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray.cf.encoding import encoding
from aggarray.errors import AggregationError
from aggarray.memory.selection import Range
from aggarray.partition.matrix import Matrix, Step, Template, single
from aggarray.partition.plan import plan_dimension, runs
from aggarray.partition.tiling import expand, gather, relabel, rename, reverse, select, tile, transpose
from aggarray.read import ReadOptions, Target, read
from tests.support.tilings import FILL, same, tilings

pytestmark = pytest.mark.quick


def values(matrix: Matrix, dtype: Any = "i8") -> np.ndarray:
    """Read a whole matrix; missing elements are -1."""
    target = Target(Step(None, None, np.dtype(dtype)), np.dtype(dtype).type(-1))
    return read(matrix, target, [Range(0, n) for n in matrix.shape], ReadOptions())


def memory(array: Any, dimensions: tuple[str, ...] = ("x",), directions: tuple[bool, ...] | None = None) -> Matrix:
    array = np.asarray(array)
    forward = directions or (True,) * array.ndim
    return single(Template(array.shape, dimensions, forward, None, None, encoding(array.dtype, {})), None, array)


def joined(matrices: list[Matrix], starts: list[list[int]], shape: tuple[int, ...], **options: Any) -> Matrix:
    cells, _ = gather(matrices, np.array(starts, np.int64).reshape(len(starts), len(shape)))
    return tile(cells, shape, **options)


def test_gather_and_tile() -> None:
    first, second = memory([0, 1, 2]), memory([10, 11])
    cells, origin = gather([first, second, memory(np.zeros(0, int))], np.array([[0], [4], [6]]))
    assert origin.tolist() == [0, 1, 2] and cells.boxes.tolist() == [[[0, 3]], [[4, 6]], [[6, 6]]]
    matrix = tile(cells, (6,))
    assert values(matrix).tolist() == [0, 1, 2, -1, 10, 11] and matrix.edges[0].tolist() == [0, 3, 4, 6]
    again = joined([matrix, matrix], [[0], [6]], (12,))
    assert values(again).tolist() == [0, 1, 2, -1, 10, 11] * 2 and len(again.references) == 2 * len(matrix.references)


@pytest.mark.parametrize(("rule", "wanted"), [("first", [0, 1, 2, 3, 12, 13]), ("last", [0, 1, 10, 11, 12, 13])])
def test_overlap_rules(rule: str, wanted: list[int]) -> None:
    pair = [memory([0, 1, 2, 3]), memory([10, 11, 12, 13])]
    assert values(joined(pair, [[0], [2]], (6,), overlap=rule)).tolist() == wanted
    with pytest.raises(AggregationError, match="a and b overlap at x 2:4; leave one out"):
        joined(pair, [[0], [2]], (6,), name="ab".__getitem__)


@given(st.data())
def test_matrices_of_matrices(data: st.DataObject) -> None:
    """Lazy selections, joined at misaligned positions, keep their elements."""
    n = data.draw(st.integers(1, 12))
    base = joined([memory(np.arange(n)), memory(np.arange(100, 103)[::-1], directions=(False,))], [[0], [n]], (n + 3,))
    line = np.concatenate([np.arange(n), np.arange(100, 103)])
    parts, expected, starts = [], [], [0]
    for _ in range(data.draw(st.integers(1, 3))):
        indices = np.array(data.draw(st.lists(st.integers(0, n + 2), min_size=1, max_size=8)), np.int64)
        chosen = select(base, 0, runs(indices, base.edges[0]))
        parts.append(chosen)
        expected.append(line[indices])
        starts.append(starts[-1] + len(indices))
    rows = [[s] for s in starts[:-1]]
    whole = joined(parts, rows, (starts[-1],))
    np.testing.assert_array_equal(values(whole), np.concatenate(expected))


@given(st.data())
def test_picks_are_cut(data: st.DataObject) -> None:
    """A cell of irregular indices is cut by its neighbours in both directions."""
    forward = data.draw(st.booleans())
    line = np.arange(30) if forward else np.arange(30)[::-1]
    source = replace(memory(np.stack([line, line + 100]), ("y", "x"), (True, forward)), directions=(True, True))
    indices = np.array(sorted(data.draw(st.sets(st.integers(0, 29), min_size=3, max_size=10))))
    picked = select(source, 1, runs(indices, source.edges[1]))
    n = len(indices)
    cut = data.draw(st.integers(1, n - 1))
    other = memory(np.full((1, cut), -5), ("y", "x"))
    whole = joined([picked, other], [[0, 0], [2, 0]], (3, n))
    assert whole.cells == (2, 2)
    expected = np.full((3, n), -1)
    expected[:2], expected[2, :cut] = [indices, indices + 100], -5
    np.testing.assert_array_equal(values(whole), expected)


@given(st.data())
def test_reverse_transpose_rename(data: st.DataObject) -> None:
    tiling = data.draw(tilings(min_size=1))
    matrix = tiling.master()._matrix
    target = Target(Step("m", None, np.dtype("f8")), float(FILL))
    expected = np.where(tiling.mask, FILL, tiling.values)

    def shown(m: Matrix) -> np.ndarray:
        return read(m, target, [Range(0, n) for n in m.shape], ReadOptions())

    for axis in range(len(matrix.dimensions)):
        turned = reverse(matrix, axis)
        assert turned.directions[axis] != matrix.directions[axis]
        same(shown(turned), np.flip(expected, axis))
        same(shown(reverse(turned, axis)), expected)
    order = data.draw(st.permutations(range(expected.ndim)))
    same(shown(transpose(matrix, order)), expected.transpose(order))
    renamed = rename(matrix, {d: f"new_{d}" for d in matrix.dimensions[:1]})
    assert renamed.dimensions[:1] == tuple(f"new_{d}" for d in matrix.dimensions[:1])
    same(shown(renamed), expected)


def test_dropped_dimensions_are_restored() -> None:
    array = np.arange(12).reshape(3, 4)
    matrix = memory(array, ("y", "x"))
    row = select(matrix, 0, plan_dimension(1, matrix.edges[0]))
    assert row.dimensions == ("x",) and values(row).tolist() == array[1].tolist()
    back = expand(row, "y")
    assert back.dimensions == ("y", "x") and values(back).tolist() == array[1:2].tolist()
    stacked = joined(
        [expand(select(matrix, 0, plan_dimension(i, matrix.edges[0])), "y") for i in (2, 0)], [[0, 0], [1, 0]], (2, 4)
    )
    assert values(stacked).tolist() == array[[2, 0]].tolist()
    kept = joined([row, row], [[0], [4]], (8,))
    assert values(kept).tolist() == array[1].tolist() * 2
    moved = rename(row, {"y": "z"})
    assert values(moved).tolist() == array[1].tolist()


def test_relabel_keeps_values() -> None:
    matrix = memory(np.arange(4))
    named = relabel(matrix, 0)
    assert named.directions == (False,) and values(named).tolist() == [0, 1, 2, 3]
    assert not named.flips(0).any()


def test_empty_selections() -> None:
    matrix = memory(np.arange(12).reshape(3, 4), ("y", "x"))
    nothing = select(matrix, 1, plan_dimension(Range(0, 0), matrix.edges[1]))
    assert nothing.shape == (3, 0) and values(nothing).shape == (3, 0) and values(reverse(nothing, 1)).shape == (3, 0)
