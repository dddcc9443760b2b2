"""Object headers of groups and datasets.

An object header is a chain of blocks of messages. Blocks with equal bytes are parsed once for all files.
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

#: Greatest number of blocks of a header.
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
    # The list of external files: only its presence matters.
    _EXTERNAL: bool,
}
_KNOWN = {*_ONCE, _ATTRIBUTE, _LINK, _CONTINUATION}
#: What says nothing of values, and what it looks like: nothing, group info, comment, older time of change, shared messages,
#: time of change, number of names, free space.
_IGNORED = {
    code: re.compile(pattern, re.DOTALL)
    for code, pattern in (
        *((0x00, rb".*"), (0x0A, rb"\0[\x00-\x03].*"), (0x0D, rb"[^\0]*\0+"), (0x0E, rb"\d{14}\0*")),
        *((0x0F, rb"\0.{9}\0*"), (0x12, rb"\x01\0\0\0.{4}"), (0x16, rb"\0.{4}\0*"), (0x17, rb"[\x00\x01].*")),
    )
}
#: Flag of a shared message.
_SHARED = 2
#: Key of the address of a committed datatype.
_COMMITTED = -1
#: Key of the heap object of a virtual layout.
_VIRTUAL = -2
#: Flags of the first block of version 2: attribute creation order is tracked; attribute limits are stored; times are stored.
_NUMBERED, _LIMITS, _TIMES = 4, 16, 32


@dataclass(frozen=True, slots=True, eq=False)
class Header:
    """Parsed messages of an object; attributes and links are those in the header itself, in the order of storage.

    ``attributes``: (creation order, attribute); the order is None if it is not tracked. ``committed``: address of a committed
    datatype. ``virtual``: heap object (address, number) that lists the sources of a virtual dataset. ``external``: whether
    values lie in other files. ``halves``: half the number of entries of the largest B-tree nodes, 0 if it is not stored.
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
    def is_external(self) -> bool:
        """Whether values may lie in other files."""
        return self.external or self.virtual is not None


class _Form(NamedTuple):
    """Form of a header: whether attributes have a creation order, whether it is ``newer`` (version 2), and leniency."""

    numbered: bool
    newer: bool
    lenient: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Parsed block: (type, value) of messages, attributes, links, and (address, size) of continuation blocks."""

    once: tuple[tuple[int, Any], ...]
    attributes: tuple[tuple[int | None, Attribute], ...]
    links: tuple[Link, ...]
    more: tuple[tuple[int, int], ...]
    count: int


def header_at(data: Data, address: int, lenient: bool = False) -> Header:
    """Return the header at an address; ``lenient``: unsupported messages are ignored."""
    header = _header(data, address, lenient)
    if header.committed is None or header.datatype is not None:
        return header
    return replace(header, datatype=_header(data, header.committed, True).datatype)


def _header(data: Data, address: int, lenient: bool) -> Header:
    prefix = data.read_up_to(address, 16)
    if prefix[:4] == b"OHDR":
        flags = little_endian(prefix, 5, 1)
        require(prefix[4] == 2 and flags < 64, "unsupported object header")
        start = 6 + (16 if flags & _TIMES else 0) + (4 if flags & _LIMITS else 0)
        width = 1 << (flags & 3)
        start += width
        size = little_endian(data.at(address, start), start - width, width)
        form = _Form(bool(flags & _NUMBERED), True, lenient)
        block = _parse(data.at(address, start + size + 4), start, form)
        return _gather(data, block, lambda a, n: _parse(_continuation(data, a, n), 4, form))
    version, reserved, count, _, size = struct.unpack_from("<BBHII", prefix)
    require((version, reserved) == (1, 0), "unsupported object header")
    form = _Form(False, False, lenient)
    block = _parse(data.at(address + 16, size), 0, form)
    return _gather(data, block, lambda a, n: _parse(data.at(a, n), 0, form), count)


def _continuation(data: Data, address: int, size: int) -> bytes:
    block = data.at(address, size)
    require(block[:4] == b"OCHK" and size >= 8, "unsupported object header")
    return block


def _gather(data: Data, first: _Block, follow: Callable[[int, int], _Block], count: int | None = None) -> Header:
    """Read all continuation blocks and return the header; ``count``: the expected number of messages."""
    if not first.more:
        require(count is None or count == first.count, "wrong number of messages")
        return _assemble((first,))
    blocks, waiting = [first], list(first.more)
    while waiting:
        address, size = waiting.pop(0)
        blocks.append(follow(address, size))
        waiting += blocks[-1].more
        require(len(blocks) <= _BLOCKS, "too many object header blocks")
    require(count is None or count == sum(block.count for block in blocks), "wrong number of messages")
    return _assemble(tuple(blocks))


def _parse(block: bytes, start: int, form: _Form) -> _Block:
    return (_parse_cached if len(block) <= KEPT_BYTES else _parse_messages)(block, start, form)


def _parse_messages(block: bytes, start: int, form: _Form) -> _Block:
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
            if code == _DATATYPE and flags & _SHARED:
                once.append((_COMMITTED, committed_at(body)))
                continue
            if code == _LAYOUT and (sources := virtual_at(body)) is not None:
                once.append((_VIRTUAL, sources))
                continue
            require_supported(not flags & _SHARED or code not in _KNOWN, "shared message")
            if code == _ATTRIBUTE:
                attributes.append((number, attribute_of(body)))
            elif code == _LINK:
                links.append(link_of(body))
            elif code == _CONTINUATION:
                more.append((little_endian(body, 0, 8), little_endian(body, 8, 8)))
            elif code in _ONCE:
                once.append((code, _ONCE[code](body)))
            else:
                require_supported(code in _IGNORED, f"message {code:#x}")
                require(_IGNORED[code].fullmatch(body) is not None, "malformed message")
        except UnsupportedError as error:
            if not form.lenient or is_invalid(error):
                raise
    return _Block(tuple(once), tuple(attributes), tuple(links), tuple(more), count)


_parse_cached = lru_cache(maxsize=4096)(_parse_messages)


def _messages(block: bytes, at: int, form: _Form) -> Iterator[tuple[int, int, int | None, bytes]]:
    """Yield type, flags, creation order and bytes of every message."""
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
def _assemble(blocks: tuple[_Block, ...]) -> Header:
    """Return the header of these blocks; equal arguments share the result."""
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
