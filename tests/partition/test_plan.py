"""Read plans touch every selected element once, and nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray.cf.encoding import encoding
from aggarray.memory.selection import normalise, result_shape
from aggarray.partition.matrix import Matrix, References, Template
from aggarray.partition.plan import DimensionPlan, part_of, pieces, plan_dimension, runs
from aggarray.partition.tiling import reverse, select

pytestmark = pytest.mark.quick


@st.composite
def edges_of(draw: st.DrawFn, least: int = 0) -> np.ndarray:
    cells = draw(st.lists(st.integers(1, 4), min_size=max(1, least), max_size=5))
    return np.concatenate([[0], np.cumsum(cells)]).astype(np.int64)


@st.composite
def selectors(draw: st.DrawFn, n: int) -> object:
    kind = draw(st.integers(0, 2))
    if kind == 0:
        return draw(st.integers(0, n - 1))
    if kind == 1:
        return draw(st.slices(n))
    return np.array(draw(st.lists(st.integers(-n, n - 1), max_size=10)), np.int64)


def placed(rows: DimensionPlan, edges: np.ndarray) -> np.ndarray:
    """Carry out the rows of one dimension on an array of positions."""
    out = np.full(rows.size, -1)
    for row, cell in enumerate(rows.cells):
        first, count, step = rows.first[row], rows.count[row], rows.step[row]
        local = rows.picks[row] if step == 0 else first + step * np.arange(count)
        assert len(local) == count > 0 and (np.diff(local) > 0).all()
        assert local[0] >= 0 and local[-1] < edges[cell + 1] - edges[cell]
        place = rows.places.get(row)
        if place is None:
            out[rows.out[row] : rows.out[row] + count] = edges[cell] + local
        else:
            out[place.positions] = edges[cell] + (local if place.take is None else local[place.take])
    return out[::-1] if rows.backwards else out


@given(st.data())
def test_plan_dimension_matches_numpy(data: st.DataObject) -> None:
    edges = data.draw(edges_of())
    n = int(edges[-1])
    key = data.draw(selectors(n))
    (selector,) = normalise(key, (n,))
    rows = plan_dimension(selector, edges)
    np.testing.assert_array_equal(placed(rows, edges), np.atleast_1d(np.arange(n)[key]))
    assert len(np.unique(rows.cells)) == len(rows.cells), "each partition is touched once"
    assert rows.dropped == isinstance(key, int)


@given(st.data())
def test_runs_keep_the_order(data: st.DataObject) -> None:
    edges = data.draw(edges_of())
    indices = np.array(data.draw(st.lists(st.integers(0, int(edges[-1]) - 1), min_size=1, max_size=12)), np.int64)
    rows = runs(indices, edges)
    np.testing.assert_array_equal(placed(rows, edges), indices)
    ends = np.cumsum(rows.count)
    for end in ends[:-1]:
        same_cell = np.searchsorted(edges, indices[end], side="right") == np.searchsorted(edges, indices[end - 1], side="right")
        assert not same_cell or indices[end] <= indices[end - 1], "no run ends before it must"


def test_cost_depends_on_touched_partitions() -> None:
    edges = np.arange(2**20 + 1)
    assert len(plan_dimension(normalise(slice(500, 550), (2**20,))[0], edges).cells) == 50
    assert len(plan_dimension(normalise([7, 7, 2**20 - 1], (2**20,))[0], edges).cells) == 2
    assert len(plan_dimension(5, edges).cells) == 1


def matrix_of(edges: tuple[np.ndarray, ...], directions: tuple[bool, ...]) -> Matrix:
    """Return a matrix of one file per cell, each in the opposite direction.

    Each cell shape has one template.
    """
    names = tuple(f"d{i}" for i in range(len(edges)))
    cells = tuple(len(e) - 1 for e in edges)
    refs = np.arange(int(np.prod(cells)), dtype=np.int32)
    shapes = [tuple(int(e[i + 1] - e[i]) for e, i in zip(edges, index, strict=True)) for index in np.ndindex(cells)]
    templates = tuple(
        Template(s[::-1], names[::-1], tuple(not d for d in directions[::-1]), None, None, encoding(np.dtype("i8"), {}))
        for s in shapes
    )
    uris = [f"/{i}" for i in refs]
    return Matrix(names, directions, edges, References(uris, ("v",), templates, (), refs, refs * 0, refs), refs)


@given(st.data())
def test_pieces_are_boxes_of_sub_arrays(data: st.DataObject) -> None:
    edges = tuple(data.draw(edges_of()) for _ in range(data.draw(st.integers(1, 2))))
    matrix = matrix_of(edges, tuple(data.draw(st.booleans()) for _ in edges))
    shape = matrix.shape
    whole = np.arange(int(np.prod(shape))).reshape(shape)
    key = tuple(data.draw(selectors(n)) for n in shape)
    chosen = normalise(key, shape)
    rows = [plan_dimension(s, e) for s, e in zip(chosen, edges, strict=True)]
    out = np.full(tuple(r.size for r in rows), -1)
    for piece in pieces(matrix, rows):
        cell = np.unravel_index(piece.ref, matrix.cells)
        box = tuple(slice(e[i], e[i + 1]) for e, i in zip(edges, cell, strict=True))
        own = np.flip(whole[box]).T
        for axis, part in enumerate(piece.selection):
            own = own[(slice(None),) * axis + (part,)]
        block = np.flip(own, piece.flip).T
        assert block.shape == piece.shape
        for axis, take in enumerate(piece.take):
            block = block if take is None else block.take(take, axis=axis)
        out[np.ix_(*(np.arange(w.start, w.stop) if isinstance(w, slice) else w for w in piece.out))] = block
    for axis, row in enumerate(rows):
        out = np.flip(out, axis) if row.backwards else out
    expected = whole
    for axis in range(len(key)):
        expected = expected.take(
            np.arange(shape[axis])[key[axis]].ravel() if not isinstance(key[axis], int) else [key[axis]], axis=axis
        )
    np.testing.assert_array_equal(out, expected)
    assert result_shape(chosen) == tuple(r.size for r in rows if not r.dropped)


def test_part_of() -> None:
    matrix = matrix_of((np.array([0, 4, 10]),), (True,))
    assert part_of(matrix, (1,), matrix.references.templates[1]) == (slice(0, 6, 1),)
    some = select(matrix, 0, plan_dimension(normalise(slice(5, 10, 2), (10,))[0], matrix.edges[0]))
    assert part_of(some, (0,), matrix.references.templates[1]) == (slice(0, 5, 2),)
    assert part_of(reverse(some, 0), (0,), matrix.references.templates[1]) == (slice(0, 5, 2),)
    picked = select(matrix, 0, runs(np.array([4, 5, 7, 9]), matrix.edges[0]))
    np.testing.assert_array_equal(part_of(picked, (0,), matrix.references.templates[1])[0], [0, 2, 4, 5])
