"""Bytes of dask's graphs, and time to the first task: ``python -m tests.bench.graphs [--partitions 10000 ...]``.

The array has partitions of one step, each in a file of its own for ``files``, and in one of a thousand files for the index,
whose partitions are read. A cluster of two worker processes computes ``mean`` over time. The scheduler runs in the process of
the client. The last rows are those of `dask.array.zeros` in the same chunks: the cost of dask itself.
"""

import argparse
import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.bench.indexing import many_partitions

#: Files of one step that the partitions of an index refer to.
_FILES = 1000
_HEADS = (
    "array",
    "partitions",
    "chunks",
    "tasks",
    "our layer, bytes",
    "whole graph, bytes",
    "a task, bytes",
    "processor, s",
    "first task, s",
)


@dataclass(frozen=True, slots=True)
class Sent:
    """What a client sent for a mean over time, and when its first task ended.

    ``layer``: bytes of the layers of the array; ``graph``: of the whole message; ``task``: of the largest task of the array, as
    the scheduler sends it; ``processor``: seconds of processor time of client and scheduler from `compute` to the end of the
    first task; ``first``: seconds of the clock; None where not measured.
    """

    array: str
    partitions: int
    chunks: int
    tasks: int
    layer: int
    graph: int
    task: int
    processor: float | None
    first: float | None


def write_index(folder: Path, partitions: int) -> Path:
    """Write small files, and an index whose partitions refer to them in turn."""
    from netCDF4 import Dataset

    files = min(_FILES, partitions)
    for number in range(files):
        with Dataset(folder / f"{number:04}.nc", "w") as file:
            for name, size in (("time", 1), ("lat", 18), ("lon", 36)):
                file.createDimension(name, size)
            file.createVariable("tas", "f4", ("time", "lat", "lon"), zlib=True, chunksizes=(1, 18, 36))[:] = number
            file["tas"].units = "K"
    many_partitions(partitions, [str(folder / f"{n:04}.nc") for n in range(files)]).save(
        folder / "index.nca", chunk_table=False
    )
    return folder / "index.nca"


def sent_bytes(item: Any) -> int:
    """Return the bytes of an object as a client sends it."""
    from distributed.protocol import serialize, to_serialize

    header, frames = serialize(to_serialize(item), on_error="raise")
    return len(pickle.dumps(header)) + sum(memoryview(frame).nbytes for frame in frames)


def measure(lazy: Any, array: str, partitions: int, client: Any = None) -> Sent:
    """Measure the mean over time of a dask array; ``client`` None: the bytes alone."""
    from dask._expr import FinalizeCompute
    from dask.base import collections_to_expr

    mean = lazy.mean(0)
    layers = [layer for name, layer in lazy.dask.layers.items() if lazy.name in name]
    graph = sent_bytes(FinalizeCompute(collections_to_expr([mean])).optimize())
    processor, first = (None, None) if client is None else _first_task(mean, client)
    task = max(len(pickle.dumps(node)) for key, node in _culled(lazy).items() if isinstance(key, tuple))
    chunks = lazy.npartitions
    return Sent(
        array, partitions, chunks, chunks + _reductions(chunks), sum(map(sent_bytes, layers)), graph, task, processor, first
    )


def _culled(lazy: Any) -> dict[Any, Any]:
    """Return the graph of the first block."""
    return dict(lazy.dask.cull({(lazy.name, *(0 for _ in lazy.shape))}))


def _reductions(chunks: int) -> int:
    """Return the tasks of the tree of a mean above those that read."""
    count = 0
    while chunks > 1:
        chunks = -(-chunks // 4)
        count += chunks
    return count


def _first_task(mean: Any, client: Any) -> tuple[float, float]:
    """Return the seconds, of the processor and of the clock, until the first task is done; cancel the rest."""
    from distributed.diagnostics.plugin import SchedulerPlugin

    done, ends = threading.Event(), []

    class FirstTask(SchedulerPlugin):
        def transition(self, key: Any, start: str, finish: str, *args: Any, **options: Any) -> None:
            # The array of a graph, which tasks share, is no task that reads.
            if start == "processing" and finish == "memory" and isinstance(key, tuple) and not ends:
                ends.extend((time.process_time(), time.perf_counter()))
                done.set()

    plugin = FirstTask()
    client.cluster.scheduler.add_plugin(plugin, name="first-task")
    starts = time.process_time(), time.perf_counter()
    future = client.compute(mean)
    if not done.wait(600):
        raise TimeoutError(f"no task is done after 600 s: {future}")
    client.cluster.scheduler.remove_plugin("first-task")
    client.cancel([future], force=True)
    return ends[0] - starts[0], ends[1] - starts[1]


def rows(partitions: int, timed: bool, each: bool) -> Iterator[Sent]:
    """Yield the measurements for a number of partitions; ``each``: also with one chunk per partition."""
    import dask.array as da

    import aggarray as aa
    from tests.support.clusters import local_client

    with tempfile.TemporaryDirectory() as name:
        index = write_index(Path(name), partitions)
        indexed, files = aa.open(index)["tas"], many_partitions(partitions)["tas"]
        for chunks in (None, {"time": 1}) if each else (None,):
            lazy = indexed.to_dask(chunks)
            zeros = da.zeros(lazy.shape, chunks=lazy.chunks, dtype=lazy.dtype)
            for what, array in (("index", lazy), ("files", files.to_dask(chunks)), ("dask.array.zeros", zeros)):
                if not timed or what == "files":
                    yield measure(array, what, partitions)
                    continue
                with local_client() as client:  # a fresh one, whose workers have imported nothing
                    yield measure(array, what, partitions, client)


def table(measured: Sequence[Sent]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(_HEADS)} |", f"| {' | '.join(['---'] * len(_HEADS))} |"]
    for one in measured:
        times = ("" if seconds is None else f"{seconds:.2f}" for seconds in (one.processor, one.first))
        counts = (one.partitions, one.chunks, one.tasks, one.layer, one.graph, one.task)
        cells = [one.array, *(f"{count:,}" for count in counts), *times]
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |"))
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print a table for each number of partitions."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.graphs", description="Measure what dask sends.")
    parser.add_argument("--partitions", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=3, help="clusters per row; the least time counts (default: %(default)s)")
    parser.add_argument("--each", action="store_true", help="also one chunk per partition: minutes for a million")
    parser.add_argument("--no-time", action="store_true", help="measure bytes alone")
    options = parser.parse_args(arguments)
    for partitions in options.partitions:
        measured = list(rows(partitions, not options.no_time, options.each))
        for _ in range(1, 1 if options.no_time else options.rounds):
            measured = [_least(*pair) for pair in zip(measured, rows(partitions, True, options.each), strict=True)]
        print(table(measured), flush=True)
    return 0


def _least(one: Sent, other: Sent) -> Sent:
    if None in (one.processor, one.first, other.processor, other.first):
        return one
    return replace(one, processor=min(one.processor, other.processor), first=min(one.first, other.first))


if __name__ == "__main__":
    sys.exit(main())
