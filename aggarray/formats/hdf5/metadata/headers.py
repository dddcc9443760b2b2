"""Superblock, and object headers of groups and datasets.

An object header is a chain of blocks of messages. Blocks with equal bytes are parsed once for all files.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from aggarray.codecs import Filter
from aggarray.dataclass import NamedTuple, dataclass, replace
from aggarray.formats.hdf5.metadata import messages
from aggarray.formats.hdf5.metadata.attributes import Attribute, attribute_of
from aggarray.formats.hdf5.metadata.data import (
    KEPT_BYTES,
    UNDEFINED,
    Data,
    UnsupportedError,
    is_invalid,
    little_endian,
    require,
    require_supported,
    verify,
)
from aggarray.formats.hdf5.metadata.messages import DataLayout, FillValue, Link, LinkIndex
from aggarray.formats.hdf5.metadata.types import Dataspace, Datatype, dataspace_of, datatype_of

SIGNATURE = b"\x89HDF\r\n\x1a\n"
#: The longest superblock.
_LENGTH = 104

_OLD = struct.Struct("<8sBBBxBBBxHHI")
_OLD_ADDRESSES = struct.Struct("<QQQQQQII16x")
_NEW = struct.Struct("<8sBBBBQQQQI")

#: Greatest number of blocks of a header.
_BLOCKS = 256

_DATATYPE, _LINK, _LAYOUT, _FILTERS, _ATTRIBUTE, _CONTINUATION = 0x03, 0x06, 0x08, 0x0B, 0x0C, 0x10

#: Attributes of `Header`, and parsers, of messages that a header has once.
_ONCE: dict[int, tuple[str, Callable[[bytes], Any]]] = {
    0x01: ("space", dataspace_of),
    0x02: ("link_index", partial(messages.link_index_of, width=8)),
    _DATATYPE: ("datatype", datatype_of),
    0x04: ("old_fill", messages.old_fill_of),
    0x05: ("fill", messages.fill_of),
    # The list of external files: only its presence matters.
    0x07: ("external", bool),
    _LAYOUT: ("layout", messages.layout_of),
    _FILTERS: ("filters", messages.filters_of),
    0x11: ("symbols", messages.symbols_of),
    0x13: ("halves", messages.halves_of),
    0x15: ("attribute_index", partial(messages.link_index_of, width=2)),
    0x17: ("page_size", messages.page_size_of),
}
_KNOWN = {*_ONCE, _ATTRIBUTE, _LINK, _CONTINUATION}
#: Messages that do not describe values, and whether a body is well-formed: NIL, group info, comment, old modification time,
#: shared message table, modification time, reference count.
_IGNORED: dict[int, Callable[[bytes], bool]] = {
    0x00: lambda body: True,
    0x0A: lambda body: len(body) > 1 and body[0] == 0 and body[1] < 4,
    0x0D: lambda body: (end := body.find(0)) >= 0 and not any(body[end:]),
    0x0E: lambda body: len(body) >= 14 and body[:14].isdigit() and not any(body[14:]),
    0x0F: lambda body: len(body) >= 10 and body[0] == 0 and not any(body[10:]),
    0x12: lambda body: len(body) == 8 and body[:4] == b"\1\0\0\0",
    0x16: lambda body: len(body) >= 5 and body[0] == 0 and not any(body[5:]),
}
#: Flag of a shared message.
_SHARED = 2
#: Flags of the first block of version 2: attribute creation order is tracked; attribute limits are stored; times are stored.
_NUMBERED, _LIMITS, _TIMES = 4, 16, 32


@dataclass(frozen=True, slots=True, eq=False)
class Header:
    """Parsed messages of an object, with the attributes and links inside.

    Attributes and links are in the order of storage. ``attributes``: (creation order, attribute); the order is None if it is
    not tracked. ``deflate_level``: level of the filter deflate, which decoding does not need. ``committed``: address of a
    committed datatype. ``virtual``: heap object (address, number) that lists the sources of a virtual dataset. ``external``:
    whether values lie in other files. ``halves``: half the number of entries of the largest B-tree nodes, 0 if unknown.
    ``page_size``: bytes of a page of the file, 0 unless its space is paged.
    """

    attributes: tuple[tuple[int | None, Attribute], ...]
    links: tuple[Link, ...]
    space: Dataspace | None = None
    datatype: Datatype | None = None
    fill: FillValue | None = None
    layout: DataLayout | None = None
    filters: tuple[Filter | None, ...] = ()
    deflate_level: int | None = None
    link_index: LinkIndex | None = None
    attribute_index: LinkIndex | None = None
    symbols: tuple[int, int] | None = None
    committed: int | None = None
    virtual: tuple[int, int] | None = None
    external: bool = False
    halves: int = 0
    page_size: int = 0

    @property
    def is_group(self) -> bool:
        """Whether the object is a group."""
        return self.link_index is not None or self.symbols is not None

    @property
    def dataset(self) -> tuple[Datatype, Dataspace, DataLayout]:
        """Datatype, space and layout; UnsupportedError for unusual datasets."""
        if self.datatype is None or self.space is None or self.layout is None:
            raise UnsupportedError("not a dataset")
        return self.datatype, self.space, self.layout


class _Form(NamedTuple):
    """Form of a header: creation order, version 2 (``newer``), leniency."""

    numbered: bool
    newer: bool
    lenient: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Messages, attributes, links and continuation blocks of a block."""

    once: tuple[tuple[str, Any], ...]
    attributes: tuple[tuple[int | None, Attribute], ...]
    links: tuple[Link, ...]
    more: tuple[tuple[int, int], ...]
    count: int


def header_at(data: Data, address: int, lenient: bool = False) -> Header:
    """Return a header; ``lenient``: unsupported messages are ignored."""
    header = _header(data, address, lenient)
    if header.committed is None or header.datatype is not None:
        return header
    return replace(header, datatype=_header(data, header.committed, True).datatype)


def _header(data: Data, address: int, lenient: bool) -> Header:
    prefix = data.at(address, min(16, data.size - address))
    count: int | None = None
    if prefix[:4] == b"OHDR":
        flags = little_endian(prefix, 5, 1)
        require(prefix[4] == 2 and flags < 64, "unsupported object header")
        width = 1 << (flags & 3)
        start = 6 + (16 if flags & _TIMES else 0) + (4 if flags & _LIMITS else 0) + width
        size = start + little_endian(data.at(address, start), start - width, width) + 4
        form = _Form(bool(flags & _NUMBERED), True, lenient)
    else:
        version, reserved, count, _, size = struct.unpack_from("<BBHII", prefix)
        require((version, reserved) == (1, 0), "unsupported object header")
        address, start, form = address + 16, 0, _Form(False, False, lenient)
    blocks: list[_Block] = []
    waiting = [(address, size)]
    while waiting:
        address, size = waiting.pop(0)
        block = data.at(address, size)
        if blocks and form.newer:
            require(block[:4] == b"OCHK" and size >= 8, "unsupported object header")
            start = 4
        blocks.append((_parse_cached if size <= KEPT_BYTES else _parse_messages)(block, start, form))
        waiting += blocks[-1].more
        require(len(blocks) <= _BLOCKS, "too many object header blocks")
    require(count is None or count == sum([block.count for block in blocks]), "wrong number of messages")
    return _assemble(tuple(blocks))


def _parse_messages(block: bytes, start: int, form: _Form) -> _Block:
    if form.newer:
        verify(block)
    once: list[tuple[str, Any]] = []
    attributes: list[tuple[int | None, Attribute]] = []
    links: list[Link] = []
    more: list[tuple[int, int]] = []
    count = 0
    for code, flags, number, body in _messages(block, start, form):
        count += 1
        try:
            if code == _DATATYPE and flags & _SHARED:
                once.append(("committed", messages.committed_at(body)))
                continue
            if code == _LAYOUT and (sources := messages.virtual_at(body)) is not None:
                once.append(("virtual", sources))
                continue
            require_supported(not flags & _SHARED or code not in _KNOWN, "shared message")
            if code == _ATTRIBUTE:
                attributes.append((number, attribute_of(body)))
            elif code == _LINK:
                links.append(messages.link_of(body))
            elif code == _CONTINUATION:
                more.append((little_endian(body, 0, 8), little_endian(body, 8, 8)))
            elif code in _ONCE:
                name, parse = _ONCE[code]
                once.append((name, parse(body)))
                if code == _FILTERS:
                    once.append(("deflate_level", messages.deflate_level_of(body)))
            else:
                require_supported(code in _IGNORED, f"message {code:#x}")
                require(_IGNORED[code](body), "malformed message")
        except UnsupportedError as error:
            if not form.lenient or is_invalid(error):
                raise
    return _Block(tuple(once), tuple(attributes), tuple(links), tuple(more), count)


_parse_cached = lru_cache(maxsize=4096)(_parse_messages)


def _messages(block: bytes, at: int, form: _Form) -> Iterator[tuple[int, int, int | None, bytes]]:
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
    once: dict[str, Any] = {}
    for block in blocks:
        for name, value in block.once:
            require(name not in once, "duplicate message")
            once[name] = value
    once.setdefault("fill", once.pop("old_fill", FillValue(True)))
    attributes = tuple(attribute for block in blocks for attribute in block.attributes)
    return Header(attributes, tuple(link for block in blocks for link in block.links), **once)


# Superblock


def root_address(data: Data) -> int:
    """Find the superblock and return the address of the root group."""
    # After a user block the signature lies at byte 512, 1024, 2048, ...
    start = 0
    while data.at(start, min(len(SIGNATURE), data.size - start)) != SIGNATURE:
        start = start * 2 or 512
        require_supported(start + len(SIGNATURE) <= data.size, "not an HDF5 file")
    if start:
        data.rebase(start)
    block = data.at(0, min(_LENGTH, data.size))
    version = block[8]
    require_supported(version < 4, f"superblock version {version}")
    base, end, root, extension, half = _parse_old(block, version) if version < 2 else _parse_new(block)
    require(base == start and start < end <= start + data.size, "moved or truncated file")
    data.truncate(end - start)
    if extension == UNDEFINED:
        data.half = max(data.half, half)
    else:
        header = header_at(data, extension)
        data.half, data.page_size = max(data.half, half, header.halves), header.page_size
    return root


def _parse_old(block: bytes, version: int) -> tuple[int, int, int, int, int]:
    """Return base, end, root, extension and half the entries of a node."""
    _, _, _, _, _, offsets, lengths, _, inner, _ = _OLD.unpack_from(block)
    require_supported((offsets, lengths) == (8, 8), "unsupported address size")
    at, half = _OLD.size, inner
    if version == 1:
        half = max(inner, little_endian(block, at, 2))
        at += 4
    base, _, end, driver, _, address, cache_type, _ = _OLD_ADDRESSES.unpack_from(block, at)
    require_supported(driver == UNDEFINED and cache_type <= 1, "file of several parts")
    return base, end, address, UNDEFINED, half


def _parse_new(block: bytes) -> tuple[int, int, int, int, int]:
    # Addresses may be shorter or longer than eight bytes. The checksum follows four addresses.
    verify(block[: 16 + 4 * block[9]])
    require_supported(block[9] == 8, "unsupported superblock")
    _, _, offsets, lengths, flags, base, extension, end, root, _ = _NEW.unpack_from(block)
    # Nonzero flags: a writer has the file open, or crashed.
    require_supported((offsets, lengths, flags) == (8, 8, 0), "unsupported superblock")
    return base, end, root, extension, 0
