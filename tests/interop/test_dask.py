"""dask arrays: one lazy layer of small tasks, here and in other processes."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dask.array", reason="arrays become dask arrays: install the extra 'xarray'")
pytest.importorskip("distributed", reason="tasks run in other processes: install the extra 'xarray'")

import dask.array as da
from dask.blockwise import Blockwise
from dask.core import flatten
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray import MasterArray, SubArray
from aggarray.arrays.pickling import LazyBlock, fingerprint
from aggarray.interop.dask import chunked
from tests.support.netcdf import cube, write


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an index of three files along time; the second has reversed latitudes."""
    folder = tmp_path_factory.mktemp("days")
    write(folder / "a.nc", cube([0, 1, 2]))
    write(folder / "b.nc", cube([3, 4], lats=(30.0, 20.0, 10.0)))
    write(folder / "c.nc", cube([5]))
    aa.open([folder / f"{name}.nc" for name in "abc"]).save(folder / "days.nca")
    return folder / "days.nca"


def memory(values: Any = (1.5, 2.5, 3.5), **given: Any) -> MasterArray:
    """Return an array of two pieces in memory and a hole."""
    first, second = (SubArray.from_array(np.array(v), dimensions=("x",), **given) for v in (values[:2], values[2:]))
    return MasterArray.from_subarrays([([(0, 2)], first), ([(3, 4)], second)], dimensions=("x",), name="m")


def test_one_lazy_layer(index: Path) -> None:
    for array in (aa.open(index)["tas"], aa.open(index.parent / "*.nc")["tas"], memory()):
        made = array.to_dask()
        layer = made.dask.layers[made.name]
        assert isinstance(layer, Blockwise) and not layer.is_materialized()
        assert made.chunks == chunked(array) and made.shape == array.shape
        assert isinstance(made._meta, np.ndarray) and made.dtype == array.dtype == made._meta.dtype
        assert np.array_equal(made.compute(scheduler="sync"), array[...], equal_nan=True)
        assert np.array_equal((made[1:] + 1).compute(), array[1:] + 1, equal_nan=True)


def test_tasks_are_made_lazily() -> None:
    piece = SubArray.from_array(np.zeros(1), dimensions=("x",))
    array = MasterArray.from_subarrays([([(n, n + 1)], piece) for n in range(20_000)], dimensions=("x",))
    made = array.to_dask(1)
    assert made.numblocks == (20_000,) and not made.dask.layers[made.name].is_materialized()
    assert float(made[15_000:15_002].sum().compute()) == 0


def test_tasks_pickle_small(index: Path) -> None:
    size = len(pickle.dumps(LazyBlock(aa.open(index)["tas"], (slice(0, 3), slice(0, 3), slice(0, 2)))))
    assert size < 1000
    piece = SubArray.from_array(np.zeros(10_000), dimensions=("x",))
    array = MasterArray.from_subarrays([([(n * 10_000, n * 10_000 + 10_000)], piece) for n in range(50)], dimensions=("x",))
    for one, most in ((array, 100_000), (aa.open(index.parent / "*.nc")["tas"], 400), (aa.open(index)["tas"], 600)):
        made = one.to_dask()
        graph = dict(made.dask)
        sent = {key: pickle.dumps(graph[key]) for key in flatten(made.__dask_keys__())}
        largest = max(map(len, sent.values()))
        assert largest < most
        values = {key: node() for key, node in graph.items() if key not in sent}
        copies = pickle.loads(pickle.dumps(values))
        for key, task in sent.items():
            assert np.array_equal(graph[key](values), pickle.loads(task)(copies))


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_any_chunks_give_the_same_values(index: Path, cuts: list[int]) -> None:
    sizes = tuple(cuts)[: next(n for n in range(len(cuts), -1, -1) if sum(cuts[:n]) <= 6)]
    rest = 6 - sum(sizes)
    array = aa.open(index)["tas"]
    made = array.to_dask(chunks=((*sizes, rest) if rest else sizes, 2, -1))
    assert np.array_equal(made.compute(scheduler="sync"), array[...])


def test_chunks(index: Path) -> None:
    array = aa.open(index)["tas"]
    days = (3, 2, 1)
    for chunks, expected in (
        (None, (days, (3,), (2,))),
        ("auto", ((6,), (3,), (2,))),
        (2, ((2, 2, 2), (2, 1), (2,))),
        (-1, ((6,), (3,), (2,))),
        ({"lat": 1}, (days, (1, 1, 1), (2,))),
        ({0: 4, "lon": None}, ((4, 2), (3,), (2,))),
        ((days, 3, "auto"), (days, (3,), (2,))),
    ):
        made = array.to_dask(chunks=chunks)
        assert made.chunks == expected, chunks
        assert all(type(size) is int for sizes in made.chunks for size in sizes)
    with pytest.raises(aa.SelectionError, match="no dimension 'x'; the array has time, lat, lon"):
        array.to_dask(chunks={"x": 1})
    for wrong in ((1, 2), "often", ((5, 5), 1, 1), {"lat": "x"}, {3: 1}, object()):
        with pytest.raises(aa.SelectionError, match=r"chunks=|no dimension"):
            array.to_dask(chunks=wrong)
    for size in (0, {"lat": 0}, {0: -5}, -5, (3, 0, 1), ((9, -3), 1, 1), True):
        with pytest.raises(aa.SelectionError, match=r"^chunks=.* is not a chunk size; give a positive integer, -1 for"):
            array.to_dask(chunks=size)


def test_edge_cases() -> None:
    whole = memory().lazy[0]
    assert whole.to_dask().compute() == 1.5 and whole.to_dask().shape == ()
    empty = memory().lazy[2:2]
    assert empty.to_dask().compute().shape == (0,)
    integers = memory((1, 2, 3), fill_value=-1)
    assert integers.to_dask().compute().tolist() == [1, 2, -1, 3]
    texts = memory(np.array(["a", "bc", "d"]))
    assert texts.to_dask().compute().tolist() == texts[...].tolist() == ["a", "bc", "", "d"]


def test_names_identify_arrays(index: Path) -> None:
    array = aa.open(index)["tas"]
    name = array.to_dask().name
    assert name == aa.open(index)["tas"].to_dask().name and name.startswith("aggarray-tas-")
    others = [
        array.to_dask(chunks=2),
        array.flip("lat").to_dask(),
        array.lazy[:, [0, 1]].to_dask(),
        array.to_units("degC").to_dask(),
    ]
    assert len({name, *(one.name for one in others)}) == 5
    assert array.lazy[:, [0, 1]].to_dask().name == aa.open(index)["tas"].lazy[:, [0, 1]].to_dask().name
    files = aa.open(index.parent / "*.nc")["tas"]
    assert fingerprint(files) == fingerprint(aa.open(index.parent / "*.nc")["tas"]) != fingerprint(array)
    assert len({fingerprint(files), fingerprint(files.astype("f8")), fingerprint(files.lazy[1:]), fingerprint(memory())}) == 4
    assert fingerprint(memory((1.0, 2.0, 3.0))) != fingerprint(memory()) == fingerprint(memory())


def test_an_index_saved_again_gives_another_name(index: Path, tmp_path: Path) -> None:
    first = aa.open(index)
    first.save(tmp_path / "copy.nca")
    opened = aa.open(tmp_path / "copy.nca")
    before = opened["tas"].to_dask()
    opened.save(tmp_path / "copy.nca")
    assert aa.open(tmp_path / "copy.nca")["tas"].to_dask().name != before.name


# Other processes


def test_two_worker_processes(client: Any, index: Path) -> None:
    opened = aa.open(index)["tas"]
    for array in (opened, opened.flip("time").lazy[::2], aa.open(index.parent / "*.nc")["tas"], memory()):
        made = array.to_dask()
        assert np.array_equal(client.compute(made).result(timeout=60), array[...], equal_nan=True)
        assert np.allclose(client.compute(da.nanmean(made)).result(timeout=60), np.nanmean(array[...]))


def test_datasets_in_two_worker_processes(client: Any, index: Path) -> None:
    xr = pytest.importorskip("xarray")
    from aggarray.xarray_engine import AggarrayBackendEntrypoint

    lazy = xr.open_dataset(index, engine=AggarrayBackendEntrypoint, chunks={})
    eager = xr.open_dataset(index, engine=AggarrayBackendEntrypoint).load()
    assert lazy["tas"].chunks == ((3, 2, 1), (3,), (2,))
    xr.testing.assert_identical(client.compute(lazy).result(timeout=60), eager)
    xr.testing.assert_allclose(client.compute(lazy.mean("time")).result(timeout=60), eager.mean("time"))
    unchunked = xr.open_dataset(index, engine=AggarrayBackendEntrypoint)
    assert float(client.submit(lambda d: float(d["tas"].sum()), unchunked).result(timeout=60)) == float(eager["tas"].sum())


def test_real_data_in_two_worker_processes(client: Any, shared_data: Path) -> None:
    for array in aa.open(shared_data / "nemo"):
        made = array.to_dask()
        assert np.array_equal(client.compute(made).result(timeout=60), array[...], equal_nan=array.dtype.kind == "f")


def _read(array: aa.MasterArray) -> np.ndarray:
    return array[...]


@pytest.mark.parametrize("regular", [False, True])
def test_arrays_in_memory_in_other_processes(client: Any, index: Path, regular: bool) -> None:
    """Many and few values, holes, integers with fill values, text, and files among them."""
    rng = np.random.default_rng(4)
    blocks = [rng.normal(size=(n, 20, 30)) for n in (5, 9, 1)]
    blocks[1][2, 3] = np.nan
    pieces = [
        ([(start, start + len(b)), (0, 20), (0, 30)], aa.SubArray.from_array(b, dimensions=("t", "y", "x")))
        for start, b in zip((0, 5, 14), blocks, strict=True)
    ]
    large = aa.MasterArray.from_subarrays(pieces, dimensions=("t", "y", "x"), name="large")
    few = [
        ([(0, 3)], aa.SubArray.from_array(np.arange(3, dtype="i2"), fill_value=np.int16(1))),
        ([(5, 7)], aa.SubArray.from_array(np.array([8, 9], "i2"))),
    ]
    integers = aa.MasterArray.from_subarrays(few, dimensions=("x",), shape=(8,), fill_value=np.int16(-5))
    text = aa.MasterArray.from_subarrays([([(0, 2)], aa.SubArray.from_array(np.array(["ab", "ç"])))], dimensions=("x",))
    stored = aa.open(index)["tas"]
    part = stored.partitions[0] if stored.partitions.shape == (len(stored.partitions),) else next(iter(stored.partitions))
    assert part.data is not None
    size = part.data.shape
    boxes = [[(0, size[0]), *((0, n) for n in size[1:])], [(size[0], 2 * size[0]), *((0, n) for n in size[1:])]]
    added = aa.SubArray.from_array(np.ones(size, "f4"), dimensions=part.data.dimensions, units=part.data.units)
    mixed = aa.MasterArray.from_subarrays(
        [(boxes[0], part.data), (boxes[1], added)], dimensions=part.data.dimensions, units=part.data.units
    )
    for array in (large, large.flip("t").lazy[3:12, ::2], large.lazy[[14, 3, 2, 7]], integers, text, mixed):
        expected, chunks = array[...], array.chunks_for(1000, regular=regular)
        same = np.array_equal if expected.dtype.kind not in "f" else lambda a, b: np.array_equal(a, b, equal_nan=True)
        assert same(client.compute(array.to_dask(chunks)).result(timeout=60), expected)
        assert same(client.submit(_read, array).result(timeout=60), expected)
        assert not any(array.files_for(chunks).ravel()) or array is mixed
