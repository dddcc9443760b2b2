"""Generations of an index: a number that each save raises, so that no process overwrites what another has saved."""

import contextlib
import os
import time
from collections.abc import Iterator

from aggarray.errors import IndexFileError
from aggarray.index.store import stored_generation
from aggarray.storage.atomic import replace_atomically, write_errors


@contextlib.contextmanager
def replace_index(path: str, expected: int | None) -> Iterator[tuple[str, int]]:
    """Give (the path to write to, the generation to write) for the length of a block; afterwards the file is in its place.

    ``expected``: the generation that is updated, None to write whatever is there. Raises IndexFileError where the index has
    another generation by now, or the folder cannot be written to. An error inside the block leaves the old file.
    """
    path = os.path.realpath(path)
    if os.path.lexists(path) and not os.path.isfile(path):
        raise IndexFileError(f"{path}: neither a file nor free: give another name for the index")
    before: list[int | None] = []

    def check() -> None:
        # promise: index-generation-compared
        _check_generation(path, before[0])

    with write_errors(path), replace_atomically(path, check) as temporary:
        now = _generation(path)
        if expected is not None:
            _check_generation(path, expected)
        before.append(now)
        # Never a number that another index of this path has had: arrays that travelled, or wait, know it by that.
        yield temporary, time.time_ns() // 1_000_000 if now is None else now + 1


def _generation(path: str) -> int | None:
    return stored_generation(path) if os.path.exists(path) else None


def _check_generation(path: str, expected: int | None) -> None:
    """Raise IndexFileError where an index is not of the generation that is updated."""
    now = _generation(path)
    # Of an index that was deleted nothing can be lost.
    # promise: index-concurrent-append
    if os.path.lexists(path) and now != expected:
        there = "it is no index any more" if now is None else f"generation {now} now, {expected or 'none'} then"
        raise IndexFileError(f"{path}: saved by somebody else since it was opened ({there}): open it again and append to that")
