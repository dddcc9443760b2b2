"""Movements over threads and over a single process without MPI."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray.dap import Distribution
from aggarray.mpi import Broadcast, HaloExchange, ProcessGroup, Repartition
from aggarray.mpi.transport import moving
from tests.mpi.checks import CHECKS, require_adjoint, section
from tests.mpi.checks_mistakes import MISTAKE_CHECKS
from tests.support.distributions import maps
from tests.support.examples import examples
from tests.support.thread_link import run

SIZES = (2, 4, 7, 12)


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_one_process_without_mpi(check: Callable[[ProcessGroup], None]) -> None:
    with ProcessGroup.serial() as root:
        check(root)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("check", (*CHECKS[:-1], *MISTAKE_CHECKS[:2]), ids=lambda c: c.__name__)
def test_many_ranks(check: Callable[[ProcessGroup], None], size: int) -> None:
    run(size, check)


def test_broadcast_of_the_specification() -> None:
    sends = {1: [1, 0, 6, 7], 2: [2, 3, 8, 9], 3: [3, 4, 5, 10, 11]}
    receives = {**dict.fromkeys((0, 1, 6, 7), 1), **dict.fromkeys((2, 3, 8, 9), 2), **dict.fromkeys((4, 5, 10, 11), 3)}

    def work(root: ProcessGroup) -> None:
        move = Broadcast(root.include([1, 2, 3]).grid((1, 3, 1)), root.grid((2, 3, 2)))
        me = root.rank or 0
        assert move.P_send == sends.get(me)
        assert move.P_recv == sends[receives[me]]
        assert move(me * 10 if me in sends else None).item() == receives[me] * 10
        result = move.adjoint(1)
        assert result.tolist() == (len([r for r in receives if receives[r] == me]) if me in sends else [])

    run(12, work)


@st.composite
def pairs(draw: Any) -> tuple[Distribution, Distribution, list[int]]:
    """Two distributions of one array, over ranks in any order."""
    sizes = draw(st.lists(st.integers(0, 7), max_size=2))
    result = [Distribution(tuple(draw(maps(n, "0.9.0")) for n in sizes)) for _ in range(2)]
    most = max(d.nprocs for d in result)
    return result[0], result[1], draw(st.permutations(range(min(most, 9)))) if most <= 9 else list(range(most))


@given(pairs())
@settings(max_examples=examples(60))
def test_repartition_of_anything(pair: tuple[Distribution, Distribution, list[int]]) -> None:
    source, target, order = pair
    full = np.arange(float(np.prod(source.shape))).reshape(source.shape)

    def work(root: ProcessGroup) -> None:
        x_group, y_group = root.include(order[: source.nprocs]), root.include(order[::-1][: target.nprocs])
        move = Repartition(x_group, y_group, source, target)
        x = np.empty(0) if x_group.rank is None else section(full, source, x_group.rank)
        expected = np.empty(0) if y_group.rank is None else section(full, target, y_group.rank)
        assert np.array_equal(move(x), expected)
        require_adjoint(root, move, x, expected + 1)

    sent: list[tuple[int, int, int]] = []
    run(len(order), work, sent)


def test_one_message_between_two_ranks() -> None:
    source, target = Distribution.regular((40, 6), "cb", (4, 1), {0: 3}), Distribution.regular((40, 6), "bc", (2, 2))
    sent: list[tuple[int, int, int]] = []

    def work(root: ProcessGroup) -> None:
        move = Repartition(root, root, source, target)
        move(np.zeros(source.local_shape(root.rank or 0)))

    run(4, work, sent)
    assert all(count == 1 for count in Counter(s[:2] for s in sent).values())
    assert not any(a == b for a, b, _ in sent)
    moved = sum(_changes_owner(source, target, (i, j)) for i in range(40) for j in range(6))
    assert sum(size for *_, size in sent) == 8 * moved


def _changes_owner(source: Distribution, target: Distribution, index: tuple[int, int]) -> bool:
    return bool(source.owner(index) != target.owner(index))


def test_halo_takes_two_messages_per_dimension() -> None:
    distribution = Distribution.regular((6, 6, 6), "bbb", (3, 3, 3), padding={d: (1, 1) for d in range(3)})
    sent: list[tuple[int, int, int]] = []
    run(27, lambda root: HaloExchange(root, distribution)(np.zeros(distribution.local_shape(root.rank or 0))), sent)
    assert Counter(a for a, *_ in sent)[13] == 6


def test_large_messages_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "MAX_MESSAGE", 40)
    monkeypatch.setattr(moving, "_IN_FLIGHT", 1)
    for check in CHECKS[1:5]:
        run(4, check)


def test_halo_wider_than_the_neighbour_is_an_error() -> None:
    with pytest.raises(aa.ProtocolError, match=r"padding \[3, 3\] of rank 0 is too wide: the neighbours own"):
        Distribution.regular((8,), "b", (4,), padding={0: (3, 3)})


def test_closed_groups_raise() -> None:
    with ProcessGroup.serial() as root:
        grid = root.grid((1,))
        move = Broadcast(grid, grid)
    for call in (lambda: move(1), lambda: root.include([0]), lambda: grid.grid((1,)), lambda: grid.union(root)):
        with pytest.raises(aa.ExchangeError, match="closed"):
            call()
    root.close()
