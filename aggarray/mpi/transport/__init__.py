"""Execution of schedules: messages of bytes over links.

Each back end is a module of this folder with a class ``LINK`` derived from `base.Link`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Any

from aggarray.errors import ExchangeError
from aggarray.mpi.transport.base import Link


@functools.cache
def _back_ends() -> tuple[type[Link], ...]:
    modules = (importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
    return tuple(module.LINK for module in modules if hasattr(module, "LINK"))


def link_over(comm: Any) -> Link:
    """Return a link over a communicator, or the link given. Collective."""
    if isinstance(comm, Link):
        return comm
    for back_end in _back_ends():
        if back_end.accepts(comm):
            return back_end.over(comm)
    reason = f"{type(comm).__name__} is not a communicator"
    raise ExchangeError(reason, hint="give one of mpi4py (MPI.COMM_WORLD), or a ProcessGroup")
