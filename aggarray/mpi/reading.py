"""Collective opening and reading: one process reads each stored chunk."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any

import numpy as np

from aggarray.arrays import MasterArray
from aggarray.arrays.local import LocalArray
from aggarray.arrays.ragged import RaggedMasterArray
from aggarray.codecs import codecs
from aggarray.errors import ExchangeError
from aggarray.formats import own_formats
from aggarray.maps import Distribution
from aggarray.maps.fields import short_repr
from aggarray.memory.ragged import Ragged
from aggarray.mpi.groups import ProcessGroup
from aggarray.mpi.metadata import metadata_of_array
from aggarray.mpi.opening import packed, unpacked
from aggarray.mpi.redistribution import check_fits, described
from aggarray.mpi.schedule import PlannedMessage, incoming, outgoing
from aggarray.mpi.schedule.read_schedule import Units, chunks_to_read, chunks_to_receive, schedule_reads
from aggarray.mpi.stored_chunks import units_of
from aggarray.mpi.text import move_texts
from aggarray.mpi.transport import BufferPool, Link, Message, Part, agree, broadcast_object, move, shared
from aggarray.opening import Aggregation
from aggarray.opening import open as open_alone

#: Bytes up to which one process reads an array and broadcasts it.
_SMALL = 1 << 18
#: Bytes that a process reads before they are redistributed.
_ROUND = 16 << 20


@contextmanager
def group_over(comm: Any) -> Iterator[ProcessGroup]:
    """Provide the process group of a communicator, or the group given.

    A group that is given stays open.
    """
    if isinstance(comm, ProcessGroup):
        yield comm
        return
    with ProcessGroup(comm) as group:
        yield group


def open(source: Any, comm: Any, **named: Any) -> Aggregation:
    """Open a source on process 0 and send the aggregation to the others.

    ``comm``: a communicator of mpi4py, or a ProcessGroup; ``named``: the keyword arguments of `aggarray.open`. All processes
    raise its errors. The other processes open no files and no index. Only process 0, which scanned the files, can save, append
    or check. Collective over ``comm``.
    """
    with group_over(comm) as group:
        link = group.section
        made: list[Aggregation] = []

        def scan() -> None:
            made.append(open_alone(source, **named))

        if link.rank:
            _load()  # while the first one opens
        wanted = {key: value for key, value in named.items() if key != "progress"}
        shared(link, scan, ("open", short_repr(source), short_repr(wanted)))
        sent = broadcast_object(link, packed(made[0]) if made else None)
    if made:
        _load()
    return made[0] if made else unpacked(sent)


def _load() -> None:
    """Import the formats and codecs before the first collective read."""
    own_formats()
    codecs()


def local(a: MasterArray, distribution: Distribution, comm: Any, collective: bool = True) -> Any:
    """Return the section of this process, a LocalArray.

    ``comm`` has as many processes as the distribution. ``collective``: read the section before returning. One process decodes
    each stored chunk, and the bytes to decode are balanced. Processes whose chunks no other process requires read their own;
    process 0 reads small arrays. Otherwise the section is read on first use, as by ``a.local``. A section of a ragged array is
    a LocalRagged; each process reads its own rows. Collective over ``comm``; raises ExchangeError, or the error of the read, on
    all processes.

    >>> from aggarray.dap import Distribution
    >>> from aggarray.arrays import SubArray
    >>> a = MasterArray.from_subarrays([([(0, 3)], SubArray.from_array([1.0, 2.0, 3.0]))], dimensions=("x",))
    >>> with ProcessGroup.serial() as group:
    ...     local(a, Distribution.regular(a.shape, "b", (1,)), group).buffer.tolist()
    [1.0, 2.0, 3.0]
    """
    with group_over(comm) as group:
        link = group.section

        def section() -> Any:
            if not isinstance(a, MasterArray):
                raise ExchangeError(f"{type(a).__name__} is no MasterArray: give an array of an aggregation")
            check_fits(group, distribution, "local")
            try:
                return a.local(distribution, link.rank)
            except ValueError as error:
                raise ExchangeError(str(error)) from error

        mine: list[Any] = []
        named = (metadata_of_array(a).words, a.shape, a.dtype.str) if isinstance(a, MasterArray) else ()
        agree(link, lambda: mine.append(section()), ("local", *named, described(distribution), bool(collective)))
        if isinstance(a, RaggedMasterArray):
            agree(link, lambda: mine[0].samples.buffer.size if collective else 0)
            return mine[0]
        if not collective:
            return mine[0]
        if a._known is None and a.nbytes <= _SMALL:
            return _handed_round(link, a, distribution)
        if a._known is not None or not a.ndim:
            return _alone(link, mine[0])
        if a.dtype.hasobject:
            return _texts(link, a, mine[0])
        return _together(link, a, mine[0])


def _alone(link: Link, section: LocalArray) -> LocalArray:
    """Read the section of each process separately."""
    agree(link, lambda: section.buffer.size)
    return section


def _handed_round(link: Link, a: MasterArray, distribution: Distribution) -> LocalArray:
    if a.dtype.kind == "T":
        letters = shared(link, lambda: Ragged.from_text(a.read()))
        values = letters.to_text().reshape(a.shape)
    else:
        values = shared(link, lambda: a.read())
    mine = np.array(values[np.ix_(*distribution.indices(link.rank))], order="C")
    return LocalArray.holding(mine, distribution, link.rank, a)


def _texts(link: Link, a: MasterArray, section: LocalArray) -> LocalArray:
    """Read text by whole partitions and redistribute it.

    One process reads each partition.
    """
    source, target = Distribution.from_partitions(a, link.size), section.distribution
    arrays: list[np.ndarray] = []
    agree(link, lambda: arrays.append(LocalArray(a, source, link.rank).buffer))
    result = np.empty(section.shape, a.dtype)
    given = [_parcel(m, arrays[0], "source") for m in outgoing(source, link.rank, target)]
    move_texts(link, given, [_parcel(m, result, "target") for m in incoming(source, target, link.rank)])
    return LocalArray.holding(result, target, link.rank, a)


def _parcel(message: PlannedMessage, values: np.ndarray, side: str) -> Message:
    return Message(message.peer, tuple(Part(values, getattr(box, side), box.shape) for box in message.boxes))


def _together(link: Link, a: MasterArray, section: LocalArray) -> LocalArray:
    """Read the scheduled chunks and redistribute them."""
    matrix, distribution = a._matrix, section.distribution
    cuts = np.linspace(0, len(matrix.refs), link.size + 1).astype(int).tolist()
    share = range(cuts[link.rank], cuts[link.rank + 1])
    units = Units.joined(agree(link, lambda: units_of(matrix, a._access, a.dtype.itemsize, share)))
    dealt = schedule_reads(units, distribution, link.size, _ROUND // a.dtype.itemsize)
    if dealt is None:
        return _alone(link, section)
    result = np.empty(section.shape, a.dtype)
    # Reuse one buffer for all rounds: page faults of new memory cost about as much as decoding.
    buffer = np.empty(max((_elements(boxes[link.rank]) for boxes in dealt), default=0), a.dtype)
    crates = BufferPool()
    for boxes in dealt:
        arrays: list[np.ndarray] = []
        agree(link, partial(_read, a, boxes[link.rank], buffer, arrays))
        given = [
            Message(m.peer, tuple(Part(arrays[box.array], box.source, box.shape) for box in m.boxes))
            for m in chunks_to_read(boxes[link.rank], distribution)
        ]
        taken = [
            Message(m.peer, tuple(Part(result, box.target, box.shape) for box in m.boxes))
            for m in chunks_to_receive(boxes, distribution, link.rank)
        ]
        move(link, given, taken, a.dtype, crates=crates)
    return LocalArray.holding(result, distribution, link.rank, a)


def _elements(boxes: np.ndarray) -> int:
    return int((boxes[..., 1] - boxes[..., 0]).prod(axis=1).sum())


def _read(a: MasterArray, boxes: np.ndarray, buffer: np.ndarray, arrays: list[np.ndarray]) -> None:
    """Read boxes of an array into consecutive parts of a buffer.

    The parts are appended to ``arrays``.
    """
    start = 0
    for box in boxes.tolist():
        shape = [high - low for low, high in box]
        out = buffer[start : start + prod(shape)].reshape(shape)
        arrays.append(a.read(tuple(slice(low, high) for low, high in box), out=out))
        start += out.size
