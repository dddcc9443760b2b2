"""Paths that callers give, and the files that stand for Zarr stores."""

import os
import re
from typing import Any

from aggarray.errors import AggregationError, FormatError, MissingFileError
from aggarray.storage.files import is_folder, store_mark
from aggarray.storage.urls import canonical, is_remote, join

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://(?P<host>[^/]*)(?P<path>.*)", re.DOTALL)
#: Files that mark a folder as a Zarr store.
_STORE_MARKS = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")


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
    address = canonical(text)
    if address is not None:
        return address
    url = _URL.fullmatch(text)
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
