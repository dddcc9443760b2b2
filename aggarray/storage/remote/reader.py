"""Byte ranges of remote objects, merged and requested concurrently.

Blocks of metadata are cached, values are not.
"""

from __future__ import annotations

import io
from collections.abc import MutableMapping, Sequence
from typing import Any, ClassVar

import numpy as np

from aggarray.errors import AggarrayError, FormatError, MissingFileError
from aggarray.garbage import pause_garbage_collection
from aggarray.storage.credentials import access_in_force
from aggarray.storage.ranges import Range, bytes_of, check_range, cut_span, merge_ranges
from aggarray.storage.remote import filesystems
from aggarray.storage.remote.conditional import ExpectedVersion
from aggarray.storage.remote.objects import blocks, checked_bytes, status, with_state_forgotten
from aggarray.storage.remote.requests import RangeRequest, fetch
from aggarray.storage.state import FileState, changed

#: Largest gap in bytes between ranges that are read by one request.
GAP = 1 << 17
#: Largest request in bytes; longer ranges are read by several.
SPAN = 1 << 22
#: Bytes of a cached block; blocks read ahead for libraries, and their bytes.
BLOCK, AHEAD = 1 << 16, 16
READY = AHEAD * BLOCK


def fetch_pieces(
    paths: Sequence[str], offsets: Sequence[int], sizes: Sequence[int], tags: MutableMapping[str, str]
) -> list[memoryview | None]:
    """Return pieces of several objects, requested concurrently.

    Size 0: the whole object. None for a missing object or a negative offset. A piece is shorter where its object ends.
    ``tags``: known versions, extended by those of the answers. Raises ChangedFileError for another version.
    """
    requests, members = list[RangeRequest](), list[list[int]]()
    by_path: dict[str, list[int]] = {}
    for number, path in enumerate(paths):
        if offsets[number] >= 0:
            by_path.setdefault(path, []).append(number)
    for path, numbers in by_path.items():
        complete = [n for n in numbers if not sizes[n]]
        requests += [RangeRequest(path) for _ in complete]
        members += [[n] for n in complete]
        partial = [n for n in numbers if sizes[n]]
        spans = merge_ranges([(int(offsets[n]), int(sizes[n])) for n in partial], GAP, SPAN)
        requests += [RangeRequest(path, span.offset, span.size, ExpectedVersion("", tags)) for span in spans]
        members += [[partial[i] for i in span.members] for span in spans]
    pieces: list[memoryview | None] = [None] * len(paths)
    for request, numbers, data in zip(requests, members, fetch(requests), strict=True):
        if isinstance(data, MissingFileError):
            continue
        if isinstance(data, AggarrayError):
            raise with_state_forgotten(request.uri, data)
        for n in numbers:
            start = int(offsets[n]) - request.offset
            pieces[n] = memoryview(data)[start : start + int(sizes[n])] if sizes[n] else memoryview(data)
    return pieces


class RemoteSource:
    """An open remote object, with the methods of `byte_source.LocalSource`.

    ``ahead``: minimum number of blocks that `pread` fetches.
    """

    __slots__ = ("_ahead", "_expected", "_version", "path", "size", "state")

    distant: ClassVar[bool] = True

    def __init__(self, path: str, ahead: int = 1) -> None:
        known = status(path)
        if known.folder:
            hint = f"name the files in it, or a pattern such as {path.rstrip('/')}/*.nc"
            raise FormatError("a folder, not a file", path=path, hint=hint)
        self.path, self.state, self.size, self._ahead = path, known.state, known.size, ahead
        self._version, self._expected = (path, known, access_in_force.get()), ExpectedVersion(known.tag, {})

    def check(self, state: FileState | None) -> None:
        """Raise ChangedFileError unless the object has a state; None: any."""
        if state is not None and self.state != state:
            raise with_state_forgotten(self.path, changed(self.path))

    def pread(self, count: int, offset: int) -> bytes:
        """Return bytes at an offset, fewer at the end; cache the blocks around."""
        return self.preads([(offset, count)])[0]

    def preads(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return the bytes of ranges; request uncached blocks concurrently."""
        limits = [(offset, min(offset + count, self.size)) for offset, count in ranges]
        content = {n: blocks.get((self._version, n)) for limit in limits for n in _blocks_of(*limit)}
        missing = {n for n, block in content.items() if block is None}
        if missing:
            missing.update(range(min(missing), min(min(missing) + self._ahead, -(-self.size // BLOCK))))
            content |= self._fetch_blocks(sorted(missing))
        joined = [b"".join(content[n] for n in _blocks_of(*limit)) for limit in limits]
        return [data[start % BLOCK : start % BLOCK + end - start] for data, (start, end) in zip(joined, limits, strict=True)]

    def _fetch_blocks(self, numbers: Sequence[int]) -> dict[int, bytes]:
        spans = merge_ranges([(n * BLOCK, min(BLOCK, self.size - n * BLOCK)) for n in numbers], 0, self.size)
        requests = [RangeRequest(self.path, span.offset, span.size, ExpectedVersion(self._expected.tag)) for span in spans]
        content = {}
        for request, data in zip(requests, fetch(requests), strict=True):
            data = checked_bytes(self.path, request, data, self.size)
            for start in range(0, len(data), BLOCK):
                number = (request.offset + start) // BLOCK
                content[number] = data[start : start + BLOCK]
                blocks.keep((self._version, number), content[number])
        return content

    def read_ranges(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Read merged ranges concurrently."""
        ranges = [(int(offset), int(size)) for offset, size in ranges]
        for offset, size in ranges:
            check_range(self.path, offset, size, self.size)
        out = [memoryview(b"")] * len(ranges)
        spans = merge_ranges(ranges, GAP, SPAN)
        requests, owners = list[RangeRequest](), list[int]()
        cached: list[bytes | None] = []
        for number, span in enumerate(spans):
            kept = [blocks.get((self._version, n)) for n in _blocks_of(span.offset, span.offset + span.size)]
            within = span.offset % BLOCK
            cached.append(None if None in kept else b"".join(kept)[within : within + span.size])
            # Spans that are not cached come by requests of limited length, all at once.
            for start in range(span.offset, span.offset + span.size if cached[number] is None else 0, SPAN):
                requests.append(RangeRequest(self.path, start, min(SPAN, span.offset + span.size - start), self._expected))
                owners.append(number)
        parts: dict[int, list[bytes]] = {}
        for owner, request, data in zip(owners, requests, fetch(requests), strict=True):
            parts.setdefault(owner, []).append(checked_bytes(self.path, request, data, self.size))
        for number, span in enumerate(spans):
            content = cached[number]
            cut_span(span, memoryview(b"".join(parts[number]) if content is None else content), ranges, out)
        return out

    def read_into(self, offset: int, buffer: Any) -> None:
        """Fill a writable, contiguous buffer with the bytes from an offset on."""
        view = bytes_of(buffer)
        view[...] = np.frombuffer(self.read_ranges([(offset, view.size)])[0], np.uint8)

    def read_each(self, offsets: Sequence[int], sizes: Sequence[int], buffer: np.ndarray) -> None:
        """Read each range into the beginning of a row of a buffer."""
        for row, data in zip(buffer, self.read_ranges(list(zip(offsets, sizes, strict=True))), strict=True):
            row[: len(data)] = data

    def close(self) -> None:
        """Do nothing: connections belong to the file system."""

    def __enter__(self) -> RemoteSource:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


def _blocks_of(start: int, end: int) -> range:
    return range(start // BLOCK, -(-end // BLOCK)) if end > start else range(0)


class ObjectFile(io.RawIOBase):
    """A remote object as a Python file, for libraries."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self._content, self._at = RemoteSource(uri, AHEAD), 0
        #: Libraries recognise compressed tar archives by the suffix.
        self.path = uri.partition("?")[0]

    @property
    def state(self) -> FileState:
        """The state of the object when it was opened."""
        return self._content.state

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
        # Freeing h5py objects would wait for its lock, which the reader of such a file holds (so there is one at a time),
        # and the reader for the fetching thread.
        with pause_garbage_collection():
            data = self._content.pread(len(view), self._at)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


filesystems.open_archive = ObjectFile
