"""Assignment of whole partitions to processes by cost."""

import heapq
import pickle
from dataclasses import fields, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray import MasterArray, SubArray
from aggarray.dap import Block, Distribution, Unstructured
from aggarray.errors import ProtocolError
from aggarray.maps.balance import assign_contiguous, assign_longest_first
from tests.support.distributions import everywhere
from tests.support.netcdf import NOLEAP, TAS, write

pytestmark = pytest.mark.quick

COSTS = st.lists(st.integers(0, 20), max_size=9).map(lambda c: np.array(c, np.int64))


def tiled(*widths: list[int], holes: Any = ()) -> MasterArray:
    """Return zeros in partitions of the widths given per dimension."""
    names = tuple("abc"[: len(widths)])
    edges = [np.concatenate([[0], np.cumsum(w)]).astype(int).tolist() for w in widths]
    pieces = []
    for cell in np.ndindex(*map(len, widths)):
        if cell not in holes:
            part = np.zeros([w[i] for w, i in zip(widths, cell, strict=True)])
            location = [(e[i], e[i + 1]) for e, i in zip(edges, cell, strict=True)]
            pieces.append((location, SubArray.from_array(part, dimensions=names)))
    return MasterArray.from_subarrays(pieces, dimensions=names, shape=[e[-1] for e in edges])


@given(COSTS, st.integers(1, 6))
def test_contiguous_assignment_is_optimal(costs: np.ndarray, count: int) -> None:
    ranks = assign_contiguous(costs, count)
    assert len(ranks) == len(costs) and (np.diff(ranks) >= 0).all()
    sums = np.bincount(ranks, costs, count)
    best = min(
        max(map(sum, np.split(costs, cuts)), default=0)
        for number in range(min(count, max(len(costs), 1)))
        for cuts in combinations(range(1, len(costs)), number)
    )
    assert sums.max() == best
    assert len(set(ranks.tolist())) == min(count, len(costs))


@given(COSTS, st.integers(1, 6))
def test_longest_first_is_near_the_best(costs: np.ndarray, count: int) -> None:
    ranks = assign_longest_first(costs, count)
    sums = np.bincount(ranks, costs, count)
    # Graham's bound of list scheduling.
    assert len(ranks) == len(costs) and sums.max() <= costs.sum() / count + (1 - 1 / count) * costs.max(initial=0)
    assert len(set(ranks.tolist())) == min(count, len(costs))


@given(
    st.lists(st.tuples(st.integers(0, 5) | st.integers(0, 1 << 40), st.integers(1, 40)), max_size=8),
    st.integers(1, 6),
    st.randoms(use_true_random=False),
)
def test_longest_first_takes_the_costliest_slab_to_the_least_rank(runs: Any, count: int, random: Any) -> None:
    costs = [cost for cost, number in runs for _ in range(number)]
    random.shuffle(costs)
    expected, least = [0] * len(costs), [(0, 0, rank) for rank in range(count)]
    for slab in sorted(range(len(costs)), key=lambda n: -costs[n]):
        total, slabs, rank = heapq.heappop(least)
        expected[slab] = rank
        heapq.heappush(least, (total + costs[slab], slabs + 1, rank))
    assert assign_longest_first(np.array(costs, np.int64), count).tolist() == expected


@given(st.data())
def test_partitions_are_not_split(data: Any) -> None:
    widths = data.draw(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=5), min_size=1, max_size=3))
    a = tiled(*widths)
    nprocs = data.draw(st.one_of(st.integers(1, 7), st.tuples(*(st.integers(1, 4) for _ in widths))))
    balance = data.draw(st.sampled_from(["contiguous", "cost"]))
    d = Distribution.from_partitions(a, nprocs, balance=balance)
    assert d.shape == a.shape and d.nprocs == (nprocs if isinstance(nprocs, int) else np.prod(nprocs))
    for m, edges in zip(d.maps, a.partitions.edges, strict=True):
        assert everywhere(m).tolist() == list(range(m.size))
        assert all(len(set(m.owner(np.arange(start, stop)).tolist())) == 1 for start, stop in pairwise(edges))
    held = [p.index for rank in range(d.nprocs) for p in a.local(d, rank).partitions]
    assert sorted(held) == [p.index for p in a.partitions]


def test_blocks_and_lists() -> None:
    a = tiled([5, 1, 1, 1, 5, 3])
    assert Distribution.from_partitions(a, 3).maps == (Block([0, 6, 13, 16]),)
    assert Distribution.from_partitions(a, 1, balance="cost").maps == (Block([0, 16]),)
    d = Distribution.from_partitions(a, 3, balance="cost")
    assert isinstance(d.maps[0], Unstructured) and d.maps[0].one_to_one
    assert [d.maps[0].num_owned(r) for r in range(3)] == [6, 5, 5]
    assert Distribution.from_partitions(a, 9).grid == (9,)
    assert [Distribution.from_partitions(a, 9, balance="cost").maps[0].num_owned(r) for r in range(9)] == [
        5,
        5,
        3,
        1,
        1,
        1,
        0,
        0,
        0,
    ]


def test_grids_over_several_partitioned_dimensions() -> None:
    a = tiled([2, 2, 2], [1, 1, 1, 1], [7])
    assert Distribution.from_partitions(a, 4).grid == (1, 4, 1)
    assert Distribution.from_partitions(a, 6).grid == (3, 2, 1) or Distribution.from_partitions(a, 6).grid == (2, 3, 1)
    assert Distribution.from_partitions(a, (3, 2, 2)).maps == (Block([0, 2, 4, 6]), Block([0, 2, 4]), Block([0, 7, 7]))
    assert Distribution.from_partitions(tiled([5]), 3).maps == (Block([0, 5, 5, 5]),)
    scalar = MasterArray.from_subarrays([([], SubArray.from_array(1.0))], dimensions=())
    assert Distribution.from_partitions(scalar, 1) == Distribution(())


def test_explicit_assignments() -> None:
    a = tiled([2, 3, 4], [1, 1])
    d = Distribution.from_partitions(a, 2, assignment={"a": [0, 0, 1]})
    assert d.maps == (Block([0, 5, 9]), Block([0, 2]))
    d = Distribution.from_partitions(a, (3, 2), assignment={0: [2, 0, 2], "b": np.array([1, 0])})
    assert [d.maps[0].indices(r).tolist() for r in range(3)] == [[2, 3, 4], [], [0, 1, 5, 6, 7, 8]]
    assert [d.maps[1].indices(r).tolist() for r in range(2)] == [[1], [0]]
    d = Distribution.from_partitions(a, (4, 1), assignment={"a": [1, 1, 3]})
    assert d.maps[0] == Block([0, 0, 5, 5, 9])


@pytest.mark.parametrize(
    ("nprocs", "how"),
    [
        (0, {}),
        (-1, {}),
        (2.0, {}),
        (True, {}),
        ("2", {}),
        (None, {}),
        ((2,), {}),
        ((2, 0), {}),
        ((2, 1.0), {}),
        (2, {"balance": "even"}),
        (2, {"assignment": {"z": [0, 0, 1]}}),
        (2, {"assignment": {5: [0, 0, 1]}}),
        (2, {"assignment": {"a": [0, 1]}}),
        (2, {"assignment": {"a": [0, 1, 2]}}),
        (2, {"assignment": {"a": [0, -1, 1]}}),
        (2, {"assignment": {"a": [0, 0.5, 1]}}),
        (2, {"assignment": {"a": 1}}),
        (2, {"assignment": {"a": [0, 0, 1], "b": [0, 1]}}),
    ],
)
def test_invalid_arguments_raise(nprocs: Any, how: Any) -> None:
    with pytest.raises(ProtocolError):
        Distribution.from_partitions(tiled([2, 3, 4], [1, 1]), nprocs, **how)


def test_an_array_without_dimensions_has_one_process() -> None:
    scalar = MasterArray.from_subarrays([([], SubArray.from_array(1.0))], dimensions=())
    with pytest.raises(ProtocolError, match="one process only"):
        Distribution.from_partitions(scalar, 2)


def test_costs_of_missing_partitions_and_parts() -> None:
    a = tiled([2, 2, 4], [3, 3], holes=[(1, 0), (1, 1)])
    assert [c.tolist() for c in a.partitions.costs()] == [[96, 0, 192], [144, 144]]
    assert [c.tolist() for c in a.lazy[3:, :3].partitions.costs()] == [[0, 96], [96]]
    assert a.lazy[0:0].partitions.costs()[0].tolist() == [0]
    assert len(Distribution.from_partitions(a, 3).maps[0].owned(2)) == 4


def test_costs_are_stored_bytes_of_an_index(tmp_path: Path) -> None:
    """The index has the stored bytes without the files."""
    uneven(tmp_path)
    fresh = aa.open(tmp_path / "*.nc")["tas"]
    assert fresh.partitions.costs()[0].tolist() == [4000] * 6
    assert Distribution.from_partitions(fresh, 2).maps == (Block([0, 3000, 6000]),)
    for path in tmp_path.glob("*.nc"):
        path.unlink()
    tas = aa.open(tmp_path / "all.nca")["tas"]
    costs = tas.partitions.costs()[0]
    assert (costs[:2] > 2000).all() and (costs[2:] < 100).all() and (costs > 0).all()
    assert Distribution.from_partitions(tas, 2).maps == (Block([0, 1000, 6000]),)
    lists = Distribution.from_partitions(tas, 2, balance="cost").maps[0]
    assert sorted(lists.owner([0, 1000]).tolist()) == [0, 1]


def uneven(folder: Path) -> Path:
    """Return an index of six files, of which the first two take most bytes."""
    rng = np.random.default_rng(0)
    for number in range(6):
        steps = np.arange(1000 * number, 1000 * number + 1000)
        values = rng.normal(size=1000) if number in (0, 1) else np.zeros(1000)
        given = {"time": (("time",), steps * 1.0, NOLEAP), "tas": (("time",), values.astype("f4"), TAS)}
        write(folder / f"{number}.nc", given)
        _deflate(folder / f"{number}.nc")
    aa.open(folder / "*.nc").save(folder / "all.nca")
    return folder / "all.nca"


def test_costs_are_pickled(tmp_path: Path) -> None:
    """Every process computes the distribution of the index."""
    index = uneven(tmp_path)
    tas = aa.open(index)["tas"]
    joined = aa.concat([tas.lazy[4000:], tas.lazy[:4000]], dimension="time")
    loose = replace(tas, _origin=None)
    grown = aa.open(index).append(tmp_path / "0.nc")["tas"]
    forms = (tas, tas.lazy[500:], loose, loose.lazy[2500:], loose.lazy[::-1], joined, grown)
    for array in forms:
        costs = array.partitions.costs()[0].tolist()
        assert min(costs) < 100 < 900 < max(costs) or array is forms[3]
        sent = pickle.loads(pickle.dumps(array))
        again = pickle.loads(pickle.dumps(sent))
        assert sent.partitions.costs()[0].tolist() == again.partitions.costs()[0].tolist() == costs
        for balance in ("contiguous", "cost"):
            expected = Distribution.from_partitions(array, 3, balance=balance)
            assert Distribution.from_partitions(sent, 3, balance=balance) == expected
    parts = [pickle.loads(pickle.dumps(loose.lazy[start : start + 2000])) for start in (0, 2000, 4000)]
    assert aa.concat(parts, dimension="time").partitions.costs()[0].tolist() == tas.partitions.costs()[0].tolist()


def test_pickles_are_small(tmp_path: Path) -> None:
    """Arrays of an index are pickled as origin, others with 8 bytes per file."""
    index = uneven(tmp_path)
    tas = aa.open(index)["tas"]
    assert len(pickle.dumps(tas)) < 600
    loose = replace(tas, _origin=None, coords={})
    references = replace(loose._matrix.references, tables=None)
    bare = replace(loose, _matrix=replace(loose._matrix, references=references))
    assert len(pickle.dumps(loose)) - len(pickle.dumps(bare)) < 300


def test_pickles_without_sizes_load(tmp_path: Path) -> None:
    """Older pickles have no chunk indexes."""
    tas = aa.open(uneven(tmp_path))["tas"]
    result = tas._matrix.references
    state = [None if f.name == "tables" else getattr(result, f.name) for f in fields(result)]
    old = object.__new__(type(result))
    old.__setstate__(state)
    array = replace(tas, _matrix=replace(tas._matrix, references=old))
    assert array.partitions.costs()[0].tolist() == [4000] * 6
    assert np.array_equal(pickle.loads(pickle.dumps(array))[...], tas[...])


def _deflate(path: Path) -> None:
    """Rewrite the variable of a file with compression."""
    import h5py

    with h5py.File(path, "r+") as file:
        values, attrs = file["tas"][...], dict(file["tas"].attrs)
        del file["tas"]
        data = file.create_dataset("tas", data=values, chunks=(500,), compression="gzip")
        data.dims[0].attach_scale(file["time"])
        data.attrs.update({k: v for k, v in attrs.items() if k not in ("DIMENSION_LIST", "_Netcdf4Coordinates")})
