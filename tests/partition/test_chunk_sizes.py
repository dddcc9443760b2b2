"""Chunk sizes: partitions and stored chunks are respected, whatever they are."""

from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggarray import MasterArray, SubArray
from aggarray.partition.chunk_sizes import AxisCuts, chunk_sizes, stored_cuts
from aggarray.partition.matrix import Matrix
from aggarray.partition.plan import part_of
from tests.support.examples import examples

pytestmark = pytest.mark.quick


@st.composite
def axis_cuts(draw: st.DrawFn) -> AxisCuts:
    """A dimension of partitions, each with chunks of some size or none."""
    edges, cuts, free = [0], [], []
    for size in draw(st.lists(st.integers(1, 12), min_size=1, max_size=4)):
        side = draw(st.integers(0, 5))
        inside = range(draw(st.integers(1, side)), size, side) if side else ()
        cuts += [edges[-1] + i for i in inside]
        edges.append(edges[-1] + size)
        free.append(not side)
    return AxisCuts(np.array(edges), np.array(cuts, np.int64), np.array(free))


def stored_pieces(axis: AxisCuts) -> list[int]:
    """Return the sizes of the smallest pieces of a dimension, of its partitions stored in chunks."""
    points = np.union1d(axis.edges, axis.cuts)
    inside = axis.free[np.searchsorted(axis.edges, points[:-1], side="right") - 1]
    return np.diff(points)[~inside].tolist()


@given(st.lists(axis_cuts(), min_size=1, max_size=3), st.integers(1, 9), st.integers(1, 600))
def test_partitions_and_stored_chunks_bound_chunks_of_limited_size(axes: list[AxisCuts], itemsize: int, nbytes: int) -> None:
    sizes = chunk_sizes(axes, itemsize, nbytes)
    for axis, own in zip(axes, sizes, strict=True):
        ends = np.cumsum([0, *own])
        assert ends[-1] == axis.edges[-1] and min(own) > 0
        assert set(axis.edges.tolist()) <= set(ends.tolist())
        partition = np.searchsorted(axis.edges, ends, side="right") - 1
        allowed = {*axis.edges.tolist(), *axis.cuts.tolist()}
        assert all(axis.free[min(p, len(axis.free) - 1)] or e in allowed for e, p in zip(ends.tolist(), partition, strict=True))
    # A larger chunk cannot be cut: along every dimension it is one stored chunk, or one element.
    smallest = [{1, *stored_pieces(axis)} for axis in axes]
    for shape in product(*map(set, sizes)):
        assert prod(shape) * itemsize <= nbytes or all(n in pieces for n, pieces in zip(shape, smallest, strict=True))


@given(axis_cuts(), st.integers(1, 12))
def test_as_few_chunks_as_possible_or_a_quarter_more_that_are_equal(axis: AxisCuts, limit: int) -> None:
    (sizes,) = chunk_sizes([axis], 1, limit)
    ends = np.cumsum([0, *sizes])
    points = np.union1d(axis.edges, axis.cuts)
    for start, stop, free in zip(axis.edges, axis.edges[1:], axis.free, strict=False):
        own = np.diff(ends[(ends >= start) & (ends <= stop)])
        fewest = 0
        at = start
        while at < stop:
            reachable = points[(points > at) & (points <= min(stop, at + limit))]
            at = min(stop, at + limit) if free else reachable.max(initial=points[points > at].min())
            fewest += 1
        assert len(own) == fewest or (len(own) <= fewest * 1.25 and len(set(own.tolist())) == 1)


def test_order_of_merging() -> None:
    def even(size: int, side: int, parts: int = 1) -> AxisCuts:
        edges = np.linspace(0, size, parts + 1).astype(np.int64)
        return AxisCuts(edges, np.setdiff1d(np.arange(side, size, side), edges), np.zeros(parts, bool))

    joined, lat, lon = even(40, 1, 4), even(6, 3), even(8, 2)
    assert chunk_sizes([joined, lat, lon], 1, 40) == ((5,) * 8, (3, 3), (2, 2, 2, 2))  # 6 fit, 5 are equal
    assert chunk_sizes([joined, lat, lon], 1, 120) == ((10,) * 4, (3, 3), (4, 4))
    assert chunk_sizes([joined, lat, lon], 1, 10_000) == ((10,) * 4, (6,), (8,))
    assert chunk_sizes([lat, lon, joined], 1, 100) == ((3, 3), (2, 2, 2, 2), (10,) * 4)
    assert chunk_sizes([even(40, 1), lat, lon], 1, 100) == ((14, 14, 12), (3, 3), (2, 2, 2, 2))
    # Not stored in chunks: whole rows.
    free = [AxisCuts(np.array([0, n]), np.zeros(0, np.int64), np.ones(1, bool)) for n in (40, 6, 8)]
    assert chunk_sizes(free, 1, 480) == ((10,) * 4, (6,), (8,))
    assert chunk_sizes(free, 1, 16) == ((1,) * 40, (2, 2, 2), (8,))
    assert chunk_sizes(free, 1, 3) == ((1,) * 40, (1,) * 6, (3, 3, 2))
    assert chunk_sizes([], 8, 1) == ()


def boundaries(matrix: Matrix, axis: int, sides: np.ndarray) -> tuple[set[int], list[bool]]:
    """Return positions that are a chunk boundary of every cell they cross, and the partitions without chunks, cell by cell."""
    edges = matrix.edges[axis].tolist()
    common: list[set[int] | None] = [None] * (len(edges) - 1)
    for number, row in enumerate(matrix.refs.tolist()):
        if row < 0 or not sides[row]:
            continue
        cell = tuple(int(i) for i in np.unravel_index(number, matrix.cells))
        template = matrix.references.template_of(row)
        name = matrix.dimensions[axis]
        i = cell[axis]
        part = part_of(matrix, cell, template)[template.dimensions.index(name)]
        places = np.arange(part.start, part.stop, part.step) if isinstance(part, slice) else part
        if template.directions[template.dimensions.index(name)] != matrix.directions[axis]:
            places = places[::-1]
        own = {edges[i] + n for n, (a, b) in enumerate(pairwise((places // sides[row]).tolist()), 1) if a != b}
        before = common[i]
        common[i] = own if before is None else before & own
    return set().union(*(c or () for c in common)), [c is None for c in common]


@st.composite
def keys(draw: st.DrawFn, size: int) -> Any:
    """A selection of at least one position of a dimension."""
    if draw(st.booleans()):
        return sorted(draw(st.sets(st.integers(0, size - 1), min_size=1)))
    start, step = draw(st.integers(0, size - 1)), draw(st.integers(1, 4))
    return draw(st.sampled_from((slice(start, None, step), slice(start, None, -step), slice(None))))


@settings(max_examples=examples(200))
@given(st.data())
def test_cuts_are_the_boundaries_that_all_pieces_share(data: st.DataObject) -> None:
    heights = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    widths = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=2))
    pieces = []
    for (y, height), (x, width) in product(*(zip(np.cumsum([0, *n]), n, strict=False) for n in (heights, widths))):
        if data.draw(st.integers(0, 4)):
            directions = data.draw(st.tuples(st.booleans(), st.booleans()))
            piece = SubArray.from_array(np.zeros((height, width)), dimensions=("y", "x"), directions=directions)
            pieces.append(([(y, y + height), (x, x + width)], piece))
    if not pieces:
        return
    array = MasterArray.from_subarrays(pieces, dimensions=("y", "x"), shape=(sum(heights), sum(widths)))
    matrix = array.lazy[data.draw(keys(array.shape[0])), data.draw(keys(array.shape[1]))]._matrix
    for axis in (0, 1):
        sides = np.array(
            data.draw(st.lists(st.integers(0, 4), min_size=len(matrix.references), max_size=len(matrix.references)))
        )
        made = stored_cuts(matrix, axis, np.arange(len(sides)), sides.astype(np.int64))
        positions, free = boundaries(matrix, axis, sides)
        assert made.edges.tolist() == matrix.edges[axis].tolist()
        assert set(made.cuts.tolist()) == positions and made.free.tolist() == free
