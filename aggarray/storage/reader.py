"""How do byte ranges of a stored object get into memory?

`read_ranges` and `read_into` read from a file without moving a position that threads or forked processes would share.
Neighbouring ranges are read in one call. Descriptors are kept in a bounded cache; a file that was replaced or changed is
opened anew. Objects elsewhere than in a local file are another `RangeReader`: `aggarray.storage.remote`.
"""

import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np

from aggarray.errors import AggarrayError, ChangedFileError, FormatError, MissingFileError
from aggarray.options import get_options
from aggarray.storage.ranges import Range as Range
from aggarray.storage.ranges import SourceState, Span, Versions
from aggarray.storage.ranges import spans as together
from aggarray.storage.remote import RemoteSource, forget, is_remote

#: Ranges with at most so many bytes between them are read in one call ...
GAP = 1 << 16
#: ... of at most so many bytes, but for a range that is longer itself.
SPAN = 1 << 24

#: So many buffers at most are filled by one call.
_VECTOR = 256


class RangeReader(Protocol):
    """An open object of bytes; ``distant``: whether each call takes its time, however little it reads."""

    distant: bool

    @property
    def state(self) -> SourceState:
        """What the object was like when this use of it began."""

    def check(self, state: SourceState | None) -> None:
        """Raise ChangedFileError where the object is not, or no longer, what it should be; None: whatever it is."""

    def read_ranges(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Do what `read_ranges` does."""

    def read_into(self, offset: int, *buffers: Any) -> None:
        """Do what `read_into` does."""

    def read_each(self, offsets: Sequence[int], sizes: Sequence[int], buffer: np.ndarray) -> None:
        """Read so many bytes at each offset into the beginning of a row of a buffer: uint8, contiguous."""


def spans(ranges: Sequence[Range]) -> list[Span]:
    """Return what to read of a local file for ranges in any order: `aggarray.storage.ranges.spans`."""
    return together(ranges, GAP, SPAN)


def read_ranges(uri: str, ranges: Sequence[Range], state: SourceState | None = None) -> list[memoryview]:
    """Return the bytes of each range (offset, size) of a file, in the order given, read-only.

    ``state``: what the file was like when the ranges were looked up. Ranges that were read in one call share memory, which
    lives as long as one of them. MissingFileError for a file that is not there; FormatError, naming file, offset and sizes,
    for a range that does not lie in it (the file is truncated, or the range is wrong), for a file that has changed, or
    cannot be read.
    """
    source = _taken(uri, state)
    try:
        found = source.read_ranges(ranges)
        source.check(state)
        return found
    finally:
        source.release()


def read_into(uri: str, offset: int, *buffers: Any, state: SourceState | None = None) -> None:
    """Fill writable, contiguous buffers, such as arrays of any dtype, one after the other with the bytes from ``offset`` on.

    Raises what `read_ranges` does, and ValueError for other buffers.
    """
    with opened(uri, state) as source:
        source.read_into(offset, *buffers)


def read_file(path: str) -> memoryview | None:
    """Return all bytes of one of many small local files, each of which is read once; None where there is no such file."""
    try:
        descriptor = os.open(path, _HOW | _AT_ONCE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise _unopened(path, error) from error
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            return None
        state = _state_in(path, status)
        return _LocalReader(_Lease(path, descriptor, state))._read(Span(0, state[1], ()))
    finally:
        os.close(descriptor)


@contextmanager
def opened(uri: str, state: SourceState | None = None) -> Iterator[RangeReader]:
    """Give an object for several reads; its ``state`` tells whether it is what it was. Raises what `read_ranges` does."""
    source = _taken(uri, state)
    try:
        yield source
        source.check(state)
    finally:
        source.release()


@contextmanager
def opened_as(uri: str, versions: Versions) -> Iterator[RangeReader]:
    """Give an object that is what it was when the same read met it first, and note that. Raises what `read_ranges` does."""
    source = _taken(uri, versions.states.get(uri))
    try:
        state = versions.states.setdefault(uri, source.state)
        yield source
        source.check(state)
    finally:
        source.release()


def _taken(uri: str, state: SourceState | None) -> "_LocalReader | RemoteSource":
    """Return an object for several reads, to be released."""
    if is_remote(uri):
        return RemoteSource(uri, state)
    return _LocalReader(_descriptors.take(uri, state))


def close_sources() -> None:
    """Close the descriptors kept for later reads, but for those being read, and forget what is known of remote objects."""
    _descriptors.close()
    forget()


class _LocalReader:
    """A file in use: its path, a descriptor that stays open meanwhile, what the file was like at the beginning."""

    __slots__ = ("_lease", "descriptor", "path", "state")

    distant = False

    def __init__(self, lease: "_Lease") -> None:
        self._lease = lease
        self.path, self.descriptor, self.state = lease.path, lease.descriptor, lease.state

    def check(self, state: SourceState | None) -> None:
        """Raise ChangedFileError where the file is not, or no longer, what it should be; None: whatever it is."""
        # promise: changed-during-read
        if state is not None and _state_of(self.path, self.descriptor) != state:
            raise ChangedFileError(f"{self.path}: changed while it was read: read it again, or open the files anew")

    def release(self) -> None:
        """Let go of the descriptor."""
        _descriptors.give_back(self._lease)

    def read_ranges(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Read each span by one call."""
        if any(type(number) is not int for number in ranges[0]) if ranges else False:
            ranges = [(int(offset), int(size)) for offset, size in ranges]
        low, high = (min(r[0] for r in ranges), max(map(sum, ranges))) if ranges else (0, 0)
        if low < 0 or high > self.state[1] or min((r[1] for r in ranges), default=0) < 0:
            for offset, size in ranges:
                self._check(offset, size)
        if 0 < high - low <= min(SPAN, sum(r[1] for r in ranges) + GAP):
            # Hardly anything lies between them: the usual case, for which they need not be sorted.
            data = self._read(Span(low, high - low, ()))
            return [data[offset - low : offset - low + size] for offset, size in ranges]
        found = [memoryview(b"")] * len(ranges)
        for span in spans(ranges):
            data = self._read(span)
            for i in span.members:
                offset, size = ranges[i]
                found[i] = data[offset - span.offset : offset - span.offset + size]
        return found

    def read_into(self, offset: int, *buffers: Any) -> None:
        """Read into the buffers themselves, all by one call."""
        views = [_bytes_of(buffer) for buffer in buffers]
        offset, size = int(offset), sum(view.size for view in views)
        self._check(offset, size)
        done = 0
        if 1 < len(views) <= _VECTOR and size <= SPAN and hasattr(os, "preadv"):
            try:
                done = os.preadv(self.descriptor, [view.data for view in views], offset)
            except OSError as error:
                raise self._unread(error) from error
        for view in views:
            if done < view.size:
                # Cut short, or not begun.
                self._fill(offset + done, view.data[done:])
            offset, done = offset + view.size, max(0, done - view.size)

    def read_each(self, offsets: Sequence[int], sizes: Sequence[int], buffer: np.ndarray) -> None:
        """Read each range by a call of its own, without anything else that takes time."""
        for offset, size in zip(offsets, sizes, strict=True):
            self._check(offset, size)
        views, width, file = buffer.reshape(-1).data, buffer.shape[1], self.descriptor
        for row, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
            view = views[row * width : row * width + size]
            try:
                done = _read_at(file, view, offset)
            except OSError as error:
                raise self._unread(error) from error
            if done < size:
                self._fill(offset + done, view[done:])

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0:
            raise FormatError(f"{self.path}: {size} bytes at offset {offset}: no such range; the file or its index is damaged")
        if size and offset + size > self.state[1]:
            raise self._truncated(offset, size, self.state[1])

    def _truncated(self, offset: int, size: int, there: int) -> FormatError:
        wanted = f"{size} bytes at offset {offset} are wanted of {there} bytes"
        return FormatError(f"{self.path}: truncated: {wanted}; fetch or write the file again")

    def _read(self, span: Span) -> memoryview:
        if span.size <= SPAN:
            try:
                data = os.pread(self.descriptor, span.size, span.offset)
            except OSError as error:
                raise self._unread(error) from error
            if len(data) == span.size:
                return memoryview(data)
        # Longer than a call may be, or cut short by a signal or a file that shrinks.
        whole = np.empty(span.size, np.uint8)
        self._fill(span.offset, whole.data)
        return whole.data.toreadonly()

    def _fill(self, offset: int, view: memoryview) -> None:
        done = 0
        while done < len(view):
            try:
                count = _read_at(self.descriptor, view[done:], offset + done)
            except OSError as error:
                raise self._unread(error) from error
            if not count:
                raise self._truncated(offset, len(view), offset + done)
            done += count

    def _unread(self, error: OSError) -> FormatError:
        return FormatError(f"{self.path}: cannot be read: {error.strerror or error}; check the disk")


def _read_at(descriptor: int, view: memoryview, offset: int) -> int:
    """Read some bytes at an offset into a buffer, and return how many."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [view], offset)
    data = os.pread(descriptor, min(len(view), SPAN), offset)
    view[: len(data)] = data
    return len(data)


def _bytes_of(buffer: Any) -> np.ndarray:
    """Return a writable buffer as uint8 of one dimension, its memory shared."""
    array = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError("the buffer to read into must be writable and contiguous")
    return array.reshape(-1).view(np.uint8)


@dataclass(slots=True, eq=False)
class _Lease:
    path: str
    descriptor: int
    state: SourceState
    users: int = 1
    kept: bool = True


class Descriptors:
    """A bounded cache of descriptors: the least recently used one that nobody reads is closed first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: OrderedDict[str, _Lease] = OrderedDict()
        self._registered = False

    def take(self, path: str, known: SourceState | None = None) -> _Lease:
        """Return a descriptor of the file as it is now, to be given back; MissingFileError or FormatError.

        ``known``: what it was like just before; who asks finds out whether that is still so.
        """
        state = known or _state_of(path, path)
        with self._lock:
            lease = self._leases.get(path)
            if lease is not None and lease.state == state:
                self._leases.move_to_end(path)
                lease.users += 1
                return lease
        try:
            descriptor = os.open(path, _HOW)
        except (OSError, ValueError) as error:
            raise _unopened(path, error) from error
        try:
            # It may have been replaced since: what was opened counts.
            lease = _Lease(path, descriptor, _state_of(path, descriptor))
        except FormatError:
            os.close(descriptor)
            raise
        with self._lock:
            self._survive_forks()
            # Another thread may have opened it at the same time: the later one is kept.
            self._drop(self._leases.pop(path, None))
            self._leases[path] = lease
            self._shrink()
        return lease

    def give_back(self, lease: _Lease) -> None:
        """Say that a lease is no longer read."""
        with self._lock:
            lease.users -= 1
            if not lease.users and not lease.kept:
                os.close(lease.descriptor)
            if len(self._leases) > get_options().open_files:
                self._shrink()

    def close(self) -> None:
        """Close whatever nobody reads; the rest closes with its last reader."""
        with self._lock:
            while self._leases:
                self._drop(self._leases.popitem()[1])

    def _shrink(self) -> None:
        surplus = len(self._leases) - get_options().open_files
        if surplus > 0:
            idle = (path for path, lease in self._leases.items() if not lease.users)
            for path in list(islice(idle, surplus)):
                self._drop(self._leases.pop(path))

    def _drop(self, lease: _Lease | None) -> None:
        if lease is not None:
            lease.kept = False
            if not lease.users:
                os.close(lease.descriptor)

    def _survive_forks(self) -> None:
        if not self._registered and hasattr(os, "register_at_fork"):
            # promise: descriptors-lock-fork
            os.register_at_fork(after_in_child=self._forked)
        self._registered = True

    def _forked(self) -> None:
        """Carry on in a child: its descriptors are its own; the other readers and who held the lock stayed in the parent."""
        self._lock = threading.Lock()
        # What is being read may be read by the thread that forked: it closes that, or nobody does.
        for path in [p for p, lease in self._leases.items() if lease.users]:
            self._drop(self._leases.pop(path))


_HOW = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
#: Opening a pipe would wait for its other end.
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)


def _state_of(path: str, opened: str | int) -> SourceState:
    """Return what a file is like, by its path or its descriptor; MissingFileError or FormatError."""
    try:
        status = os.stat(opened)
    except (OSError, ValueError) as error:
        raise _unopened(path, error) from error
    return _state_in(path, status)


def _state_in(path: str, status: os.stat_result) -> SourceState:
    if not stat.S_ISREG(status.st_mode):
        raise FormatError(f"{path}: not a file; check the path")
    return status.st_mtime_ns, status.st_size, status.st_ino


def _unopened(path: str, error: OSError | ValueError) -> AggarrayError:
    """Return the error of a file that does not open, which names it and says what to do."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return MissingFileError(f"{path}: no such file; restore it, or open with missing='fill'")
    # A null character in the path is a ValueError.
    return FormatError(f"{path}: cannot be opened: {getattr(error, 'strerror', None) or error}; check its permissions")


_descriptors = Descriptors()
