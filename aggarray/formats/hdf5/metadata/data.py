"""Which bytes of an HDF5 file are where, and are they those that were written?"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache

from aggarray.errors import FormatError
from aggarray.formats.base import LIBRARY_ERRORS
from aggarray.storage.byte_source import ByteSource
from aggarray.storage.descriptors import GAP, SPAN
from aggarray.storage.ranges import Range, merge_ranges

#: So many bytes at the beginning of a file are read at once: mostly its metadata, all of it.
HEAD = 1 << 16
#: Elsewhere at least so many bytes are read at once ...
PAGE = 1 << 13
#: ... and of one file no more than so many, or so many times its size, all structures taken together; whatever is read counts
#: for so many bytes more. Files that are whole stay far below: each of their structures is read once or a few times.
MOST, _TIMES, _CALL = 1 << 26, 16, 256

#: Half the entries of a full node of chunks in a B-tree of version 1, when its file does not say; those of groups have fewer.
HALF = 32

#: So many of the latest are kept.
_LATEST = 32

#: Longer blocks are not kept once they are parsed.
KEPT_BYTES = 1 << 12

#: An address that leads nowhere.
UNDEFINED = (1 << 64) - 1


class UnsupportedError(Exception):
    """This file, or something in it, is left to the libraries."""


class InvalidError(UnsupportedError):
    """What is stored contradicts itself, or lies where nothing is: libraries that believe it may crash."""


class DamagedError(InvalidError):
    """What is stored contradicts itself, and the libraries would give other values for it without a word."""


#: What is raised over a file that is left to the libraries.
UNREADABLE = (UnsupportedError, *LIBRARY_ERRORS)


def refuse(error: BaseException, path: str, variable: str | None = None) -> None:
    """Raise FormatError over damage for which the libraries would give other values; else do nothing."""
    # promise: hdf5-unreachable-chunks
    if isinstance(error, DamagedError):
        of = f", variable {variable!r}" if variable else ""
        raise FormatError(f"{path}{of}: damaged: {error}; restore the file") from error


def is_invalid(error: BaseException) -> bool:
    """Tell whether one of `UNREADABLE` speaks of damage.

    It may be of bytes that mean nothing, too, taken for what they are not.
    """
    return isinstance(error, InvalidError) or not isinstance(error, UnsupportedError | OSError | UnicodeDecodeError)


class Data:
    """The bytes of an open file, looked up by address; what was read last is kept.

    ``base``: where in the file addresses count from; ``size``: how many bytes there are from there on; ``half``: half the
    entries of a full node of a B-tree of version 1.
    """

    __slots__ = ("_file", "_head", "_left", "_pages", "base", "half", "size")

    def __init__(self, file: ByteSource):
        self._file = file
        self._pages: deque[tuple[int, bytes]] = deque(maxlen=_LATEST)
        # promise: hdf5-metadata-bound
        self._left = max(MOST, _TIMES * file.size)
        self.base = 0
        self.half = HALF
        self.size = file.size
        self._head = file.pread(min(HEAD, self.size), 0)

    def rebase(self, base: int) -> None:
        """Let addresses count from a place in the file: the end of its user block."""
        self.base, self.size = base, self.size - base
        self._pages.clear()
        self._head = self._file.pread(min(HEAD, self.size), base)

    def end(self, size: int) -> None:
        """Let there be no bytes from an address on."""
        self.size, self._head = size, self._head[:size]

    def at(self, address: int, count: int) -> bytes:
        """Return bytes at an address; InvalidError where there are not so many."""
        end = address + count
        if address >= 0 and count >= 0 and end <= len(self._head):
            return self._head[address:end]
        for start, page in self._pages:
            if start <= address and end <= start + len(page):
                return page[address - start : end - start]
        page = self._read(address, count, PAGE)
        self._pages.append((address, page))
        return page[:count]

    def once(self, address: int, count: int) -> bytes:
        """Return bytes at an address that nobody looks at again: no more is read, and nothing kept; fewer at the end."""
        count = min(count, self.size - address)
        end = address + count
        return self._head[address:end] if address >= 0 and end <= len(self._head) else self._read(address, count, count)

    def upto(self, address: int, count: int) -> bytes:
        """Return bytes at an address, fewer at the end of the file."""
        return self.at(address, min(count, self.size - address))

    def ranges(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Return the bytes of ranges (address, size), which are not kept; neighbours are read together."""
        found = [memoryview(b"")] * len(ranges)
        require(all(at >= 0 and at + count <= self.size for at, count in ranges), "range outside the file")
        for span in merge_ranges(ranges, GAP, SPAN):
            if span.offset + span.size <= len(self._head):
                block = self._head[span.offset : span.offset + span.size]
            else:
                block = self._file.pread(span.size, self.base + span.offset)
                require(len(block) == span.size, "file truncated while it was read")
            whole = memoryview(block)
            for i in span.members:
                at, count = ranges[i]
                found[i] = whole[at - span.offset : at - span.offset + count]
        return found

    def _read(self, address: int, count: int, least: int) -> bytes:
        if address < 0 or count < 0 or address + count > self.size:
            raise InvalidError(f"{count} bytes at {address} of {self.size}")
        length = min(max(count, least), self.size - address)
        self._left -= count + _CALL
        if self._left < 0:
            raise UnsupportedError("too much metadata for a scan")
        page = self._file.pread(length, self.base + address)
        if len(page) < count:
            raise InvalidError("file truncated while it was read")
        return page


@cache
def _hash() -> Callable[[bytes], int]:
    """Return Bob Jenkins' lookup3, which HDF5 uses as checksum; UnsupportedError where it is not installed."""
    try:
        from numcodecs.jenkins import jenkins_lookup3
    except ImportError as error:
        raise UnsupportedError("no checksum library") from error
    found: Callable[[bytes], int] = jenkins_lookup3
    return found


def verify(block: bytes) -> None:
    """Hold a block against the checksum in its last four bytes; InvalidError where they differ."""
    # promise: hdf5-metadata-checksum
    if len(block) < 4 or _hash()(block[:-4]) != int.from_bytes(block[-4:], "little"):
        raise InvalidError("checksum mismatch")


def require(condition: bool, what: str) -> None:
    """Raise InvalidError unless a condition holds that does so in every file which is whole, but for rare ones."""
    if not condition:
        raise InvalidError(what)


def require_valid(condition: bool, what: str) -> None:
    """Raise DamagedError unless a condition holds that does so in every file which is whole."""
    if not condition:
        raise DamagedError(what)


def require_supported(condition: bool, what: str) -> None:
    """Raise UnsupportedError unless a condition holds that files may well break."""
    if not condition:
        raise UnsupportedError(what)


def little_endian(block: bytes | memoryview, at: int, width: int) -> int:
    """Return an unsigned integer of so many bytes; InvalidError where they are not there.

    >>> little(bytes([1, 2, 1]), 1, 2)
    258
    """
    if at + width > len(block):
        raise InvalidError("truncated structure")
    return int.from_bytes(block[at : at + width], "little")


def width_of(limit: int) -> int:
    """Return how many bytes hold numbers up to a limit, as HDF5 counts them.

    >>> width_of(255), width_of(256), width_of(65536)
    (1, 2, 3)
    """
    return max(limit.bit_length() - 1, 0) // 8 + 1
