"""Checks of movements, over any number of processes and any back end.

All processes run them together.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray.dap import Block, Cyclic, Distribution, Map, Unstructured
from aggarray.exchange import broadcast_groups, halo_widths
from aggarray.mpi import AllSumReduce, Broadcast, HaloExchange, ProcessGroup, Repartition, SumReduce


def total(group: ProcessGroup, value: float) -> float:
    """Return the sum over all processes."""
    return float(sum(group.link.allgather(float(value))))


def require_adjoint(group: ProcessGroup, movement: Any, x: np.ndarray, y: np.ndarray) -> None:
    """Check |<Fx, y> - <x, F*y>| <= 1e-12 max(|Fx||y|, |x||F*y|).

    x and y have size 0 on inactive processes.
    """
    there, back = movement(x.copy()), movement.adjoint(y.copy())
    assert there.shape == y.shape and back.shape == x.shape, (there.shape, y.shape, back.shape, x.shape)
    left, right = total(group, np.vdot(there, y)), total(group, np.vdot(x, back))
    norms = [total(group, np.vdot(v, v)) ** 0.5 for v in (there, y, x, back)]
    assert abs(left - right) <= 1e-12 * max(norms[0] * norms[1], norms[2] * norms[3]), (left, right)


def factors(number: int, dimensions: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Return a random shape with ``number`` elements."""
    shape = [1] * dimensions
    while number > 1:
        prime = next(p for p in range(2, number + 1) if number % p == 0)
        shape[rng.integers(dimensions)] *= prime
        number //= prime
    return tuple(shape)


def random_map(size: int, nprocs: int, rng: np.random.Generator) -> Map:
    """Return a map of any type.

    It may have padding, processes without elements, and shared elements.
    """
    kind = rng.integers(5)
    if kind == 0:
        return Block.even(size, nprocs)
    if kind == 1:
        cuts = np.sort(rng.integers(0, size + 1, nprocs - 1))
        return Block([0, *cuts.tolist(), size])
    if kind == 2:
        return Cyclic(size, nprocs, int(rng.integers(1, size + 2)))
    if kind == 3:
        width = min(int(rng.integers(0, 3)), size // nprocs)
        wrap = bool(rng.integers(2)) and width > 0
        return Block.even(size, nprocs, (width, width) if 2 * width <= size // nprocs or wrap else None, wrap, *["wrap"] * wrap)
    homes = [rng.choice(nprocs, min(nprocs, 2 if rng.integers(4) == 0 else 1), replace=False) for _ in range(size)]
    order = rng.permutation(size)
    return Unstructured(size, [[int(i) for i in order if rank in homes[i]] for rank in range(nprocs)])


def section(full: np.ndarray, distribution: Distribution, rank: int) -> np.ndarray:
    """Return the section of a process by listed indices."""
    return full[np.ix_(*distribution.indices(rank))] if full.ndim else full.copy()


def check_groups(root: ProcessGroup) -> None:
    """Members, orders, grids and neighbours."""
    size, me = root.size, root.rank
    assert me is not None and root.active
    order = list(range(size))[::-2]
    with root.include(order) as some:
        assert some.size == len(order) and some.active == (me in order)
        assert some.rank == (order.index(me) if me in order else None)
        with some.include([0]) as first, root.include([0]).union(some) as both:
            assert first.active == (me == size - 1)
            assert both.ranks == tuple(dict.fromkeys([0, *order]))
        grid = some.grid((len(order), 1))
        assert grid.shape == (len(order), 1) and grid.dim == 2
        assert grid.index == ((order.index(me), 0) if me in order else None)
    shape = factors(size, 3, np.random.default_rng(size))
    grid = root.grid(shape, periodic=(True, False, False))
    assert grid.index == np.unravel_index(me, shape)
    ranks = np.arange(size).reshape(shape)
    for d, (left, right) in enumerate(grid.neighbor_ranks() or []):
        for rank, step in ((left, -1), (right, 1)):
            place = list(grid.index or ())
            place[d] += step
            inside = d == 0 or 0 <= place[d] < shape[d]
            assert rank == (ranks[tuple(np.mod(place, shape))] if inside else None)
    row = grid.subgrid((0, 2))
    assert row.shape == (shape[0], shape[2])
    assert row.ranks == tuple(ranks[:, (grid.index or ())[1], :].ravel().tolist())
    assert grid.subgrid([False, True, False]).shape == (shape[1],)
    assert grid.subgrid(-1).size == shape[2]
    with pytest.raises(aa.ExchangeError, match="closed"):
        some.include([0])


def _grids(root: ProcessGroup, rng: np.random.Generator) -> tuple[Any, Any, bool, bool]:
    """Return two overlapping grids; the first broadcasts to the second."""
    size = root.size
    shape = factors(int(rng.integers(1, size + 1)), int(rng.integers(1, 4)), rng)
    small = [n if rng.integers(2) else 1 for n in shape]
    small = small[int(rng.integers(len(small))) if small[0] == 1 else 0 :] if all(n == 1 for n in small) else small
    transposed = bool(rng.integers(2)), bool(rng.integers(2))
    x = root.include(rng.permutation(size)[: prod(small)].tolist()).grid(small[::-1] if transposed[0] else small)
    y = root.include(rng.permutation(size)[: prod(shape)].tolist()).grid(shape[::-1] if transposed[1] else shape)
    return x, y, *transposed


def check_broadcasts(root: ProcessGroup) -> None:
    """Compare broadcast and sum-reduce with brute force and their adjoints."""
    rng = np.random.default_rng(5)
    for turn in range(12):
        x, y, *transposed = _grids(root, rng)
        groups = broadcast_groups(x.ranks, x.shape, y.ranks, y.shape, *transposed)
        move, back = Broadcast(x, y, *transposed), SumReduce(y, x, *transposed[::-1])
        mine = root.rank
        assert move.P_send == next((g for g in groups if g[0] == mine), None) == back.P_recv
        home = _group_of_rank(mine, groups)
        assert move.P_recv == (home if y.active else None) == back.P_send
        values = rng.standard_normal((root.size, 3, 2))
        shape = (3, 2) if turn % 3 else (0, 2)
        given = [values[r, : shape[0]] for r in range(root.size)]
        copied = move(given[mine] if x.active else None)
        assert copied.shape == (shape if y.active else (0,))
        assert not y.active or np.array_equal(copied, given[home[0]])
        summed = back(np.asfortranarray(given[mine]) if y.active else "nothing")
        leaves = [r for r in y.ranks if move.P_send and _group_of_rank(r, groups) == move.P_send]
        expected = sum((given[r] for r in leaves), np.zeros(shape)) if x.active else np.zeros(0)
        assert np.allclose(summed, expected, rtol=0, atol=1e-13) and summed.shape == expected.shape
        mx, my = (given[mine] if g.active else np.empty(0) for g in (x, y))
        require_adjoint(root, move, mx, my)
        require_adjoint(root, back, my, mx)


def _group_of_rank(rank: int, groups: list[list[int]]) -> list[int]:
    """Return the group of which a rank is a leaf, or else the root."""
    return next((g for g in groups if rank in g[1:]), None) or next((g for g in groups if g[0] == rank), [])


def check_sums(root: ProcessGroup) -> None:
    """All-sum-reduce over any axes of grids and sub-grids."""
    rng = np.random.default_rng(6)
    for turn in range(6):
        shape = factors(int(rng.integers(1, root.size + 1)), 3, rng)
        grid = root.include(rng.permutation(root.size)[: prod(shape)].tolist()).grid(shape)
        axes = [d for d in range(3) if rng.integers(2)]
        given = rng.standard_normal((root.size, 4))
        mine = given[root.rank] if grid.active else np.empty(0)
        by = {"axes_reduce": [d - 3 * (turn % 2) for d in axes]} if turn % 3 else {"axes_keep": sorted({0, 1, 2} - set(axes))}
        move = AllSumReduce(grid, **by)
        ranks = np.array(grid.ranks).reshape(shape)
        if grid.active:
            same = ranks[tuple(slice(None) if d in axes else (grid.index or ())[d] for d in range(3))]
            assert np.allclose(move(mine), given[same.ravel()].sum(axis=0), rtol=0, atol=1e-13)
        else:
            assert move(mine).shape == (0,)
        require_adjoint(root, move, mine, mine[::-1].copy())
    rows = root.grid(factors(root.size, 2, rng)).subgrid([1])
    assert AllSumReduce(rows, axes_keep=())(1).item() == rows.size


def check_repartition(root: ProcessGroup) -> None:
    """Compare repartitions with listed indices, and their adjoints."""
    rng = np.random.default_rng(7)
    for _ in range(25):
        dims = int(rng.integers(0, 4))
        shape = tuple(int(n) for n in rng.integers(0, 9, dims))
        full = rng.standard_normal(shape)
        sides = []
        for _ in range(2):
            grid = factors(int(rng.integers(1, root.size + 1)), dims, rng) if dims else ()
            group = root.include(rng.permutation(root.size)[: prod(grid)].tolist()).grid(grid)
            sides.append((group, Distribution(tuple(map(random_map, shape, grid, [rng] * dims)))))
        (gx, source), (gy, target) = sides
        x = np.empty(0)
        if gx.rank is not None:
            # Only owned elements are sent.
            x = np.where(_owned(source, gx.rank), section(full, source, gx.rank), np.nan)
        move = Repartition(gx, gy, source, target)
        result = move(np.asfortranarray(x) if x.ndim else x)
        expected = np.empty(0) if gy.rank is None else section(full, target, gy.rank)
        assert result.shape == expected.shape and np.array_equal(result, expected) and result.flags.c_contiguous
        own = np.random.default_rng(root.rank)
        require_adjoint(root, move, own.standard_normal(x.shape), own.standard_normal(expected.shape))


def _owned(distribution: Distribution, rank: int) -> np.ndarray:
    """Return a mask of the owned elements of a process."""
    result = np.ones(distribution.local_shape(rank), bool)
    for d, (one, place) in enumerate(zip(distribution.maps, distribution.coords(rank), strict=True)):
        mine = np.zeros(one.extent(place), bool)
        mine[one.owned_slice(place)] = True
        mine &= np.asarray(one.owner(one.indices(place))) == place
        result &= mine.reshape([-1 if i == d else 1 for i in range(result.ndim)])
    return result


def check_halo(root: ProcessGroup) -> None:
    """Compare halos of any widths with listed indices and adjoints."""
    rng = np.random.default_rng(8)
    for turn in range(10):
        grid = factors(root.size, 3, rng)
        shape = tuple(int(n) * 4 + int(rng.integers(0, 3)) for n in grid)
        widths = {d: halo_widths(shape[d], grid[d], int(rng.integers(1, 5)), padding=int(rng.integers(3))) for d in range(3)}
        even = {d: (2, 1) if turn % 2 else (1, 2) for d in range(3)}
        around = [bool(rng.integers(2)) for _ in range(3)]
        maps = []
        for d in range(3):
            pads: Any = even[d] if around[d] else [*widths[d]]
            maps.append(Block.even(shape[d], grid[d], pads, around[d], "wrap" if around[d] else "boundary"))
        distribution = Distribution(tuple(maps))
        group = root.grid(grid, around)
        move = HaloExchange(group, distribution)
        full = rng.standard_normal(shape)
        expected = section(full, distribution, root.rank or 0)
        x = np.full(expected.shape, np.nan)
        inner = distribution.owned_slices(root.rank or 0)
        x[inner] = expected[inner]
        result = move(x)
        assert result is x and np.array_equal(x, expected)
        own = np.random.default_rng(root.rank)
        require_adjoint(root, move, own.standard_normal(x.shape), own.standard_normal(x.shape))


def check_dtypes(root: ProcessGroup) -> None:
    """Arrays that MPI itself rejects or converts arrive unchanged."""
    size, me = root.size, root.rank
    unaligned = np.frombuffer(bytearray(1 + 8 * 6), np.uint8)[1:].view("f8").reshape(2, 3)
    unaligned[...] = np.arange(6).reshape(2, 3)
    cases = [
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(24.0).reshape(4, 6)[::2, ::2],
        np.arange(6, dtype="f4").reshape(2, 3)[::-1],
        unaligned,
        np.array([["a", "bcd"]]),
        np.array([b"xy", b""]),
        np.array(["2000-01-01", "NaT"], "M8[s]"),
        np.array([True, False]),
        np.array([(1, 2.0)], [("a", "i2"), ("b", "f8")]),
        np.zeros((0, 3), "f2"),
        np.float16(1.5),
        np.arange(3) * 1j,
    ]
    one, everybody = root.include([size - 1]).grid((1,)), root.grid((size,))
    for case in cases:
        case = np.asarray(case)
        result = Broadcast(one, everybody)(case if me == size - 1 else None)
        assert result.dtype == case.dtype and result.shape == case.shape and result.flags.c_contiguous
        assert result.tobytes() == np.ascontiguousarray(case).tobytes()
    full = np.arange(2 * 3 * size, dtype=">f4").reshape(2 * size, 3)
    rows, columns = (
        Distribution.regular(full.shape, "bb", (size, 1)),
        Distribution.regular(full.shape, "cb", (size, 1)),
    )
    move = Repartition(everybody, everybody, rows, columns)
    result = move(section(full, rows, me or 0))
    assert result.dtype == ">f4" and np.array_equal(result, section(full, columns, me or 0))
    result = SumReduce(everybody, one)(np.array([1, 2], ">i2"))
    assert result.dtype == ">i2" and result.tolist() == ([size, 2 * size] if me == size - 1 else [])


def raises_on_all(root: ProcessGroup, words: str, call: Callable[[], Any], error: Any = aa.ExchangeError) -> None:
    """Check that all processes raise the same error."""
    with pytest.raises(error, match=words) as caught:
        call()
    said = root.link.allgather(str(caught.value))
    assert len(set(said)) == 1, said


def check_wrong_use(root: ProcessGroup) -> None:
    """An error on one process is raised on all processes."""
    size, me = root.size, root.rank or 0
    last = me == size - 1
    everybody = root.grid((size,))
    d = Distribution.regular((4 * size,), "b", (size,))
    both = root.grid((1, size))
    raises_on_all(root, "does not broadcast", lambda: Broadcast(both, everybody))
    raises_on_all(root, "give exactly one", lambda: AllSumReduce(everybody))
    raises_on_all(root, "axes_keep .*; give dimensions", lambda: AllSumReduce(everybody, axes_keep=[1]))
    more = Distribution.regular((4 * size,), "b", (size + 1,))
    raises_on_all(
        root, f"has {size + 1} processes, but the group has {size}", lambda: Repartition(everybody, everybody, d, more)
    )
    raises_on_all(root, f"has {size + 1} processes", lambda: HaloExchange(everybody, more))
    raises_on_all(
        root,
        "give distributions of one array",
        lambda: Repartition(everybody, everybody, d, Distribution.regular(5, "b", size)),
    )
    raises_on_all(root, "not a Distribution", lambda: HaloExchange(everybody, "b"))
    raises_on_all(root, "of two root groups", lambda: Repartition(everybody, ProcessGroup.serial(), d, d))
    raises_on_all(root, "does not fit", lambda: root.grid((size, 2)))
    raises_on_all(root, "include: .*; give each rank once", lambda: root.include([size]))
    raises_on_all(root, "include: .*; give each rank once", lambda: root.include([0, 0]))
    move, halo = Repartition(everybody, everybody, d, d), HaloExchange(everybody, d)
    ones = np.ones(4)
    raises_on_all(root, "section of this process has", lambda: move(np.ones(3) if last else ones))
    raises_on_all(root, "NoneType on an active process", lambda: move(None if last else ones))
    raises_on_all(root, "cannot be sent", lambda: move(ones.astype(object) if last else ones))
    raises_on_all(root, "cannot be summed", lambda: AllSumReduce(everybody, axes_keep=())(np.array(["a"])))
    frozen = np.ones(4)
    frozen.flags.writeable = not last
    raises_on_all(root, "read-only", lambda: halo(frozen))
    with pytest.raises(aa.ExchangeError, match="communicator"):
        ProcessGroup("world")
    if size > 1:
        raises_on_all(root, "dtype float64 on process 0, float32 on process", lambda: move(ones.astype("f4") if last else ones))
        total_ = SumReduce(everybody, root.include([0]).grid((1,)))
        raises_on_all(root, r"shape \(4,\) on process 0, \(3,\) on process", lambda: total_(np.ones(3) if last else ones))
        raises_on_all(root, "on all processes", lambda: (move.adjoint if last else move)(ones))
        raises_on_all(
            root,
            "on all processes",
            lambda: Repartition(everybody, everybody, d, d) if last else HaloExchange(everybody, d),
        )
        raises_on_all(root, "on all processes", lambda: move(ones) if last else HaloExchange(everybody, d))
        other = Distribution.regular((4 * size,), "c", (size,))
        raises_on_all(root, "on all processes", lambda: HaloExchange(everybody, other if last else d))
        raises_on_all(
            root, "include: .*; give the same values on all processes", lambda: root.include([0, 1] if last else [1, 0])
        )
        raises_on_all(
            root, "grid: .*; give the same values on all processes", lambda: root.grid((1, size) if last else (size, 1))
        )
    assert np.array_equal(move(ones), ones)


def check_many_groups(root: ProcessGroup) -> None:
    """More groups than MPI has communicators, closed and open."""
    for turn in range(2100):  # MPICH has 2048
        group = root.include([turn % root.size])
        if turn % 2:
            group.close()
    assert AllSumReduce(root.grid((root.size,)), axes_keep=())(1).item() == root.size


CHECKS: tuple[Callable[[ProcessGroup], None], ...] = (
    check_groups,
    check_broadcasts,
    check_sums,
    check_repartition,
    check_halo,
    check_dtypes,
    check_wrong_use,
    check_many_groups,
)
