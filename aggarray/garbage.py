"""Python's search for garbage, which a block of code can pause."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage_is_kept(*, lasting: bool = False) -> Iterator[None]:
    """Search for no cycles of unused objects in the block, in any thread.

    Python searches each time that some hundred objects were made. ``lasting``: the block makes objects that stay, such as
    modules, among which the next searches do not look either: objects that exist at its end count as old ones.

    >>> with garbage_is_kept():
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
            if lasting and not gc.get_freeze_count():  # otherwise the caller wants some never to be searched
                gc.freeze()
                gc.unfreeze()  # to the oldest generation
            gc.enable()
