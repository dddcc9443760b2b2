"""Files and folders, local or remote: state, kind, whole contents."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from aggarray.errors import FormatError, MissingFileError
from aggarray.storage.byte_source import cannot_open, read_file
from aggarray.storage.byte_source import stat_file as stat_file
from aggarray.storage.state import FileState
from aggarray.storage.urls import is_remote

_SECOND = 10**9


@contextmanager
def missing(path: str) -> Iterator[None]:
    """Raise MissingFileError if a file vanishes inside a block."""
    try:
        yield
    except MissingFileError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise cannot_open(path, error) from error


def absolute(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a local file; an address unchanged.

    >>> absolute("/data/../a.nc"), absolute("https://host/a.nc")
    ('/a.nc', 'https://host/a.nc')
    """
    text = os.fspath(path)
    return text if is_remote(text) else os.path.abspath(text)


def same_time(path: str, now: int, then: int) -> bool:
    """Return whether a modification time equals the recorded one.

    Of remote files, whole seconds may be recorded; otherwise the time has a fraction derived from their version.
    """
    return now == then or (is_remote(path) and not then % _SECOND and now // _SECOND == then // _SECOND)


def resized(now: FileState, size: int) -> str | None:
    """Describe how a file of ``size`` bytes has changed, None if it has not."""
    if now.folder:
        return "changed since it was scanned: a folder is in its place"
    return None if now.size == size else f"changed since it was scanned: {size} bytes then, {now.size} now"


def is_folder(path: str) -> bool:
    """Return whether a path is a folder."""
    return _is(path, True) if is_remote(path) else os.path.isdir(path)


def is_file(path: str) -> bool:
    """Return whether a path is a file."""
    return _is(path, False) if is_remote(path) else os.path.isfile(path)


def _is(path: str, folder: bool) -> bool:
    try:
        return stat_file(path).folder == folder
    except MissingFileError:
        return False


def store_mark(path: str, marks: Sequence[str]) -> str:
    """Return the file that marks a folder as a Zarr store, "" if none does."""
    if not is_remote(path):
        return next((mark for mark in marks if os.path.isfile(os.path.join(path, mark))), "")
    try:
        from aggarray.storage.remote.objects import status

        return status(path).store
    except MissingFileError:
        return ""


def prefetch_states(paths: Iterable[str]) -> None:
    """Request the states of the remote files among many paths concurrently."""
    # The first test is quick: most paths are local.
    remote = [path for path in paths if "://" in path and is_remote(path)]
    if remote:
        from aggarray.storage.remote.objects import cache_states

        cache_states(remote)


def contents(paths: Sequence[str]) -> list[bytes | None]:
    """Return all bytes of small files, None for those that do not exist."""
    if paths and is_remote(paths[0]):
        from aggarray.storage.remote.requests import fetch_objects

        return fetch_objects(paths)
    return [None if data is None else bytes(data) for data in map(read_file, paths)]


def folders_in(path: str) -> list[str]:
    """Return the sorted names of the folders in a folder."""
    if is_remote(path):
        from aggarray.storage.remote import listing

        return listing.folders_in(path)
    with missing(path), os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def for_library(path: str) -> Any:
    """Return what h5py opens: a path, or a remote object as a Python file."""
    if not is_remote(path):
        return path
    from aggarray.storage.remote.reader import ObjectFile

    return ObjectFile(path)


def make_ready(path: str) -> None:
    """Fetch the beginning of a remote file before a library locks to read it."""
    if is_remote(path):
        from aggarray.storage.remote.reader import READY, RemoteSource

        RemoteSource(path).pread(READY, 0)


def refuse_remote(path: str, what: str) -> None:
    """Raise FormatError for a remote file that cannot be read where it is."""
    if is_remote(path):
        raise FormatError(what, path=path, hint="fetch the file and open that")
