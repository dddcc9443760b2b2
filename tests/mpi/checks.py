"""What has to be true of movements, over any number of workers and any back end? Checks that all workers run together."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray.dap import Block, Cyclic, Distribution, Map, Unstructured
from aggarray.mpi import AllSumReduce, Broadcast, HaloExchange, ProcessGroup, Repartition, SumReduce
from aggarray.mpi.schedule import broadcast_groups, halo_widths


def total(group: ProcessGroup, value: float) -> float:
    """The sum over all workers."""
    return float(sum(group.link.allgather(float(value))))


def require_adjoint(group: ProcessGroup, movement: Any, x: np.ndarray, y: np.ndarray) -> None:
    """The adjoint test: |<Fx, y> - <x, F*y>| <= 1e-12 max(|Fx||y|, |x||F*y|); x and y of size 0 where nothing is held."""
    there, back = movement(x.copy()), movement.adjoint(y.copy())
    assert there.shape == y.shape and back.shape == x.shape, (there.shape, y.shape, back.shape, x.shape)
    left, right = total(group, np.vdot(there, y)), total(group, np.vdot(x, back))
    norms = [total(group, np.vdot(v, v)) ** 0.5 for v in (there, y, x, back)]
    assert abs(left - right) <= 1e-12 * max(norms[0] * norms[1], norms[2] * norms[3]), (left, right)


def factors(number: int, dimensions: int, rng: np.random.Generator) -> tuple[int, ...]:
    """A shape of so many places."""
    shape = [1] * dimensions
    while number > 1:
        prime = next(p for p in range(2, number + 1) if number % p == 0)
        shape[rng.integers(dimensions)] *= prime
        number //= prime
    return tuple(shape)


def random_map(size: int, nprocs: int, rng: np.random.Generator) -> Map:
    """A map of any type; blocks with padding, some workers without elements, elements that several hold."""
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


def section(whole: np.ndarray, distribution: Distribution, rank: int) -> np.ndarray:
    """A worker's section of an array, by listing indices."""
    return whole[np.ix_(*distribution.indices(rank))] if whole.ndim else whole.copy()


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
    """Two grids, the first broadcasting to the second, of workers that overlap in any way."""
    size = root.size
    shape = factors(int(rng.integers(1, size + 1)), int(rng.integers(1, 4)), rng)
    small = [n if rng.integers(2) else 1 for n in shape]
    small = small[int(rng.integers(len(small))) if small[0] == 1 else 0 :] if all(n == 1 for n in small) else small
    turned = bool(rng.integers(2)), bool(rng.integers(2))
    x = root.include(rng.permutation(size)[: prod(small)].tolist()).grid(small[::-1] if turned[0] else small)
    y = root.include(rng.permutation(size)[: prod(shape)].tolist()).grid(shape[::-1] if turned[1] else shape)
    return x, y, *turned


def check_fans(root: ProcessGroup) -> None:
    """Broadcast and sum-reduce: against brute force over the groups, and adjoint to each other."""
    rng = np.random.default_rng(5)
    for turn in range(12):
        x, y, *turned = _grids(root, rng)
        groups = broadcast_groups(x.ranks, x.shape, y.ranks, y.shape, *turned)
        move, back = Broadcast(x, y, *turned), SumReduce(y, x, *turned[::-1])
        mine = root.rank
        assert move.P_send == next((g for g in groups if g[0] == mine), None) == back.P_recv
        home = _home(mine, groups)
        assert move.P_recv == (home if y.active else None) == back.P_send
        values = rng.standard_normal((root.size, 3, 2))
        shape = (3, 2) if turn % 3 else (0, 2)
        given = [values[r, : shape[0]] for r in range(root.size)]
        copied = move(given[mine] if x.active else None)
        assert copied.shape == (shape if y.active else (0,))
        assert not y.active or np.array_equal(copied, given[home[0]])
        summed = back(np.asfortranarray(given[mine]) if y.active else "nothing")
        leaves = [r for r in y.ranks if move.P_send and _home(r, groups) == move.P_send]
        wanted = sum((given[r] for r in leaves), np.zeros(shape)) if x.active else np.zeros(0)
        assert np.allclose(summed, wanted, rtol=0, atol=1e-13) and summed.shape == wanted.shape
        mx, my = (given[mine] if g.active else np.empty(0) for g in (x, y))
        require_adjoint(root, move, mx, my)
        require_adjoint(root, back, my, mx)


def _home(rank: int, groups: list[list[int]]) -> list[int]:
    """The group of which a worker is a member, as its root only if of no other."""
    return next((g for g in groups if rank in g[1:]), None) or next((g for g in groups if g[0] == rank), [])


def check_sums(root: ProcessGroup) -> None:
    """All-sum-reduce over any axes, of grids and of sub-grids."""
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
    """Between distributions of any types and groups: equal to listing indices, and adjoint."""
    rng = np.random.default_rng(7)
    for _ in range(25):
        dims = int(rng.integers(0, 4))
        shape = tuple(int(n) for n in rng.integers(0, 9, dims))
        whole = rng.standard_normal(shape)
        sides = []
        for _ in range(2):
            grid = factors(int(rng.integers(1, root.size + 1)), dims, rng) if dims else ()
            group = root.include(rng.permutation(root.size)[: prod(grid)].tolist()).grid(grid)
            sides.append((group, Distribution(tuple(map(random_map, shape, grid, [rng] * dims)))))
        (gx, source), (gy, target) = sides
        x = np.empty(0)
        if gx.rank is not None:
            # Only what is owned counts: all else is garbage.
            x = np.where(_owned(source, gx.rank), section(whole, source, gx.rank), np.nan)
        move = Repartition(gx, gy, source, target)
        found = move(np.asfortranarray(x) if x.ndim else x)
        wanted = np.empty(0) if gy.rank is None else section(whole, target, gy.rank)
        assert found.shape == wanted.shape and np.array_equal(found, wanted) and found.flags.c_contiguous
        own = np.random.default_rng(root.rank)
        require_adjoint(root, move, own.standard_normal(x.shape), own.standard_normal(wanted.shape))


def _owned(distribution: Distribution, rank: int) -> np.ndarray:
    """Which elements of its buffer a worker owns, of several holders the lowest."""
    found = np.ones(distribution.local_shape(rank), bool)
    for d, (one, place) in enumerate(zip(distribution.maps, distribution.coords(rank), strict=True)):
        mine = np.zeros(one.extent(place), bool)
        mine[one.owned_slice(place)] = True
        mine &= np.asarray(one.owner(one.indices(place))) == place
        found &= mine.reshape([-1 if i == d else 1 for i in range(found.ndim)])
    return found


def check_halo(root: ProcessGroup) -> None:
    """Halos of any widths, wrapping or not, corners included: equal to listing indices, and adjoint."""
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
        whole = rng.standard_normal(shape)
        wanted = section(whole, distribution, root.rank or 0)
        x = np.full(wanted.shape, np.nan)
        inner = distribution.owned_slices(root.rank or 0)
        x[inner] = wanted[inner]
        found = move(x)
        assert found is x and np.array_equal(x, wanted)
        own = np.random.default_rng(root.rank)
        require_adjoint(root, move, own.standard_normal(x.shape), own.standard_normal(x.shape))


def check_dtypes(root: ProcessGroup) -> None:
    """What MPI itself refuses or turns round arrives as it was: big-endian, strided, unaligned, text, times, no elements."""
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
        found = Broadcast(one, everybody)(case if me == size - 1 else None)
        assert found.dtype == case.dtype and found.shape == case.shape and found.flags.c_contiguous
        assert found.tobytes() == np.ascontiguousarray(case).tobytes()
    whole = np.arange(2 * 3 * size, dtype=">f4").reshape(2 * size, 3)
    rows, columns = Distribution.regular(whole.shape, "bb", (size, 1)), Distribution.regular(whole.shape, "cb", (size, 1))
    move = Repartition(everybody, everybody, rows, columns)
    found = move(section(whole, rows, me or 0))
    assert found.dtype == ">f4" and np.array_equal(found, section(whole, columns, me or 0))
    found = SumReduce(everybody, one)(np.array([1, 2], ">i2"))
    assert found.dtype == ">i2" and found.tolist() == ([size, 2 * size] if me == size - 1 else [])


def refuses(root: ProcessGroup, words: str, call: Callable[[], Any]) -> None:
    """An error on every worker, and the same one."""
    with pytest.raises(aa.ExchangeError, match=words) as caught:
        call()
    said = root.link.allgather(str(caught.value))
    assert len(set(said)) == 1, said


def check_wrong_use(root: ProcessGroup) -> None:
    """What is wrong on one worker is an error on all of them."""
    size, me = root.size, root.rank or 0
    last = me == size - 1
    everybody = root.grid((size,))
    d = Distribution.regular((4 * size,), "b", (size,))
    both = root.grid((1, size))
    refuses(root, "does not broadcast", lambda: Broadcast(both, everybody))
    refuses(root, "give exactly one", lambda: AllSumReduce(everybody))
    refuses(root, "axes_keep .*; give dimensions", lambda: AllSumReduce(everybody, axes_keep=[1]))
    more = Distribution.regular((4 * size,), "b", (size + 1,))
    refuses(root, f"over {size + 1} processes, but a group of {size}", lambda: Repartition(everybody, everybody, d, more))
    refuses(root, f"over {size + 1} processes", lambda: HaloExchange(everybody, more))
    refuses(
        root,
        "give distributions of one array",
        lambda: Repartition(everybody, everybody, d, Distribution.regular(5, "b", size)),
    )
    refuses(root, "not a Distribution", lambda: HaloExchange(everybody, "b"))
    refuses(root, "of two root groups", lambda: Repartition(everybody, ProcessGroup.serial(), d, d))
    refuses(root, "does not fit", lambda: root.grid((size, 2)))
    refuses(root, "include: .*; give each rank once", lambda: root.include([size]))
    refuses(root, "include: .*; give each rank once", lambda: root.include([0, 0]))
    move, halo = Repartition(everybody, everybody, d, d), HaloExchange(everybody, d)
    ones = np.ones(4)
    refuses(root, "section of this process has", lambda: move(np.ones(3) if last else ones))
    refuses(root, "NoneType on an active process", lambda: move(None if last else ones))
    refuses(root, "cannot be sent", lambda: move(ones.astype(object) if last else ones))
    refuses(root, "cannot be summed", lambda: AllSumReduce(everybody, axes_keep=())(np.array(["a"])))
    frozen = np.ones(4)
    frozen.flags.writeable = not last
    refuses(root, "read-only", lambda: halo(frozen))
    with pytest.raises(aa.ExchangeError, match="communicator"):
        ProcessGroup("world")
    if size > 1:
        refuses(root, "dtype float64 on process 0, float32 on process", lambda: move(ones.astype("f4") if last else ones))
        total_ = SumReduce(everybody, root.include([0]).grid((1,)))
        refuses(root, r"shape \(4,\) on process 0, \(3,\) on process", lambda: total_(np.ones(3) if last else ones))
        refuses(root, "on all processes", lambda: (move.adjoint if last else move)(ones))
        refuses(
            root,
            "on all processes",
            lambda: Repartition(everybody, everybody, d, d) if last else HaloExchange(everybody, d),
        )
        refuses(root, "on all processes", lambda: move(ones) if last else HaloExchange(everybody, d))
        other = Distribution.regular((4 * size,), "c", (size,))
        refuses(root, "on all processes", lambda: HaloExchange(everybody, other if last else d))
        refuses(root, "include: .*; give the same values on all processes", lambda: root.include([0, 1] if last else [1, 0]))
        refuses(root, "grid: .*; give the same values on all processes", lambda: root.grid((1, size) if last else (size, 1)))
    assert np.array_equal(move(ones), ones)


def check_many_groups(root: ProcessGroup) -> None:
    """More groups than there may be communicators, closed and left open."""
    for turn in range(3000):
        group = root.include([turn % root.size])
        if turn % 2:
            group.close()
    assert AllSumReduce(root.grid((root.size,)), axes_keep=())(1).item() == root.size


CHECKS: tuple[Callable[[ProcessGroup], None], ...] = (
    check_groups,
    check_fans,
    check_sums,
    check_repartition,
    check_halo,
    check_dtypes,
    check_wrong_use,
    check_many_groups,
)
