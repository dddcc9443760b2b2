"""Ranks of one node: how they wake each other, and windows that they open.

A rank that waits for a counter of a window sleeps in the kernel until another rank writes a byte to its pipe. Polling would
take processors from busy ranks. Like a window, a pipe has no name and is opened through ``/proc``.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from aggarray.dataclass import NamedTuple
from aggarray.mpi.transport.agreement import agree
from aggarray.mpi.transport.base import Link
from aggarray.mpi.transport.shared import Handle, Window, host_of, nodes_of

#: Seconds of polling before a rank sleeps, where every rank of the node has a processor.
_POLLING = 5e-5
#: Longest sleep in milliseconds.
_MAX_SLEEP = 100


class PipeHandle(NamedTuple):
    """What other processes need to open a pipe."""

    process: int
    file: int
    inode: int


class Pipe:
    """Pipe that wakes its reader."""

    def __init__(self, files: Sequence[int], handle: PipeHandle) -> None:
        self._files, self.handle = tuple(files), handle
        self._poll = select.poll()
        self._poll.register(self._files[0], select.POLLIN)

    @classmethod
    def create(cls) -> Pipe:
        """Return a pipe of this process."""
        # The write end stays open: a pipe without writers is always readable.
        files = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        return cls(files, PipeHandle(os.getpid(), files[0], os.fstat(files[0]).st_ino))

    @classmethod
    def open(cls, handle: PipeHandle | None) -> Pipe | None:
        """Return the write end of a process's pipe, None if it is unreachable."""
        if handle is None:
            return None
        path = f"/proc/{handle.process}/fd/{handle.file}"
        try:
            if os.readlink(path) != f"pipe:[{handle.inode}]":
                return None
            return cls([os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK)], handle)
        except OSError:
            return None

    def wake(self) -> None:
        """Wake the reader."""
        with suppress(OSError):  # a full pipe wakes it too; a reader that has ended waits for nothing
            os.write(self._files[-1], b"\0")

    def sleep(self) -> None:
        """Sleep until another process wakes this one, or a short time."""
        if self._poll.poll(_MAX_SLEEP):
            with suppress(BlockingIOError):
                os.read(self._files[0], 4096)

    def __del__(self) -> None:
        for file in self._files:
            with suppress(OSError):
                os.close(file)


class Node:
    """Ranks of the own node, of which each reaches the pipes of the others.

    ``nodes``: the ranks of each node; ``ranks``: those of the own one.
    """

    def __init__(self, rank: int, nodes: list[list[int]], own: Pipe | None, others: dict[int, Pipe], polling: float) -> None:
        self.nodes, self.ranks = nodes, next(ranks for ranks in nodes if rank in ranks)
        self._own, self._others, self._polling = own, others, polling

    def wake(self, ranks: Iterable[int]) -> None:
        """Wake other ranks of the node."""
        for rank in ranks:
            self._others[rank].wake()

    def wait(self, is_ready: Callable[[], bool]) -> None:
        """Wait until something is ready of which another rank wakes this one."""
        assert self._own is not None
        deadline = time.perf_counter() + self._polling
        while not is_ready():
            if time.perf_counter() > deadline:
                self._own.sleep()


def node_of(link: Link) -> Node:
    """Return the node of this rank; the first call for a link is collective."""
    if link.node is None:
        link.node = _find_node(link)
    return link.node


def _find_node(link: Link) -> Node:
    own: list[Pipe] = []

    def create() -> tuple[object, PipeHandle | None]:
        host = host_of(link)
        if host.machine is None:
            return host, None
        with suppress(OSError):  # no descriptors
            own.append(Pipe.create())
        return host, own[0].handle if own else None

    hosts, handles = zip(*agree(link, create), strict=True)
    nodes = nodes_of(hosts)
    ranks = next(ranks for ranks in nodes if link.rank in ranks)
    others = {rank: pipe for rank in ranks if rank != link.rank and (pipe := Pipe.open(handles[rank])) is not None}
    complete = agree(link, lambda: len(others) == len(ranks) - 1 and (bool(own) or not others))
    nodes = [part for node in nodes for part in ([node] if all(complete[r] for r in node) else [[r] for r in node])]
    processors = frozenset().union(*(hosts[rank].processors for rank in ranks))
    return Node(link.rank, nodes, own[0] if own else None, others, _POLLING if len(processors) >= len(ranks) else 0.0)


def open_partners(link: Link, partners: Iterable[int], nbytes: int, counters: int) -> dict[int, Window] | None:
    """Return the own window and those of some ranks of the node.

    None on all ranks if one does not reach the window of a partner. Collective over the link.
    """
    windows: dict[int, Window] = {}
    wanted = [rank for rank in partners if rank != link.rank]

    def create() -> Handle | None:
        windows[link.rank] = Window.create(nbytes, counters, bool(wanted))
        return windows[link.rank].handle

    handles = agree(link, create)

    def open_others() -> bool:
        for rank in wanted:
            if (handle := handles[rank]) is not None and (window := Window.open(handle, counters)) is not None:
                windows[rank] = window
        return len(windows) == 1 + len(wanted)

    return windows if all(agree(link, open_others)) else None
