"""What is an object of an HDF5 file: a group or a dataset, and of what kind?

An object header is a chain of blocks of messages. Blocks are parsed once for all files in which they are the same bytes.
"""

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from aggarray.formats.hdf5.metadata.attributes import Attribute, attribute_of
from aggarray.formats.hdf5.metadata.data import (
    KEPT_BYTES,
    Data,
    UnsupportedError,
    is_invalid,
    little_endian,
    require,
    require_supported,
    verify,
)
from aggarray.formats.hdf5.metadata.messages import (
    DataLayout,
    FillValue,
    FilterStep,
    Link,
    LinkIndex,
    attribute_index_of,
    committed_at,
    fill_of,
    filters_of,
    halves_of,
    layout_of,
    link_index_of,
    link_of,
    old_fill_of,
    symbols_of,
    virtual_at,
)
from aggarray.formats.hdf5.metadata.types import Dataspace, Datatype, dataspace_of, datatype_of

#: More blocks than this in one header are left to the libraries.
_BLOCKS = 256

_SPACE, _LINKS, _DATATYPE, _FILL, _LINK, _LAYOUT, _FILTERS = 0x01, 0x02, 0x03, 0x05, 0x06, 0x08, 0x0B
_ATTRIBUTE, _CONTINUATION, _SYMBOLS, _ATTRIBUTES = 0x0C, 0x10, 0x11, 0x15
_OLD_FILL, _EXTERNAL, _HALVES = 0x04, 0x07, 0x13

_ONCE: dict[int, Callable[[bytes], Any]] = {
    _SPACE: dataspace_of,
    _LINKS: link_index_of,
    _DATATYPE: datatype_of,
    _FILL: fill_of,
    _LAYOUT: layout_of,
    _FILTERS: filters_of,
    _SYMBOLS: symbols_of,
    _ATTRIBUTES: attribute_index_of,
    _OLD_FILL: old_fill_of,
    _HALVES: halves_of,
    # The list of external files: that there is one.
    _EXTERNAL: bool,
}
_KNOWN = {*_ONCE, _ATTRIBUTE, _LINK, _CONTINUATION}
#: What says nothing of values, and what it looks like: nothing, group info, comment, older time of change, shared messages,
#: time of change, number of names, free space.
_IDLE = {
    code: re.compile(pattern, re.DOTALL)
    for code, pattern in (
        *((0x00, rb".*"), (0x0A, rb"\0[\x00-\x03].*"), (0x0D, rb"[^\0]*\0+"), (0x0E, rb"\d{14}\0*")),
        *((0x0F, rb"\0.{9}\0*"), (0x12, rb"\x01\0\0\0.{4}"), (0x16, rb"\0.{4}\0*"), (0x17, rb"[\x00\x01].*")),
    )
}
#: A flag of messages: the message lies elsewhere.
_ELSEWHERE = 2
#: Instead of a datatype that is another object's: its address.
_COMMITTED = -1
#: Instead of a layout.
_VIRTUAL = -2
#: Flags of the first block of version 2: attributes have numbers; limits of compact storage are given; so are times.
_NUMBERED, _LIMITS, _TIMES = 4, 16, 32


@dataclass(frozen=True, slots=True, eq=False)
class Header:
    """What the messages of an object say; attributes and links are those in the header itself, in the order of storage.

    ``attributes``: (number, attribute); numbers are None unless they are kept. ``committed``: where the datatype has an object
    of its own, its address. ``virtual``: where in the global heap the sources of values are listed that lie in other datasets.
    ``external``: values lie in other files. ``halves``: half the entries of the largest nodes of B-trees, where it is given.
    """

    attributes: tuple[tuple[int | None, Attribute], ...]
    links: tuple[Link, ...]
    space: Dataspace | None = None
    datatype: Datatype | None = None
    fill: FillValue | None = None
    layout: DataLayout | None = None
    filters: tuple[FilterStep, ...] = ()
    link_index: LinkIndex | None = None
    attribute_index: LinkIndex | None = None
    symbols: tuple[int, int] | None = None
    committed: int | None = None
    virtual: tuple[int, int] | None = None
    external: bool = False
    halves: int = 0

    @property
    def is_group(self) -> bool:
        """Whether the object is a group."""
        return self.link_index is not None or self.symbols is not None

    @property
    def is_borrowing(self) -> bool:
        """Whether values lie, or may lie, in other files."""
        return self.external or self.virtual is not None


class _Form(NamedTuple):
    """How a header is read: attributes have numbers; it is ``newer``, of version 2, a checksum at the end; leniently."""

    numbered: bool
    newer: bool
    lenient: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """A parsed block: values of messages by type, and where the header goes on (address, size)."""

    once: tuple[tuple[int, Any], ...]
    attributes: tuple[tuple[int | None, Attribute], ...]
    links: tuple[Link, ...]
    more: tuple[tuple[int, int], ...]
    count: int


def header_at(data: Data, address: int, lenient: bool = False) -> Header:
    """Return the header at an address; ``lenient``: messages that are not modelled are left out, as if they were not there."""
    found = _header(data, address, lenient)
    if found.committed is None or found.datatype is not None:
        return found
    return replace(found, datatype=_header(data, found.committed, True).datatype)


def _header(data: Data, address: int, lenient: bool) -> Header:
    prefix = data.upto(address, 16)
    if prefix[:4] == b"OHDR":
        flags = little_endian(prefix, 5, 1)
        require(prefix[4] == 2 and flags < 64, "unsupported object header")
        start = 6 + (16 if flags & _TIMES else 0) + (4 if flags & _LIMITS else 0)
        width = 1 << (flags & 3)
        start += width
        size = little_endian(data.at(address, start), start - width, width)
        form = _Form(bool(flags & _NUMBERED), True, lenient)
        block = _parsed(data.at(address, start + size + 4), start, form)
        return _whole(data, block, lambda a, n: _parsed(_continued(data, a, n), 4, form))
    version, reserved, count, _, size = struct.unpack_from("<BBHII", prefix)
    require((version, reserved) == (1, 0), "unsupported object header")
    form = _Form(False, False, lenient)
    block = _parsed(data.at(address + 16, size), 0, form)
    return _whole(data, block, lambda a, n: _parsed(data.at(a, n), 0, form), count)


def _continued(data: Data, address: int, size: int) -> bytes:
    block = data.at(address, size)
    require(block[:4] == b"OCHK" and size >= 8, "unsupported object header")
    return block


def _whole(data: Data, first: _Block, follow: Callable[[int, int], _Block], count: int | None = None) -> Header:
    """Gather all blocks, those named first coming first; ``count``: how many messages there must be."""
    if not first.more:
        require(count is None or count == first.count, "wrong number of messages")
        return _assembled((first,))
    blocks, waiting = [first], list(first.more)
    while waiting:
        address, size = waiting.pop(0)
        blocks.append(follow(address, size))
        waiting += blocks[-1].more
        require(len(blocks) <= _BLOCKS, "too many object header blocks")
    require(count is None or count == sum(block.count for block in blocks), "wrong number of messages")
    return _assembled(tuple(blocks))


def _parsed(block: bytes, start: int, form: _Form) -> _Block:
    return (_kept if len(block) <= KEPT_BYTES else _parse)(block, start, form)


def _parse(block: bytes, start: int, form: _Form) -> _Block:
    """Parse the messages of a block from ``start`` on."""
    if form.newer:
        verify(block)
    once: list[tuple[int, Any]] = []
    attributes: list[tuple[int | None, Attribute]] = []
    links: list[Link] = []
    more: list[tuple[int, int]] = []
    count = 0
    for code, flags, number, body in _messages(block, start, form):
        count += 1
        try:
            if code == _DATATYPE and flags & _ELSEWHERE:
                once.append((_COMMITTED, committed_at(body)))
                continue
            if code == _LAYOUT and (place := virtual_at(body)) is not None:
                once.append((_VIRTUAL, place))
                continue
            require_supported(not flags & _ELSEWHERE or code not in _KNOWN, "shared message")
            if code == _ATTRIBUTE:
                attributes.append((number, attribute_of(body)))
            elif code == _LINK:
                links.append(link_of(body))
            elif code == _CONTINUATION:
                more.append((little_endian(body, 0, 8), little_endian(body, 8, 8)))
            elif code in _ONCE:
                once.append((code, _ONCE[code](body)))
            else:
                require_supported(code in _IDLE, f"message {code:#x}")
                require(_IDLE[code].fullmatch(body) is not None, "malformed message")
        except UnsupportedError as error:
            if not form.lenient or is_invalid(error):
                raise
    return _Block(tuple(once), tuple(attributes), tuple(links), tuple(more), count)


_kept = lru_cache(maxsize=4096)(_parse)


def _messages(block: bytes, at: int, form: _Form) -> Iterator[tuple[int, int, int | None, bytes]]:
    """Yield type, flags, number and bytes of every message."""
    numbered, newer, _ = form
    end = len(block) - (4 if newer else 0)
    length = (6 if numbered else 4) if newer else 8
    while at + length <= end:
        if newer:
            code, size, flags = struct.unpack_from("<BHB", block, at)
        else:
            code, size, flags, reserved = struct.unpack_from("<HHB3s", block, at)
            require(size % 8 == 0 and reserved == b"\0\0\0", "malformed message")
        number = little_endian(block, at + 4, 2) if numbered else None
        at += length
        require(at + size <= end, "truncated message")
        yield code, flags, number, block[at : at + size]
        at += size
    require(newer or at == end, "wrong length of an object header")


@lru_cache(maxsize=4096)
def _assembled(blocks: tuple[_Block, ...]) -> Header:
    """Return the header of these very blocks."""
    once: dict[int, Any] = {}
    for block in blocks:
        for code, value in block.once:
            require(code not in once, "duplicate message")
            once[code] = value
    return Header(
        tuple(a for block in blocks for a in block.attributes),
        tuple(link for block in blocks for link in block.links),
        once.get(_SPACE),
        once.get(_DATATYPE),
        once.get(_FILL, once.get(_OLD_FILL, FillValue(True))),
        once.get(_LAYOUT),
        once.get(_FILTERS, ()),
        once.get(_LINKS),
        once.get(_ATTRIBUTES),
        once.get(_SYMBOLS),
        once.get(_COMMITTED),
        once.get(_VIRTUAL),
        once.get(_EXTERNAL, False),
        once.get(_HALVES, 0),
    )
