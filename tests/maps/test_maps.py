"""Maps and distributions against plain lists."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray.dap import Block, Cyclic, Distribution, Map, Unstructured
from aggarray.errors import ProtocolError, SelectionError
from aggarray.maps.block import find_intervals
from tests.support.distributions import blocks, distributions, everywhere, maps

pytestmark = pytest.mark.quick

SIZES = st.integers(0, 12)
ANY = st.one_of(*(SIZES.flatmap(lambda n, v=v: maps(n, v, positions=False)) for v in ("0.10.0", "0.9.0")))


@given(ANY)
def test_every_element_is_owned_and_found(m: Map) -> None:
    held = [m.indices(rank) for rank in range(m.nprocs)]
    owned = [m.owned(rank) for rank in range(m.nprocs)]
    assert all(a.dtype == np.int64 for a in (*held, *owned))
    assert [len(a) for a in owned] == [m.num_owned(rank) for rank in range(m.nprocs)]
    assert [len(a) for a in held] == [m.extent(rank) for rank in range(m.nprocs)]
    labels = everywhere(m)
    assert len(labels) == m.size
    if not isinstance(m, Unstructured):
        assert sorted(np.concatenate(owned).tolist()) == list(range(m.size))
    first = [min(rank for rank, a in enumerate(owned) if g in a) for g in labels.tolist()]
    assert m.owner(labels).tolist() == first
    assert [h.tolist() for h in m.holders(labels)] == [[r for r, a in enumerate(held) if g in a] for g in labels.tolist()]
    ranks, places = m.to_local(labels)
    assert ranks.tolist() == first
    assert [held[r][p] for r, p in zip(ranks, places, strict=True)] == labels.tolist()
    for rank, indices in enumerate(held):
        assert m.to_global(rank, np.arange(len(indices))).tolist() == indices.tolist()
    assert m.to_global(ranks, places).tolist() == labels.tolist()


@given(ANY)
def test_maps_are_values(m: Map) -> None:
    again = pickle.loads(pickle.dumps(m))
    assert again == m and hash(again) == hash(m) and repr(m)
    for rank in range(m.nprocs):
        np.testing.assert_array_equal(again.indices(rank), m.indices(rank))


@given(ANY, st.integers(1, 3))
def test_shapes_are_kept(m: Map, times: int) -> None:
    labels = everywhere(m)
    asked = np.broadcast_to(labels, (times, len(labels)))
    assert m.owner(asked).shape == m.to_local(asked)[1].shape == m.holders(asked).shape == asked.shape
    assert m.owner(asked).dtype == np.int64
    for g in labels[:1].tolist():
        assert m.owner(g) == m.owner(np.array(g, ">i4") if abs(g) < 2**31 else g) == m.owner([g])[0]
        assert m.holders(g).tolist() == m.holders([g])[0].tolist()


@given(ANY)
def test_indices_out_of_range_raise(m: Map) -> None:
    labels = set(everywhere(m).tolist())
    strange = next(g for g in range(-1, -50, -1) if g not in labels)
    for wrong in (strange, [strange], 2**63, 0.5, True, "a", [[0], [0, 1]]):
        with pytest.raises(SelectionError):
            m.owner(wrong)
    with pytest.raises(SelectionError, match=r"local index -1|local index \d+"):
        m.to_global(0, m.extent(0))
    with pytest.raises(SelectionError):
        m.to_global(0, -1)
    for rank in (-1, m.nprocs, 0.0, True, None):
        for question in (m.indices, m.owned, m.num_owned, m.extent, m.dim_dict):
            with pytest.raises(ProtocolError, match="rank"):
                question(rank)
    with pytest.raises(ProtocolError, match="ranks"):
        m.to_global(m.nprocs, 0)


def test_empty_indices_give_empty_results() -> None:
    for m in (Block([0, 0]), Cyclic(0, 3), Unstructured(0, [[], []]), Block.even(5, 2)):
        assert m.owner([]).shape == (0,) and m.holders(np.zeros((0, 2), int)).shape == (0, 2)


@pytest.mark.parametrize(
    ("size", "nprocs", "expected"), [(10, 4, [0, 3, 6, 8, 10]), (2, 5, [0, 1, 2, 2, 2, 2]), (0, 2, [0, 0, 0]), (7, 1, [0, 7])]
)
def test_even_blocks(size: int, nprocs: int, expected: list[int]) -> None:
    m = Block.even(size, nprocs)
    assert m.bounds.tolist() == expected
    assert m.owner(np.arange(size)).tolist() == np.repeat(np.arange(nprocs), np.diff(expected)).tolist()


@given(st.integers(1, 40), st.integers(1, 12))
def test_even_blocks_own_what_searching_finds(size: int, nprocs: int) -> None:
    m = Block.even(size, nprocs)
    g = np.arange(size)
    assert m.owner(g).tolist() == (np.searchsorted(m.bounds, g, side="right") - 1).tolist()


def test_partial_cyclic_block() -> None:
    m = Cyclic(7, 2, 2)
    assert [m.num_owned(r) for r in range(2)] == [4, 3]
    assert m.indices(0).tolist() == [0, 1, 4, 5] and m.indices(1).tolist() == [2, 3, 6]


def test_large_dimensions_need_no_tables() -> None:
    size = 2**62
    for m in (Block.even(size, 4096, (1, 1)), Cyclic(size, 4096), Cyclic(size, 4096, 10**6), Cyclic(size, 3, 2**62)):
        g = np.array([0, 1, size // 3, size - 1])
        rank, local = m.to_local(g)
        assert m.to_global(rank, local).tolist() == g.tolist()
        assert m.dim_dict(1)["size"] == size


def test_padding_of_the_specification() -> None:
    pads = [(4, 1), (1, 2), (2, 3), (3, 0)]
    m = Block([0, 10, 20, 30, 40], pads)
    assert [m.dim_dict(r)["padding"] for r in range(4)] == pads
    assert [(m.dim_dict(r)["start"], m.dim_dict(r)["stop"]) for r in range(4)] == [(0, 11), (9, 22), (18, 33), (27, 40)]
    assert [(m.dim_dict(r, "0.9.0")["start"], m.dim_dict(r, "0.9.0")["stop"]) for r in range(4)] == [
        (0, 10),
        (10, 20),
        (20, 30),
        (30, 40),
    ]
    assert [m.num_owned(r) for r in range(4)] == [10] * 4


def test_padding_wraps() -> None:
    m = Block.even(6, 3, padding=(1, 2), periodic=True, outer="wrap")
    assert [m.indices(r).tolist() for r in range(3)] == [[5, 0, 1, 2, 3], [1, 2, 3, 4, 5], [3, 4, 5, 0, 1]]
    assert [m.owned(r).tolist() for r in range(3)] == [[0, 1], [2, 3], [4, 5]]
    assert [h.tolist() for h in m.holders(np.arange(6))] == [[0, 2], [0, 1, 2], [0, 1], [0, 1, 2], [1, 2], [0, 1, 2]]
    one = Block([0, 3], (3, 3), True, "wrap")
    assert one.indices(0).tolist() == [0, 1, 2] * 3 and one.owned(0).tolist() == [0, 1, 2]
    assert one.to_local([0, 2])[1].tolist() == [3, 5]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Block([0]),
        lambda: Block([1, 5]),
        lambda: Block([0, 5, 4]),
        lambda: Block([0, 2.5]),
        lambda: Block([0, True]),
        lambda: Block("ab"),
        lambda: Block([[0, 1]]),
        lambda: Block([0, 2**64]),
        lambda: Block([0, 5, 10], (1, -1)),
        lambda: Block([0, 5, 10], (1, 6)),
        lambda: Block([0, 5, 10], (6, 1)),
        lambda: Block([0, 5, 10], [(0, 0)]),
        lambda: Block([0, 5, 10], (1, 1, 1)),
        lambda: Block([0, 5, 10], 1),
        lambda: Block([0, 5, 10], (1.0, 1.0)),
        lambda: Block([0, 5], (3, 3)),
        lambda: Block([0, 5, 5, 10], (1, 1)),
        lambda: Block([0, 5], None, 1),
        lambda: Block([0, 5], None, False, "wrap"),
        lambda: Block([0, 5], None, True, "nonsense"),
        lambda: Block.even(-1, 2),
        lambda: Block.even(5, 0),
        lambda: Block.even(5.0, 2),
        lambda: Cyclic(5, 0),
        lambda: Cyclic(5, 2, 0),
        lambda: Cyclic(-1, 2),
        lambda: Cyclic(5, True),
        lambda: Unstructured(2, []),
        lambda: Unstructured(2, 5),
        lambda: Unstructured(2, [0, 1]),
        lambda: Unstructured(2, [[0.0, 1.0]]),
        lambda: Unstructured(2, [[True, False]]),
        lambda: Unstructured(2, [[0, 0], [1]]),
        lambda: Unstructured(3, [[0], [1]]),
        lambda: Unstructured(1, [[0], [1]]),
        lambda: Unstructured(2, [[0, 1], [1]], one_to_one=True),
        lambda: Unstructured(1, [[2**64]]),
        lambda: Unstructured(2, [[[0, 1]]]),
        lambda: Distribution(5),
        lambda: Distribution((Cyclic(5, 2), "b")),
    ],
)
def test_invalid_arguments_raise(make: Any) -> None:
    with pytest.raises(ProtocolError) as error:
        make()
    assert "\n" not in str(error.value)


def test_numpy_integers_are_integers() -> None:
    assert Block(np.array([0, 3, 5], ">i4")) == Block([np.int8(0), np.uint64(3), 5])
    assert Cyclic(np.int16(5), np.uint8(2)) == Cyclic(5, 2)
    assert Unstructured(1, np.array([[7]], ">u2")).indices(0).tolist() == [7]


@given(st.data())
def test_slices_keep_elements_on_their_process(data: Any) -> None:
    d = data.draw(distributions(data.draw(st.sampled_from(["0.10.0", "0.9.0"]))))
    ends = st.one_of(st.none(), st.integers(-11, 11))
    steps = st.sampled_from([None, 1, 1, 1, 2, 3, -1, -2])
    key = tuple(slice(data.draw(ends), data.draw(ends), data.draw(steps)) for _ in d.maps)
    part = d[key]
    assert part.grid == d.grid
    assert part.shape == tuple(len(range(*k.indices(n))) for k, n in zip(key, d.shape, strict=True))
    for old, new, k in zip(d.maps, part.maps, key, strict=True):
        chosen = np.arange(old.size)[k]
        for rank in range(old.nprocs):
            held = old.owned(rank)
            assert sorted(chosen[new.owned(rank)].tolist()) == sorted(held[np.isin(held, chosen)].tolist())
            assert np.isin(chosen[new.indices(rank)], old.indices(rank)).all()


def test_types_of_slices() -> None:
    d = Distribution.regular((10, 12, 12), "bcc", (2, 3, 2), block_size={1: 2}, padding={0: (1, 1)})
    part = d[2:, 6:, ::2]
    assert [m.dist_type for m in part.maps] == ["b", "c", "u"]
    assert part.maps[0] == Block([0, 3, 8], [(0, 1), (1, 1)]) and part.maps[1] == Cyclic(6, 3, 2)
    assert [i.tolist() for i in (part.maps[2].indices(0), part.maps[2].indices(1))] == [[0, 1, 2, 3, 4, 5], []]
    assert d[9:].maps[0] == Block([0, 0, 1], [(0, 0), (0, 1)])
    assert d[...] == d and d[:, :, :] == d
    assert [m.dist_type for m in d[::-1, 1:, 5:5].maps] == ["u", "u", "c"]
    assert d[::-1].maps[0].indices(1).tolist() == [4, 3, 2, 1, 0]


def test_only_slices_cut_distributions() -> None:
    d = Distribution.regular((10, 12), "bc", (2, 3))
    for key in (0, [1, 2], (slice(None), 0), np.ones(10, bool), (slice(None),) * 3, None):
        with pytest.raises(SelectionError):
            d[key]
    labels = Distribution((Unstructured(2, [[-5], [7]]),))
    assert labels[:] == labels
    with pytest.raises(ProtocolError, match="labels"):
        labels[1:]


@given(distributions())
def test_sections_tile_the_array(d: Distribution) -> None:
    whole = np.arange(int(np.prod(d.shape))).reshape(d.shape)
    counted = np.zeros(d.shape, int)
    for rank in range(d.nprocs):
        indices = d.indices(rank)
        section = whole[np.ix_(*indices)] if indices else whole
        assert section.shape == d.local_shape(rank)
        owned = section[d.owned_slices(rank)]
        np.add.at(counted.reshape(-1), owned.ravel(), 1)
        assert d.coords(rank) == tuple(int(i) for i in np.unravel_index(rank, d.grid)) if d.grid else True
    assert (counted >= 1).all()
    if not any(isinstance(m, Unstructured) for m in d.maps):
        assert (counted == 1).all()
    if d.maps and whole.size:
        index = np.unravel_index(whole.ravel(), d.shape)
        owners = d.owner(tuple(index))
        expected = [
            min(r for r in range(d.nprocs) if all(i in m.owned(c) for i, m, c in zip(at, d.maps, d.coords(r), strict=True)))
            for at in zip(*index, strict=True)
        ]
        assert owners.tolist() == expected


def test_an_array_without_dimensions_has_one_process() -> None:
    d = Distribution(())
    assert (d.nprocs, d.shape, d.grid, d.coords(0), d.dim_data(0), d.indices(0), d.local_shape(0)) == (
        1,
        (),
        (),
        (),
        (),
        (),
        (),
    )
    assert d.owner(()) == 0 and d[()] == d and d[...] == d


def test_regular() -> None:
    d = Distribution.regular((5, 9), ["b", "c"], [2, 2], block_size={1: 2}, padding={0: (0, 1)}, periodic=[0])
    assert d.maps == (Block.even(5, 2, (0, 1), True), Cyclic(9, 2, 2))
    assert Distribution.regular((6,), "b", (2,), padding={0: (1, 1)}, periodic=(0,), outer="wrap").maps[0].outer == "wrap"
    assert Distribution.regular(5, "b", 2) == Distribution((Block.even(5, 2),))
    assert Distribution.regular((5, 9), "b,c", (1, 3)).grid == (1, 3)
    assert hash(d) == hash(pickle.loads(pickle.dumps(d)))


@pytest.mark.parametrize(
    "arguments",
    [
        ((5, 9), "b", (2, 2)),
        ((5,), "b", (2, 2)),
        ((5,), "u", (2,)),
        ((5,), "n", (1,)),
        ((-5,), "b", (2,)),
        ((5,), "b", (0,)),
        ((5,), "b", (2.0,)),
        (("5",), "b", (2,)),
        (None, "b", (2,)),
        ((5,), "b", (2,), {0: 2}),
        ((5,), "c", (2,), {}, {0: (1, 1)}),
        ((5,), "c", (2,), {}, {}, (0,)),
        ((5,), "c", (2,), {1: 2}),
        ((5,), "c", (2,), {0: 0}),
        ((5,), "b", (2,), {}, {0: (9, 9)}),
        ((5,), "b", (2,), {}, {}, (), "wrap"),
    ],
)
def test_regular_arguments_that_do_not_fit(arguments: Any) -> None:
    with pytest.raises(ProtocolError):
        Distribution.regular(*arguments)


def test_invalid_queries_raise() -> None:
    d = Distribution.regular((5, 9), "bc", (2, 2))
    for rank in (-1, 4, 1.0, True):
        with pytest.raises(ProtocolError, match="rank"):
            d.dim_data(rank)
    for index in ((1,), (5, 0), (0, 9), (0, -1), 3, (0, 0.5)):
        with pytest.raises(SelectionError):
            d.owner(index)
    assert d.owner(([0, 4], [0, 1])).tolist() == [0, 3] and d.owner((4, [[0, 1]])).tolist() == [[2, 3]]


@given(SIZES.flatmap(lambda n: blocks(n, "0.9.0")))
def test_inexpressible_maps_raise(m: Block) -> None:
    pads = np.zeros((m.nprocs, 2), int) if m.padding is None else np.asarray(m.padding)
    wraps = m.outer == "wrap" and (pads[0, 0] or pads[-1, 1])
    uneven = (pads[:-1, 1] != pads[1:, 0]).any()
    if wraps or uneven:
        with pytest.raises(ProtocolError, match=r"0\.10\.0"):
            m.dim_dict(0)
    else:
        assert m.dim_dict(0)["stop"] == m.extent(0)
    assert m.dim_dict(0, "0.9.4") == m.dim_dict(0, "0.9.0")
    periodic = Block([0, 5, 10], [(1, 0), (0, 0)], periodic=True)
    with pytest.raises(ProtocolError, match=r"0\.9\.0"):
        periodic.dim_dict(1, "0.9.0")


@given(st.lists(st.integers(0, 300), max_size=6), st.integers(1, 300))
def test_intervals_of_many_numbers(cuts: list[int], size: int) -> None:
    edges = np.array([0, *sorted(c for c in cuts if c <= size), size])
    asked = np.resize(np.arange(size), 5000)
    assert find_intervals(edges, asked).tolist() == (np.searchsorted(edges, asked, side="right") - 1).tolist()
    assert Block(edges).owner(asked).tolist() == find_intervals(edges, asked[:size])[asked].tolist()


class Hostile:
    """An object whose repr fails."""

    def __repr__(self) -> str:
        raise KeyError("boom")


@pytest.mark.parametrize(
    "wrong",
    [
        {"block_size": 2},
        {"padding": 1},
        {"padding": ()},
        {"periodic": True},
        {"periodic": None},
        {"dist_types": None},
        {"dist_types": Hostile()},
        {"shape": (10**5000,)},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_invalid_regular_distributions_raise(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        Distribution.regular(**{"shape": (4,), "dist_types": "b", "grid": (2,), **wrong})


def test_objects_without_partitions_raise() -> None:
    with pytest.raises(ProtocolError, match="NoneType has no partitions"):
        Distribution.from_partitions(None, 2)


def test_indices_that_do_not_broadcast() -> None:
    with pytest.raises(SelectionError, match="broadcast"):
        Distribution.regular((4, 4), "bb", (2, 2)).owner((np.arange(3), np.arange(2)))


def test_holders_of_many_at_once() -> None:
    for one in (
        Block.even(10, 3, padding=(2, 1)),
        Block.even(6, 2, (1, 1), True, "wrap"),
        Unstructured(5, [[0, 1, 2], [2, 3, 4, 0]]),
    ):
        for g in np.arange(one.size):
            expected = [rank for rank in range(one.nprocs) if g in one.indices(rank)]
            assert one.holders(np.array([g, g]))[1].tolist() == one.holders(g).tolist() == expected
