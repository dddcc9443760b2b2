"""Files and folders, local or remote: paths, state, kind, contents."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from aggarray.errors import AggarrayError, AggregationError, FormatError, MissingFileError
from aggarray.storage.byte_source import cannot_open, read_file
from aggarray.storage.byte_source import stat_file as stat_file
from aggarray.storage.state import FileState
from aggarray.storage.urls import canonical, is_remote, join

#: What callers may open: a path, a glob, a folder, or many of these.
Source = str | bytes | os.PathLike[Any] | Iterable[Any]

_URL = r"(?s)(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://(?P<host>[^/]*)(?P<path>.*)"
#: Files that mark a folder as a Zarr store.
_STORE_MARKS = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")
_SECOND = 10**9


def local_path(path: Any) -> str:
    """Return a path argument as the path of a local file.

    Bytes are decoded, ``~`` is expanded, and a ``file://`` URL becomes its path. Raises the errors of `given_path`, and
    FormatError for the URL of a remote file.

    >>> local_path(b"a.nc"), local_path("file:///data/a%20b.nc")
    ('a.nc', '/data/a b.nc')
    """
    text = given_path(path)
    if is_remote(text):
        raise FormatError("a URL, not the path of a local file", path=text, hint="write a local file and upload it")
    return text


def given_path(path: Any) -> str:
    """Return a path argument as a local path or the URL of a remote file.

    Raises AggregationError for an argument that is not a path, MissingFileError for an empty path and FormatError for a path
    with a null byte or a URL of another host.

    >>> given_path("file:///data/a%20b.nc"), given_path("HTTPS://host/a.nc")
    ('/data/a b.nc', 'https://host/a.nc')
    """
    if not isinstance(path, str | bytes | os.PathLike):
        value = f"{' '.join(repr(path).split()):.60} ({type(path).__name__})"
        hint = "pass the path of a file, a folder or a pattern, as a string or a pathlib.Path"
        raise AggregationError(f"{value} is not a path", hint=hint)
    text = os.fsdecode(path)
    if not text:
        raise MissingFileError("the path '' is empty", hint="pass a file, a folder or a pattern; '.' is the current directory")
    if "\0" in text:
        raise FormatError("the path contains a null byte", path=text, hint="correct the path")
    address = canonical(text) if ":" in text else None
    if address is not None:
        return address
    url = re.fullmatch(_URL, text) if "://" in text else None
    if url is None:
        return os.path.expanduser(text)
    if url["host"] not in ("", "localhost") or not url["path"]:
        raise FormatError("cannot be opened: a file of another host", path=text, hint="fetch the file and pass its local path")
    from urllib.parse import unquote

    return unquote(url["path"], errors="surrogateescape")


def is_store(path: str | os.PathLike[str]) -> bool:
    """Return whether a folder is a Zarr store (a group or an array)."""
    return bool(store_mark(os.fspath(path), _STORE_MARKS))


def state_path(path: str) -> str:
    """Return the file whose size and time show changes of a data file.

    This is the file itself, or the metadata of a Zarr store.
    """
    mark = store_mark(path, _STORE_MARKS) if is_folder(path) else ""
    return join(path, mark) if mark else path


def named_files(items: Sequence[Any]) -> list[str]:
    """Return absolute paths of the files that a source names individually."""
    paths = []
    for path in map(given_path, items):
        with suppress(AggarrayError):  # the scan raises the error
            if not (is_remote(path) and _is_remote_pattern(path)) and (is_file(path) or is_store(path)):
                paths.append(absolute(path))
    return paths


def listed(source: Source) -> list[Any]:
    """Return the items of a source; AggregationError unless all are paths."""
    try:
        single = isinstance(source, str | bytes | os.PathLike)
        items: Iterator[Any] = iter((source,) if single else source)  # type: ignore[arg-type]
    except TypeError:
        # Some objects define ``__iter__`` and raise TypeError.
        single, items = True, iter((source,))
    checked = []
    for item in items:
        if not isinstance(item, str | bytes | os.PathLike):
            what = f"{' '.join(repr(item).split()):.60} ({type(item).__name__}{'' if single else ', in a list or the like'})"
            raise AggregationError(f"source {what} is not a path", hint="give a path, a glob, a folder or a flat list of these")
        checked.append(item)
    return checked


def _is_remote_pattern(path: str) -> bool:
    from aggarray.storage.remote.listing import has_magic

    return has_magic(path)


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
