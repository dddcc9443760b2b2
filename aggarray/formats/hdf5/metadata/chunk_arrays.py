"""Fixed and extensible arrays of HDF5, which index chunks."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

from aggarray.dataclass import NamedTuple
from aggarray.formats.hdf5.metadata.data import UNDEFINED, Data, little_endian, require, verify

#: Number of the first chunk, and the stored slots of it and the following chunks.
Packed: TypeAlias = tuple[int, bytes]

_FIXED = struct.Struct("<4sBBBBQQI")
_EXTENSIBLE = struct.Struct("<4sBBBBBBBBQQQQQQQI")


def fixed_array(data: Data, address: int, count: int, width: int, filtered: bool) -> Iterator[Packed]:
    """Yield the slots of a fixed array of ``count`` slots of ``width`` bytes."""
    head = data.at(address, _FIXED.size)
    verify(head)
    signature, version, client, size, bits, slots, block_address, _ = _FIXED.unpack(head)
    require((signature, version, client, size) == (b"FAHD", 0, int(filtered), width), "malformed chunk index")
    require(slots == count and bits < 32, "malformed chunk index")
    if block_address == UNDEFINED:
        return
    require(count * width <= data.size, "malformed chunk index")
    per_page = 1 << bits
    pages = -(-count // per_page) if count > per_page else 0
    start = 14 + -(-pages // 8)
    block = data.at(block_address, start + (0 if pages else count * width) + 4)
    verify(block)
    require(block[:6] == b"FADB\0" + bytes([client]) and little_endian(block, 6, 8) == address, "malformed chunk index")
    if not pages:
        yield 0, block[start:-4]
    for number in range(pages):
        # The bit of a page that was never written is 0; space is reserved for the page.
        if block[14 + number // 8] & 0x80 >> number % 8:
            held = min(per_page, count - number * per_page)
            page = data.at(block_address + start + 4 + number * (per_page * width + 4), held * width + 4)
            verify(page)
            yield number * per_page, page[:-4]


class _Extensible(NamedTuple):
    """Layout of an extensible array.

    ``owner``: address of its header; ``width``: bytes of a slot; ``client``: 1 if chunks are filtered, else 0; ``prefix``:
    bytes of a block before its contents; ``page``: slots of a page.
    """

    owner: int
    width: int
    client: int
    prefix: int
    page: int


def extensible_array(data: Data, address: int, width: int, filtered: bool) -> Iterator[Packed]:
    """Yield all used slots, and some undefined ones, of an extensible array.

    ``width``: bytes of a slot. The index block holds the first slots, then addresses of data blocks, then addresses of
    secondary blocks, which hold addresses of data blocks.
    """
    head = data.at(address, _EXTENSIBLE.size)
    verify(head)
    unpacked = _EXTENSIBLE.unpack(head)
    signature, version, client, size, bits, inside, smallest, pointers, page_bits = unpacked[:9]
    block_address = unpacked[15]
    require((signature, version, client, size) == (b"EAHD", 0, int(filtered), width), "malformed chunk index")
    require(bits <= 64 and page_bits < 32, "malformed chunk index")
    require(_is_power_of_two(smallest) and _is_power_of_two(pointers), "malformed chunk index")
    if block_address == UNDEFINED:
        return
    shape = _Extensible(address, width, client, 14 + -(-bits // 8), 1 << page_bits)
    groups = 1 + bits - (smallest.bit_length() - 1)
    direct = 2 * (pointers.bit_length() - 1)
    blocks, further = 2 * (pointers - 1), groups - direct
    require(further >= 0, "malformed chunk index")
    index = data.at(block_address, 14 + inside * width + 8 * (blocks + further) + 4)
    _check(index, b"EAIB", shape)
    yield 0, index[14 : 14 + inside * width]
    addresses = struct.unpack_from(f"<{blocks + further}Q", index, 14 + inside * width)
    first, taken = inside, 0
    for group in range(groups):
        count, held = 1 << group // 2, smallest << (group + 1) // 2
        if group < direct:
            yield from _blocks(data, shape, [(at, b"") for at in addresses[taken : taken + count]], first, held)
            taken += count
        elif addresses[blocks + group - direct] != UNDEFINED:
            yield from _blocks(
                data, shape, _secondary(data, shape, addresses[blocks + group - direct], count, held), first, held
            )
        first += count * held


#: Address of a data block, and a bit for each of its pages that was written.
_DataBlock: TypeAlias = tuple[int, bytes]


def _secondary(data: Data, shape: _Extensible, at: int, count: int, held: int) -> list[_DataBlock]:
    pages = held // shape.page if held > shape.page else 0
    bits = -(-pages // 8)
    start = shape.prefix + count * bits
    require(start + 8 * count + 4 <= data.size, "malformed chunk index")
    block = data.at(at, start + 8 * count + 4)
    _check(block, b"EASB", shape)
    written = (block[shape.prefix + i * bits : shape.prefix + (i + 1) * bits] for i in range(count))
    return list(zip(struct.unpack_from(f"<{count}Q", block, start), written, strict=True))


def _blocks(data: Data, shape: _Extensible, blocks: list[_DataBlock], first: int, held: int) -> Iterator[Packed]:
    for i, (at, written) in enumerate(blocks):
        if at == UNDEFINED:
            continue
        number = first + i * held
        if held <= shape.page:
            block = data.at(at, shape.prefix + held * shape.width + 4)
            _check(block, b"EADB", shape)
            yield number, block[shape.prefix : -4]
            continue
        require(bool(written), "malformed chunk index")
        _check(data.at(at, shape.prefix + 4), b"EADB", shape)
        size = shape.page * shape.width + 4
        for page in range(held // shape.page):
            if written[page // 8] & 0x80 >> page % 8:
                block = data.read_uncached(at + shape.prefix + 4 + page * size, size)
                verify(block)
                require(len(block) == size, "malformed chunk index")
                yield number + page * shape.page, block[:-4]


def _check(block: bytes, signature: bytes, shape: _Extensible) -> None:
    verify(block)
    require(block[:6] == signature + bytes([0, shape.client]), "malformed chunk index")
    require(little_endian(block, 6, 8) == shape.owner, "malformed chunk index")


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
