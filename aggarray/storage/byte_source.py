"""Bytes of a file or object, by offset, wherever it lies.

`open_source` opens one for its caller alone. `shared_source` takes local files from a bounded cache of descriptors: threads and
forked processes share no file position, and a file that was replaced or changed is opened anew.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Protocol

import numpy as np

from aggarray.storage.descriptors import LocalSource, descriptors, open_local, read_whole
from aggarray.storage.descriptors import shared_source as shared_source
from aggarray.storage.ranges import Range
from aggarray.storage.remote import RemoteSource, forget, is_remote
from aggarray.storage.state import FileState, Versions


class ByteSource(Protocol):
    """An open file or object, read by offset.

    ``path``; ``size``: its bytes and ``state``: its state when it was opened; ``distant``: whether each call takes a round
    trip. Reading raises FormatError, which names file, offset and sizes, for a range outside the file and for bytes that cannot
    be read.
    """

    distant: ClassVar[bool]
    path: str
    size: int
    state: FileState

    def pread(self, count: int, offset: int) -> bytes:
        """Return bytes at an offset, fewer at the end of the file."""

    def preads(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return the bytes of several ranges (offset, count), each shorter at the end of the file."""

    def read_ranges(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Return the bytes of each range, in the order given, read-only; ranges read in one call share memory."""

    def read_into(self, offset: int, *buffers: Any) -> None:
        """Fill writable, contiguous buffers, one after the other, with the bytes from an offset on."""

    def read_each(self, offsets: Sequence[int], sizes: Sequence[int], buffer: np.ndarray) -> None:
        """Read the bytes at each offset into the beginning of a row of a contiguous uint8 buffer."""

    def check(self, state: FileState | None) -> None:
        """Raise ChangedFileError unless the file still has a state; None: any."""

    def close(self) -> None:
        """Close the source; closing it twice is harmless."""

    def __enter__(self) -> "ByteSource":
        """Return the source, closed at the end of the block."""

    def __exit__(self, *error: Any) -> None:
        """Close the source."""


#: The local file that `open_once` holds open in this thread.
_held: ContextVar[LocalSource | None] = ContextVar("aggarray_held_source", default=None)


@contextmanager
def open_once(path: str) -> Iterator[None]:
    """Open a local file at most once during a block: every `open_source` of this path shares its first descriptor.

    Changes of the file are noticed all the same: `ByteSource.check` inspects the descriptor, `stat_file` the path.
    """
    if is_remote(path) or ((held := _held.get()) is not None and held.path == path):
        yield
        return
    holder = LocalSource(path, -1, FileState(0, 0, 0))
    token = _held.set(holder)
    try:
        yield
    finally:
        _held.reset(token)
        holder.close()


def open_source(path: str) -> ByteSource:
    """Open a file or object for reading by offset.

    MissingFileError if it does not exist, FormatError or OSError if it fails.
    """
    if is_remote(path):
        return RemoteSource(path)
    held = _held.get()
    if held is None or held.path != path:
        return open_local(path)
    if held.descriptor < 0:
        with open_local(path) as source:
            held.adopt(source)
    return held.shared()


@contextmanager
def version_source(path: str, versions: Versions) -> Iterator[ByteSource]:
    """Give a source whose version is that of earlier reads in ``versions``, and note it there. Raises as `shared_source`."""
    with shared_source(path, versions.states.get(path)) as source:
        state = versions.states.setdefault(path, source.state)
        yield source
        source.check(state)


def read_ranges(path: str, ranges: Sequence[Range], state: FileState | None = None) -> list[memoryview]:
    """Return the bytes of each range (offset, size) of a file, in the order given, read-only; see `ByteSource.read_ranges`.

    ``state``: the file's state when the ranges were looked up.
    """
    with shared_source(path, state) as source:
        return source.read_ranges(ranges)


def read_into(path: str, offset: int, *buffers: Any, state: FileState | None = None) -> None:
    """Fill buffers with the bytes of a file from an offset on; see `ByteSource.read_into`."""
    with shared_source(path, state) as source:
        source.read_into(offset, *buffers)


def read_file(path: str) -> memoryview | None:
    """Return all bytes of a small local file, uncached; None if it does not exist."""
    return read_whole(path)


def close_sources() -> None:
    """Close cached descriptors that are not in use, and forget what is known of remote objects."""
    descriptors.close()
    forget()
