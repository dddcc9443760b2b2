"""Bytes of a file or object, by offset, and its state, wherever it lies.

`open_source` opens one for its caller alone. `shared_source` takes local files from a bounded cache of descriptors: threads and
forked processes share no file position, and a file that was replaced or changed is opened anew.
"""

from __future__ import annotations

import os
import stat
import sys
from _thread import get_ident
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from aggarray.errors import FormatError, MissingFileError
from aggarray.options import get_options
from aggarray.storage.lru_cache import LRUCache
from aggarray.storage.ranges import Range, bytes_of, check_range, cut_span, merge_ranges, truncated
from aggarray.storage.state import FileState, Stamp, Versions, changed
from aggarray.storage.urls import is_remote

if TYPE_CHECKING:
    from aggarray.storage.remote.reader import RemoteSource

#: Largest gap in bytes between ranges that are read in one call.
GAP = 1 << 16
#: Largest call in bytes, unless a single range is longer.
SPAN = 1 << 24
#: Bytes of a buffer per thread that fills it.
_SHARE = 1 << 24
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
#: Opening a pipe would wait for its other end.
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)


class LocalSource:
    """Open local file, closed by `close` or with its last reference.

    ``path``; ``size``: its bytes and ``state``: its state when it was opened; ``distant``: whether each call takes a round
    trip; ``shared``: whether `close` does nothing; ``readers``: the threads that read a cached one. Reading raises FormatError,
    which names file, offset and sizes, for a range outside the file and for bytes that cannot be read.
    """

    __slots__ = ("descriptor", "path", "readers", "shared", "size", "state")

    distant: ClassVar[bool] = False

    def __init__(self, path: str, flags: int = _FLAGS, regular: bool = False, state: FileState | None = None) -> None:
        self.path, self.descriptor, self.shared = path, -1, False
        try:
            self.descriptor = os.open(path, flags)
        except (OSError, ValueError) as error:
            raise cannot_open(path, error) from error
        # A state that the caller has just seen is compared after the read.
        self.state = stat_file(path, self.descriptor, regular) if state is None else state
        self.size = self.state.size
        self.readers: set[int] = set()

    def check(self, state: FileState | None) -> None:
        """Raise ChangedFileError unless the file still has a state; None: any."""
        # promise: changed-during-read
        if state is not None and (now := stat_file(self.path, self.descriptor)) != state:
            self.state = now
            raise changed(self.path)

    def pread(self, count: int, offset: int) -> bytes:
        """Return bytes at an offset; a system call may return fewer."""
        return os.pread(self.descriptor, count, offset)

    def preads(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return the bytes of several ranges, each shorter at the end of the file."""
        return [os.pread(self.descriptor, count, offset) for offset, count in ranges]

    def read_ranges(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Return read-only bytes of each range, in order; they may share memory."""
        if len(ranges) == 1:
            # Thousands of files are read by one range each.
            offset, size = ranges[0]
            check_range(self.path, offset, size, self.size)
            return [self._read(int(offset), int(size))]
        if any(type(number) is not int for number in ranges[0]) if ranges else False:
            ranges = [(int(offset), int(size)) for offset, size in ranges]
        low, high = (min(r[0] for r in ranges), max(map(sum, ranges))) if ranges else (0, 0)
        if low < 0 or high > self.size or min((r[1] for r in ranges), default=0) < 0:
            for offset, size in ranges:
                check_range(self.path, offset, size, self.size)
        if 0 < high - low <= min(SPAN, sum(r[1] for r in ranges) + GAP):
            # The usual case: hardly anything lies between the ranges, which need not be sorted.
            data = self._read(low, high - low)
            return [data[offset - low : offset - low + size] for offset, size in ranges]
        out = [memoryview(b"")] * len(ranges)
        for span in merge_ranges(ranges, GAP, SPAN):
            cut_span(span, self._read(span.offset, span.size), ranges, out)
        return out

    def read_into(self, offset: int, buffer: Any) -> None:
        """Fill a writable, contiguous buffer with the bytes from an offset on."""
        view, offset = bytes_of(buffer), int(offset)
        check_range(self.path, offset, view.size, self.size)
        count = max(1, min(get_options().threads, view.size // _SHARE))
        if count == 1:
            self._fill(offset, view.data)
            return
        from threading import Thread

        cuts = [view.size * part // count for part in range(count + 1)]
        errors: list[BaseException] = []

        def fill(start: int, stop: int) -> None:
            try:
                self._fill(offset + start, view.data[start:stop])
            except BaseException as error:
                errors.append(error)

        # Memory that the process has not used before takes longer to get than the bytes to copy.
        threads: list[Thread] = []
        try:
            for part in pairwise(cuts[1:]):
                thread = Thread(target=fill, args=part)
                try:
                    thread.start()
                    threads.append(thread)
                except RuntimeError:  # no more threads, or the interpreter ends
                    fill(*part)
            fill(*cuts[:2])
        finally:
            for thread in threads:
                thread.join()
        if errors:
            raise errors[0]

    def read_each(self, offsets: Sequence[int], sizes: Sequence[int], buffer: np.ndarray) -> None:
        """Read the bytes at each offset into a row of a contiguous uint8 buffer."""
        for offset, size in zip(offsets, sizes, strict=True):
            check_range(self.path, offset, size, self.size)
        views, width, file = buffer.reshape(-1).data, buffer.shape[1], self.descriptor
        for row, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
            view = views[row * width : row * width + size]
            try:
                done = _read_at(file, view, offset)
            except OSError as error:
                raise self._unreadable(error) from error
            if done < size:
                self._fill(offset + done, view[done:])

    def close(self) -> None:
        """Close the descriptor unless it is shared; closing it twice is harmless."""
        if self.descriptor >= 0 and not self.shared:
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)

    def __enter__(self) -> LocalSource:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if os is not None and self.descriptor >= 0:  # modules may be gone when the interpreter exits
            os.close(self.descriptor)

    def _read(self, offset: int, size: int) -> memoryview:
        if size <= SPAN:
            try:
                data = os.pread(self.descriptor, size, offset)
            except OSError as error:
                raise self._unreadable(error) from error
            if len(data) == size:
                return memoryview(data)
        # Longer than a call may be, or cut short by a signal or a file that shrinks.
        buffer = np.empty(size, np.uint8)
        self._fill(offset, buffer.data)
        return buffer.data.toreadonly()

    def _fill(self, offset: int, view: memoryview) -> None:
        done = 0
        while done < len(view):
            try:
                count = _read_at(self.descriptor, view[done:], offset + done)
            except OSError as error:
                raise self._unreadable(error) from error
            if not count:
                raise truncated(self.path, offset, len(view), offset + done)
            done += count

    def _unreadable(self, error: OSError) -> FormatError:
        return FormatError(f"cannot be read: {error.strerror or error}", path=self.path, hint="check the disk")


#: An open file or object, read by offset; both have the methods of `LocalSource`.
ByteSource: TypeAlias = "LocalSource | RemoteSource"

#: The local files that `open_once` keeps open in this thread, by path; None if not open yet.
_kept_open: ContextVar[dict[str, LocalSource | None]] = ContextVar("aggarray_kept_open")
#: Open local files by path. A file that is evicted closes when its last reader has finished.
_sources = LRUCache(lambda: get_options().open_files, in_use=lambda source: bool(source.readers))


def _read_at(descriptor: int, view: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [view], offset)
    data = os.pread(descriptor, min(len(view), SPAN), offset)
    view[: len(data)] = data
    return len(data)


def stat_file(path: str, descriptor: int | None = None, regular: bool = False) -> FileState:
    """Return the state of a file or folder.

    Raises MissingFileError, and FormatError if it cannot be inspected or, on request, is not a regular file.
    """
    if descriptor is None and is_remote(path):
        from aggarray.storage.remote.objects import status

        return status(path).state
    try:
        info = os.stat(path if descriptor is None else descriptor)
    except (OSError, ValueError) as error:
        # promise: file-vanishes
        raise cannot_open(path, error) from error
    if regular and not stat.S_ISREG(info.st_mode):
        raise FormatError("not a file", path=path, hint="check the path")
    return FileState(info.st_mtime_ns, info.st_size, info.st_ino, stat.S_ISDIR(info.st_mode))


def cannot_open(path: str, error: OSError | ValueError) -> FormatError:
    """Return the error of a file that does not open (OSError, null byte)."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return MissingFileError("no such file or folder", path=path, hint="check the path")
    reason = getattr(error, "strerror", None) or error
    return FormatError(f"cannot be opened: {reason}", path=path, hint="check its permissions")


@contextmanager
def open_once(path: str) -> Iterator[None]:
    """Open a local file at most once during a block.

    Every `open_source` of this path shares its descriptor. `ByteSource.check` and `stat_file` still notice changes.
    """
    if path in _kept_open.get({}):
        yield
        return
    kept: dict[str, LocalSource | None] = {path: None}
    token = _kept_open.set(kept)
    try:
        yield
    finally:
        _kept_open.reset(token)
        if source := kept[path]:
            source.shared = False
            source.close()


def open_source(path: str) -> ByteSource:
    """Open a file or object; raise MissingFileError or FormatError."""
    kept = _kept_open.get({})
    if source := kept.get(path):
        return source
    if is_remote(path):
        from aggarray.storage.remote.reader import RemoteSource

        return RemoteSource(path)
    source = LocalSource(path)
    if path in kept:
        kept[path], source.shared = source, True
    return source


@contextmanager
def shared_source(path: str, state: FileState | None = None) -> Iterator[ByteSource]:
    """Give a source for several reads, and check its state afterwards.

    Raises MissingFileError, and FormatError for a file whose state is not ``state`` or that cannot be read.
    """
    if is_remote(path):
        from aggarray.storage.remote.reader import RemoteSource

        remote = RemoteSource(path)
        remote.check(state)
        yield remote
        remote.check(state)
        return
    source, thread = _cached_source(path, state), get_ident()
    source.readers.add(thread)
    try:
        yield source
        source.check(state)
    finally:
        source.readers.discard(thread)


def _cached_source(path: str, state: FileState | None) -> LocalSource:
    """Return a local file, from the cache if it is still the same."""
    try:
        now = state or stat_file(path, regular=True)
        source: LocalSource | None = _sources.get(path)
        if source is None or source.state != now:
            # The file may have been replaced since: the state of the open one counts.
            source = LocalSource(path, regular=True, state=state)
            _sources.keep(path, source)
    except MissingFileError as error:
        error.hint = "restore it, or open with missing='fill'"
        raise
    return source


@contextmanager
def version_source(path: str, versions: Versions) -> Iterator[ByteSource]:
    """Give a source like `shared_source`, of the version in ``versions``."""
    with shared_source(path, versions.states.get(path)) as source:
        state = versions.states.setdefault(path, source.state)
        yield source
        source.check(state)


def read_ranges(path: str, ranges: Sequence[Range], state: FileState | None = None) -> list[memoryview]:
    """Return the bytes of ranges of a file, as `LocalSource.read_ranges`.

    ``state``: the file's state when the ranges were looked up.
    """
    if is_remote(path):
        with shared_source(path, state) as remote:
            return remote.read_ranges(ranges)
    # As `shared_source` does, for thousands of files.
    source, thread = _cached_source(path, state), get_ident()
    source.readers.add(thread)
    try:
        read = source.read_ranges(ranges)
        source.check(state)
        return read
    finally:
        source.readers.discard(thread)


def read_stamped(path: str, ranges: Sequence[Range], stamp: Stamp | None) -> list[bytes] | None:
    """Return bytes of a local file that still has a stamp, without a cache.

    None if it has changed, is not there, or cannot be read.
    """
    if stamp is None or min(offset for offset, _ in ranges) < 0 or max(map(sum, ranges)) > stamp[0]:
        return None
    try:
        # It may have been replaced by a pipe.
        descriptor = os.open(path, _FLAGS | _NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        before = os.fstat(descriptor)
        # promise: indexed-sizes
        if (before.st_size, before.st_mtime_ns) != stamp[:2] or not stat.S_ISREG(before.st_mode):
            return None  # the sizes may be those of another file
        parts = [os.pread(descriptor, size, offset) for offset, size in ranges]
        now = os.fstat(descriptor)
    except (OSError, MemoryError, OverflowError):
        return None
    finally:
        os.close(descriptor)
    # promise: changed-since-indexed
    if (now.st_size, now.st_mtime_ns) != stamp[:2] or any(len(p) != n for p, (_, n) in zip(parts, ranges, strict=True)):
        return None
    return parts


def read_into(path: str, offset: int, buffer: Any, state: FileState | None = None) -> None:
    """Fill a writable, contiguous buffer with bytes of a file."""
    with shared_source(path, state) as source:
        source.read_into(offset, buffer)


def read_file(path: str) -> memoryview | None:
    """Read all of a small local file, uncached; None if missing or a folder."""
    try:
        with LocalSource(path, _FLAGS | _NONBLOCK, regular=True) as source:
            return source._read(0, source.size)
    except FormatError as error:
        if isinstance(error, MissingFileError) or os.path.isdir(path):
            return None
        raise


def close_sources(chosen: Callable[[str], bool] | None = None) -> None:
    """Close unused cached descriptors, of chosen paths or all.

    Clears the state of remote objects if none are chosen.
    """
    if chosen is not None:
        _sources.discard_where(chosen)
        return
    _sources.clear()
    if remote := sys.modules.get("aggarray.storage.remote.objects"):
        remote.forget()
