"""Bytes that dask sends for arrays of many partitions, and chunks that no task decodes again."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dask.array", reason="arrays become dask arrays: install the extra 'xarray'")
pytest.importorskip("distributed", reason="messages are those of clusters: install the extra 'xarray'")

import dask
import netCDF4
from distributed import Client
from distributed.protocol import serialize, to_serialize

import aggarray as aa
from aggarray.arrays import pickling
from aggarray.index import pickling as index_pickling
from aggarray.interop.chunk_sizes import MOST_CHUNKS
from tests.bench.indexing import many_partitions
from tests.support.decoding import decoded
from tests.support.netcdf import cube, write


def sent(item: Any) -> int:
    """Return the bytes of an object as a client sends it."""
    header, frames = serialize(to_serialize(item), on_error="raise")
    return len(pickle.dumps(header)) + sum(memoryview(frame).nbytes for frame in frames)


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> aa.MasterArray:
    """Return an array of an index of a million files of one step, of which none exists."""
    index = tmp_path_factory.mktemp("million") / "index.nca"
    many_partitions(1_000_000).save(index, chunk_table=False)
    return aa.open(index)["tas"]


@pytest.mark.heavy
def test_a_layer_of_a_million_partitions_of_an_index(million: aa.MasterArray) -> None:
    made = million.to_dask()
    assert made.npartitions <= MOST_CHUNKS and {*np.diff(made.chunks[0])} <= {0}
    assert list(made.dask.layers) == [made.name] and sent(made.dask.layers[made.name]) < 5_000
    assert sent(made.mean(0).dask) < 500_000
    alone = million.to_dask({"time": 1})
    assert alone.numblocks == (1_000_000, 1, 1) and sent(alone.dask.layers[alone.name]) < 10_000


def test_months_are_sent_small() -> None:
    months = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] * 10_000
    piece = aa.SubArray.from_array(np.zeros(sum(months), "f4"), dimensions=("time",))
    array = aa.MasterArray.from_subarrays([([(0, sum(months))], piece)], dimensions=("time",))
    made = array.to_dask((tuple(months),))
    blocks = next(iter(made.dask.layers[made.name].io_deps.values()))
    copy = pickle.loads(pickle.dumps(blocks))
    assert copy.chunks == made.chunks and copy[(1,)].key == blocks[(1,)].key == (slice(31, 59),)
    assert sent(made.dask.layers[made.name]) - sent(piece) < 10_000


def test_a_matrix_is_sent_once() -> None:
    array = many_partitions(100_000)["tas"]
    made = array.to_dask(chunks={"time": 1})
    layers, shared = made.dask.layers, f"original-{made.name}"
    assert sent(layers[shared]) < 1_500_000 and sent(layers[made.name]) < 5_000
    merged = array.to_dask()
    task = merged.dask[(merged.name, 50, 0, 0)]
    assert len(pickle.dumps(task)) < 400 and task.dependencies == {f"original-{merged.name}"}


def test_many_small_partitions_are_merged() -> None:
    for count, longest in ((10_000, 1), (10_001, 2), (50_000, 10), (123_456, 24)):
        chunks = many_partitions(count)["tas"].to_dask().chunks
        assert sum(chunks[0]) == count and chunks[1:] == ((18,), (36,))
        assert len(chunks[0]) <= MOST_CHUNKS and max(chunks[0]) == longest


@pytest.mark.heavy
def test_what_a_client_sends(million: aa.MasterArray, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[dict[str, Any]] = []
    monkeypatch.setattr(client, "_send_to_scheduler", messages.append)
    client.compute(million.to_dask().mean(0))
    (message,) = [message for message in messages if message["op"] == "update-graph"]
    assert sum(memoryview(frame).nbytes for frame in message["expr_ser"].frames) < 500_000


# Schedulers and workers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for n in range(6):
        write(tmp_path / f"{n}.nc", cube([2 * n, 2 * n + 1]))
    aa.open(tmp_path).save(tmp_path / "index.nca")
    return tmp_path


def _loads(reset: bool = False) -> int:
    """Return how many arrays a worker process has unpickled."""
    from aggarray.arrays import pickling

    if reset:
        pickling._cached_array.cache_clear()
        true = getattr(pickling, "_true_load", pickling._loaded_array)
        pickling._true_load = true  # type: ignore[attr-defined]
        counts = pickling._count = []  # type: ignore[attr-defined]
        pickling._loaded_array = lambda payload: counts.append(1) or true(payload)
    return len(pickling._count)  # type: ignore[attr-defined]


def test_a_worker_loads_an_array_once_and_a_scheduler_never(
    client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed, files = aa.open(folder / "index.nca")["tas"], aa.open(folder / "?.nc")["tas"]
    expected = indexed[...].astype("f8").mean(0)
    mask = np.zeros(12, bool)
    mask[3:9] = True

    def refused(*_: Any) -> Any:
        raise AssertionError("the scheduler, which runs in this process, loads an array")

    monkeypatch.setattr(index_pickling, "_loaded", refused)
    monkeypatch.setattr(pickling, "_loaded_array", refused)
    for array, values in ((indexed, expected), (files, expected), (indexed.to_xarray({}), expected)):
        client.run(_loads, True)
        lazy = array.to_dask(1) if isinstance(array, aa.MasterArray) else array.astype("f8").data
        assert np.allclose(client.compute(lazy.mean(0)).result(timeout=60), values)
        assert all(count <= 1 for count in client.run(_loads).values())


def test_threads_load_an_array_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = pickle.loads(pickle.dumps(aa.open(folder / "index.nca")["tas"].to_dask(1)))
    loads = []
    true = pickling._loaded_array
    pickling._cached_array.cache_clear()
    monkeypatch.setattr(pickling, "_loaded_array", lambda payload: loads.append(payload) or true(payload))
    assert np.array_equal(made.compute(scheduler="threads", num_workers=8), aa.open(folder)["tas"][...])
    assert len(loads) == 1


@pytest.mark.heavy
def test_processes_of_dask(folder: Path) -> None:
    for source in ("index.nca", "?.nc"):
        array = aa.open(folder / source)["tas"]
        with dask.config.set({"multiprocessing.context": "spawn"}):
            assert np.array_equal(array.to_dask().compute(scheduler="processes", num_workers=1), array[...])


def test_a_long_selection_is_sent_once(folder: Path) -> None:
    rng = np.random.default_rng(0)
    write(folder / "long.nc", cube(np.arange(20_000), (0.0,), (0.0,)))
    aa.open(folder / "long.nc").save(folder / "long.nca")
    mask = rng.random(20_000) < 0.5
    array = aa.open(folder / "long.nca")["tas"].lazy[np.flatnonzero(mask)]
    made = array.to_dask()
    assert list(made.dask.layers) == [f"original-{made.name}", made.name]
    assert sent(made.dask.layers[made.name]) < 5_000
    assert np.array_equal(pickle.loads(pickle.dumps(made)).compute(), array[...])


# Stored chunks


def _days(path: Path, start: int, steps: int, chunks: tuple[int, int, int], scale: float = 1.0, turned: bool = False) -> None:
    """Write days of 8 by 10 points; ``scale`` packs them; ``turned``: latitudes descend."""
    with netCDF4.Dataset(path, "w") as file:
        lat = np.arange(8) * 10.0
        for name, values in (("time", start + np.arange(steps)), ("lat", lat[::-1] if turned else lat), ("lon", np.arange(10))):
            file.createDimension(name, len(values))
            file.createVariable(name, "f8", (name,))[:] = values
        file["time"].setncatts({"units": "days since 2001-01-01", "standard_name": "time"})
        file["lat"].units, file["lon"].units = "degrees_north", "degrees_east"
        kind = "f4" if scale == 1 else "i2"
        tas = file.createVariable("tas", kind, ("time", "lat", "lon"), chunksizes=chunks, zlib=True, shuffle=True)
        if scale != 1:
            tas.scale_factor = scale
        tas.units = "K"
        tas[:] = np.arange(steps * 80).reshape(steps, 8, 10) % 97 + start


UNEVEN = ((12, (5, 8, 10)), (9, (4, 4, 10)), (4, (4, 8, 5)))
#: Files as steps and chunks, options of all, the selection, and the stored chunks that it touches.
LAYOUTS: dict[str, tuple[Any, dict[str, Any], Any, int]] = {
    "uneven files": (UNEVEN, {}, (), 3 + 3 * 2 + 2),
    "packed files": (UNEVEN, {"scale": 0.5}, (), 3 + 3 * 2 + 2),
    "chunks across all dimensions": (((12, (5, 3, 4)), (12, (4, 5, 3))), {}, (), 3 * 3 * 3 + 3 * 2 * 4),
    "reversed": (UNEVEN, {"turned": True}, (slice(None, None, -1), slice(None, None, -1)), 3 + 3 * 2 + 2),
    "part of the files": (UNEVEN, {}, (slice(3, 23), slice(2, 6), slice(1, 9)), 3 + 3 * 2 + 2),
    "every other step": (UNEVEN, {}, (slice(None, None, 2),), 3 + 3 * 2 + 2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_stored_chunk_is_decoded_twice(tmp_path: Path, layout: str) -> None:
    files, options, selection, stored = LAYOUTS[layout]
    start = 0
    for number, (steps, chunks) in enumerate(files):
        _days(tmp_path / f"{number}.nc", start, steps, chunks, **options)
        start += steps
    aa.open(tmp_path / "?.nc").save(tmp_path / "index.nca")
    for source in ("index.nca", "?.nc"):
        array = aa.open(tmp_path / source)["tas"].lazy[selection]
        for nbytes in (1, 1000, 3000, 10_000, 100_000):
            lazy = array.to_dask(array.chunks_for(nbytes))
            with aa.set_options(cache_bytes=0), decoded() as decodes:
                values = lazy.compute(scheduler="sync")
            assert np.array_equal(values, array[...])
            assert decodes[0] == stored, (nbytes, lazy.chunks)


def test_an_order_that_stored_chunks_do_not_follow(tmp_path: Path) -> None:
    _days(tmp_path / "a.nc", 0, 12, (4, 8, 10))
    array = aa.open(tmp_path / "a.nc")["tas"].lazy[[6, 7, 0, 1, 4, 5]]
    with aa.set_options(cache_bytes=0), decoded() as decodes:
        array.to_dask(array.chunks_for(10**6)).compute(scheduler="sync")
    assert decodes[0] == 3  # for 2 stored chunks: 1.5 times, since two of the three runs are in one chunk


def test_real_chunks_are_decoded_once(shared_data: Path, tmp_path: Path) -> None:
    monthly = next((shared_data / "cmip6").rglob("Amon/*"))
    values = aa.open(monthly)[monthly.name].to_xarray()
    for number, start in enumerate((0, 100, 450)):  # the files are not compressed
        part = values[start : start + 200]
        part.drop_encoding().to_netcdf(
            tmp_path / f"{number}.nc", encoding={monthly.name: {"zlib": True, "chunksizes": (7, 2, 1, 2)}}
        )
    counts = []
    for array in (aa.open(tmp_path, rules=aa.Rules(overlap="first"))[monthly.name], *aa.open(shared_data / "nemo")):
        with aa.set_options(cache_bytes=0), decoded() as once:
            values = array[...]
        lazy = array.to_dask(array.chunks_for(max(1, array.nbytes // 7)))
        with aa.set_options(cache_bytes=0), decoded() as by_tasks:
            computed = lazy.compute(scheduler="sync")
        assert np.array_equal(computed, values, equal_nan=values.dtype.kind == "f")
        assert by_tasks[0] == once[0] > 0, array.name
        counts.append(lazy.npartitions)
    assert len(counts) >= 2 and max(counts) > 1
