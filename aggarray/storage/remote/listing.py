"""Files in remote folders, and files that match a pattern.

Web servers list a folder as a page of links. Hidden files are left out; a Zarr store is one item.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

from aggarray.errors import AggarrayError, FormatError, MissingFileError
from aggarray.storage.credentials import in_threads
from aggarray.storage.remote import web
from aggarray.storage.remote.filesystems import FileSystem, filesystem_of
from aggarray.storage.remote.objects import MARKS, note, request_states, status
from aggarray.storage.remote.requests import run_concurrently
from aggarray.storage.urls import ARCHIVES, WEB, join, scheme_of, split

_MAGIC = re.compile(r"[*\[]")
#: Depth of nested folders.
_DEEPEST = 64


def has_magic(uri: str) -> bool:
    """Return whether an address is a pattern; ``?`` begins the query of a URL."""
    member, archive = split(uri)
    return _MAGIC.search(member if archive else uri.partition("://")[2]) is not None


def expand(uri: str) -> list[str]:
    """Return the files and Zarr stores that an address stands for.

    A folder stands for everything in it, a pattern for its matches and everything in matching folders, any other address for
    itself. Raises MissingFileError for an empty folder and a pattern without matches.
    """
    if has_magic(uri):
        member, archive = split(uri)
        text = member if archive else uri
        start = _MAGIC.search(text)
        head = text[: start.start() if start else len(text)].rpartition("/")[0]  # the last folder before the first wildcard
        root = f"{scheme_of(uri)}://{head}::{archive}" if archive else head
        fits = re.compile(_expression(text)).fullmatch
        depth = _DEEPEST if "**" in text else text[len(head) :].strip("/").count("/")
        is_quoted = scheme_of(uri) not in ARCHIVES

        def matches(path: str, parents: bool = False) -> bool:
            own = split(path)[0] if archive else path
            while len(own) > len(head):
                if fits(own) or (is_quoted and fits(unquote(own))):
                    return True
                own = own.rpartition("/")[0] if parents else ""
            return False

        paths = sorted(path for path in _walk([root], 0, depth, matches) if matches(path, parents=True))
        if not paths:
            raise MissingFileError("no file matches", path=uri, hint="check the pattern, and that its server lists files")
        return paths
    try:
        state = status(uri)
    except AggarrayError:
        return [uri]
    if not state.folder or state.store:
        return [uri]
    paths = sorted(_walk([uri.rstrip("/") if split(uri)[1] == "" else uri], 0))
    if not paths:
        hint = "check the address, and that its server lists files"
        raise MissingFileError("no files in this folder", path=uri, hint=hint)
    return paths


def folders_in(uri: str) -> list[str]:
    """Return the folders in a folder; FormatError if it cannot be listed."""
    try:
        return sorted(name for name, folder in _entries(uri) if folder)
    except MissingFileError as error:
        hint = "consolidate its metadata, or name the arrays"
        raise FormatError("the server does not list the contents of the store", path=uri, hint=hint) from error


def _expression(pattern: str) -> str:
    """Return a shell pattern as a regular expression.

    >>> _expression("a/**/b*.nc"), _expression("[!ab]?c")
    ('a/(?:.*/)?b[^/]*\\\\.nc', '[^ab]\\\\?c')
    """
    expression, at = "", 0
    while at < len(pattern):
        rest = pattern[at:]
        group = re.match(r"\[!?\]?[^\]/]*\]", rest)
        if rest.startswith("**/"):
            expression, at = f"{expression}(?:.*/)?", at + 3
        elif rest.startswith("**"):
            expression, at = f"{expression}.*", at + 2
        elif rest[0] == "*":
            expression, at = f"{expression}[^/]*", at + 1
        elif group:
            inner = group[0][1:-1].replace("\\", "\\\\")
            expression, at = f"{expression}[{'^' + inner[1:] if inner.startswith('!') else inner}]", at + len(group[0])
        else:
            expression, at = expression + re.escape(rest[0]), at + 1
    return expression


def _walk(
    folders: list[str], level: int, deepest: int = _DEEPEST, matches: Callable[[str], bool] | None = None
) -> Iterator[str]:
    """Yield the files and stores below folders, level by level.

    ``deepest``: the last level, except in folders that match. The folders of a level are listed concurrently.
    """
    below: list[str] = []
    for folder, listed in zip(folders, in_threads(_listed, folders), strict=True):
        if isinstance(listed, AggarrayError):
            if level == 0 and not isinstance(listed, MissingFileError):
                raise listed
            continue
        if level and any(name in MARKS for name, inner in listed if not inner):
            yield folder
            continue
        below += [join(folder, name) for name, inner in listed if inner and not name.startswith(".")]
        yield from (join(folder, name) for name, inner in listed if not inner and not name.startswith("."))
    if below and level < deepest:
        yield from _walk(below, level + 1, deepest, matches)
    elif below:
        # A store may lie at the depth of the pattern.
        stores = {folder for folder, state in zip(below, request_states(below), strict=True) if getattr(state, "store", "")}
        yield from stores
        matching = [folder for folder in below if matches is not None and folder not in stores and matches(folder)]
        if matching:
            yield from _walk(matching, level + 1)


def _listed(folder: str) -> list[tuple[str, bool]] | AggarrayError:
    try:
        return _entries(folder)
    except AggarrayError as error:
        return error


def _entries(folder: str) -> list[tuple[str, bool]]:
    """Return names, and whether they are folders; cache the listed states."""
    place = folder if split(folder)[1] or folder.endswith("/") else f"{folder}/"

    async def later(system: FileSystem) -> Any:
        if system.web:
            links = await web.links(system.fs, place)
            return [{"name": link, "type": "directory" if link.endswith("/") else "file"} for link in links]
        return await system.fs._ls(system.path(place), detail=True)

    def now(system: FileSystem) -> Any:
        return system.fs.ls(system.path(place), detail=True)

    listed = run_concurrently([(place, later, now)])[0]
    if isinstance(listed, AggarrayError):
        raise listed
    on_web = scheme_of(place) in WEB
    own, entries = _bare(place if on_web else filesystem_of(place).path(place)), {}
    for entry in listed:
        head, _, tail = _bare(str(entry["name"])).rpartition("/")
        if tail and head == own:
            name = unquote(tail) if on_web else tail
            entries[name] = entry.get("type") == "directory"
            if not on_web and not entries[name]:
                note(join(folder, name), entry)
    return sorted(entries.items())


def _bare(name: str) -> str:
    return name.partition("?")[0].strip("/") if "://" in name else name.strip("/")
