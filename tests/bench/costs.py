"""Cost of a partition and of a stored chunk, apart from its bytes.

Pieces are so small that their bytes hardly matter. The archive comes from an index opened before the clock starts; one read of
everything is timed. Microseconds per piece are the median of that time divided by the number of pieces, partitions or chunks. A
bare loop with the same system calls and decoding is the lower bound, so that the difference is bookkeeping. "First read" fills
the caches (open files, chunk indexes) within the time; "read again" uses them.
"""

import os
import zlib
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tests.bench.archives import paths_in
from tests.bench.harness import Benchmark, Contestant, Size
from tests.bench.layouts import Layout, shape_of
from tests.bench.opening import load_aggarray
from tests.bench.peers import INDEX, as_doubles, resolved, write_with_index

#: What the lower bounds need of what `layouts` writes.
_DTYPE, _FILL = np.dtype("f4"), {"_FillValue": np.float32(1e20)}


def _first(folder: Path, _size: Size) -> SimpleNamespace:
    return SimpleNamespace(array=load_aggarray().open(folder / INDEX)["tas"])


def _again(folder: Path, size: Size) -> SimpleNamespace:
    given = _first(folder, size)
    given.array[...]
    return given


def _memory(folder: Path, size: Size) -> SimpleNamespace:
    """Return the same partitions of arrays in memory, without files."""
    aa, values, steps = load_aggarray(), _first(folder, size).array[...], size["steps"]
    pieces = []
    for start in range(0, len(values), steps):
        part = aa.SubArray.from_array(values[start : start + steps], dimensions=("time", "lat", "lon"))
        pieces.append(([(start, start + steps), (0, size["lat"]), (0, size["lon"])], part))
    return SimpleNamespace(array=aa.MasterArray.from_subarrays(pieces, dimensions=("time", "lat", "lon")))


def _read(given: SimpleNamespace) -> np.ndarray:
    return given.array[...]


def _places(folder: Path, size: Size) -> SimpleNamespace:
    """Return (offset, size) of the stored values or chunks of each file."""
    import h5py

    places = []
    for path in paths_in(folder):
        with h5py.File(path) as file:
            dataset = file["tas"]
            if dataset.chunks is None:
                places.append((path, [(dataset.id.get_offset(), dataset.id.get_storage_size())]))
            else:
                found: list[tuple[int, int]] = []
                dataset.id.chunk_iter(lambda chunk, found=found: found.append((chunk.byte_offset, chunk.size)))
                places.append((path, found))
    steps, lat, lon = shape_of(size)
    return SimpleNamespace(places=places, shape=(size["files"] * steps, lat, lon))


def _loop(given: SimpleNamespace, inflate: bool) -> np.ndarray:
    result = np.empty(given.shape, _DTYPE)
    flat, position = result.reshape(-1), 0
    for path, places in given.places:
        file = os.open(path, os.O_RDONLY)
        try:
            for offset, size in places:
                data = os.pread(file, size, offset)
                values = np.frombuffer(zlib.decompress(data) if inflate else data, _DTYPE)
                flat[position : position + values.size] = values
                position += values.size
        finally:
            os.close(file)
    return result


def _resolved(_given: SimpleNamespace, result: np.ndarray) -> dict[str, np.ndarray]:
    return resolved(result, _FILL)


def _contestants(inflate: bool) -> tuple[Contestant, ...]:
    return (
        Contestant("aggarray, first read", _first, _read, as_doubles),
        Contestant("aggarray, read again", _again, _read, as_doubles),
        Contestant("a bare loop", _places, partial(_loop, inflate=inflate), _resolved),
    )


_MEMORY = Contestant("aggarray, arrays in memory", _memory, _read, as_doubles)
_FILES = {"full": {"files": 1000, "steps": 1, "lat": 4, "lon": 5}, "tiny": {"files": 3, "steps": 1, "lat": 4, "lon": 5}}
_CHUNKS = {"full": {"files": 1, "steps": 100_000, "lat": 8, "lon": 8}, "tiny": {"files": 1, "steps": 20, "lat": 8, "lon": 8}}
_LARGER = {"full": {"files": 1, "steps": 20_000, "lat": 45, "lon": 48}, "tiny": {"files": 1, "steps": 20, "lat": 45, "lon": 48}}
_STEP, _LARGER_STEP = (1, 8, 8), (1, 45, 48)

BENCHMARKS = (
    Benchmark(
        "cost-partition",
        "a file of 80 bytes is a partition",
        _FILES,
        partial(write_with_index, layout=Layout()),
        (*_contestants(False), _MEMORY),
        per="files",
    ),
    Benchmark(
        "cost-chunk",
        "chunks of 256 bytes in one file",
        _CHUNKS,
        partial(write_with_index, layout=Layout(_STEP)),
        _contestants(False),
        per="steps",
    ),
    Benchmark(
        "cost-chunk-8k",
        "chunks of 8,640 bytes in one file",
        _LARGER,
        partial(write_with_index, layout=Layout(_LARGER_STEP)),
        _contestants(False),
        per="steps",
    ),
    Benchmark(
        "cost-chunk-deflated",
        "chunks of 256 bytes in one file, deflated",
        _CHUNKS,
        partial(write_with_index, layout=Layout(_STEP, options={"zlib": True, "shuffle": False})),
        _contestants(True),
        per="steps",
    ),
)
