"""Bytes of an HDF5 file by address, checksums, and errors."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from aggarray.errors import LIBRARY_ERRORS, FormatError
from aggarray.formats.hdf5.metadata.checksum import lookup3
from aggarray.storage.byte_source import GAP, SPAN, ByteSource
from aggarray.storage.ranges import Range, merge_ranges

#: Number of bytes that are read at the beginning of a file, which usually hold all metadata.
HEAD = 1 << 16
#: Smallest number of bytes that are read elsewhere.
PAGE = 1 << 13
#: Limit on the bytes read from one file: absolute, as a multiple of its size, and the cost of each read. Valid files stay far
#: below it, because each of their structures is read once or a few times.
MOST, _TIMES, _CALL = 1 << 26, 16, 256

#: Default of half the number of entries of a full node of chunks in a B-tree of version 1; nodes of groups have fewer.
HALF = 32

#: Number of pages in the cache.
_LATEST = 32

#: Parsed blocks up to this size are cached.
KEPT_BYTES = 1 << 12

#: The undefined address.
UNDEFINED = (1 << 64) - 1


class UnsupportedError(Exception):
    """A file or structure that only the library can read."""


class InvalidError(UnsupportedError):
    """A structure that is invalid and may crash the library."""


class DamagedError(InvalidError):
    """A structure for which the library would return wrong values."""


#: Exceptions raised for a file that only the library can read.
UNREADABLE = (UnsupportedError, *LIBRARY_ERRORS)


def refuse(error: BaseException, path: str, variable: str | None = None) -> None:
    """Raise FormatError if the library would silently return wrong values."""
    # promise: hdf5-unreachable-chunks
    if isinstance(error, DamagedError):
        raise FormatError(f"damaged: {error}", path=path, variable=variable, hint="restore the file") from error


def is_invalid(error: BaseException) -> bool:
    """Return whether one of `UNREADABLE` means damage."""
    return isinstance(error, InvalidError) or not isinstance(error, UnsupportedError | OSError | UnicodeDecodeError)


class Data:
    """Bytes of an open file by address, with a cache of the latest pages.

    ``base``: offset in the file from which addresses count; ``size``: number of bytes from there on; ``half``: half the number
    of entries of a full node of a B-tree of version 1; ``page_size``: bytes of a page, 0 unless the file is paged;
    ``collections``: collections of the global heap that were read.
    """

    __slots__ = ("_file", "_head", "_left", "_pages", "base", "collections", "half", "page_size", "size")

    def __init__(self, file: ByteSource):
        self._file = file
        self._pages: deque[tuple[int, bytes]] = deque(maxlen=_LATEST)
        self.collections: dict[int, dict[int, bytes]] = {}
        # promise: hdf5-metadata-bound
        self._left = max(MOST, _TIMES * file.size)
        self.base = 0
        self.half = HALF
        self.page_size = 0
        self.size = file.size
        self._head = file.pread(min(HEAD, self.size), 0)

    def rebase(self, base: int) -> None:
        """Set the offset from which addresses count: the end of the user block."""
        self.base, self.size = base, self.size - base
        self._pages.clear()
        self._head = self._file.pread(min(HEAD, self.size), base)

    def truncate(self, size: int) -> None:
        """Set the number of bytes: later addresses are outside the file."""
        self.size, self._head = size, self._head[:size]

    def at(self, address: int, count: int) -> bytes:
        """Return ``count`` bytes, or raise InvalidError outside the file."""
        end = address + count
        if address >= 0 and count >= 0 and end <= len(self._head):
            return self._head[address:end]
        for start, page in self._pages:
            if start <= address and end <= start + len(page):
                return page[address - start : end - start]
        page = self._read(address, count, PAGE)
        self._pages.append((address, page))
        return page[:count]

    def read_uncached(self, address: int, count: int) -> bytes:
        """Return ``count`` uncached bytes, fewer at the end of the file."""
        count = min(count, self.size - address)
        end = address + count
        return self._head[address:end] if address >= 0 and end <= len(self._head) else self._read(address, count, count)

    def ranges(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Return the uncached bytes of ranges; adjacent ones are read together."""
        parts = [memoryview(b"")] * len(ranges)
        require(all(at >= 0 and at + count <= self.size for at, count in ranges), "range outside the file")
        for span in merge_ranges(ranges, GAP, SPAN):
            if span.offset + span.size <= len(self._head):
                block = self._head[span.offset : span.offset + span.size]
            else:
                block = self._file.pread(span.size, self.base + span.offset)
                require(len(block) == span.size, "file truncated while it was read")
            view = memoryview(block)
            for i in span.members:
                at, count = ranges[i]
                parts[i] = view[at - span.offset : at - span.offset + count]
        return parts

    def read_into(self, address: int, buffer: np.ndarray) -> None:
        """Fill a buffer with the bytes from an address on, uncached."""
        require(address >= 0 and address + len(buffer) <= self.size, "range outside the file")
        self._spend(len(buffer))
        self._file.read_into(self.base + address, buffer)

    def _read(self, address: int, count: int, least: int) -> bytes:
        if address < 0 or count < 0 or address + count > self.size:
            raise InvalidError(f"{count} bytes at {address} of {self.size}")
        length = min(max(count, least), self.size - address)
        self._spend(count)
        page = self._file.pread(length, self.base + address)
        if len(page) < count:
            raise InvalidError("file truncated while it was read")
        return page

    def _spend(self, count: int) -> None:
        self._left -= count + _CALL
        if self._left < 0:
            raise UnsupportedError("too much metadata for a scan")


def verify(block: bytes) -> None:
    """Raise InvalidError if the lookup3 checksum of a block does not match."""
    # promise: hdf5-metadata-checksum
    if len(block) < 4 or lookup3(block[:-4]) != int.from_bytes(block[-4:], "little"):
        raise InvalidError("checksum mismatch")


def require(condition: bool, what: str) -> None:
    """Raise InvalidError unless a condition of nearly all valid files holds."""
    if not condition:
        raise InvalidError(what)


def require_valid(condition: bool, what: str) -> None:
    """Raise DamagedError unless a condition of all valid files holds."""
    if not condition:
        raise DamagedError(what)


def require_supported(condition: bool, what: str) -> None:
    """Raise UnsupportedError unless an optional condition holds."""
    if not condition:
        raise UnsupportedError(what)


def little_endian(block: bytes | memoryview, at: int, width: int) -> int:
    """Return an unsigned integer, or raise InvalidError for a short block.

    >>> little_endian(bytes([1, 2, 1]), 1, 2)
    258
    """
    if at + width > len(block):
        raise InvalidError("truncated structure")
    return int.from_bytes(block[at : at + width], "little")


def width_of(limit: int) -> int:
    """Return the number of bytes for numbers up to a limit, as in HDF5.

    >>> width_of(255), width_of(256), width_of(65536)
    (1, 2, 3)
    """
    return max(limit.bit_length() - 1, 0) // 8 + 1
