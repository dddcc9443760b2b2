"""States of remote objects.

The state of an object is requested once in `FRESH` seconds; web servers and S3 report a change in between with the bytes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from aggarray.dataclass import NamedTuple
from aggarray.errors import AggarrayError, ChangedFileError, FormatError, MissingFileError
from aggarray.storage.blake2 import blake2b
from aggarray.storage.credentials import access_in_force
from aggarray.storage.lru_cache import LRUCache
from aggarray.storage.remote import web
from aggarray.storage.remote.filesystems import TRY_AGAIN, FileSystem, systems
from aggarray.storage.remote.requests import RangeRequest, run_concurrently
from aggarray.storage.state import FileState
from aggarray.storage.urls import join, split

#: Seconds for which the state of an object is cached.
FRESH = 30.0
#: Bytes of the cache of metadata blocks.
KEPT = 1 << 26
#: Objects cached, and requested together.
_MOST, _TOGETHER = 400_000, 4096
#: Names of files that mark a Zarr store.
MARKS = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")
#: Prefix of objects in the memory of this process.
_MEMORY = "memory://"
_TIMES = ("LastModified", "last_modified", "updated", "modified", "mtime", "created")
_TAGS = ("ETag", "etag", "md5Hash", "content_md5", "CRC", "checksum")


class ObjectState(NamedTuple):
    """State of an object: bytes, time of change in ns, entity tag, folder.

    ``store``: the name of the file that marks a folder as a Zarr store; "" for another folder.
    """

    size: int
    time: int
    tag: str
    folder: bool = False
    store: str = ""

    @property
    def state(self) -> FileState:
        """State that changes with the object; a number of its tag is the inode."""
        return FileState(self.time, self.size, _number(self.tag), self.folder)


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogateescape"), digest_size=7).digest(), "little")


#: When a state was requested, and the state, by address and access.
_states = LRUCache(lambda: _MOST)
blocks = LRUCache(lambda: KEPT, len)


def forget() -> None:
    """Clear the cached states and blocks, and the file systems."""
    for cache in (_states, blocks, systems):
        cache.clear()


def forget_object(uri: str) -> None:
    """Drop the cached states of an object, for every access."""
    _states.discard_where(lambda key: key[0] == uri)


def status(uri: str) -> ObjectState:
    """Return the state of an object or folder.

    Raises MissingFileError, FormatError or ForbiddenPathError.
    """
    state = request_states([uri])[0]
    if isinstance(state, AggarrayError):
        raise state
    return state


def cache_states(uris: Iterable[str]) -> None:
    """Request the states of many objects concurrently and cache them."""
    unknown = [uri for uri in dict.fromkeys(uris) if _recall(uri) is None]
    for start in range(0, len(unknown) if len(unknown) > 1 else 0, _TOGETHER):
        request_states(unknown[start : start + _TOGETHER])


def note(uri: str, info: Mapping[str, Any]) -> None:
    """Cache the state of a file from a listing."""
    with suppress(FormatError):
        _note(uri, _state_of(info, uri))


def _note(uri: str, state: ObjectState) -> None:
    _states.keep((uri, access_in_force.get()), (time.monotonic(), state))


def _recall(uri: str) -> ObjectState | None:
    noted = None if uri.startswith(_MEMORY) else _states.get((uri, access_in_force.get()))
    return noted[1] if noted is not None and time.monotonic() - noted[0] < FRESH else None


def request_states(uris: Sequence[str]) -> list[ObjectState | AggarrayError]:
    """Return each object's state or error; request uncached ones together."""
    found: list[Any] = [_recall(uri) for uri in uris]
    unknown = [n for n, known in enumerate(found) if known is None]
    for n, answer in zip(unknown, _answers([uris[n] for n in unknown]), strict=True):
        found[n] = answer
    # A path without a file may be a store: all its marks are requested concurrently.
    uncertain = [n for n in unknown if isinstance(found[n], MissingFileError) or getattr(found[n], "folder", False)]
    marks = [join(uris[n], mark) for n in uncertain for mark in MARKS]
    there = iter(_answers(marks))
    for n in uncertain:
        own: dict[str, Any] = {mark: next(there) for mark in MARKS}
        mark = next((m for m, a in own.items() if isinstance(a, ObjectState) and not a.folder), "")
        if mark:
            found[n] = ObjectState(own[mark].size, own[mark].time, own[mark].tag, True, mark)
    for n in unknown:
        if isinstance(found[n], ObjectState):
            _note(uris[n], found[n])
    return found


def _answers(uris: Sequence[str]) -> list[ObjectState | AggarrayError]:
    return run_concurrently([(uri, partial(_info_later, uri), partial(_info, uri)) for uri in uris])


async def _info_later(uri: str, system: FileSystem) -> ObjectState:
    if not system.web:
        return _state_of(await system.fs._info(system.path(uri)), uri)
    found = await web.head(system.fs, uri)
    if found.page or uri.endswith("/"):
        return ObjectState(0, found.time, found.tag, True)
    if found.size is None:
        raise FormatError("the server does not report its size", path=uri, hint="fetch the file and open that")
    return ObjectState(found.size, _dated(found.time, found.tag), found.tag)


def _info(uri: str, system: FileSystem) -> ObjectState:
    path = system.path(uri)
    if split(uri)[1] and not path:
        return ObjectState(0, 0, "", True)
    return _state_of(system.fs.info(path), uri)


def _state_of(info: Mapping[str, Any], uri: str) -> ObjectState:
    if info.get("type") == "directory":
        return ObjectState(0, 0, "", True)
    size = info.get("size", info.get("file_size"))
    if not isinstance(size, int):
        raise FormatError("the file system does not report its size", path=uri, hint="fetch the file and open that")
    tag = next((str(info[name]) for name in _TAGS if info.get(name) is not None), "")
    key = next((name for name in _TIMES if info.get(name) is not None), "")
    when = info.get(key)
    if when is None and isinstance(info.get("date_time"), tuple):  # a member of a zip archive
        when = datetime(*info["date_time"])
    if isinstance(when, datetime):
        # Listings of S3 may have fractions of seconds that objects lack.
        when = int(when.timestamp()) if key == _TIMES[0] else when.timestamp()
    return ObjectState(size, _dated(int(when * 10**9) if isinstance(when, int | float) else 0, tag), tag)


def _dated(time: int, tag: str) -> int:
    """Add a fraction, derived from the version, to a time in whole seconds."""
    number = _number(tag.strip('"')) if tag else 0
    return (time + number % 10**9 if time % 10**9 == 0 else time) if time else number


def checked_bytes(uri: str, request: RangeRequest, data: bytes | AggarrayError, there: int) -> bytes:
    """Return fetched bytes; raise their error, or FormatError if too few."""
    if isinstance(data, AggarrayError):
        raise with_state_forgotten(uri, data)
    if request.size is not None and len(data) != request.size:
        _states.discard((uri, access_in_force.get()))
        what = f"truncated: {len(data)} bytes instead of {request.size} at offset {request.offset} of {there}"
        raise FormatError(what, path=uri, hint=TRY_AGAIN)
    return data


def with_state_forgotten(uri: str, error: AggarrayError) -> AggarrayError:
    """Drop the cached state of a changed or missing object; return the error."""
    if isinstance(error, ChangedFileError | MissingFileError):
        _states.discard((uri, access_in_force.get()))
    return error
