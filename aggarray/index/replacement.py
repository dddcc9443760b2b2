"""Replacement of an index by a newer one, on a disk or in an object store.

Each save increases the generation of an index, which keeps a process from overwriting what another process has saved.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from aggarray.errors import ChangedFileError, IndexFileError
from aggarray.index.recognition import stored_generation
from aggarray.index.uris import real_path
from aggarray.storage.urls import is_remote

if TYPE_CHECKING:
    from aggarray.storage.remote.replacement import Version


def replace_index(path: str, expected: int | None) -> AbstractContextManager[tuple[str, int]]:
    """Give the local path and generation to write for a block, then replace.

    ``path``: a local path, or an address with ``://``; ``expected``: the generation that is updated, None to overwrite any.
    Raises IndexFileError if the index has another generation by then, or cannot be written. An error inside the block leaves
    the old index.
    """
    path = real_path(path)
    return _replace_object(path, expected) if is_remote(path) else _replace_file(path, expected)


def check_unmodified(path: str, expected: int) -> None:
    """Raise IndexFileError if an index has another generation by now."""
    if not is_remote(path):
        _check_generation(path, expected)
        return
    _generation_of(path, expected)


@contextmanager
def _replace_file(path: str, expected: int | None) -> Iterator[tuple[str, int]]:
    from aggarray.storage.atomic import replace_atomically, write_errors

    if os.path.lexists(path) and not os.path.isfile(path):
        raise IndexFileError("exists and is not a file", path=path, hint="give another name for the index")
    current: int | None = None

    def check() -> None:
        # promise: index-generation-compared
        _check_generation(path, current)

    with write_errors(path), replace_atomically(path, check) as temporary:
        current = stored_generation(path)
        if expected is not None:
            _check_generation(path, expected)
        yield temporary, _next_generation(current)


def _next_generation(current: int | None) -> int:
    # Never the generation of another index, also of a copy that is saved elsewhere: pickled and lazy arrays identify the
    # index by it.
    return max(time.time_ns() // 1000, (current or 0) + 1)


def _check_generation(path: str, expected: int | None) -> None:
    current = stored_generation(path)
    # Replacing a deleted index loses nothing.
    # promise: index-concurrent-append
    if os.path.lexists(path) and current != expected:
        raise _modified(path, current, expected)


def _modified(path: str, current: int | None, expected: int | None) -> IndexFileError:
    change = "it is not an index now" if current is None else f"generation {current} now, {expected or 'none'} then"
    what = f"modified by another process since it was opened ({change})"
    return IndexFileError(what, path=path, hint="open it again and append to that")


@contextmanager
def _replace_object(uri: str, expected: int | None) -> Iterator[tuple[str, int]]:
    from aggarray.storage.atomic import write_errors
    from aggarray.storage.credentials import with_access
    from aggarray.storage.remote.replacement import access_to, replace_object

    version, current = _generation_of(uri, expected)
    with tempfile.TemporaryDirectory(prefix="aggarray-") as folder:
        temporary = os.path.join(folder, "index.nca")
        with write_errors(temporary):
            yield temporary, _next_generation(current)
        with open(temporary, "rb") as file:
            data = file.read()
    try:
        replace_object(uri, data, version)
    except ChangedFileError as error:
        with with_access(access_to(uri)):
            raise _modified(uri, stored_generation(uri), expected or current) from error


def _generation_of(uri: str, expected: int | None) -> tuple[Version, int | None]:
    """Return the version and the generation of an object.

    Raises IndexFileError for another generation than expected.
    """
    from aggarray.storage.credentials import with_access
    from aggarray.storage.remote.replacement import access_to, version_of

    version = version_of(uri)
    with with_access(access_to(uri)):
        current = None if version is None else stored_generation(uri)
    # promise: remote-index-generation
    if expected is not None and version is not None and current != expected:
        raise _modified(uri, current, expected)
    return version, current
