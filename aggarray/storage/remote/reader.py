"""Byte ranges of remote objects: neighbouring ranges are merged, and all are requested concurrently."""

from collections.abc import MutableMapping, Sequence
from typing import Any, ClassVar

import numpy as np

from aggarray.errors import AggarrayError, FormatError, MissingFileError
from aggarray.storage.ranges import Range, bytes_of, cut_span, merge_ranges
from aggarray.storage.remote.conditional import changed
from aggarray.storage.remote.objects import RemoteObject, checked_bytes, status, with_state_forgotten
from aggarray.storage.remote.requests import RangeRequest, fetch
from aggarray.storage.state import FileState

#: Largest gap in bytes between ranges that are read by one request.
GAP = 1 << 17
#: Largest request in bytes; longer ranges are read by several.
SPAN = 1 << 22


def read_pieces(
    paths: Sequence[str], offsets: Sequence[int], sizes: Sequence[int], tags: MutableMapping[str, str]
) -> list[memoryview | None]:
    """Return pieces of several objects, requested concurrently; size 0: the whole object; None for objects that do not exist.

    A piece is shorter where its object ends; a negative offset gives None. ``tags``: known versions of objects, extended by
    those of the answers. ChangedFileError for an object of another version.
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
        requests += [RangeRequest(path, span.offset, span.size, "", tags) for span in spans]
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
    """An open remote object; see `byte_source.ByteSource`."""

    __slots__ = ("_object", "_tags", "path", "size", "state")

    distant: ClassVar[bool] = True

    def __init__(self, path: str) -> None:
        known = status(path)
        if known.folder:
            raise FormatError("a folder, not a file", path=path, hint="name a file in it")
        self.path, self.state, self.size, self._object = path, known.state, known.size, RemoteObject(path, known)
        self._tags: dict[str, str] = {}

    def check(self, state: FileState | None) -> None:
        """Raise ChangedFileError unless the object has a state; None: any."""
        if state is not None and self.state != state:
            raise with_state_forgotten(self.path, changed(self.path))

    def pread(self, count: int, offset: int) -> bytes:
        """Return bytes at an offset, fewer at the end of the object; blocks around them are cached."""
        return self._object.pread(count, offset)

    def preads(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return the bytes of several ranges (offset, count), each shorter at the end of the object."""
        return self._object.preads(ranges)

    def read_ranges(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Read merged ranges concurrently."""
        ranges = [(int(offset), int(size)) for offset, size in ranges]
        for offset, size in ranges:
            self._check_range(offset, size)
        out = [memoryview(b"")] * len(ranges)
        spans = merge_ranges(ranges, GAP, SPAN)
        for span, data in zip(spans, self._fetched([(s.offset, s.size) for s in spans]), strict=True):
            cut_span(span, data, ranges, out)
        return out

    def read_into(self, offset: int, *buffers: Any) -> None:
        """Fill buffers one after the other."""
        views = [bytes_of(buffer) for buffer in buffers]
        offset, size = int(offset), sum(view.size for view in views)
        self._check_range(offset, size)
        data = np.frombuffer(self._fetched([(offset, size)])[0], np.uint8) if size else np.empty(0, np.uint8)
        for view in views:
            view[...], data = data[: view.size], data[view.size :]

    def read_each(self, offsets: Sequence[int], sizes: Sequence[int], buffer: np.ndarray) -> None:
        """Read each range into the beginning of a row of a buffer."""
        for row, data in zip(buffer, self.read_ranges(list(zip(offsets, sizes, strict=True))), strict=True):
            row[: len(data)] = data

    def close(self) -> None:
        """Do nothing: connections belong to the file system."""

    def __enter__(self) -> "RemoteSource":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _check_range(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0:
            what = f"{size} bytes at offset {offset}: no such range"
            raise FormatError(what, path=self.path, hint="the file or its index is damaged")
        if offset + size > self.size:
            what = f"truncated: {size} bytes at offset {offset} are wanted of {self.size} bytes"
            raise FormatError(what, path=self.path, hint="fetch or upload the file again")

    def _fetched(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Return the bytes of spans: cached ones, the others by requests of limited length, all at once."""
        cached: list[Any] = [self._object.kept(*r) for r in ranges]
        tag, requests, owners = self._object.status.tag, list[RangeRequest](), list[int]()
        for number, (offset, size) in enumerate(ranges):
            if cached[number] is None:
                for start in range(offset, offset + size, SPAN):
                    requests.append(RangeRequest(self.path, start, min(SPAN, offset + size - start), tag, self._tags))
                    owners.append(number)
        parts: dict[int, list[bytes]] = {}
        for owner, request, data in zip(owners, requests, fetch(requests), strict=True):
            parts.setdefault(owner, []).append(checked_bytes(self.path, request, data, self.size))
        return [memoryview(b"".join(parts[n]) if block is None else block) for n, block in enumerate(cached)]
