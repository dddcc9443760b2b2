"""Memory that the ranks of one node share.

A rank writes into its `Window`; the other ranks of its node read it. The memory has no name (``memfd_create``): other ranks
open it through ``/proc``, and it is freed with the last process that has it, so that killed ranks leave nothing behind. The
size of /dev/shm does not limit it. Where ranks cannot open each other's windows, each is a node of its own.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from aggarray.dataclass import NamedTuple
from aggarray.mpi.transport.agreement import agree
from aggarray.mpi.transport.base import Link

#: Environment variable that turns shared memory off where it is "0".
VARIABLE = "AGGARRAY_SHARED_MEMORY"
#: Advice to map all pages at once, which costs less than page faults (Linux 5.14).
_POPULATE_WRITE = 23
_COUNTER = 8


class Handle(NamedTuple):
    """What other processes need to open a window."""

    process: int
    file: int
    name: str
    nbytes: int


def machine_of(link: Link) -> tuple[str, int] | None:
    """Return what processes that can share memory have in common, or None.

    It is the boot of the kernel and the namespace of process numbers. None: no shared memory here, or it is turned off.
    """
    if not hasattr(os, "memfd_create") or os.environ.get(VARIABLE) == "0":
        return None
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip(), os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return None


class Host(NamedTuple):
    """Machine of a rank, and the processors that it may use.

    ``machine``: equal for processes that can share memory; None: it shares none.
    """

    machine: object
    processors: frozenset[int]


def host_of(link: Link) -> Host:
    """Return the host of this rank."""
    processors = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return Host(machine_of(link), frozenset(processors))


class Window:
    """Memory that one process writes and others read, with counters.

    Counters go through the kernel (pread and pwrite), which orders them after the values in memory.
    """

    def __init__(self, file: int, data: np.ndarray, handle: Handle | None, counters: int) -> None:
        self._file, self._count = file, counters
        self.data, self.handle = data, handle

    @classmethod
    def create(cls, nbytes: int, counters: int, shared: bool) -> Window:
        """Return a window of this process; a private one where none can be shared."""
        start = -(-counters * _COUNTER // mmap.PAGESIZE) * mmap.PAGESIZE
        if shared:
            with suppress(OSError, ValueError):  # no descriptors, no memory, refused by the system
                return cls._create_shared(start, nbytes, counters)
        return cls(-1, np.empty(nbytes, np.uint8), None, counters)

    @classmethod
    def _create_shared(cls, start: int, nbytes: int, counters: int) -> Window:
        name = f"aggarray-{os.urandom(16).hex()}"
        file = os.memfd_create(name, os.MFD_CLOEXEC)
        try:
            # Later writes cannot fail for want of memory, which would end the process.
            os.posix_fallocate(file, 0, start + nbytes)
            pages = mmap.mmap(file, start + nbytes)
        except BaseException:
            os.close(file)
            raise
        with suppress(OSError):
            pages.madvise(_POPULATE_WRITE)
        data = np.frombuffer(pages, np.uint8)[start:]
        return cls(file, data, Handle(os.getpid(), file, name, start + nbytes), counters)

    @classmethod
    def open(cls, handle: Handle, counters: int) -> Window | None:
        """Return a read-only window of another process, None if it is unreachable."""
        start = -(-counters * _COUNTER // mmap.PAGESIZE) * mmap.PAGESIZE
        path = f"/proc/{handle.process}/fd/{handle.file}"
        file = -1
        try:
            # The random name proves that it is this window.
            if os.readlink(path) != f"/memfd:{handle.name} (deleted)":
                return None
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            pages = mmap.mmap(file, handle.nbytes, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            if file >= 0:
                os.close(file)
            return None
        return cls(file, np.frombuffer(pages, np.uint8)[start:], handle, counters)

    def counters(self) -> np.ndarray:
        """Return the counters, int64, 0 at first."""
        return np.frombuffer(os.pread(self._file, self._count * _COUNTER, 0), np.int64)

    def set_counter(self, number: int, value: int) -> None:
        """Set a counter of the own window."""
        if self._file >= 0:
            os.pwrite(self._file, int(value).to_bytes(_COUNTER, sys.byteorder), number * _COUNTER)

    def close(self) -> None:
        """Free the window; its memory is freed with the last array over it."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
        self.data = np.empty(0, np.uint8)

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)


def nodes_of(hosts: Sequence[Host]) -> list[list[int]]:
    """Return the ranks of each machine; a rank that shares none is alone.

    >>> nodes_of([Host(machine, frozenset()) for machine in ("a", "b", "a", None, None)])
    [[0, 2], [1], [3], [4]]
    """
    ranks_by_machine: dict[object, list[int]] = defaultdict(list)
    for rank, host in enumerate(hosts):
        ranks_by_machine[rank if host.machine is None else (host.machine,)].append(rank)
    return list(ranks_by_machine.values())


def processors_per_rank(nodes: Sequence[Sequence[int]], hosts: Sequence[Host]) -> list[int]:
    """Return the share of each rank in the processors of its node, at least 1.

    >>> processors_per_rank([[0, 2], [1]], [Host("a", frozenset(range(5)))] * 3)
    [2, 5, 2]
    """
    shares = [1] * len(hosts)
    for node in nodes:
        processors = frozenset().union(*(hosts[rank].processors for rank in node))
        for rank in node:
            shares[rank] = max(1, len(processors) // len(node))
    return shares


def open_windows(
    link: Link, windows: dict[int, Window], handles: Sequence[Handle | None], nodes: list[list[int]], counters: int
) -> list[list[int]]:
    """Open the windows of the own node; return the nodes reached.

    ``windows``: by rank, with the own one; ``handles``: those of all ranks. The ranks of a
    node that do not reach each other become nodes of one rank. Collective if a node has several ranks.
    """
    if all(len(node) == 1 for node in nodes):
        return nodes
    node = next(node for node in nodes if link.rank in node)
    for rank in node:
        handle = handles[rank]
        if rank != link.rank and handle is not None and (window := Window.open(handle, counters)) is not None:
            windows[rank] = window
    complete = agree(link, lambda: len(windows) == len(node) and (len(node) == 1 or windows[link.rank].handle is not None))
    return [part for ranks in nodes for part in ([ranks] if all(complete[r] for r in ranks) else [[r] for r in ranks])]
