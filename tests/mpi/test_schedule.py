"""Schedules against the specification's example and brute force."""

from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.dap import Block, Cyclic, Distribution, Unstructured
from aggarray.memory.selection import Range
from aggarray.mpi import ProcessGroup
from aggarray.mpi.schedule.groups import broadcast_groups, kept_groups, neighbours
from aggarray.mpi.schedule.halo import halo_steps, halo_widths
from aggarray.mpi.schedule.overlap import Run, find_overlap, plan_receives, plan_sends
from tests.support.distributions import distributions, maps
from tests.support.thread_link import run

pytestmark = pytest.mark.quick


def test_the_worked_example_of_broadcast() -> None:
    result = broadcast_groups([1, 2, 3], (1, 3, 1), range(12), (2, 3, 2))
    assert result == [[1, 0, 6, 7], [2, 3, 8, 9], [3, 4, 5, 10, 11]]


def test_transposed_shapes_reverse_the_index_of_every_worker() -> None:
    # Rank k at (i, j) of a 3 x 2 grid is at (j, i) of the transposed 2 x 3 grid.
    assert broadcast_groups([6, 7], (2, 1), range(6), (2, 3), transpose_src=True, transpose_dest=True) == [
        [6, 0, 1, 2],
        [7, 3, 4, 5],
    ]
    assert broadcast_groups([6, 7], (2,), range(6), (2, 3), transpose_dest=True) == [[6, 0, 1, 2], [7, 3, 4, 5]]
    assert broadcast_groups([6, 7, 8], (3, 1), range(6), (2, 3), transpose_src=True) == [[6, 0, 3], [7, 1, 4], [8, 2, 5]]


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (([0, 1], (2,)), ([0, 1, 2], (3,)), r"shape \(2,\) does not broadcast to one of shape \(3,\)"),
        (([0], (1, 1)), ([0, 1, 2], (3,)), "does not broadcast"),
        (([0, 1], (2,)), ([0, 1], (2, 2)), "destination: a grid of shape .* does not fit 2 processes"),
        (([0, 0], (2,)), ([0, 1], (2,)), "repeat"),
    ],
)
def test_invalid_broadcasts_raise(x: Any, y: Any, words: str) -> None:
    with pytest.raises(aa.ExchangeError, match=words):
        broadcast_groups(*x, *y)


@st.composite
def grids(draw: Any) -> tuple[list[int], tuple[int, ...], list[int], tuple[int, ...]]:
    """Two grids of any ranks, the first of which broadcasts to the second."""
    y_shape = draw(st.lists(st.integers(1, 3), max_size=3))
    x_shape = [n if draw(st.booleans()) else 1 for n in y_shape]
    while x_shape and x_shape[0] == 1 and draw(st.booleans()):
        x_shape = x_shape[1:]
    workers = draw(st.permutations(range(prod(x_shape) + prod(y_shape))))
    x = workers[: prod(x_shape)]
    others = draw(st.permutations(workers))
    return x, tuple(x_shape), others[: prod(y_shape)], tuple(y_shape)


@given(grids())
def test_groups_are_those_of_numpy_broadcasting(given_: Any) -> None:
    x, x_shape, y, y_shape = given_
    groups = broadcast_groups(x, x_shape, y, y_shape)
    assert [g[0] for g in groups] == x
    grid = np.array(y).reshape(y_shape)
    for group in groups:
        expected = [int(grid[i]) for i in np.ndindex(*y_shape) if x[_source(i, x_shape)] == group[0]]
        assert group[1:] == [w for w in expected if w != group[0]]
    assert sorted(m for g in groups for m in g if m in y) == sorted(
        [*y, *(r for r in x if r in y and _is_other_leaf(r, groups))]
    )


def _source(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    own = index[len(index) - len(shape) :]
    return int(np.ravel_multi_index([i if n > 1 else 0 for i, n in zip(own, shape, strict=True)], shape)) if shape else 0


def _is_other_leaf(rank: int, groups: list[list[int]]) -> bool:
    """Return whether the root of one group is a member of another."""
    return any(rank in g[1:] for g in groups)


def test_sum_reduce_groups_of_a_grid() -> None:
    assert kept_groups(range(12), (2, 3, 2), (1,)) == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]
    assert kept_groups(range(4), (2, 2), (0, 1)) == [[0], [1], [2], [3]]
    assert kept_groups([7, 5], (1, 2), ()) == [[7, 5]]


def test_unions_keep_the_order_of_the_first_group() -> None:
    def work(root: ProcessGroup) -> tuple[int, ...]:
        return root.include([5, 2]).union(root.include([1, 2, 3])).ranks

    assert run(6, work) == [(5, 2, 1, 3)] * 6


def test_neighbours() -> None:
    assert neighbours((2, 3), (False, False), (1, 2)) == [(2, None), (4, None)]
    assert neighbours((1,), (True,), (0,)) == [(0, 0)]
    assert neighbours((), (), ()) == []


@given(
    *[st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(1, 7)) for _ in range(2)],
    st.integers(0, 5),
)
def test_ranges_overlap_by_arithmetic(a: Any, b: Any, offset: int) -> None:
    first, second = Range(*a), Range(*b)
    met = find_overlap(Run(first, Range(offset, len(first))), Run(second, Range(0, len(second))))
    expected = sorted(set(first.indices().tolist()) & set(second.indices().tolist()))
    buffer = np.concatenate([np.full(offset, -1), first.indices()])
    if met is None:
        assert expected == []
    else:
        assert buffer[met.source].tolist() == second.indices()[met.target].tolist() == expected
        assert met.size == len(expected)


@st.composite
def pairs(draw: Any) -> tuple[Distribution, Distribution]:
    """Two distributions of one array, of any types."""
    sizes = draw(st.lists(st.integers(0, 7), max_size=3))
    result = [Distribution(tuple(draw(maps(n, "0.9.0")) for n in sizes)) for _ in range(2)]
    return result[0], result[1]


def _values(distribution: Distribution, rank: int) -> np.ndarray:
    """Return a process's buffer of an array of element numbers."""
    result: np.ndarray = np.zeros(distribution.local_shape(rank), np.int64)
    for d, indices in enumerate(distribution.indices(rank)):
        result = result * 100 + indices.reshape([-1 if i == d else 1 for i in range(result.ndim)])
    return result


def _chosen(buffer: np.ndarray, selectors: Any) -> np.ndarray:
    return buffer[np.ix_(*[np.arange(n)[s] for s, n in zip(selectors, buffer.shape, strict=True)])] if selectors else buffer


@given(pairs())
def test_repartition_delivers_every_element_once(pair: tuple[Distribution, Distribution]) -> None:
    source, target = pair
    sent = {(r, m.rank): m for r in range(source.nprocs) for m in plan_sends(source, r, target)}
    for rank in range(target.nprocs):
        expected = _values(target, rank)
        times = np.zeros(expected.shape, int)
        for message in plan_receives(source, target, rank):
            mine = _values(source, message.rank)
            twin = sent.pop((message.rank, rank))
            assert [b.shape for b in twin.boxes] == [b.shape for b in message.boxes]
            for box, other in zip(message.boxes, twin.boxes, strict=True):
                assert np.array_equal(_chosen(mine, other.source), _chosen(expected, box.target))
                spots = np.ix_(*[np.arange(n)[s] for s, n in zip(box.target, expected.shape, strict=True)])
                times[spots if box.target else ...] += 1
                _check_owned(source, message.rank, box.source)
        assert (times == 1).all()
    assert not sent


def _check_owned(source: Distribution, rank: int, selectors: Any) -> None:
    for one, place, chosen in zip(source.maps, source.coords(rank), selectors, strict=True):
        assert (one.owner(one.indices(place)[chosen]) == place).all()
        assert set(range(one.extent(place))[one.owned_slice(place)]) >= set(np.arange(one.extent(place))[chosen].tolist())


def test_large_dimensions_overlap_without_listing() -> None:
    size = 10**15
    source, target = Distribution((Block.even(size, 7),)), Distribution((Cyclic(size, 3),))
    assert sum(prod(box.shape) for m in plan_sends(source, 6, target) for box in m.boxes) == size // 7
    assert sum(prod(box.shape) for m in plan_receives(source, target, 0) for box in m.boxes) == (size + 2) // 3
    again = Distribution((Block.even(size, 3),))
    assert [m.boxes[0].source for m in plan_sends(source, 0, again)] == [(slice(0, size // 7 + 1, 1),)]


def test_invalid_repartitions_raise() -> None:
    four, five = Distribution((Block.even(4, 2),)), Distribution((Block.even(5, 2),))
    with pytest.raises(aa.ExchangeError, match=r"shape \(4,\), target of shape \(5,\)"):
        plan_sends(four, 0, five)
    labels = Distribution((Unstructured(4, [[7, 0], [1, 2]]),))
    with pytest.raises(
        aa.ExchangeError, match="dimension 0: process 0 of the target holds indices that the source does not have"
    ):
        plan_receives(four, labels, 0)
    assert [m.rank for m in plan_receives(labels, labels, 1)] == [1]


def _needed(size: int, nprocs: int, k: int, s: int, p: int, d: int) -> list[tuple[int, int]]:
    """Return the halo widths of the specification by listing inputs."""
    outputs = (size + 2 * p - d * (k - 1) - 1) // s + 1
    shares = [np.array_split(np.arange(n), nprocs) for n in (size, max(outputs, 0))]
    result, x0 = [], 0
    for mine, out in zip(*shares, strict=True):
        x1 = x0 + len(mine)
        taps = range(s * out[0] - p, s * out[-1] - p + d * (k - 1) + 1) if len(out) else range(0)
        low, high = (max(0, taps[0]), min(size - 1, taps[-1])) if len(out) else (x0, x1 - 1)
        result.append((max(0, x0 - low), max(0, high - (x1 - 1))))
        x0 = x1
    return result


@given(*[st.integers(low, high) for low, high in ((1, 40), (1, 6), (1, 6), (1, 4), (0, 5), (1, 3))])
def test_halo_widths_of_the_specification(size: int, nprocs: int, k: int, s: int, p: int, d: int) -> None:
    assert halo_widths(size, nprocs, k, s, p, d) == _needed(size, nprocs, k, s, p, d)


def test_halo_widths_by_hand() -> None:
    assert halo_widths(10, 3, 3, padding=1) == [(0, 1), (1, 1), (1, 0)]
    assert halo_widths(12, 4, 5, padding=2, dilation=1) == [(0, 2), (2, 2), (2, 2), (2, 0)]
    assert halo_widths(3, 4, 5) == [(0, 0)] * 4
    assert halo_widths(10, 1, 3) == [(0, 0)]
    wide = halo_widths(8, 4, 7, padding=3)
    with pytest.raises(aa.ProtocolError, match="the neighbours own"):
        Block.even(8, 4, padding=wide)
    for wrong in ({"kernel_size": 0}, {"kernel_size": 2.5}, {"kernel_size": 2, "stride": 0}, {"kernel_size": True}):
        with pytest.raises(aa.ExchangeError, match="give an integer of at least 1"):
            halo_widths(8, 2, **wrong)


@given(distributions("0.9.0", 3, 6))
def test_halo_steps_fill_all_padding_with_corners(distribution: Distribution) -> None:
    ranks = range(distribution.nprocs)
    expected = [_values(distribution, r) for r in ranks]
    buffers = []
    for rank in ranks:
        buffer = np.full(distribution.local_shape(rank), -1)
        buffer[distribution.owned_slices(rank)] = expected[rank][distribution.owned_slices(rank)]
        buffers.append(buffer)
    steps = [halo_steps(distribution, r) for r in ranks]
    assert len({len(s) for s in steps}) == 1
    for number in range(len(steps[0])):
        sent = {(r, m.rank, m.direction): buffers[r][m.boxes[0].source].copy() for r in ranks for m in steps[r][number].sent}
        for rank, slab in product(ranks, range(2)):
            for filled in steps[rank][number].filled[slab : slab + 1]:
                buffers[rank][filled.boxes[0].target] = sent.pop((filled.rank, rank, filled.direction))
        assert not sent
    for buffer, right in zip(buffers, expected, strict=True):
        assert np.array_equal(buffer, right)
