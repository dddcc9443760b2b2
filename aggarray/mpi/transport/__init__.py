"""How is a schedule carried out? Bytes go through a `Link`, of which each back end has its own: one module of this folder.

A back end is a module with a class ``LINK`` derived from `base.Link`; there is no list to edit.
"""

import functools
import importlib
import pkgutil
from typing import Any

from aggarray.errors import ExchangeError
from aggarray.mpi.transport.agreement import agree, shared
from aggarray.mpi.transport.base import Link, Section
from aggarray.mpi.transport.moving import BufferPool, Message, Part, move
from aggarray.mpi.transport.trees import allreduce_tree, broadcast_object, broadcast_tree, reduce_tree

__all__ = [
    "BufferPool",
    "Link",
    "Message",
    "Part",
    "Section",
    "agree",
    "allreduce_tree",
    "broadcast_object",
    "broadcast_tree",
    "link_over",
    "move",
    "reduce_tree",
    "shared",
]


@functools.cache
def _back_ends() -> tuple[type[Link], ...]:
    found = (importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
    return tuple(module.LINK for module in found if hasattr(module, "LINK"))


def link_over(comm: Any) -> Link:
    """Return a link of its own over a communicator, or the link that is given; ExchangeError for anything else.

    Collective over the communicator.
    """
    if isinstance(comm, Link):
        return comm
    for back_end in _back_ends():
        if back_end.accepts(comm):
            return back_end.over(comm)
    raise ExchangeError(f"{type(comm).__name__} is no communicator: give one of mpi4py (MPI.COMM_WORLD), or a ProcessGroup")
