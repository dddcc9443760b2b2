"""Tests of sections of arrays: reading as NumPy selects, export and import without a copy."""

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import aggarray as aa
from aggarray import MasterArray, SubArray
from aggarray.dap import Block, Cyclic, Distribution, LocalArray, Unstructured, validate, validate_all
from aggarray.errors import AggregationError, ProtocolError
from tests.opening.test_real_data import plain
from tests.support.distributions import VERSIONS, distributions, maps


def master(shape: tuple[int, ...], cuts: Any = None, dtype: Any = "f8") -> tuple[MasterArray, np.ndarray]:
    """Return an array of partitions in memory, cut along each dimension, and its values."""
    values = np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)
    names = tuple("abc"[: len(shape)])
    edges = [[0, *(c for c in (cuts or [()] * len(shape))[d] if 0 < c < n), n] for d, n in enumerate(shape)]
    pieces = []
    for cell in np.ndindex(*(len(e) - 1 for e in edges)):
        location = [(e[i], e[i + 1]) for e, i in zip(edges, cell, strict=True)]
        part = values[tuple(slice(a, b) for a, b in location)]
        pieces.append((location, SubArray.from_array(part, dimensions=names)))
    return MasterArray.from_subarrays(pieces, dimensions=names, shape=shape), values


def selected(values: np.ndarray, local: LocalArray) -> np.ndarray:
    """Return the values that NumPy selects by the global indices of a section."""
    return values[np.ix_(*local.global_indices)] if values.ndim else values


@given(st.data())
def test_sections_equal_numpy_selections(data: Any) -> None:
    version = data.draw(st.sampled_from(VERSIONS))
    d = data.draw(distributions(version))
    cuts = [sorted(data.draw(st.sets(st.integers(1, max(n - 1, 1)), max_size=3))) for n in d.shape]
    a, values = master(d.shape, cuts)
    locals_ = [a.local(d, rank) for rank in range(d.nprocs)]
    for local in locals_:
        expected = selected(values, local)
        assert local.shape == expected.shape and local.dtype == values.dtype and "not read yet" in repr(local)
        np.testing.assert_array_equal(local.buffer, expected)
        flags = local.buffer.flags
        assert flags.c_contiguous and flags.aligned and flags.writeable and local.buffer.dtype.isnative
        assert local.buffer is local.buffer and "in memory" in repr(local) and local.aligned() is local
        assert local.owned.base is not None or local.owned is local.buffer
        np.testing.assert_array_equal(local.owned, expected[local.distribution.owned_slices(local.rank)])
    try:
        exports = [local.__distarray__(version) for local in locals_]
    except ProtocolError:
        assume(False)
    validate_all(exports)
    for local, export in zip(locals_, exports, strict=True):
        again = LocalArray.from_distarray(export)
        assert again.rank == local.rank and again.shape == local.shape
        assert again.buffer is local.buffer or np.shares_memory(again.buffer, local.buffer) or not again.buffer.size
        assert [i.tolist() for i in again.global_indices] == [i.tolist() for i in local.global_indices]
        np.testing.assert_array_equal(again.owned, local.owned)
        assert repr(again.__distarray__(version)["dim_data"]) == repr(export["dim_data"])
        assert again.partitions == ()
    together = MasterArray.from_locals(exports)
    np.testing.assert_array_equal(together[...], values)
    np.testing.assert_array_equal(MasterArray.from_locals(locals_, name="v")[...], values)


@given(st.data())
def test_partitions_of_a_section(data: Any) -> None:
    d = data.draw(distributions(data.draw(st.sampled_from(VERSIONS))))
    cuts = [sorted(data.draw(st.sets(st.integers(1, max(n - 1, 1)), max_size=3))) for n in d.shape]
    a, _ = master(d.shape, cuts)
    for rank in range(d.nprocs):
        local = a.local(d, rank)
        expected = [
            p.index
            for p in a.partitions
            if all(
                np.isin(np.arange(start, stop), i).any()
                for (start, stop), i in zip(p.location, local.global_indices, strict=True)
            )
        ]
        assert [p.index for p in local.partitions] == expected


def test_reads_only_its_section() -> None:
    a, values = master((12, 4), [(3, 6, 9), ()])
    read: list[tuple[int, ...]] = []

    class Watched:
        shape, dtype, partitions = a.shape, a.dtype, a.partitions

        def read(self, key: Any, **how: Any) -> np.ndarray:
            result = a.read(key, **how)
            read.append(result.shape)
            return result

    d = Distribution.regular((12, 4), "bc", (3, 2), padding={0: (1, 1)}, periodic=(0,), outer="wrap")
    local = LocalArray(Watched(), d, 0)
    assert read == [] and local.partitions and local.shape == (6, 2) and read == []
    np.testing.assert_array_equal(local.buffer, values[[11, 0, 1, 2, 3, 4]][:, ::2])
    assert sum(s[0] * s[1] for s in read) == 12
    read.clear()
    assert LocalArray(Watched(), Distribution.regular((12, 4), "cb", (3, 2)), 1).buffer.shape == (4, 2)
    assert read == [(4, 2)]


def test_threads_read_once() -> None:
    a, values = master((12, 4))
    count, gate = [0], threading.Barrier(4)

    class Slow:
        shape, dtype = a.shape, a.dtype

        def read(self, key: Any, **how: Any) -> np.ndarray:
            count[0] += 1
            return a.read(key, **how)

    local = LocalArray(Slow(), Distribution.regular((12, 4), "bb", (2, 1)), 1)
    result: list[np.ndarray] = []

    def ask() -> None:
        gate.wait()
        result.append(local.buffer)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count == [1] and all(f is result[0] for f in result)
    np.testing.assert_array_equal(result[0], values[6:])


def test_pickles_as_array_distribution_and_rank() -> None:
    a, values = master((12, 4), [(5,), ()])
    local = a.local(Distribution.regular((12, 4), "cb", (3, 2)), 4)
    again = pickle.loads(pickle.dumps(local))
    assert "not read yet" in repr(again)
    np.testing.assert_array_equal(again.buffer, values[2 - 0 : 12 : 3][:, :2])
    imported = LocalArray.from_distarray(local)
    imported.buffer[0, 0] = -1
    back = pickle.loads(pickle.dumps(imported))
    np.testing.assert_array_equal(back.buffer, imported.buffer)
    assert back.distribution == imported.distribution and back.rank == 4


def test_numpy_converts_without_a_copy() -> None:
    a, values = master((6,))
    local = a.local(Distribution.regular((6,), "b", (2,)), 1)
    assert np.shares_memory(np.asarray(local), local.buffer)
    assert np.array(local, copy=True) is not local.buffer
    assert np.asarray(local, "f4").dtype == np.float32
    assert np.shares_memory(np.asarray(local, copy=False), local.buffer)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(local, "i2", copy=False)
    np.testing.assert_array_equal(np.add(local, 1), values[3:] + 1)


def plain_file(path: Path, values: np.ndarray, format: str = "NETCDF3_64BIT_OFFSET") -> Path:
    with netCDF4.Dataset(path, "w", format=format) as file:
        names = [file.createDimension(name, n).name for name, n in zip("yx", values.shape, strict=False)]
        file.createVariable("v", values.dtype, names)[...] = values
    return path


def test_no_copy_of_mapped_files(tmp_path: Path) -> None:
    values = np.arange(24.0).reshape(6, 4)
    a = aa.open(plain_file(tmp_path / "a.nc", values))["v"]
    d = Distribution.regular((6, 4), "bb", (2, 1), padding={0: (1, 1)})
    for copy in (None, False):
        local = a.local(d, 1, copy=copy)
        assert not local.buffer.flags.writeable and local.buffer.dtype == ">f8" and not local.buffer.flags.owndata
        np.testing.assert_array_equal(local.buffer, values[2:])
        validate(local)
        aligned = local.aligned()
        assert aligned.buffer.dtype.isnative and aligned.buffer.flags.writeable and aligned.rank == 1
        np.testing.assert_array_equal(aligned.buffer, values[2:])
        assert [p.index for p in aligned.partitions] == [()]
        imported = LocalArray.from_distarray(local)
        assert np.shares_memory(imported.buffer, local.buffer) and not imported.buffer.flags.writeable
    assert a.local(d, 1).buffer.flags.writeable
    strided = a.local(Distribution.regular((6, 4), "cb", (2, 1)), 1, copy=False)
    np.testing.assert_array_equal(strided.buffer, values[1::2])
    listed = Distribution((Unstructured(6, [[5, 0, 3], [1, 2, 4]]), Block([0, 4])))
    np.testing.assert_array_equal(a.local(listed, 0, copy=None).buffer, values[[5, 0, 3]])
    with pytest.raises(AggregationError, match="no view"):
        _ = a.local(listed, 0, copy=False).buffer
    wrap = Distribution((Block.even(6, 2, (1, 1), True, "wrap"), Block([0, 4])))
    with pytest.raises(AggregationError, match="wraps"):
        _ = a.local(wrap, 0, copy=False).buffer
    np.testing.assert_array_equal(a.local(wrap, 0, copy=None).buffer, values[[5, 0, 1, 2, 3]])


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((None, 0), ProtocolError, "not a Distribution"),
        ((Distribution.regular((6, 4), "bb", (2, 1)), 2), ProtocolError, "rank 2 is out of range for 2"),
        ((Distribution.regular((6, 4), "bb", (2, 1)), 0.0), ProtocolError, "rank"),
        ((Distribution.regular((6,), "b", (2,)), 0), ProtocolError, "shape"),
        (
            (Distribution.regular((6, 5), "bb", (2, 1)), 0),
            ProtocolError,
            "dimension 1: a map of 5 elements for a dimension of size 4",
        ),
        ((Distribution((Cyclic(7, 2), Block([0, 4]))), 0), ProtocolError, "dimension 0"),
        ((Distribution((Unstructured(1, [[-1]]), Block([0, 4]))), 0), ProtocolError, "indices within the array"),
        ((Distribution((Unstructured(1, [[6]]), Block([0, 4]))), 0), ProtocolError, "indices within the array"),
        ((Distribution.regular((6, 4), "bb", (2, 1)), 0, "yes"), AggregationError, "copy"),
        ((Distribution.regular((6, 4), "bb", (2, 1)), 0, 0), AggregationError, "copy"),
    ],
)
def test_distributions_that_do_not_fit(arguments: Any, error: Any, words: str) -> None:
    a, _ = master((6, 4))
    with pytest.raises(error, match=words):
        a.local(*arguments)


def test_unstructured_subset() -> None:
    a, values = master((6, 4))
    d = Distribution((Unstructured(3, [[5, 2], [0]]), Block([0, 4])))
    np.testing.assert_array_equal(a.local(d, 0).buffer, values[[5, 2]])


@pytest.mark.parametrize(
    "make",
    [
        lambda: bytearray(b"abcd"),
        lambda: memoryview(bytearray(b"abcd")),
        lambda: np.arange(4),
        lambda: np.arange(8)[::2],
        lambda: np.arange(4, dtype=">f4"),
        lambda: np.frombuffer(b"\0" * 33, "u1")[1:].view("f8"),
        lambda: np.zeros(4, bool),
        lambda: np.zeros(4, "f2"),
    ],
)
def test_buffers_are_imported_without_a_copy(make: Callable[[], Any]) -> None:
    buffer = make()
    outside = np.asarray(memoryview(buffer))
    local = LocalArray.from_distarray({"__version__": "0.10.0", "buffer": buffer, "dim_data": ({},)})
    assert np.shares_memory(local.buffer, outside) and local.buffer.flags.writeable == outside.flags.writeable
    assert local.buffer.dtype == outside.dtype and local.shape == (4,)
    if outside.flags.writeable:
        local.buffer[1] = 1
        assert outside[1] == 1
    aligned = local.aligned()
    assert aligned.buffer.dtype.isnative and aligned.buffer.flags.c_contiguous and aligned.buffer.flags.aligned
    assert aligned.buffer.flags.writeable
    np.testing.assert_array_equal(SubArray.from_local(local).read(), local.buffer)


def test_imports_know_only_their_process() -> None:
    d = Distribution((Block.even(9, 3, (1, 1)), Cyclic(4, 2), Unstructured(4, [[3, 1], [2, 0]], one_to_one=True)))
    a, values = master((9, 4, 4))
    local = LocalArray.from_distarray(a.local(d, 6))
    result = local.distribution
    assert (result.shape, result.grid, local.rank) == (d.shape, d.grid, 6)
    assert result.dim_data(6)[0] == d.dim_data(6)[0] and result.maps[1] == d.maps[1]
    assert result.maps[0].dist_type == "b" and result.maps[2].dist_type == "u" and "Partial" in repr(result)
    assert pickle.loads(pickle.dumps(result)) == result and hash(result) is not None
    for ask in (
        lambda: result.indices(0),
        lambda: result.owner((0, 0, 0)),
        lambda: result.maps[0].holders(0),
        lambda: result.maps[0].to_local(0),
        lambda: result.maps[0].to_global(0, 0),
        lambda: result[1:],
    ):
        with pytest.raises(ProtocolError, match="only the part of rank"):
            ask()
    assert result[...] == result and result.maps[0].to_global(1, [0, 1]).tolist() == [2, 3]
    np.testing.assert_array_equal(a.local(result, 6).buffer, selected(values, local))


@given(st.integers(0, 9).flatmap(lambda n: maps(n, "0.9.0", positions=False)))
def test_exports_round_trip(m: Any) -> None:
    d = Distribution((m,))
    for version in VERSIONS:
        for rank in range(m.nprocs):
            try:
                dim_data = d.dim_data(rank, version)
            except ProtocolError:
                continue
            export = {"__version__": version, "buffer": np.zeros(d.local_shape(rank)), "dim_data": dim_data}
            again = LocalArray.from_distarray(export)
            assert repr(again.__distarray__(version)["dim_data"]) == repr(dim_data)
            assert again.global_indices[0].tolist() == m.indices(rank).tolist()
            assert again.owned.shape == (m.num_owned(rank),)


def test_invalid_exports() -> None:
    for wrong in (None, 5, {}, {"__version__": "0.10.0", "buffer": b"ab", "dim_data": {}}):
        for take in (LocalArray.from_distarray, SubArray.from_local, lambda w: MasterArray.from_locals([w])):
            with pytest.raises(ProtocolError):
                take(wrong)
    for wrong in (None, [], 5, {}):
        with pytest.raises(ProtocolError):
            MasterArray.from_locals(wrong)
    huge = {"dist_type": "b", "size": 4, "proc_grid_size": 2**40, "proc_grid_rank": 0, "start": 0, "stop": 2}
    with pytest.raises(ProtocolError, match="processes"):
        LocalArray.from_distarray({"__version__": "0.10.0", "buffer": b"ab", "dim_data": (huge,)})
    a, _ = master((6,))
    d = Distribution.regular((6,), "b", (3,))
    with pytest.raises(ProtocolError, match="a grid of 3 processes"):
        MasterArray.from_locals([a.local(d, 0), a.local(d, 1)])


def test_from_locals_of_the_old_protocol_version() -> None:
    for m in (
        Block([0, 0, 0, 1], [(0, 0), (0, 1), (0, 0)]),
        Block([0, 4, 8], [(0, 1), (2, 0)]),
        Block.even(8, 2, (1, 2), True, "wrap"),
    ):
        a, values = master((m.size,))
        locals_ = [a.local(Distribution((m,)), rank) for rank in range(m.nprocs)]
        imported = [LocalArray.from_distarray(one.__distarray__("0.9.0")) for one in locals_]
        for given_ in (locals_, imported):
            np.testing.assert_array_equal(MasterArray.from_locals(given_)[...], values)


def test_sections_are_sub_arrays() -> None:
    values = np.arange(24.0).reshape(6, 4)
    s = SubArray.from_array(values, dimensions=("y", "x"), units="m", directions=(True, False))
    a = MasterArray.from_subarrays([(((0, 6), (0, 4)), s)], dimensions=("y", "x"), directions=(True, False))
    d = Distribution.regular((6, 4), "bb", (2, 1), padding={0: (1, 1)})
    subs = [SubArray.from_local(a.local(d, rank)) for rank in range(2)]
    assert [(x.dimensions, x.units, x.directions, x.shape) for x in subs] == [(("y", "x"), "m", (True, False), (3, 4))] * 2
    pieces = [([(3 * r, 3 * r + 3), (0, 4)], x) for r, x in enumerate(subs)]
    whole = MasterArray.from_subarrays(pieces, dimensions=("y", "x"), directions=(True, False))
    np.testing.assert_array_equal(whole[...], values)
    local = a.local(d, 0)
    outside = LocalArray.from_distarray(local)
    local.buffer[0, 0] = 99
    assert SubArray.from_local(outside).read(0)[0] == 99


def test_text_and_times_have_no_buffer() -> None:
    for values in (np.array(["a", "b"]), np.array(["2000-01-01", "2000-01-02"], "M8[s]")):
        a = MasterArray.from_subarrays([([(0, 2)], SubArray.from_array(values))], dimensions=("x",))
        local = a.local(Distribution.regular((2,), "b", (2,)), 1)
        assert local.buffer.shape == (1,)
        with pytest.raises(ProtocolError, match="cannot be exported"):
            local.__distarray__()


@pytest.mark.parametrize(
    "make",
    [
        lambda n, p: Block.even(n, p),
        lambda n, p: Block.even(n, p, (1, 1)),
        lambda n, p: Block.even(n, p, (1, 1), True, "wrap"),
        lambda n, p: Block(sorted([0, *(n // 7 * k for k in range(1, p)), n])),
        lambda n, p: Cyclic(n, p),
        lambda n, p: Cyclic(n, p, 3),
        lambda n, p: Unstructured(n, np.array_split(np.random.default_rng(0).permutation(n), p), one_to_one=True),
    ],
)
def test_sections_of_real_data(shared_data: Path, make: Callable[[int, int], Any]) -> None:
    """Sections equal selections of the array, read by netCDF4 for the distribution of time."""
    folders = sorted({path.parent for path in (shared_data / "cmip6").rglob("*.nc")}, key=str)
    several = [f for f in folders if len(list(f.glob("*.nc"))) > 3][:3]
    assert several
    for folder in several:
        a = aa.open(folder)["ta"]
        whole = np.concatenate([plain(path, "ta") for path in sorted(folder.glob("*.nc"))])
        d = Distribution(
            (make(a.shape[0], 3), *(make(n, 1) for n in a.shape[1:-1]), make(a.shape[-1], 1 if a.shape[-1] < 4 else 2))
        )
        seen = np.zeros(a.shape, int)
        for rank in range(d.nprocs):
            local = a.local(d, rank)
            where = np.ix_(*local.global_indices)
            np.testing.assert_array_equal(local.buffer, whole[where])
            np.testing.assert_array_equal(local.buffer, a[...][where])
            owned = np.ix_(*(i[s] for i, s in zip(local.global_indices, d.owned_slices(rank), strict=True)))
            seen[owned] += 1
        assert (seen == 1).all()


@pytest.mark.parametrize("types", ["b", "c"])
def test_sections_of_decreasing_dimensions(types: str) -> None:
    """Sections keep their direction, as those of decreasing latitudes."""
    values = np.arange(7.0)[::-1]
    piece = SubArray.from_array(values, dimensions=("lat",), directions=(False,))
    a = MasterArray.from_subarrays([([(0, 7)], piece)], dimensions=("lat",), directions=(False,))
    d = Distribution.regular((7,), types, (3,))
    together = MasterArray.from_locals([a.local(d, rank) for rank in range(3)])
    assert together.directions == a.directions
    np.testing.assert_array_equal(together[...], values)
