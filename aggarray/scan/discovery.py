"""Discovery of the files of a source: paths, globs, folders and lists."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from aggarray.errors import AggarrayError, MissingFileError
from aggarray.storage.files import Source, given_path, is_store, listed
from aggarray.storage.urls import is_remote


def find_files(source: Source) -> list[str]:
    """Return the distinct absolute paths of the files that a source names.

    Zarr stores count as files. ``source``: a path, a glob (``**`` allowed), a folder (searched recursively, without hidden
    names and links to folders) or an iterable of these. A folder that matches a glob is searched. Files beside data that are
    not data, such as notes and images, are left out unless an item names them. Items keep their order, the files of one item
    are sorted. Raises MissingFileError for a pattern or folder without files, and AggregationError for items that are not
    paths. Paths that do not exist raise when they are scanned. Remote folders and patterns are listed where the server
    supports it.
    """
    paths: dict[str, None] = {}
    for item in listed(source):
        paths.update(dict.fromkeys(filter(_is_included, _expand(given_path(item)))))
    if not paths:
        raise MissingFileError("no files", hint="give a path, a glob, a folder or a list of these")
    return list(paths)


#: Real paths that are never input, even inside a folder that a source names.
_EXCLUDED: ContextVar[frozenset[str]] = ContextVar("aggarray_left_out", default=frozenset())


@contextmanager
def leaving_out(paths: Iterable[str]) -> Iterator[None]:
    """Exclude files from sources inside the context, such as own output."""
    token = _EXCLUDED.set(frozenset(map(os.path.realpath, paths)))
    try:
        yield
    finally:
        _EXCLUDED.reset(token)


def _is_included(path: str) -> bool:
    excluded = _EXCLUDED.get()
    if not excluded or is_remote(path):
        return True
    real = os.path.realpath(path)
    return real not in excluded and not any(
        real.startswith(f"{path_}.part/") for path_ in excluded if f"{os.path.basename(path_)}.part" in real
    )


def _expand(path: str) -> Iterator[str]:
    if is_remote(path):
        from aggarray.storage.remote.listing import expand

        listed = expand(path)
        yield from listed if listed == [path] else _related(listed)
    elif not os.path.lexists(path) and any(mark in path for mark in "*?["):
        yield from _related(_matching(path))
    elif os.path.isdir(path) and not is_store(path):
        names = list(_walk(path))
        if not names:
            raise MissingFileError("no files in this folder", path=path, hint="check the path")
        yield from _related(sorted(map(os.path.abspath, names)))
    else:
        yield os.path.abspath(path)


def _related(paths: list[str]) -> list[str]:
    """Return the files that may be data, or all if none may be."""
    from aggarray.scan.unrelated import is_unrelated

    return [path for path in paths if not is_unrelated(path)] or paths


def _matching(pattern: str) -> list[str]:
    """Return the files and stores that match, and those in matching folders."""
    import glob

    inside = functools.cache(_inside_store)
    matches = [m for m in glob.iglob(_literal_start(pattern), recursive=True) if not inside(os.path.dirname(m))]
    names = [m for m in matches if os.path.isfile(m) or is_store(m)]
    # With ** the folders below a link to a folder match, too, and may be those above it.
    followed = "**" not in pattern
    folders = {m.rstrip(os.sep) for m in set(matches).difference(names) if os.path.isdir(m)}
    folders = {m for m in folders if followed or not os.path.islink(m)}
    tops = [m for m in sorted(folders) if not any(parent in folders for parent in _parents(m))]
    walked = [name for folder in tops for name in _walk(folder)]
    whole = {name for name in walked if os.path.isdir(name)}
    names = [n for n in names if not any(parent in whole for parent in _parents(n))]
    if not names and not walked:
        raise MissingFileError("no file matches", path=pattern, hint="check the pattern")
    return sorted({os.path.abspath(n) for n in (*names, *walked)})


def _parents(path: str) -> Iterator[str]:
    parent = os.path.dirname(path)
    while parent and parent != path:
        yield parent
        path, parent = parent, os.path.dirname(parent)


def _literal_start(pattern: str) -> str:
    import glob

    parts = pattern.split(os.sep)
    for count in range(len(parts) - 1, 0, -1):
        folder = os.sep.join(parts[:count])
        if glob.has_magic(folder) and os.path.isdir(folder):
            return os.sep.join([glob.escape(folder), *parts[count:]])
    return pattern


def _walk(folder: str) -> Iterator[str]:
    from aggarray.formats.unsupported import unsupported_folder

    for parent, folders, files in os.walk(folder):
        if unsupported_folder(parent, folders, files) is not None:
            # The scan identifies it; the files inside are not data files themselves.
            yield parent
            folders.clear()
            continue
        stores = [d for d in folders if is_store(os.path.join(parent, d))]
        yield from (os.path.join(parent, d) for d in stores)
        folders[:] = sorted(d for d in folders if d not in stores and not d.startswith("."))
        yield from (os.path.join(parent, f) for f in files if not f.startswith("."))


def _inside_store(folder: str) -> bool:
    while folder and folder != os.path.dirname(folder):
        if is_store(folder):
            return True
        folder = os.path.dirname(folder)
    return False


def skipped_file(path: str, error: AggarrayError) -> str:
    """Return why a file was skipped, without its path."""
    return error.reason if error.path == path and error.variable is None else str(error)
