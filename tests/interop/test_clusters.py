"""Clusters of dask: workers that die, join or are preferred; errors and cancelled work."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dask.array", reason="arrays become dask arrays: install the extra 'xarray'")
pytest.importorskip("distributed", reason="tasks run in other processes: install the extra 'xarray'")

import dask
from distributed import Client, wait
from distributed.client import futures_of

import aggarray as aa
from tests.support.clusters import local_client
from tests.support.netcdf import cube, write

SOURCES = ("index.nca", "?.nc")
#: Seconds after which a test fails.
LIMIT = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of eight files of three days, and an index of them."""
    folder = tmp_path_factory.mktemp("cluster")
    for n in range(8):
        write(folder / f"{n}.nc", cube(range(3 * n, 3 * n + 3)))
    aa.open(folder / "?.nc").save(folder / "index.nca")
    return folder


def until(condition: Callable[[], Any], what: str) -> Any:
    """Return the first true result of a condition."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if result := condition():
            return result
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {LIMIT} s")


# Workers that die and workers that join


def slow(block: np.ndarray, log: str, block_id: Any = None) -> np.ndarray:
    """Return a block after a while, with a line about the process in a log."""
    Path(log, f"{os.getpid()}-{block_id[0]}").touch()
    time.sleep(0.2)
    return block


def read_by(log: Path) -> dict[int, set[int]]:
    """Return the blocks that each process has begun."""
    result: dict[int, set[int]] = {}
    for name in os.listdir(log):
        process, _, block = name.partition("-")
        result.setdefault(int(process), set()).add(int(block))
    return result


@pytest.mark.heavy
@pytest.mark.parametrize("source", SOURCES)
def test_a_worker_is_killed_in_the_midst_of_a_reduction(folder: Path, tmp_path: Path, source: str) -> None:
    array = aa.open(folder / source)["tas"]
    lazy = array.to_dask({"time": 1})
    mean = lazy.map_blocks(slow, str(tmp_path), dtype=lazy.dtype, meta=lazy._meta).mean(0)
    with dask.config.set({"distributed.scheduler.allowed-failures": 5}), local_client() as client:
        future = client.compute(mean)
        # Each worker has results that the other needs.
        begun = until(lambda: (r := read_by(tmp_path)) and len(r) == 2 and min(map(len, r.values())) > 2 and r, "two readers")
        victim = min(begun)
        if source != "index.nca":
            holders = client.run_on_scheduler(lambda dask_scheduler: _holders(dask_scheduler, "original-"))
            assert holders and len(holders) <= 2
        os.kill(victim, signal.SIGKILL)
        assert not future.done()
        result = future.result(timeout=LIMIT)
        processes = read_by(tmp_path)
        assert victim not in client.run(os.getpid).values() and {*range(24)} == set().union(*processes.values())
        # Blocks that died with the worker are read again by another one.
        assert sum(map(len, processes.values())) > 24
    assert np.array_equal(result, lazy.mean(0).compute(scheduler="sync"))  # the same sums in the same order
    assert np.allclose(result, array[...].mean(0))


def _holders(scheduler: Any, start: str) -> list[str]:
    """Return the workers that have a result whose key starts with a text."""
    tasks = [task for key, task in scheduler.tasks.items() if isinstance(key, str) and key.startswith(start)]
    return [worker.address for task in tasks for worker in task.who_has]


@pytest.mark.heavy
@pytest.mark.parametrize("source", SOURCES)
def test_a_worker_that_starts_later_reads_too(folder: Path, tmp_path: Path, source: str) -> None:
    array = aa.open(folder / source)["tas"]
    lazy = array.to_dask({"time": 1})
    slowed = lazy.map_blocks(slow, str(tmp_path), dtype=lazy.dtype, meta=lazy._meta)
    with local_client(1) as client:
        future = client.compute(slowed)
        until(lambda: read_by(tmp_path), "a first block")
        client.cluster.scale(2)
        assert np.array_equal(future.result(timeout=LIMIT), array[...])
    assert len(read_by(tmp_path)) == 2


# Ways to submit


@pytest.mark.parametrize("source", SOURCES)
def test_persist_and_submit(client: Client, folder: Path, source: str) -> None:
    array = aa.open(folder / source)["tas"]
    kept = client.persist(array.to_dask())
    wait(futures_of(kept), timeout=LIMIT)
    assert np.array_equal(kept[2:5].compute(), array[2:5]) and np.array_equal((kept + 1).max().compute(), array[...].max() + 1)
    assert client.submit(lambda a: float(a[-1].sum()), array).result(timeout=LIMIT) == float(array[-1].sum())
    parts = [array.lazy[start : start + 6] for start in range(0, 24, 6)]
    read = client.map(lambda part: part[...], parts)
    assert np.array_equal(np.concatenate(client.gather(read)), array[...])


def test_two_arrays_in_one_graph(client: Client, folder: Path) -> None:
    indexed, files = (aa.open(folder / source)["tas"] for source in SOURCES)
    difference = indexed.to_dask() - files.flip("lat").to_dask()
    expected = indexed[...] - indexed[:, ::-1]
    assert np.array_equal(client.compute(difference).result(timeout=LIMIT), expected)
    both = client.gather(client.compute([indexed.to_dask().sum(), files.to_dask()[3:9].sum()]))
    assert np.allclose(both, [indexed[...].sum(), indexed[3:9].sum()])


@pytest.mark.heavy
def test_threads_of_a_worker(folder: Path) -> None:
    with local_client(1, threads_per_worker=4):
        for source in SOURCES:
            array = aa.open(folder / source)["tas"]
            assert np.array_equal(array.to_dask({"time": 1}).compute(), array[...])


# Preferred workers


def test_chunks_go_to_the_workers_that_are_preferred(client: Client, folder: Path) -> None:
    addresses = sorted(client.scheduler_info()["workers"])
    ways: list[tuple[str, Callable[[aa.MasterArray], Any]]] = [(source, lambda array: array.to_dask()) for source in SOURCES]
    for source, convert in (*ways, ("index.nca", lambda array: array.to_xarray(chunks={}).data)):
        array = aa.open(folder / source)["tas"]
        chunks = array.to_dask().chunks[0]
        files = array.files_for(array.to_dask().chunks).ravel()
        nodes = [addresses[int(Path(own[0]).stem) % 3 % 2] for own in files]
        assert [Path(own[0]).stem for own in files] == [str(n) for n in range(8)] and {len(own) for own in files} == {1}
        assert len(chunks) == len(nodes) == 8

        def preferred(key: Any, nodes: list[str] = nodes) -> list[str]:
            return [nodes[key[1]]] if isinstance(key, tuple) else nodes

        with dask.annotate(workers=preferred, allow_other_workers=True):
            lazy = convert(array)
        with dask.config.set({"optimization.fuse.active": False, "optimization.annotations.fuse": False}):
            kept = client.persist(lazy)
            wait(futures_of(kept), timeout=LIMIT)
            held = {key[1]: set(workers) for key, workers in client.who_has(kept).items()}
            assert held == {number: {node} for number, node in enumerate(nodes)}
            assert np.array_equal(client.compute(lazy.mean(0)).result(timeout=LIMIT), lazy.mean(0).compute(scheduler="sync"))
        del kept


# Errors and cancelled work


def test_errors_of_tasks_name_the_file(client: Client, tmp_path: Path) -> None:
    for n in range(3):
        write(tmp_path / f"{n}.nc", cube([n]))
    aa.open(tmp_path / "?.nc").save(tmp_path / "index.nca")
    arrays = [aa.open(tmp_path / source)["tas"] for source in SOURCES]
    (tmp_path / "1.nc").unlink()
    for array in arrays:
        with pytest.raises(aa.MissingFileError, match=r"1\.nc") as caught:
            client.compute(array.to_dask().mean(0)).result(timeout=LIMIT)
        assert caught.value.path == str(tmp_path / "1.nc") and isinstance(caught.value, FileNotFoundError)
        assert float(client.compute(array.to_dask()[2].sum()).result(timeout=LIMIT)) == float(array[2].sum())
    aa.open(tmp_path / "[02].nc").save(tmp_path / "again.nca")
    array = aa.open(tmp_path / "again.nca")["tas"]
    aa.open(tmp_path / "0.nc").save(tmp_path / "again.nca")
    with pytest.raises(aa.IndexFileError, match="saved again") as changed:
        client.compute(array.to_dask()).result(timeout=LIMIT)
    assert changed.value.path == str(tmp_path / "again.nca")


def _threads() -> int:
    return threading.active_count()


@pytest.mark.heavy
def test_cancelled_work_leaves_no_threads(folder: Path, tmp_path: Path) -> None:
    with local_client() as client:
        for source in SOURCES:
            lazy = aa.open(folder / source)["tas"].to_dask({"time": 1})
            client.compute(lazy.sum()).result(timeout=LIMIT)
            before = client.run(_threads)
            log = tmp_path / source.strip("?.")
            log.mkdir()
            future = client.compute(lazy.map_blocks(slow, str(log), dtype=lazy.dtype, meta=lazy._meta).sum())
            until(lambda log=log: read_by(log), "a first block")  # type: ignore[misc]
            future.cancel()
            until(lambda: not any(client.processing().values()), "idle workers")
            begun = read_by(log)
            after = client.run(_threads)
            assert all(after[worker] <= before[worker] for worker in before), (before, after)
            assert sum(map(len, begun.values())) < 24
            assert np.isfinite(client.compute(lazy.sum()).result(timeout=LIMIT))
