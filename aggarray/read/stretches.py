"""How are large chunks without filters read? Only the rows that are wanted, into the output itself where it has them so."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from aggarray.errors import MissingFileError
from aggarray.read.chunking import Task, outer
from aggarray.read.stored import Stored, native, place_in_view, put_conformed, settle_in_place
from aggarray.source import Source, opened


def read_stretches(stored: Stored, tasks: Sequence[Task]) -> None:
    """Read, conform and place stretches."""
    names = stored.table.names
    if names is None:
        with opened(stored.path, stored.state) as source:
            _read(stored, tasks, source)
        return
    for name, own in groupby(tasks, lambda task: names[task.chunk]):
        group = list(own)
        try:
            with opened(f"{stored.path}/{name}") as source:
                _read(stored, group, source)
        except MissingFileError:
            # A chunk of a store that is not there is all fill value.
            _read(stored, [task._replace(offset=-1) for task in group], None)


def _read(stored: Stored, tasks: Sequence[Task], source: Source | None) -> None:
    dtype = stored.table.dtype
    there = [t for t in tasks if source is not None and t.offset >= 0 and not _straight(stored, t, source)]
    data = source.read_ranges([(t.offset, t.size) for t in there]) if source is not None else []
    for task, found in zip(there, data, strict=True):
        whole = np.frombuffer(found, dtype).reshape(task.shape)
        put_conformed(stored, task.out, native(whole[outer(task.local)]))
    for task in tasks:
        if task.offset < 0:
            shape = tuple(o.stop - o.start for o in task.out)
            put_conformed(stored, task.out, np.broadcast_to(np.asarray(stored.table.fill, dtype.newbyteorder("=")), shape))


def _straight(stored: Stored, task: Task, source: Source) -> bool:
    """Read a stretch straight into the output, where it lies there as it does in the file."""
    where = place_in_view(stored, task.out, task.shape)
    if where is None or where.nbytes != task.size:
        return False
    source.read_into(task.offset, where)
    settle_in_place(stored, task.out, where)
    return True
