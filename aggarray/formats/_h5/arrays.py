"""What do the arrays hold in which HDF5 notes its chunks: the fixed and the extensible one?"""

import struct
from collections.abc import Iterator
from typing import TypeAlias

from aggarray.formats._h5.data import UNDEFINED, Data, little, require, verify

#: Address, size and filter mask of a chunk.
Slot: TypeAlias = tuple[int, int, int]
#: Number of a chunk, and its slot as stored.
Packed: TypeAlias = tuple[int, bytes]

_FIXED = struct.Struct("<4sBBBBQQI")
_EXTENSIBLE = struct.Struct("<4sBBBBBBBBQQQQQQQI")


def _items(block: bytes, at: int, count: int, width: int, first: int) -> Iterator[Packed]:
    for i in range(count):
        start = at + i * width
        yield first + i, block[start : start + width]


def fixed_array(data: Data, address: int, count: int, width: int, filtered: bool) -> Iterator[Packed]:
    """Yield the slots of a fixed array of ``count`` slots of ``width`` bytes."""
    head = data.at(address, _FIXED.size)
    verify(head)
    signature, version, client, size, bits, slots, place, _ = _FIXED.unpack(head)
    require((signature, version, client, size) == (b"FAHD", 0, int(filtered), width), "an odd index of chunks")
    require(slots == count and bits < 32 and count * width <= data.size, "an odd index of chunks")
    if place == UNDEFINED:
        return
    per_page = 1 << bits
    pages = -(-count // per_page) if count > per_page else 0
    start = 14 + -(-pages // 8)
    block = data.at(place, start + (0 if pages else count * width) + 4)
    verify(block)
    require(block[:6] == b"FADB\0" + bytes([client]) and little(block, 6, 8) == address, "an odd index of chunks")
    if not pages:
        yield from _items(block, start, count, width, 0)
    for number in range(pages):
        # Pages that were never written have their bit unset, but have their place.
        if block[14 + number // 8] & 0x80 >> number % 8:
            held = min(per_page, count - number * per_page)
            page = data.at(place + start + 4 + number * (per_page * width + 4), held * width + 4)
            verify(page)
            yield from _items(page, 0, held, width, number * per_page)


def extensible_array(data: Data, address: int, width: int, filtered: bool) -> Iterator[Packed]:
    """Yield the slots of an extensible array of slots of ``width`` bytes: those in use, and some that are undefined.

    The index block has the first slots, then addresses of data blocks, then of blocks of addresses of data blocks.
    """
    head = data.at(address, _EXTENSIBLE.size)
    verify(head)
    unpacked = _EXTENSIBLE.unpack(head)
    signature, version, client, size, bits, inside, smallest, pointers, page_bits = unpacked[:9]
    place = unpacked[15]
    require((signature, version, client, size) == (b"EAHD", 0, int(filtered), width), "an odd index of chunks")
    require(bits <= 64 and page_bits < 32 and _is_power(smallest) and _is_power(pointers), "an odd index of chunks")
    if place == UNDEFINED:
        return
    prefix = 14 + -(-bits // 8)
    groups = 1 + bits - (smallest.bit_length() - 1)
    direct = 2 * (pointers.bit_length() - 1)
    blocks, further = 2 * (pointers - 1), groups - direct
    require(further >= 0, "an odd index of chunks")
    index = data.at(place, 14 + inside * width + 8 * (blocks + further) + 4)
    _check(index, b"EAIB", client, address)
    yield from _items(index, 14, inside, width, 0)
    addresses = struct.unpack_from(f"<{blocks + further}Q", index, 14 + inside * width)
    first, taken = inside, 0
    for group in range(groups):
        count, held = 1 << group // 2, smallest << (group + 1) // 2
        if group < direct:
            places: tuple[int, ...] = addresses[taken : taken + count]
            taken += count
        else:
            at = addresses[blocks + group - direct]
            places = () if at == UNDEFINED else _secondary(data, at, prefix, count, client, address, held >> page_bits > 1)
        for i, at in enumerate(places):
            if at != UNDEFINED:
                require(held <= 1 << page_bits, "an index of chunks in pages")
                block = data.at(at, prefix + held * width + 4)
                _check(block, b"EADB", client, address)
                yield from _items(block, prefix, held, width, first + i * held)
        first += count * held


def _secondary(data: Data, at: int, prefix: int, count: int, client: int, owner: int, paged: bool) -> tuple[int, ...]:
    """Return addresses of data blocks."""
    require(not paged, "an index of chunks in pages")
    block = data.at(at, prefix + 8 * count + 4)
    _check(block, b"EASB", client, owner)
    return struct.unpack_from(f"<{count}Q", block, prefix)


def _check(block: bytes, signature: bytes, client: int, owner: int) -> None:
    verify(block)
    require(block[:6] == signature + bytes([0, client]) and little(block, 6, 8) == owner, "an odd index of chunks")


def _is_power(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
