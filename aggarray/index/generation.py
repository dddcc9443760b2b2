"""Generation of an index: a number that each save increments.

It prevents a process from overwriting what another process has saved.
"""

import contextlib
import os
import time
from collections.abc import Iterator

from aggarray.errors import IndexFileError
from aggarray.index.store import stored_generation
from aggarray.storage.atomic import replace_atomically, write_errors


@contextlib.contextmanager
def replace_index(path: str, expected: int | None) -> Iterator[tuple[str, int]]:
    """Give the path and generation to write for a block, then replace.

    ``expected``: the generation that is updated, None to overwrite any. Raises IndexFileError if the index has another
    generation by then, or the folder cannot be written to. An error inside the block leaves the old file.
    """
    path = os.path.realpath(path)
    if os.path.lexists(path) and not os.path.isfile(path):
        raise IndexFileError("exists and is not a file", path=path, hint="give another name for the index")
    current: int | None = None

    def check() -> None:
        # promise: index-generation-compared
        _check_generation(path, current)

    with write_errors(path), replace_atomically(path, check) as temporary:
        current = _generation(path)
        if expected is not None:
            _check_generation(path, expected)
        # Never the generation of an earlier index at this path: pickled and lazy arrays identify the index by it.
        yield temporary, time.time_ns() // 1_000_000 if current is None else current + 1


def _generation(path: str) -> int | None:
    return stored_generation(path) if os.path.exists(path) else None


def _check_generation(path: str, expected: int | None) -> None:
    """Raise IndexFileError unless an index has the generation that is updated."""
    current = _generation(path)
    # Replacing a deleted index loses nothing.
    # promise: index-concurrent-append
    if os.path.lexists(path) and current != expected:
        change = "it is not an index now" if current is None else f"generation {current} now, {expected or 'none'} then"
        what = f"modified by another process since it was opened ({change})"
        raise IndexFileError(what, path=path, hint="open it again and append to that")
