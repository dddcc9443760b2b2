"""Links of a group and attributes of an object, in the order of netCDF-C."""

from __future__ import annotations

import itertools
import struct
from functools import lru_cache
from operator import attrgetter

from aggarray.formats.hdf5.metadata.attributes import Attribute, ObjectAttributes, attribute_of, object_attributes
from aggarray.formats.hdf5.metadata.btrees import GROUP, leaves, records
from aggarray.formats.hdf5.metadata.data import UNDEFINED, Data, UnsupportedError, little_endian, require, require_supported
from aggarray.formats.hdf5.metadata.headers import Header, header_at
from aggarray.formats.hdf5.metadata.heaps import FractalHeap, local_heap
from aggarray.formats.hdf5.metadata.messages import Link, link_of

_LINKS_BY_NAME, _ATTRIBUTES_BY_NAME = 5, 8
_ENTRY = struct.Struct("<QQIII12x")
#: Cache type of a symbol table entry that is a soft link.
_SOFT = 2
_ATTRIBUTE = struct.Struct("<8sBII")


def links_of(data: Data, header: Header) -> tuple[Link, ...]:
    """Return the links of a group in creation order if tracked, else by name."""
    if header.symbols is not None:
        require(header.link_index is None and not header.links, "group with two kinds of link storage")
        return _symbol_table(data, *header.symbols)
    index = header.link_index
    if index is None:
        raise UnsupportedError("not a group")
    if index.heap == UNDEFINED:
        return _sort_links(header.links, index.tracked)
    require(not header.links, "links in two places")
    identities = tuple(record[4:] for record in records(data, index.names, _LINKS_BY_NAME))
    return _sort_links(tuple(FractalHeap(data, index.heap).parsed(identities, link_of)), index.tracked)


@lru_cache(maxsize=1024)
def _sort_links(links: tuple[Link, ...], tracked: bool) -> tuple[Link, ...]:
    ordered = tuple(sorted(links, key=attrgetter("order" if tracked else "name")))
    require(len({link.name for link in ordered}) == len(ordered), "duplicate name")
    require(not tracked or len({link.order for link in ordered}) == len(ordered), "duplicate creation order of links")
    return ordered


def _symbol_table(data: Data, tree: int, heap: int) -> tuple[Link, ...]:
    names = local_heap(data, heap)
    links: list[Link] = []
    for first, node, last in leaves(data, tree, GROUP, 8):
        head = data.at(node, 8)
        count = little_endian(head, 6, 2)
        require(head[:6] == b"SNOD\1\0", "malformed group")
        for offset, address, cache_type, reserved, value in _ENTRY.iter_unpack(data.at(node + 8, count * _ENTRY.size)):
            is_soft = cache_type == _SOFT
            require(cache_type in (0, 1, _SOFT) and reserved == 0 and is_soft == (address == UNDEFINED), "malformed link")
            links.append(Link(_name(names, offset), address, 0, _name(names, value) if is_soft else None))
        # The library finds names by the keys around a node.
        inside = links[len(links) - count :]
        require(count > 0 and _name(names, little_endian(first, 0, 8)) < inside[0].name, "malformed group")
        require(_name(names, little_endian(last, 0, 8)) == inside[-1].name, "malformed group")
    require(all(a.name < b.name for a, b in itertools.pairwise(links)), "malformed group")
    return tuple(links)


def _name(names: bytes, offset: int) -> bytes:
    require(offset < len(names), "malformed group")
    return names[offset : names.index(0, offset)]


def parts(path: bytes) -> list[bytes]:
    """Return the names in a path in reverse order."""
    return [name for name in reversed(path.split(b"/")) if name not in (b"", b".")]


def attributes_at(data: Data, header: Header) -> ObjectAttributes:
    """Return the attributes of an object, and what they define."""
    attributes = attributes_of(data, header)
    result = object_attributes(attributes)
    if not result.untyped:
        return result
    typed = []
    for attribute in attributes:
        if attribute.committed is not None:
            datatype = header_at(data, attribute.committed, lenient=True).datatype
            require_supported(datatype is not None, "missing datatype")
            attribute = attribute_of(attribute.message, datatype)
        typed.append(attribute)
    return object_attributes(tuple(typed))


def attributes_of(data: Data, header: Header) -> tuple[Attribute, ...]:
    """Return the attributes in creation order if tracked, else as stored.

    Attributes in a heap without creation order are sorted by name. Committed datatypes are not looked up.
    """
    index = header.attribute_index
    if index is None or index.heap == UNDEFINED:
        return _compact(header)
    require(not header.attributes, "attributes in two places")
    identities, order = _dense(records(data, index.names, _ATTRIBUTES_BY_NAME, _ATTRIBUTE.size), index.tracked)
    stored = FractalHeap(data, index.heap).parsed(identities, attribute_of)
    return _distinct(tuple([stored[i] for i in order] if index.tracked else sorted(stored, key=attrgetter("name"))))


@lru_cache(maxsize=2048)
def _compact(header: Header) -> tuple[Attribute, ...]:
    numbered = header.attributes
    if numbered and numbered[0][0] is not None:
        numbered = tuple(sorted(numbered, key=lambda entry: entry[0] or 0))
        require(len({number for number, _ in numbered}) == len(numbered), "duplicate creation order of attributes")
    return _distinct(tuple(a for _, a in numbered))


@lru_cache(maxsize=1024)
def _dense(index: tuple[bytes, ...], tracked: bool) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    """Return heap IDs of indexed attributes, and their creation order."""
    unpacked = [_ATTRIBUTE.unpack(record) for record in index]
    numbers = [number for _, _, number, _ in unpacked]
    require_supported(not any(flags & 2 for _, flags, _, _ in unpacked), "shared attribute")
    require(not tracked or len(set(numbers)) == len(numbers), "duplicate creation order of attributes")
    return tuple(identity for identity, _, _, _ in unpacked), tuple(sorted(range(len(numbers)), key=numbers.__getitem__))


def _distinct(attributes: tuple[Attribute, ...]) -> tuple[Attribute, ...]:
    require(len({a.name for a in attributes}) == len(attributes), "duplicate attribute")
    return attributes
