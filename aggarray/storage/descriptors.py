"""Open local files, the bounded cache of their descriptors, and states and shared sources of files wherever they lie."""

import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from aggarray.errors import AggarrayError, ChangedFileError, FormatError, MissingFileError
from aggarray.options import get_options
from aggarray.storage.ranges import Range, bytes_of, cut_span, merge_ranges
from aggarray.storage.remote import RemoteSource, is_remote, status
from aggarray.storage.state import FileState

#: Largest gap in bytes between ranges that are read in one call.
GAP = 1 << 16
#: Largest call in bytes, unless a single range is longer.
SPAN = 1 << 24
#: Buffers filled by one call.
_VECTOR = 256
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
#: Opening a pipe would wait for its other end.
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)


class LocalSource:
    """An open local file; see `byte_source.ByteSource`. ``users`` and ``cached`` belong to `Descriptors`."""

    __slots__ = ("cached", "descriptor", "path", "size", "state", "users")

    distant: ClassVar[bool] = False

    def __init__(self, path: str, descriptor: int, state: FileState) -> None:
        self.path, self.descriptor, self.state, self.size = path, descriptor, state, state.size
        self.users, self.cached = 1, False

    def check(self, state: FileState | None) -> None:
        """Raise ChangedFileError unless the file still has a state; None: any."""
        # promise: changed-during-read
        if state is not None and _state_of(self.path, self.descriptor) != state:
            raise ChangedFileError("changed while it was read", path=self.path, hint="read it again, or open the files anew")

    def pread(self, count: int, offset: int) -> bytes:
        """Return bytes at an offset, fewer at the end of the file, where a system call may return fewer as well."""
        return os.pread(self.descriptor, count, offset)

    def preads(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return the bytes of several ranges (offset, count), each shorter at the end of the file."""
        return [os.pread(self.descriptor, count, offset) for offset, count in ranges]

    def read_ranges(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Read each span of neighbouring ranges in one call."""
        if any(type(number) is not int for number in ranges[0]) if ranges else False:
            ranges = [(int(offset), int(size)) for offset, size in ranges]
        low, high = (min(r[0] for r in ranges), max(map(sum, ranges))) if ranges else (0, 0)
        if low < 0 or high > self.size or min((r[1] for r in ranges), default=0) < 0:
            for offset, size in ranges:
                self._check_range(offset, size)
        if 0 < high - low <= min(SPAN, sum(r[1] for r in ranges) + GAP):
            # The usual case: hardly anything lies between the ranges, which need not be sorted.
            data = self._read(low, high - low)
            return [data[offset - low : offset - low + size] for offset, size in ranges]
        out = [memoryview(b"")] * len(ranges)
        for span in merge_ranges(ranges, GAP, SPAN):
            cut_span(span, self._read(span.offset, span.size), ranges, out)
        return out

    def read_into(self, offset: int, *buffers: Any) -> None:
        """Fill buffers directly, all in one call."""
        views = [bytes_of(buffer) for buffer in buffers]
        offset, size = int(offset), sum(view.size for view in views)
        self._check_range(offset, size)
        done = 0
        if 1 < len(views) <= _VECTOR and size <= SPAN and hasattr(os, "preadv"):
            try:
                done = os.preadv(self.descriptor, [view.data for view in views], offset)
            except OSError as error:
                raise self._unreadable(error) from error
        for view in views:
            if done < view.size:
                # Truncated, or not begun.
                self._fill(offset + done, view.data[done:])
            offset, done = offset + view.size, max(0, done - view.size)

    def read_each(self, offsets: Sequence[int], sizes: Sequence[int], buffer: np.ndarray) -> None:
        """Read each range in a call of its own, with as little overhead as possible."""
        for offset, size in zip(offsets, sizes, strict=True):
            self._check_range(offset, size)
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
        """Close the descriptor unless it is cached or held elsewhere; closing it twice is harmless."""
        if self.cached:
            return
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def adopt(self, source: "LocalSource") -> None:
        """Take over the descriptor of a source of the same file."""
        self.descriptor, self.state, self.size = source.descriptor, source.state, source.size
        source.descriptor = -1

    def shared(self) -> "LocalSource":
        """Return a source that reads through this one's descriptor, which it does not close."""
        source = LocalSource(self.path, self.descriptor, self.state)
        source.cached = True
        return source

    def __enter__(self) -> "LocalSource":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if os is not None and not self.cached:  # modules may be gone when the interpreter exits
            self.close()

    def _check_range(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0:
            what = f"{size} bytes at offset {offset}: no such range"
            raise FormatError(what, path=self.path, hint="the file or its index is damaged")
        if size and offset + size > self.size:
            raise self._truncated(offset, size, self.size)

    def _truncated(self, offset: int, size: int, there: int) -> FormatError:
        what = f"truncated: {size} bytes at offset {offset} are wanted of {there} bytes"
        return FormatError(what, path=self.path, hint="fetch or write the file again")

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
                raise self._truncated(offset, len(view), offset + done)
            done += count

    def _unreadable(self, error: OSError) -> FormatError:
        return FormatError(f"cannot be read: {error.strerror or error}", path=self.path, hint="check the disk")


class Descriptors:
    """Bounded cache of open files: evicts the least recently used one that is not being read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: OrderedDict[str, LocalSource] = OrderedDict()
        self._registered = False

    def take(self, path: str, known: FileState | None = None) -> LocalSource:
        """Return the file as it is now, to be given back. MissingFileError or FormatError.

        ``known``: its state just before; the caller checks whether that still holds.
        """
        state = known or _state_of(path, path)
        with self._lock:
            source = self._sources.get(path)
            if source is not None and source.state == state:
                self._sources.move_to_end(path)
                source.users += 1
                return source
        # The file may have been replaced since: the state of the open one counts.
        source = _opened(path, _FLAGS)
        with self._lock:
            self._register_fork()
            # Another thread may have opened it at the same time: the later one is cached.
            self._drop(self._sources.pop(path, None))
            self._sources[path] = source
            source.cached = True
            self._shrink()
        return source

    def give_back(self, source: LocalSource) -> None:
        """End one use of a source."""
        with self._lock:
            source.users -= 1
            if not source.users and not source.cached:
                source.close()
            if len(self._sources) > get_options().open_files:
                self._shrink()

    def close(self) -> None:
        """Close every source not in use; the others close with their last user."""
        with self._lock:
            while self._sources:
                self._drop(self._sources.popitem()[1])

    def _shrink(self) -> None:
        surplus = len(self._sources) - get_options().open_files
        if surplus > 0:
            idle = (path for path, source in self._sources.items() if not source.users)
            for path in list(islice(idle, surplus)):
                self._drop(self._sources.pop(path))

    def _drop(self, source: LocalSource | None) -> None:
        if source is not None:
            source.cached = False
            if not source.users:
                source.close()

    def _register_fork(self) -> None:
        if not self._registered and hasattr(os, "register_at_fork"):
            # promise: descriptors-lock-fork
            os.register_at_fork(after_in_child=self._forked)
        self._registered = True

    def _forked(self) -> None:
        """Continue in a child: its descriptors are its own; other threads stayed in the parent, one may have held the lock."""
        self._lock = threading.Lock()
        # A source in use may be in use by the thread that forked, which closes it.
        for path in [path for path, source in self._sources.items() if source.users]:
            self._drop(self._sources.pop(path))


def open_local(path: str) -> LocalSource:
    """Open a local file, uncached. MissingFileError if it does not exist, OSError if it cannot be opened."""
    try:
        descriptor = os.open(path, _FLAGS)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise missing_file(path) from error
    return LocalSource(path, descriptor, state_from(os.fstat(descriptor)))


def read_whole(path: str) -> memoryview | None:
    """Return all bytes of a small file, uncached; None if it does not exist or is a folder."""
    try:
        source = _opened(path, _FLAGS | _NONBLOCK)
    except MissingFileError:
        return None
    except FormatError:
        if os.path.isdir(path):
            return None
        raise
    with source:
        return source._read(0, source.size)


def stat_file(path: str) -> FileState:
    """Return the state of a file. MissingFileError if it does not exist, OSError if it cannot be inspected."""
    if is_remote(path):
        return status(path).state
    try:
        return state_from(os.stat(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        # promise: file-vanishes
        raise missing_file(path) from error


def state_from(found: os.stat_result) -> FileState:
    """Return the state of a file or folder from its status."""
    return FileState(found.st_mtime_ns, found.st_size, found.st_ino, stat.S_ISDIR(found.st_mode))


def missing_file(path: str) -> MissingFileError:
    """Return the error of a path without a file."""
    return MissingFileError("no such file or folder", path=path, hint="check the path")


def _opened(path: str, flags: int) -> LocalSource:
    """Open a regular file. MissingFileError or FormatError."""
    try:
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        raise _unopened(path, error) from error
    try:
        return LocalSource(path, descriptor, _state_of(path, descriptor))
    except FormatError:
        os.close(descriptor)
        raise


def _state_of(path: str, opened: str | int) -> FileState:
    """Return the state of a regular file, by its path or descriptor. MissingFileError or FormatError."""
    try:
        found = os.stat(opened)
    except (OSError, ValueError) as error:
        raise _unopened(path, error) from error
    if not stat.S_ISREG(found.st_mode):
        raise FormatError("not a file", path=path, hint="check the path")
    return FileState(found.st_mtime_ns, found.st_size, found.st_ino)


def _unopened(path: str, error: OSError | ValueError) -> AggarrayError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return MissingFileError("no such file", path=path, hint="restore it, or open with missing='fill'")
    # A null byte in the path is a ValueError.
    reason = getattr(error, "strerror", None) or error
    return FormatError(f"cannot be opened: {reason}", path=path, hint="check its permissions")


def _read_at(descriptor: int, view: memoryview, offset: int) -> int:
    """Read some bytes at an offset into a buffer; return how many."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [view], offset)
    data = os.pread(descriptor, min(len(view), SPAN), offset)
    view[: len(data)] = data
    return len(data)


descriptors = Descriptors()


@contextmanager
def shared_source(path: str, state: FileState | None = None) -> Iterator[LocalSource | RemoteSource]:
    """Give a source for several reads; afterwards its state must be ``state``, unless that is None.

    Raises MissingFileError, and FormatError for a file that has changed or cannot be read.
    """
    if is_remote(path):
        remote = RemoteSource(path)
        remote.check(state)
        yield remote
        remote.check(state)
        return
    source = descriptors.take(path, state)
    try:
        yield source
        source.check(state)
    finally:
        descriptors.give_back(source)
