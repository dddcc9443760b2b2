"""Pauses of Python's garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_garbage_collection(*, lasting: bool = False) -> Iterator[None]:
    """Pause the search for cycles of unused objects, in all threads.

    Python searches each time that several hundred objects were created. ``lasting``: the block creates objects that stay, such
    as modules. At its end, all objects count as old, so that the next searches skip them.

    >>> with pause_garbage_collection():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if lasting and not gc.get_freeze_count():  # `unfreeze` would release what the caller froze
                gc.freeze()
                gc.unfreeze()
            gc.enable()
