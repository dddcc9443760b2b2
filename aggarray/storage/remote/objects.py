"""States and metadata blocks of remote objects.

The state of an object is requested once in `FRESH` seconds; web servers and S3 report a change in between with the bytes.
Blocks of metadata are cached, values are not.
"""

import gc
import hashlib
import io
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from aggarray.errors import AggarrayError, ChangedFileError, FormatError, MissingFileError
from aggarray.storage.lru_cache import LRUCache
from aggarray.storage.remote import web
from aggarray.storage.remote.credentials import current_access
from aggarray.storage.remote.filesystems import FileSystem, Objects, close_filesystems, read_archives_through
from aggarray.storage.remote.requests import RangeRequest, fetch, run_concurrently
from aggarray.storage.remote.urls import is_remote, join, split
from aggarray.storage.state import FileState

#: Seconds for which the state of an object is cached.
FRESH = 30.0
#: Bytes of a block, and of the block cache; blocks read ahead for libraries, and their bytes.
BLOCK, KEPT, AHEAD = 1 << 16, 1 << 26, 16
READY = AHEAD * BLOCK
#: Objects cached, and requested together.
_MOST, _TOGETHER = 400_000, 4096
#: Names of files that mark a Zarr store.
MARKS = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")
#: Prefix of objects in the memory of this process.
_MEMORY = "memory://"
_TIMES = ("LastModified", "last_modified", "updated", "modified", "mtime", "created")
_TAGS = ("ETag", "etag", "md5Hash", "content_md5", "CRC", "checksum")


class ObjectState(NamedTuple):
    """State of an object: bytes, time of change in ns, entity tag as the server writes it, whether it is a folder.

    ``store``: the name of the file that marks a folder as a Zarr store; "" for another folder.
    """

    size: int
    time: int
    tag: str
    folder: bool = False
    store: str = ""

    @property
    def state(self) -> FileState:
        """The state that changes with the object; the number of its tag stands for the inode."""
        return FileState(self.time, self.size, _number(self.tag), self.folder)


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=7).digest(), "little")


class _Memory:
    """Cached states of objects; cleared after a fork, and when files are closed."""

    def __init__(self) -> None:
        self.clear()
        if hasattr(os, "register_at_fork"):
            # promise: remote-objects-lock-fork
            os.register_at_fork(after_in_child=self.clear)

    def clear(self) -> None:
        """Clear everything."""
        self.lock = threading.Lock()
        self.known: dict[Any, tuple[float, ObjectState]] = {}

    def note(self, uri: str, found: ObjectState) -> None:
        """Cache the state of an object."""
        with self.lock:
            if len(self.known) >= _MOST:
                self.known.clear()
            self.known[uri, current_access()] = time.monotonic(), found

    def lose(self, uri: str) -> None:
        """Drop the state of an object."""
        with self.lock:
            self.known.pop((uri, current_access()), None)

    def recall(self, uri: str) -> ObjectState | None:
        """Return the recent state of an object. Objects in memory are inspected anew, which costs nothing."""
        if uri.startswith(_MEMORY):
            return None
        noted = self.known.get((uri, current_access()))
        return noted[1] if noted is not None and time.monotonic() - noted[0] < FRESH else None


_memory = _Memory()
_blocks = LRUCache(lambda: KEPT, len)


def forget() -> None:
    """Clear the cached states and blocks, and the file systems."""
    _memory.clear()
    _blocks.clear()
    close_filesystems()


def status(uri: str) -> ObjectState:
    """Return the state of an object or folder. MissingFileError, FormatError, or ForbiddenPathError."""
    found = _asked([uri])[0]
    if isinstance(found, AggarrayError):
        raise found
    return found


def prefetch_states(uris: Iterable[str]) -> None:
    """Request the states of many objects concurrently and cache them."""
    wanted = [uri for uri in dict.fromkeys(uris) if is_remote(uri) and _memory.recall(uri) is None]
    for start in range(0, len(wanted) if len(wanted) > 1 else 0, _TOGETHER):
        _asked(wanted[start : start + _TOGETHER])


def note(uri: str, info: Mapping[str, Any]) -> None:
    """Cache the state of a file from a listing."""
    with suppress(FormatError):
        _memory.note(uri, _state_of(info, uri))


def _asked(uris: Sequence[str]) -> list[ObjectState | AggarrayError]:
    found: list[Any] = [_memory.recall(uri) for uri in uris]
    unknown = [n for n, known in enumerate(found) if known is None]
    for n, answer in zip(unknown, _answers([uris[n] for n in unknown]), strict=True):
        found[n] = answer
    # A path without a file may be a store: all its marks are requested concurrently.
    uncertain = [n for n in unknown if isinstance(found[n], MissingFileError) or (found[n] and _is_folder(found[n]))]
    marks = [join(uris[n], mark) for n in uncertain for mark in MARKS]
    there = iter(_answers(marks))
    for n in uncertain:
        own: dict[str, Any] = {mark: next(there) for mark in MARKS}
        mark = next((m for m, a in own.items() if isinstance(a, ObjectState) and not a.folder), "")
        if mark:
            found[n] = ObjectState(own[mark].size, own[mark].time, own[mark].tag, True, mark)
    for n in unknown:
        if isinstance(found[n], ObjectState):
            _memory.note(uris[n], found[n])
    return found


def _is_folder(found: Any) -> bool:
    return isinstance(found, ObjectState) and found.folder


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
    """Return the state in a file system's description of an object."""
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
    """Return a time of whole seconds with a fraction derived from the version: it differs if an object is replaced at once."""
    number = _number(tag.strip('"')) if tag else 0
    return (time + number % 10**9 if time % 10**9 == 0 else time) if time else number


class RemoteObject:
    """Bytes of an object by offset, in cached blocks."""

    __slots__ = ("_ahead", "_reach", "size", "status", "uri")

    def __init__(self, uri: str, found: ObjectState, ahead: int = 1) -> None:
        self.uri, self.status, self.size, self._ahead = uri, found, found.size, ahead
        self._reach = current_access()

    def _key(self, number: int) -> Any:
        return self.uri, self.status, self._reach, number

    def kept(self, offset: int, count: int) -> bytes | None:
        """Return bytes if all their blocks are cached."""
        blocks = [_blocks.get(self._key(n)) for n in range(offset // BLOCK, -(-(offset + count) // BLOCK))]
        if any(block is None for block in blocks):
            return None
        start = offset % BLOCK
        return b"".join(block for block in blocks if block is not None)[start : start + count]

    def pread(self, count: int, offset: int) -> bytes:
        """Return bytes at an offset, fewer at the end of the object."""
        return self.preads([(offset, count)])[0]

    def preads(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of several ranges, requesting uncached blocks concurrently."""
        limits = [(offset, max(0, min(count, self.size - offset))) for offset, count in ranges]
        wanted: set[int] = set()
        for offset, count in limits:
            if count:
                first, last = offset // BLOCK, (offset + count - 1) // BLOCK
                missing = [n for n in range(first, last + 1) if _blocks.get(self._key(n)) is None]
                if missing:
                    end = min(max(missing[-1], missing[0] + self._ahead - 1), (self.size - 1) // BLOCK)
                    wanted.update(range(missing[0], end + 1))
        blocks = self._fetched(sorted(wanted)) if wanted else {}
        return [self._joined(offset, count, blocks) for offset, count in limits]

    def _joined(self, offset: int, count: int, blocks: Mapping[int, bytes]) -> bytes:
        if not count:
            return b""
        parts = []
        for number in range(offset // BLOCK, (offset + count - 1) // BLOCK + 1):
            block = blocks.get(number)
            block = _blocks.get(self._key(number)) if block is None else block
            parts.append(self._fetched([number])[number] if block is None else block)
        start = offset % BLOCK
        return b"".join(parts)[start : start + count]

    def _fetched(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Fetch blocks, neighbouring ones in one request."""
        runs: list[list[int]] = []
        for number in numbers:
            if runs and runs[-1][-1] + 1 == number:
                runs[-1].append(number)
            else:
                runs.append([number])
        found = {}
        limits = [(run[0] * BLOCK, min((run[-1] + 1) * BLOCK, self.size)) for run in runs]
        requests = [RangeRequest(self.uri, start, end - start, self.status.tag) for start, end in limits]
        for run, request, data in zip(runs, requests, fetch(requests), strict=True):
            data = checked_bytes(self.uri, request, data, self.size)
            for place, number in enumerate(run):
                block = data[place * BLOCK : (place + 1) * BLOCK]
                found[number] = block
                _blocks.keep(self._key(number), block)
        return found


def checked_bytes(uri: str, request: RangeRequest, data: bytes | AggarrayError, there: int) -> bytes:
    """Return fetched bytes. FormatError if there are too few, or the error that they came as."""
    if isinstance(data, AggarrayError):
        raise with_state_forgotten(uri, data)
    if request.size is not None and len(data) != request.size:
        _memory.lose(uri)
        text = f"{len(data)} bytes come where {request.size} at offset {request.offset} of {there} are wanted"
        raise FormatError(f"{uri}: truncated: {text}; try again, or upload the file again")
    return data


def with_state_forgotten(uri: str, error: AggarrayError) -> AggarrayError:
    """Return an error of an object, after dropping the cached state of one that changed or vanished."""
    if isinstance(error, ChangedFileError | MissingFileError):
        _memory.lose(uri)
    return error


def open_object(uri: str, ahead: int = 1) -> RemoteObject:
    """Return the bytes of an object; ``ahead``: minimum number of blocks per read. MissingFileError or FormatError."""
    found = status(uri)
    if found.folder:
        raise FormatError(f"{uri}: a folder; name the files in it, or a pattern such as {uri.rstrip('/')}/*.nc")
    return RemoteObject(uri, found, ahead)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Suspend garbage collection: freeing h5py objects would wait for its lock, and the reader for the fetching thread.

    The reader of such a file holds that lock, so there is one at a time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class ObjectFile(io.RawIOBase):
    """A remote object as a Python file, for libraries."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self._content, self._at = open_object(uri, AHEAD), 0
        #: Libraries recognise compressed tar archives by the suffix.
        self.path = uri.partition("?")[0]

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._content.size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read at the position."""
        view = memoryview(buffer).cast("B")
        with _uncollected():
            data = self._content.pread(len(view), self._at)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


read_archives_through(Objects(lambda uri: status(uri).state, ObjectFile))
