"""Messages of object headers: data layout, fill value, filters, links."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

from aggarray.codecs import Filter
from aggarray.dataclass import dataclass
from aggarray.formats.hdf5.metadata.data import UNDEFINED, UnsupportedError, little_endian, require, require_supported

COMPACT, CONTIGUOUS, CHUNKED = 0, 1, 2
_VIRTUAL = 3
#: Link type of a soft link.
_SOFT = 1
#: File space strategy: paged aggregation.
_PAGE = 1
#: Filters that decode without parameters, by HDF5's filter number.
_PLAIN = {1: "deflate", 3: "fletcher32", 307: "bz2", 32000: "lzf", 32001: "blosc", 32004: "lz4_hdf5", 32015: "zstd"}
_DEFLATE, _SHUFFLE, _SZIP, _BITSHUFFLE = 1, 2, 4, 32008
#: Type of a chunk index: B-tree of version 1. The numbers of the other types are those of layout versions 4 and 5.
TREE_1 = 0
SINGLE, IMPLICIT, FIXED_ARRAY, EXTENSIBLE_ARRAY, TREE_2 = 1, 2, 3, 4, 5


@dataclass(frozen=True, slots=True, eq=False)
class DataLayout:
    """Data layout (message type 0x0008).

    ``form``: COMPACT (bytes in ``data``), CONTIGUOUS (``address``, ``size``) or CHUNKED (``chunk``: shape of a chunk with the
    size of an element last; ``address``, ``index``, ``parameters``: address, type and parameters of the chunk index; ``wide``:
    whether chunk sizes have eight bytes; ``bare``: whether partial edge chunks are stored without filters).
    """

    form: int
    address: int = UNDEFINED
    size: int = 0
    data: bytes = b""
    chunk: tuple[int, ...] = ()
    index: int = TREE_1
    parameters: tuple[int, ...] = ()
    wide: bool = False
    bare: bool = False


@dataclass(frozen=True, slots=True)
class FillValue:
    """Value of unwritten elements, as bytes of one (b"": zeros)."""

    defined: bool
    value: bytes = b""


@dataclass(frozen=True, slots=True)
class LinkIndex:
    """Index of links or attributes; ``tracked``: creation order is stored."""

    tracked: bool
    heap: int
    names: int


@dataclass(frozen=True, slots=True)
class Link:
    """Link: name, address, creation order (0 if it is not tracked).

    The address of soft and external links is `UNDEFINED`. ``target``: the path of a soft link.
    """

    name: bytes
    address: int
    order: int
    target: bytes | None = None


def layout_of(message: bytes) -> DataLayout:
    """Return a data layout of version 1 to 5."""
    require_supported(len(message) >= 4 and 1 <= message[0] <= 5, "unsupported data layout")
    if message[0] < 3:
        return _layout_1(message)
    form = message[1]
    if form == COMPACT:
        size = little_endian(message, 2, 2)
        require(4 + size <= len(message), "truncated data layout")
        return DataLayout(COMPACT, size=size, data=message[4 : 4 + size])
    if form == CONTIGUOUS:
        return DataLayout(CONTIGUOUS, little_endian(message, 2, 8), little_endian(message, 10, 8))
    require_supported(form == CHUNKED, "unsupported data layout")
    if message[0] > 3:
        return _chunked_4(message)
    require(2 <= message[2] <= 33, "malformed data layout")
    chunk = tuple(little_endian(message, 11 + 4 * i, 4) for i in range(message[2]))
    return DataLayout(CHUNKED, little_endian(message, 3, 8), chunk=_checked(chunk))


def _layout_1(message: bytes) -> DataLayout:
    """Return a layout of version 1 or 2: the shape gives contiguous sizes."""
    rank, form = message[1], message[2]
    at = 8 if form == COMPACT else 16
    require(0 < rank <= 33 and form in (COMPACT, CONTIGUOUS, CHUNKED), "malformed data layout")
    sides = tuple(little_endian(message, at + 4 * i, 4) for i in range(rank))
    at += 4 * rank
    if form == CHUNKED:
        return DataLayout(CHUNKED, little_endian(message, 8, 8), chunk=_checked(sides))
    if form == CONTIGUOUS:
        return DataLayout(CONTIGUOUS, little_endian(message, 8, 8), math.prod(sides))
    size = little_endian(message, at, 4)
    require(at + 4 + size <= len(message), "truncated data layout")
    return DataLayout(COMPACT, size=size, data=message[at + 4 : at + 4 + size])


def _checked(chunk: tuple[int, ...]) -> tuple[int, ...]:
    require(0 < math.prod(chunk) < 1 << 32, "malformed data layout")
    return chunk


def _chunked_4(message: bytes) -> DataLayout:
    flags, rank, width = message[2], message[3], little_endian(message, 4, 1)
    bare, flags = bool(flags & 1), flags & ~1
    require(flags in (0, 2) and 2 <= rank <= 33 and 1 <= width <= 8, "malformed data layout")
    chunk = tuple(little_endian(message, 5 + width * i, width) for i in range(rank))
    at = 5 + width * rank
    index = little_endian(message, at, 1)
    at += 1
    if index == SINGLE:
        parameters: tuple[int, ...] = ()
        if flags & 2:
            parameters = (little_endian(message, at, 8), little_endian(message, at + 8, 4))
            at += 12
    elif index in (IMPLICIT, FIXED_ARRAY, EXTENSIBLE_ARRAY, TREE_2):
        require(flags == 0, "malformed data layout")
        length = {IMPLICIT: 0, FIXED_ARRAY: 1, EXTENSIBLE_ARRAY: 5, TREE_2: 6}[index]
        parameters = tuple(message[at : at + length])
        at += length
    else:
        raise UnsupportedError(f"unsupported chunk index {index}")
    address = little_endian(message, at, 8)
    return DataLayout(CHUNKED, address, 0, b"", _checked(chunk), index, parameters, message[0] == 5, bare)


def fill_of(message: bytes) -> FillValue:
    """Return a fill value (type 0x0005)."""
    version = message[0] if message else 0
    if version in (1, 2):
        _, _, write, defined = message[:4]
        at = 4
        given = defined == 1
        require(defined <= 1, "malformed fill value")
        undefined = not defined
    elif version == 3:
        flags = little_endian(message, 1, 1)
        at = 2
        write, undefined, given = flags >> 2 & 3, bool(flags & 16), bool(flags & 32)
        require(flags < 64 and not (undefined and given), "malformed fill value")
    else:
        raise UnsupportedError(f"fill value version {version}")
    # With fill time NEVER the value of unwritten elements is undefined.
    size = little_endian(message, at, 4) if given else 0
    require(at + 4 + size <= len(message) or not given, "malformed fill value")
    if undefined or write == 1:
        return FillValue(False)
    return FillValue(True, message[at + 4 : at + 4 + size] if given else b"")


def old_fill_of(message: bytes) -> FillValue:
    """Return a fill value in the form before version 1.5 (type 0x0004)."""
    size = little_endian(message, 0, 4)
    require(4 + size <= len(message), "malformed fill value")
    return FillValue(True, message[4 : 4 + size])


def halves_of(message: bytes) -> int:
    """Return half the entries of the larger full node (type 0x0013)."""
    require(little_endian(message, 0, 1) == 0, "malformed B-tree parameters")
    return max(little_endian(message, 1, 2), little_endian(message, 3, 2))


def page_size_of(message: bytes) -> int:
    """Return the bytes of a page, 0 without paged aggregation (type 0x0017)."""
    version, strategy = little_endian(message, 0, 1), little_endian(message, 1, 1)
    require(version < 2, "malformed file space information")
    # Version 0 of the first releases has other strategies. After the strategy follow a flag, a threshold and the page size.
    return little_endian(message, 11, 8) if (version, strategy) == (1, _PAGE) else 0


def filters_of(message: bytes) -> tuple[Filter | None, ...]:
    """Return filters (type 0x000B) in encoding order, None for unknown ones."""
    return tuple(filter_of(code, values) for code, values in _filter_values(message))


def deflate_level_of(message: bytes) -> int | None:
    """Return the level of deflate in a message of filters, None without it."""
    return next((values[0] for code, values in _filter_values(message) if code == _DEFLATE), None)


def _filter_values(message: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    version, count = little_endian(message, 0, 1), little_endian(message, 1, 1)
    require_supported(version in (1, 2) and count <= 32, f"filter pipeline version {version}")
    at = 8 if version == 1 else 2
    for _ in range(count):
        code = little_endian(message, at, 2)
        at += 2
        name_length = 0
        if version == 1 or code >= 256:
            name_length = little_endian(message, at, 2)
            at += 2
        number = little_endian(message, at + 2, 2)
        at += 4 + (-(-name_length // 8) * 8 if version == 1 else name_length)
        require(at + 4 * number <= len(message), "truncated filter")
        values = struct.unpack_from(f"<{number}I", message, at)
        # HDF5 validates the level.
        require(code != _DEFLATE or (len(values) == 1 and values[0] <= 9), "malformed filter")
        yield code, values
        at += 4 * number + (4 if version == 1 and number % 2 else 0)


def filter_of(code: int, values: tuple[int, ...]) -> Filter | None:
    """Return a filter by its number and parameters, None if unknown.

    >>> filter_of(2, (4,)), filter_of(6, ()), filter_of(32008, (0, 4, 8, 0, 2))
    (Filter(name='shuffle', parameters=(4,)), None, Filter(name='bitshuffle', parameters=(8, 0, 2)))
    """
    if code in _PLAIN:
        return Filter(_PLAIN[code])
    if code == _SHUFFLE and len(values) == 1:
        return Filter("shuffle", values)
    if code == _SZIP and len(values) == 4:
        # Options, pixels per block, bits per pixel, pixels per scanline.
        return Filter("szip", values)
    if code == _BITSHUFFLE and len(values) >= 3:
        # Two numbers of the version, then element size, elements per block, and 0 none, 2 lz4, 3 zstd.
        return Filter("bitshuffle", (*values[2:5], 0, 0)[:3])
    return None


def link_index_of(message: bytes, width: int) -> LinkIndex:
    """Return an index of links (type 0x0002) or attributes (0x0015).

    ``width``: bytes of the greatest creation order.
    """
    flags = little_endian(message, 1, 1)
    require(message[0] == 0 and flags < 4, "malformed index of links or attributes")
    at = 2 + (width if flags & 1 else 0)
    return LinkIndex(bool(flags & 1), little_endian(message, at, 8), little_endian(message, at + 8, 8))


def link_of(message: bytes) -> Link:
    """Return a link (type 0x0006)."""
    version, flags = little_endian(message, 0, 1), little_endian(message, 1, 1)
    require(version == 1 and flags < 32, "malformed link")
    at, link_type = 2, 0
    if flags & 8:
        link_type = little_endian(message, at, 1)
        at += 1
    order = 0
    if flags & 4:
        order = little_endian(message, at, 8)
        at += 8
    if flags & 16:
        require(little_endian(message, at, 1) <= 1, "unknown character set")
        at += 1
    width = 1 << (flags & 3)
    length = little_endian(message, at, width)
    at += width
    name = message[at : at + length]
    at += length
    # A hard link has an address, other links a length and as many bytes.
    held = 8 if link_type == 0 else 2 + little_endian(message, at, 2)
    require(length > 0 and at + held <= len(message), "truncated link")
    target = message[at + 2 : at + held] if link_type == _SOFT else None
    return Link(name, UNDEFINED if link_type else little_endian(message, at, 8), order, target)


def symbols_of(message: bytes) -> tuple[int, int]:
    """Return the addresses of B-tree and local heap (type 0x0011)."""
    return little_endian(message, 0, 8), little_endian(message, 8, 8)


def committed_at(message: bytes) -> int:
    """Return the address of a committed datatype (shared type 0x0003)."""
    version, shared_type = little_endian(message, 0, 1), little_endian(message, 1, 1)
    # Version 3 also has shared messages in a heap.
    require_supported(version in (1, 2, 3) and (version < 3 or shared_type == 2), "datatype in a heap")
    # Version 1 holds a symbol table entry, which begins with a name offset.
    return little_endian(message, 16 if version == 1 else 2, 8)


def virtual_at(message: bytes) -> tuple[int, int] | None:
    """Return the heap object (address, number) of a virtual layout, or None."""
    if message[1:2] != bytes([_VIRTUAL]) or message[0] < 4:
        return None
    return little_endian(message, 2, 8), little_endian(message, 10, 4)
