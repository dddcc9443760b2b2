"""How are ranges of values of a remote object read? Merged where that saves waiting, and all at once."""

from collections.abc import MutableMapping, Sequence
from typing import Any

import numpy as np

from aggarray.errors import AggarrayError, FormatError, MissingFileError
from aggarray.storage.ranges import Range, SourceState, spans
from aggarray.storage.remote.conditional import changed
from aggarray.storage.remote.objects import RemoteObject, checked_bytes, status, with_state_forgotten
from aggarray.storage.remote.requests import RangeRequest, fetch

#: Ranges with at most so many bytes between them are read by one request ...
GAP = 1 << 17
#: ... of at most so many bytes; longer ranges are read by several.
SPAN = 1 << 22


def pieces(
    paths: Sequence[str], offsets: Sequence[int], sizes: Sequence[int], tags: MutableMapping[str, str]
) -> list[memoryview | None]:
    """Return pieces of several objects, all asked for at once; size 0: all of it; None for objects that are not there.

    A piece is shorter where its object ends; those with a negative offset are in none. ``tags``: versions of objects that are
    known, to which those are added that come: ChangedFileError for an object of another one.
    """
    wishes, takers = list[RangeRequest](), list[list[int]]()
    first: dict[str, list[int]] = {}
    for number, path in enumerate(paths):
        if offsets[number] >= 0:
            first.setdefault(path, []).append(number)
    for path, numbers in first.items():
        whole = [n for n in numbers if not sizes[n]]
        wishes += [RangeRequest(path) for _ in whole]
        takers += [[n] for n in whole]
        some = [n for n in numbers if sizes[n]]
        groups = spans([(int(offsets[n]), int(sizes[n])) for n in some], GAP, SPAN)
        wishes += [RangeRequest(path, span.offset, span.size, "", tags) for span in groups]
        takers += [[some[i] for i in span.members] for span in groups]
    found: list[memoryview | None] = [None] * len(paths)
    for wish, taken, data in zip(wishes, takers, fetch(wishes), strict=True):
        if isinstance(data, MissingFileError):
            continue
        if isinstance(data, AggarrayError):
            raise with_state_forgotten(wish.uri, data)
        for n in taken:
            start = int(offsets[n]) - wish.offset
            found[n] = memoryview(data)[start : start + int(sizes[n])] if sizes[n] else memoryview(data)
    return found


class RemoteSource:
    """An object in use; ``state``: what it was like at the beginning."""

    __slots__ = ("_content", "_tags", "state", "uri")

    distant = True

    def __init__(self, uri: str, state: SourceState | None) -> None:
        found = status(uri)
        if found.folder:
            raise FormatError(f"{uri}: a folder, not a file; name a file in it")
        self.uri, self.state, self._content = uri, found.state, RemoteObject(uri, found)
        self._tags: dict[str, str] = {}
        self.check(state)

    def check(self, state: SourceState | None) -> None:
        """Raise ChangedFileError where the object is not what it should be; None: whatever it is."""
        if state is not None and self.state != state:
            raise with_state_forgotten(self.uri, changed(self.uri))

    def release(self) -> None:
        """Do nothing: connections belong to the file system."""

    def read_ranges(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Read each range, in the order given."""
        ranges = [(int(offset), int(size)) for offset, size in ranges]
        for offset, size in ranges:
            self._check(offset, size)
        found = [memoryview(b"")] * len(ranges)
        groups = spans(ranges, GAP, SPAN)
        for span, data in zip(groups, self._fetched([(s.offset, s.size) for s in groups]), strict=True):
            for i in span.members:
                offset, size = ranges[i]
                found[i] = data[offset - span.offset : offset - span.offset + size]
        return found

    def read_into(self, offset: int, *buffers: Any) -> None:
        """Fill buffers one after the other."""
        arrays = [b if isinstance(b, np.ndarray) else np.frombuffer(b, np.uint8) for b in buffers]
        if not all(a.flags.c_contiguous and a.flags.writeable for a in arrays):
            raise ValueError("the buffer to read into must be writable and contiguous")
        views = [a.reshape(-1).view(np.uint8) for a in arrays]
        offset, size = int(offset), sum(view.size for view in views)
        self._check(offset, size)
        data = np.frombuffer(self._fetched([(offset, size)])[0], np.uint8) if size else np.empty(0, np.uint8)
        for view in views:
            view[...], data = data[: view.size], data[view.size :]

    def read_each(self, offsets: Sequence[int], sizes: Sequence[int], buffer: np.ndarray) -> None:
        """Read each range into the beginning of a row of a buffer."""
        for row, data in zip(buffer, self.read_ranges(list(zip(offsets, sizes, strict=True))), strict=True):
            row[: len(data)] = data

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0:
            raise FormatError(f"{self.uri}: {size} bytes at offset {offset}: no such range; the file or its index is damaged")
        if offset + size > self.state[1]:
            wanted = f"{size} bytes at offset {offset} are wanted of {self.state[1]} bytes"
            raise FormatError(f"{self.uri}: truncated: {wanted}; fetch or upload the file again")

    def _fetched(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Return the bytes of spans: as kept, else by requests of limited length, all at once."""
        found: list[Any] = [self._content.kept(*r) for r in ranges]
        tag, wishes, owners = self._content.status.tag, list[RangeRequest](), list[int]()
        for number, (offset, size) in enumerate(ranges):
            if found[number] is None:
                for start in range(offset, offset + size, SPAN):
                    wishes.append(RangeRequest(self.uri, start, min(SPAN, offset + size - start), tag, self._tags))
                    owners.append(number)
        parts: dict[int, list[bytes]] = {}
        for owner, wish, data in zip(owners, wishes, fetch(wishes), strict=True):
            parts.setdefault(owner, []).append(checked_bytes(self.uri, wish, data, self.state[1]))
        return [memoryview(b"".join(parts[n]) if f is None else f) for n, f in enumerate(found)]
