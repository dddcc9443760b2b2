"""Collective opening and reading: one process reads each stored chunk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray
from aggarray.errors import ExchangeError
from aggarray.maps import Distribution
from aggarray.maps.fields import as_integer, short_repr
from aggarray.memory.ragged import Ragged
from aggarray.mpi.collective_read import read_collectively
from aggarray.mpi.groups import ProcessGroup, convert_errors
from aggarray.mpi.metadata import metadata_of_array
from aggarray.mpi.redistribution import check_distribution, describe_distribution
from aggarray.mpi.schedule.overlap import plan_receives, plan_sends
from aggarray.mpi.schedule.read_schedule import Units, schedule_reads
from aggarray.mpi.stored_chunks import find_units
from aggarray.mpi.text import move_texts
from aggarray.mpi.transport.agreement import agree, call_on_all, call_on_root
from aggarray.mpi.transport.base import Link
from aggarray.mpi.transport.moving import bind_messages
from aggarray.mpi.transport.shared import Host, host_of, nodes_of, processors_per_rank
from aggarray.mpi.transport.trees import broadcast_object
from aggarray.mpi.unpickling import loads
from aggarray.opening.aggregation import Aggregation
from aggarray.options import get_options

if TYPE_CHECKING:
    from aggarray.arrays.local import LocalArray
    from aggarray.scan.executors import ExecutorPool

#: Bytes up to which one process reads an array and broadcasts it.
_SMALL = 1 << 18
#: Bytes that a process reads in a turn for each of its threads; they stay in the processor's cache until they are copied.
_TURN_BYTES = 4 << 20


@contextmanager
def group_over(comm: Any) -> Iterator[ProcessGroup]:
    """Provide the process group of a communicator, or the open group given."""
    if isinstance(comm, ProcessGroup):
        yield comm
        return
    with ProcessGroup(comm) as group:
        yield group


def open(source: Any, comm: Any, **named: Any) -> Aggregation:
    """Open a source on process 0 and send the aggregation to the others.

    ``comm``: a communicator of mpi4py, or a ProcessGroup; ``named``: the keyword arguments of `aggarray.open`. Its errors are
    raised on all processes. The processes share the scan of 64 files or more; process 0 joins the files, and alone opens an
    index. ``processes``: number of processes that scan, None: all. ``executor``, ``progress``: only those of process 0 are
    used. Only process 0, which joined the files, can save, append or check. Collective over ``comm``.
    """
    with group_over(comm) as group:
        link = group.section
        opened: list[tuple[Aggregation, bytes]] = []

        def scan() -> None:
            from aggarray.mpi.pickling import dumps

            aggregation = _open_on_root(link, source, named)
            opened.append((aggregation, dumps(aggregation) if link.size > 1 else b""))

        arguments = {key: value for key, value in named.items() if key not in ("progress", "storage_options", "executor")}
        # Other processes serve only the same call.
        agree(link, lambda: None, ("open", short_repr(source), short_repr(arguments)))
        if link.rank:
            from aggarray.mpi.calls import serve

            serve(link)
        call_on_root(link, scan, ("open",))
        content = broadcast_object(link, opened[0][1] if opened else None)
    return opened[0][0] if opened else loads(content)


def _open_on_root(link: Link, source: Any, named: dict[str, Any]) -> Aggregation:
    from aggarray.opening.sources import open as open_locally

    if link.size == 1:
        return open_locally(source, **named)
    from aggarray.mpi.calls import RankExecutor
    from aggarray.scan.files import scanning_in

    def make_pool() -> ExecutorPool:
        from aggarray.mpi.scanning import RankPool

        return RankPool(executor)

    executor = RankExecutor(link, as_integer(named.get("processes")) or link.size)
    try:
        with scanning_in(make_pool):
            return open_locally(source, **named)
    finally:
        executor.close()


def local(a: MasterArray, distribution: Distribution, comm: Any, collective: bool = True) -> LocalArray | Any:
    """Return the section of this process, a LocalArray.

    ``comm`` has as many processes as the distribution. ``collective``: read the section before returning. One process decodes
    each stored chunk, and the bytes to decode are balanced. Processes whose chunks no other process requires read their own;
    process 0 reads small arrays and values of an index. Otherwise the section is read on first use, as by ``a.local``.
    A section of a ragged array is a LocalRagged; each process reads its own rows. Collective over ``comm``; raises
    ExchangeError, or the error of the read, on all processes.

    >>> from aggarray.dap import Distribution
    >>> from aggarray.arrays.subarray import SubArray
    >>> a = MasterArray.from_subarrays([([(0, 3)], SubArray.from_array([1.0, 2.0, 3.0]))], dimensions=("x",))
    >>> with ProcessGroup.serial() as group:
    ...     local(a, Distribution.regular(a.shape, "b", (1,)), group).buffer.tolist()
    [1.0, 2.0, 3.0]
    """
    with group_over(comm) as group:
        link = group.section

        def make_section() -> Any:
            if not isinstance(a, MasterArray):
                raise ExchangeError(f"{type(a).__name__} is not a MasterArray", hint="give an array of an aggregation")
            check_distribution(group, distribution, "local")
            return convert_errors(lambda: a.local(distribution, link.rank))

        description = (metadata_of_array(a).summary, a.shape, a.dtype.str) if isinstance(a, MasterArray) else ()
        call = "local", *description, describe_distribution(distribution), bool(collective)
        section = call_on_all(link, make_section, call)
        if isinstance(a, RaggedMasterArray):
            agree(link, lambda: section.samples.buffer.size if collective else 0)
            return section
        if not collective:
            return section
        if not isinstance(a._known, tuple) and (a._known is not None or a.nbytes <= _SMALL):
            return _read_on_root(link, a, distribution)
        if a._known is not None or not a.ndim:
            return _read_separately(link, section)
        if a.dtype.hasobject:
            return _read_text(link, a, section)
        return _read_scheduled(link, a, section)


def _read_separately(link: Link, section: LocalArray) -> LocalArray:
    agree(link, lambda: section.buffer.size)
    return section


def _read_on_root(link: Link, a: MasterArray, distribution: Distribution) -> LocalArray:
    if a.dtype.kind == "T":
        rows = call_on_root(link, lambda: Ragged.from_text(a.read()))
        values = rows.to_text().reshape(a.shape)
    else:
        values = call_on_root(link, lambda: a.read())
    own = np.array(values[np.ix_(*distribution.indices(link.rank))], order="C")
    return LocalArray.holding(own, distribution, link.rank, a)


def _read_text(link: Link, a: MasterArray, section: LocalArray) -> LocalArray:
    """Read text by whole partitions, each on one process, and redistribute it."""
    source, target = Distribution.from_partitions(a, link.size), section.distribution
    values = call_on_all(link, lambda: LocalArray(a, source, link.rank).buffer)
    result = np.empty(section.shape, a.dtype)
    sends = bind_messages(plan_sends(source, link.rank, target), values, "source")
    move_texts(link, sends, bind_messages(plan_receives(source, target, link.rank), result, "target"))
    return LocalArray.holding(result, target, link.rank, a)


def _read_scheduled(link: Link, a: MasterArray, section: LocalArray) -> LocalArray:
    matrix, distribution = a._matrix, section.distribution
    cuts = np.linspace(0, len(matrix.refs), link.size + 1).astype(int).tolist()
    share = range(cuts[link.rank], cuts[link.rank + 1])

    def inspect() -> tuple[Any, Host, int]:
        return find_units(matrix, a._access, a.dtype.itemsize, share), host_of(link), get_options().threads

    units_of_all, hosts, options = zip(*agree(link, inspect), strict=True)
    units = Units(*map(np.concatenate, zip(*units_of_all, strict=True)))
    nodes = nodes_of(hosts)
    threads = list(map(min, options, processors_per_rank(nodes, hosts)))
    turns = schedule_reads(units, distribution, link.size, _TURN_BYTES * max(threads) // a.dtype.itemsize)
    if turns is None:
        return _read_separately(link, section)
    result = read_collectively(link, a, distribution, turns, nodes, threads[link.rank])
    return LocalArray.holding(result, distribution, link.rank, a)
