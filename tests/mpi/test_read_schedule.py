"""Schedules of reads against brute force, without processes."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray.dap import Block, Cyclic, Distribution, Unstructured
from aggarray.memory.selection import Range
from aggarray.mpi.schedule.chunk_grid import chunk_layout
from aggarray.mpi.schedule.read_schedule import Demand, Units, join_boxes, schedule_reads
from tests.support.distributions import maps

pytestmark = pytest.mark.quick


@st.composite
def chunked(draw: Any) -> tuple[tuple[int, ...], Units]:
    """An array in chunks, cut anywhere; some chunks have two units."""
    shape = tuple(draw(st.lists(st.integers(1, 8), min_size=1, max_size=2)))
    cuts = [sorted({0, n, *draw(st.sets(st.integers(0, n), max_size=3))}) for n in shape]
    rows = [list(pairwise(c)) for c in cuts]
    boxes = [[]]
    for row in rows:
        boxes = [[*box, ends] for box in boxes for ends in row]
    numbers = draw(st.lists(st.integers(0, len(boxes)), min_size=len(boxes), max_size=len(boxes)))
    costs = draw(st.lists(st.integers(0, 50), min_size=len(boxes), max_size=len(boxes)))
    chunks = np.array([(number, 0) for number in numbers], np.int64)
    return shape, Units(np.array(boxes, np.int64).reshape(len(boxes), len(shape), 2), np.array(costs, np.int64), chunks)


@given(chunked(), st.integers(1, 5), st.integers(1, 20), st.data())
def test_chunks_are_read_once_and_delivered(array: tuple[tuple[int, ...], Units], count: int, most: int, data: Any) -> None:
    shape, units = array
    target = Distribution(tuple(data.draw(maps(n, "0.9.0")) for n in shape))
    schedule = schedule_reads(units, target, count, most)
    if schedule is None:
        _check_no_sharing(units, target)
        return
    nodes = data.draw(st.lists(st.integers(0, 2), min_size=target.nprocs, max_size=target.nprocs))
    demand = Demand(target, [[rank for rank, own in enumerate(nodes) if own == node] for node in range(3)])
    full = np.arange(np.prod(shape)).reshape(shape)
    times = np.zeros(shape, int)
    readers: dict[tuple[int, ...], set[tuple[int, int]]] = {}
    result = [np.full(target.local_shape(rank), -1) for rank in range(target.nprocs)]
    for number, turns in enumerate(schedule):
        assert len(turns) == count
        for reader, (boxes, holders) in enumerate(turns):
            for box, expected in zip(boxes.tolist(), holders.tolist(), strict=True):
                values = full[tuple(slice(a, b) for a, b in box)]
                times[tuple(slice(a, b) for a, b in box)] += 1
                for unit, chunk in zip(units.boxes.tolist(), units.chunks.tolist(), strict=True):
                    if all(a <= u and v <= b for (a, b), (u, v) in zip(box, unit, strict=True)):
                        readers.setdefault(tuple(chunk), set()).add((reader, number))
                copied = 0
                for rank, node in enumerate(nodes):
                    own = data.draw(st.sampled_from([None, node]))
                    indices = [i.indices() if isinstance(i, Range) else i for i in demand.indices(box, own)]
                    packed = values[np.ix_(*indices)]
                    copies = demand.copies(box, own, rank)
                    copied += bool(copies)
                    for one in copies:
                        taken = packed[_index(one.source, packed.shape)]
                        assert taken.shape == one.shape
                        result[rank][_index(one.target, result[rank].shape)] = taken
                assert copied == expected or 0 < copied < expected  # a process may hold an element twice
    assert times.max(initial=0) <= 1
    assert all(len(who) == 1 for who in readers.values())
    for rank in range(target.nprocs):
        assert np.array_equal(result[rank], full[np.ix_(*target.indices(rank))])


def _index(selectors: Any, shape: tuple[int, ...]) -> Any:
    return np.ix_(*[np.arange(n)[s] for s, n in zip(selectors, shape, strict=True)])


def _check_no_sharing(units: Units, target: Distribution) -> None:
    """Check that no two processes require one chunk."""
    for chunk in np.unique(units.chunks, axis=0):
        boxes = units.boxes[(units.chunks == chunk).all(axis=1)]
        wanting = set()
        for rank in range(target.nprocs):
            held = [set(i.tolist()) for i in target.indices(rank)]
            if any(all(held[d] & set(range(*ends)) for d, ends in enumerate(box)) for box in boxes.tolist()):
                wanting.add(rank)
        assert len(wanting) <= 1


def test_shares_are_even_and_local() -> None:
    starts = np.arange(40)
    units = Units(
        np.stack([starts, starts + 1], axis=-1)[:, np.newaxis], np.full(40, 10), np.stack([starts, starts * 0], axis=-1)
    )
    halo = Distribution.regular((40,), "b", (4,), padding={0: (1, 1)})
    (turns,) = schedule_reads(units, halo, 4, 1000) or []
    assert [turn.boxes.tolist() for turn in turns] == [[[[10 * r, 10 * r + 10]]] for r in range(4)]
    assert schedule_reads(units, Distribution.regular((40,), "b", (4,)), 4, 1000) is None
    assert len(schedule_reads(units, halo, 4, 3) or []) == 4
    some = Distribution((Unstructured(2, [[7], [7, 8]]),))
    (turns,) = schedule_reads(units, some, 2, 1000) or []
    assert [turn.boxes.tolist() for turn in turns] == [[[[7, 8]]], [[[8, 9]]]]


@given(st.integers(1, 30), st.integers(0, 2**31))
def test_joined_boxes_cover_the_same(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells = rng.permutation(36)[:count]
    boxes = np.stack(np.unravel_index(cells, (6, 6)), axis=-1)
    joined = join_boxes(np.stack([boxes, boxes + 1], axis=-1))
    result = np.zeros((6, 6), int)
    for (a, b), (c, d) in joined.tolist():
        result[a:b, c:d] += 1
    assert np.array_equal(np.flatnonzero(result.ravel() == 1), np.sort(cells)) and result.max() == 1


@given(st.lists(st.integers(0, 12), max_size=3), st.data(), st.sampled_from([1, 8]))
def test_blocks_are_cut_between_chunks(sizes: list[int], data: Any, itemsize: int) -> None:
    distribution = Distribution(tuple(data.draw(maps(n, "0.9.0")) for n in sizes))
    chunks, blocks = chunk_layout(distribution, itemsize)
    assert blocks.shape == distribution.shape and blocks.grid == distribution.grid
    for side, one in zip(chunks, blocks.maps, strict=True):
        assert side >= 1 and isinstance(one, Block)
        inner = np.asarray(one.bounds)[1:-1]
        assert ((inner % side == 0) | (inner == one.size)).all()


@pytest.mark.parametrize(
    ("one", "side"),
    [
        (Block([0, 10, 20, 25]), 10),
        (Block([0, 31, 59, 90]), 30),
        (Cyclic(10, 3), 4),
        (Block.even(10, 1), 10),
        (Block([0, 0, 7]), 7),
    ],
)
def test_sides_of_chunks(one: Any, side: int) -> None:
    assert chunk_layout(Distribution((one,)), 8)[0] == (side,)


def test_chunks_are_not_too_large() -> None:
    chunks, _ = chunk_layout(Distribution.regular((4096, 4096), "bb", (1, 2)), 8)
    assert np.prod(chunks) * 8 <= 16 << 20 and all(4096 % side == 0 for side in chunks)
