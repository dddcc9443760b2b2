"""Pauses of Python's garbage collection."""

from __future__ import annotations

import gc
import os
from _thread import RLock
from collections.abc import Iterator
from contextlib import contextmanager

_lock = RLock()  # a finalizer may open files meanwhile
#: Blocks that threads are in, and whether garbage was collected before the first of them.
_inside, _was_enabled = 0, False


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pause the search for cycles of unused objects, in all threads.

    It ends with the last block that any thread is in. A child process that is forked meanwhile collects garbage.

    >>> with pause_garbage_collection():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    global _inside, _was_enabled
    with _lock:
        if _inside == 0:
            _was_enabled = gc.isenabled()
        _inside += 1
    try:
        gc.disable()
        yield
    finally:
        with _lock:
            _inside = max(0, _inside - 1)
            if _inside == 0 and _was_enabled:
                gc.enable()


@contextmanager
def lasting_objects() -> Iterator[None]:
    """Collect no garbage while objects that stay are created, such as modules.

    At the end, all objects count as old, so that the next collections skip them. In a loop, garbage would accumulate, as it
    would count as old, too.
    """
    with pause_garbage_collection():
        yield
        if _was_enabled and not gc.get_freeze_count():  # `unfreeze` would release what the caller froze
            try:
                gc.freeze()
            finally:
                gc.unfreeze()


def _collect_in_child() -> None:
    global _lock, _inside
    _lock = RLock()
    if _inside and _was_enabled:
        gc.enable()
    _inside = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_collect_in_child)
