"""Memory of chunks of Zarr views: used again, but never while a reader refers to it."""

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zarr

import aggarray as aa
from aggarray.export.zarr_view import chunk_memory
from aggarray.export.zarr_view.chunk_memory import ChunkMemory
from aggarray.export.zarr_view.store import ZarrView

pytestmark = pytest.mark.quick

SHAPE, FLOAT = (512, 1024), np.dtype("f4")


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_used_again() -> None:
    memory = ChunkMemory()
    first = memory.array(SHAPE, FLOAT)
    assert first.shape == SHAPE and first.dtype == FLOAT and first.flags.writeable and first.flags.c_contiguous
    at = address(first)
    del first
    second = memory.array(SHAPE[::-1], np.dtype("i4"))
    assert address(second) == at and second.shape == SHAPE[::-1]
    assert address(memory.array(SHAPE, FLOAT)) != at


def test_memory_in_use_is_not_used_again() -> None:
    memory = ChunkMemory()
    lent = memory.array(SHAPE, FLOAT)
    lent[...] = 7
    part = np.frombuffer(memoryview(lent).cast("B")[8:16], FLOAT)[1:]
    del lent
    gc.collect()
    others = [memory.array(SHAPE, FLOAT) for _ in range(3)]
    for other in others:
        other[...] = -1
    assert part.tolist() == [7.0]


def test_waiting_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = ChunkMemory()
    size = 4 * SHAPE[0] * SHAPE[1]
    monkeypatch.setattr(chunk_memory, "_MOST_WAITING", 3 * size)
    arrays = [memory.array(SHAPE, FLOAT) for _ in range(8)]
    del arrays
    assert [waiting.nbytes for waiting in memory._waiting] == [size] * 3
    memory.array((SHAPE[0], 2 * SHAPE[1]), FLOAT)  # memory of another size is given up
    assert [waiting.nbytes for waiting in memory._waiting] == [2 * size]


def test_threads_get_different_memory() -> None:
    memory = ChunkMemory()

    def fill(number: int) -> bool:
        array = memory.array(SHAPE, FLOAT)
        array[...] = number
        return bool((array == number).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(fill, range(400)))


def test_chunks_that_a_reader_keeps_stay_as_they_are(sample_archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_memory, "_LEAST", 1)
    agg = aa.open(sample_archive)
    store = agg.to_zarr_store(chunks={"time": 30})
    assert isinstance(store, ZarrView)
    values = agg["tas"][...]

    async def kept() -> list[np.ndarray]:
        return [np.asarray((await store.get(f"tas/c/{n}/0/0")).as_numpy_array()) for n in range(12)]

    chunks = asyncio.run(kept())
    np.testing.assert_array_equal(zarr.open_array(store, path="tas", mode="r")[...], values)
    for number, chunk in enumerate(chunks):
        np.testing.assert_array_equal(chunk.view(values.dtype).reshape(30, *values.shape[1:]), values[30 * number :][:30])
    del chunks, chunk
    assert len(store.contents.arrays["tas"].memory._waiting) >= 12
