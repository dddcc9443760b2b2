"""What is in a group, and which attributes has an object, in the order in which netCDF-C sees them?"""

import itertools
import struct
from functools import lru_cache
from operator import attrgetter

from aggarray.formats._h5.attributes import Attribute, attribute_of
from aggarray.formats._h5.data import UNDEFINED, Data, UnmodelledError, little, modelled, require
from aggarray.formats._h5.headers import Header
from aggarray.formats._h5.heaps import FractalHeap, local_heap
from aggarray.formats._h5.messages import Link, link_of
from aggarray.formats._h5.trees import GROUP, leaves, records

_LINKS_BY_NAME, _ATTRIBUTES_BY_NAME = 5, 8
_ENTRY = struct.Struct("<QQII16x")
_ATTRIBUTE = struct.Struct("<8sBII")


def links_of(data: Data, header: Header, hard_only: bool = False) -> tuple[Link, ...]:
    """Return the links of a group: in the order of their making if the group keeps it, else by name.

    Other links than hard ones are not modelled; ``hard_only``: as if they were not there.
    """
    found = _links(data, header)
    if all(link.address != UNDEFINED for link in found):
        return found
    modelled(hard_only, "a link that is not hard")
    return tuple(link for link in found if link.address != UNDEFINED)


def names_of(data: Data, header: Header) -> set[bytes]:
    """Return the names in a group, of links to elsewhere too."""
    return {link.name for link in _links(data, header)}


def _links(data: Data, header: Header) -> tuple[Link, ...]:
    if header.symbols is not None:
        require(header.link_index is None and not header.links, "a group of two kinds")
        return _symbols(data, *header.symbols)
    index = header.link_index
    if index is None:
        raise UnmodelledError("no group")
    if index.heap == UNDEFINED:
        return _ordered(header.links, index.tracked)
    require(not header.links, "links in two places")
    identities = tuple(record[4:] for record in records(data, index.names, _LINKS_BY_NAME))
    return _ordered(tuple(FractalHeap(data, index.heap).parsed(identities, link_of)), index.tracked)


@lru_cache(maxsize=1024)
def _ordered(links: tuple[Link, ...], tracked: bool) -> tuple[Link, ...]:
    """Return links in order; ``tracked``: that of their making."""
    found = tuple(sorted(links, key=attrgetter("order" if tracked else "name")))
    require(len({link.name for link in found}) == len(found), "a name that is there twice")
    require(not tracked or len({link.order for link in found}) == len(found), "two links made at once")
    return found


def _symbols(data: Data, tree: int, heap: int) -> tuple[Link, ...]:
    names = local_heap(data, heap)
    found = []
    for first, node, last in leaves(data, tree, GROUP, 8):
        head = data.at(node, 8)
        count = little(head, 6, 2)
        require(head[:6] == b"SNOD\1\0", "an odd group")
        for offset, address, kind, reserved in _ENTRY.iter_unpack(data.at(node + 8, count * _ENTRY.size)):
            # 2 is a link by name.
            require(kind in (0, 1, 2) and reserved == 0 and (kind == 2) == (address == UNDEFINED), "an odd link")
            found.append(Link(_name(names, offset), address, 0))
        # Names are looked up by the keys around a node.
        inside = found[len(found) - count :]
        require(count > 0 and _name(names, little(first, 0, 8)) < inside[0].name, "an odd group")
        require(_name(names, little(last, 0, 8)) == inside[-1].name, "an odd group")
    require(all(one.name < two.name for one, two in itertools.pairwise(found)), "an odd group")
    return tuple(found)


def _name(names: bytes, offset: int) -> bytes:
    require(offset < len(names), "an odd group")
    return names[offset : names.index(0, offset)]


def attributes_of(data: Data, header: Header, in_any_order: bool = False) -> tuple[Attribute, ...]:
    """Return the attributes of an object: in the order of their making if it keeps it, else as they are stored.

    Those of a heap that keeps no order are not modelled unless they are wanted ``in_any_order``.
    """
    index = header.attribute_index
    if index is None or index.heap == UNDEFINED:
        return _compact(header)
    require(not header.attributes, "attributes in two places")
    modelled(index.tracked or in_any_order, "attributes in no order")
    identities, order = _dense(records(data, index.names, _ATTRIBUTES_BY_NAME, _ATTRIBUTE.size), index.tracked)
    found = FractalHeap(data, index.heap).parsed(identities, attribute_of)
    return _distinct(tuple([found[i] for i in order]))


@lru_cache(maxsize=2048)
def _compact(header: Header) -> tuple[Attribute, ...]:
    """Return the attributes in an object header."""
    numbered = header.attributes
    if numbered and numbered[0][0] is not None:
        numbered = tuple(sorted(numbered, key=_number))
        require(len({number for number, _ in numbered}) == len(numbered), "two attributes made at once")
    return _distinct(tuple(a for _, a in numbered))


def _number(entry: tuple[int | None, Attribute]) -> int:
    return entry[0] or 0


@lru_cache(maxsize=1024)
def _dense(found: tuple[bytes, ...], tracked: bool) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    """Return heap IDs, and which of them comes first, second, ..."""
    unpacked = [_ATTRIBUTE.unpack(record) for record in found]
    numbers = [number for _, _, number, _ in unpacked]
    modelled(not any(flags & 2 for _, flags, _, _ in unpacked), "a shared attribute")
    require(not tracked or len(set(numbers)) == len(numbers), "two attributes made at once")
    return tuple(identity for identity, _, _, _ in unpacked), tuple(sorted(range(len(numbers)), key=numbers.__getitem__))


def _distinct(attributes: tuple[Attribute, ...]) -> tuple[Attribute, ...]:
    require(len({a.name for a in attributes}) == len(attributes), "an attribute that is there twice")
    return attributes
