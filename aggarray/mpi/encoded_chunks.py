"""Encoded chunks: from all processes to process 0, in bounded memory.

Each process sends batches of chunks: their numbers and sizes, then their bytes. Process 0 receives one batch of each process
at a time and places the chunks while the others encode the next ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np

from aggarray.dataclass import NamedTuple
from aggarray.mpi.ordered_tasks import OrderedTasks
from aggarray.mpi.transport.base import Link
from aggarray.mpi.transport.buffers import BufferPool

_T = TypeVar("_T")

#: Most chunks of a batch, and the bytes of values from which it is complete.
_MOST_CHUNKS, _BATCH_BYTES = 64, 4 << 20
#: Batches that a process has sent, or is sending; bytes that process 0 receives at a time, except a single larger batch.
_AHEAD, _IN_FLIGHT = 2, 64 << 20
#: Tags of messages: numbers and sizes, bytes, and the end, which process 0 sends last, or early after an error.
_SIZES, _BYTES, _END = 16, 17, 18


class Batch(NamedTuple):
    """Encoded chunks and their numbers in C order of the grid."""

    numbers: tuple[int, ...]
    chunks: tuple[bytes, ...]


#: Function that places the chunk of a number.
ChunkPlacer = Callable[[int, Any], None]


def split_into_batches(items: Sequence[_T], nbytes: int) -> Iterator[Sequence[_T]]:
    """Split chunks into batches; ``nbytes``: of the values of a chunk.

    >>> list(split_into_batches(range(5), 2 << 20))
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    count = max(1, min(_MOST_CHUNKS, _BATCH_BYTES // max(nbytes, 1)))
    return (items[start : start + count] for start in range(0, len(items), count))


def send_chunks(link: Link, tasks: OrderedTasks[Batch]) -> None:
    """Send all batches to process 0, which runs `place_chunks`.

    An error of a task is raised after process 0 has received the batches before it.
    """
    sender = _Sender(link)
    try:
        while tasks.remain and not sender.stopped:
            sender.send(tasks.next())
    finally:
        sender.finish()


class _Sender:
    """Messages of this process to process 0."""

    def __init__(self, link: Link) -> None:
        self._link, self._last = link, np.empty(1, np.uint8)
        self._end = link.receive(self._last, 0, _END)
        self.stopped = False
        #: Requests of each batch, and its buffers.
        self._sent: list[tuple[list[Any], Any]] = []

    def send(self, batch: Batch) -> None:
        """Start to send a batch; wait for earlier ones."""
        self._start(batch)
        while len(self._sent) > _AHEAD and not self.stopped:
            requests, _ = self._sent[0]
            number = self._link.wait_any([self._end, *requests])
            self.stopped = number == 0
            if number:
                del requests[number - 1]
            if not requests:
                del self._sent[0]

    def _start(self, batch: Batch) -> None:
        sizes = np.zeros(1 + 2 * _MOST_CHUNKS, np.int64)
        sizes[0] = len(batch.numbers)
        sizes[1 : 1 + 2 * len(batch.numbers)] = *batch.numbers, *map(len, batch.chunks)
        data = np.frombuffer(batch.chunks[0] if len(batch.chunks) == 1 else b"".join(batch.chunks), np.uint8)
        requests = [self._link.send(sizes.view(np.uint8), 0, _SIZES)]
        requests += [self._link.send(data, 0, _BYTES)] if data.size else []
        self._sent.append((requests, (sizes, data)))

    def finish(self) -> None:
        """Wait until process 0 has everything."""
        self._start(Batch((), ()))
        for requests, _ in self._sent:
            self._link.wait_all(requests)
        if not self.stopped:
            self._link.wait_all([self._end])


def place_chunks(link: Link, tasks: OrderedTasks[Batch], placer: AbstractContextManager[ChunkPlacer]) -> None:
    """ChunkPlacer the chunks of all processes, which the others send.

    After an error the others stop; then it is raised.
    """
    senders = _Senders(link)
    try:
        with placer as place:
            while tasks.remain or senders.remain:
                if tasks.remain and (tasks.is_ready or not senders.remain):
                    batch = tasks.next()
                    for number, chunk in zip(batch.numbers, batch.chunks, strict=True):
                        place(number, chunk)
                else:
                    senders.receive(place)
    except Exception:  # the others must not wait
        senders.stop()
        while senders.remain:
            senders.receive(lambda number, chunk: None)
        raise


class _Senders:
    """The other processes, as process 0 receives their batches."""

    def __init__(self, link: Link) -> None:
        self._link, self._buffers = link, BufferPool()
        self._requests: list[Any] = []
        self._handlers: list[Callable[[ChunkPlacer], None]] = []
        self._waiting: list[tuple[int, np.ndarray]] = []
        self._open = set(range(link.size)) - {link.rank}
        self._ends: dict[int, tuple[Any, np.ndarray]] = {}
        self._bytes = 0
        for rank in sorted(self._open):
            self._expect_sizes(rank)

    @property
    def remain(self) -> bool:
        """Whether a process sends more."""
        return bool(self._open)

    def stop(self) -> None:
        """Tell the processes to end early."""
        for rank in self._open:
            self._end(rank)

    def _end(self, rank: int) -> None:
        if rank not in self._ends:
            last = np.zeros(1, np.uint8)
            self._ends[rank] = self._link.send(last, rank, _END), last

    def receive(self, place: ChunkPlacer) -> None:
        """Wait for one message; place the chunks of a complete batch."""
        number = self._link.wait_any(self._requests)
        del self._requests[number]
        self._handlers.pop(number)(place)
        if not self._open:
            self._link.wait_all([request for request, _ in self._ends.values()])

    def _expect(self, data: np.ndarray, rank: int, tag: int, handle: Callable[[ChunkPlacer], None]) -> None:
        self._requests.append(self._link.receive(data, rank, tag))
        self._handlers.append(handle)

    def _expect_sizes(self, rank: int) -> None:
        sizes = np.zeros(1 + 2 * _MOST_CHUNKS, np.int64)

        def handle(place: ChunkPlacer) -> None:
            if sizes[0]:
                self._waiting.append((rank, sizes[1 : 1 + 2 * sizes[0]].reshape(2, -1)))
                self._expect_bytes()
            else:
                self._open.remove(rank)
                self._end(rank)

        self._expect(sizes.view(np.uint8), rank, _SIZES, handle)

    def _expect_bytes(self) -> None:
        """Receive batches whose sizes are known, within the limit."""
        while self._waiting and (not self._bytes or self._bytes + self._waiting[0][1][1].sum() <= _IN_FLIGHT):
            rank, sizes = self._waiting.pop(0)
            total = int(sizes[1].sum())
            self._bytes += total
            buffer = self._buffers.acquire(total)
            self._expect(buffer[:total], rank, _BYTES, self._handle_bytes(rank, sizes, buffer))

    def _handle_bytes(self, rank: int, sizes: np.ndarray, buffer: np.ndarray) -> Callable[[ChunkPlacer], None]:
        def handle(place: ChunkPlacer) -> None:
            self._expect_sizes(rank)  # arrives meanwhile
            start = 0
            try:
                for number, size in sizes.T.tolist():
                    place(number, buffer[start : start + size])
                    start += size
            finally:
                self._buffers.release(buffer)
                self._bytes -= int(sizes[1].sum())
                self._expect_bytes()

        return handle
