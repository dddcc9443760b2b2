"""Heaps of names, attributes, links and variable-length elements."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias, TypeVar

from aggarray.dataclass import dataclass
from aggarray.formats.hdf5.metadata.btrees import records
from aggarray.formats.hdf5.metadata.data import (
    KEPT_BYTES,
    UNDEFINED,
    Data,
    InvalidError,
    UnsupportedError,
    little_endian,
    require,
    verify,
    width_of,
)

#: Header of an object in a collection: number, reference count, reserved, length.
OBJECT = struct.Struct("<HHIQ")
#: Record type of unfiltered huge objects in a B-tree of version 2: address, length, number.
_HUGE_TREE = 1
_HUGE = struct.Struct("<QQQ")
_FRACTAL = struct.Struct("<4sBHHBIQQQQQQQQQQQQHQQHHQHI")

#: Types of heap IDs besides 0, an object in a block.
_HUGE_TYPE, _TINY = 1, 2

_T = TypeVar("_T")
_Bytes = TypeVar("_Bytes", bytes, memoryview)

#: Greatest number of free blocks of a local heap.
_FREE_BLOCKS = 4096

#: Greatest size of a collection of the global heap; a larger one holds a single huge text.
_COLLECTION = 1 << 26


@dataclass(frozen=True, slots=True)
class _Shape:
    """Layout of a fractal heap: sizes of IDs and of their numbers, blocks."""

    identity: int
    offset: int
    length: int
    width: int
    smallest: int
    largest: int
    checked: bool
    huge: int
    root: int
    rows: int

    @property
    def head(self) -> int:
        return 13 + self.offset + (4 if self.checked else 0)

    @property
    def band(self) -> int:
        return self.width * self.smallest

    def row(self, number: int) -> tuple[int, int]:
        return (self.band << (number - 1), self.smallest << (number - 1)) if number else (0, self.smallest)

    def rows_of(self, size: int) -> int:
        return (size // self.band).bit_length()


@lru_cache(maxsize=1024)
def _shape(block: bytes) -> _Shape:
    verify(block)
    numbers = _FRACTAL.unpack(block)
    signature, version, identity, filters, flags, most, _, huge = numbers[:8]
    width, smallest, largest, bits, _, root, rows, _ = numbers[18:]
    require((signature, version, filters) == (b"FRHP", 0, 0) and flags < 4 and rows < 64, "malformed heap")
    require(width > 0 and 0 < smallest <= largest < 1 << 32 and 0 < bits <= 64, "malformed heap")
    require(not (smallest & (smallest - 1) or largest & (largest - 1)), "malformed heap")
    length = min(width_of(largest), width_of(most))
    return _Shape(identity, -(-bits // 8), length, width, smallest, largest, bool(flags & 2), huge, root, rows)


@dataclass(frozen=True, slots=True)
class _Cell:
    """Direct block of a heap, and (position, start, end) of objects in it."""

    path: tuple[int, ...]
    start: int
    size: int
    objects: tuple[tuple[int, int, int], ...]


@lru_cache(maxsize=1024)
def _cells(shape: _Shape, identities: tuple[bytes, ...]) -> tuple[tuple[_Cell, ...], tuple[int, ...]]:
    """Return blocks with objects of IDs, and positions of huge and tiny IDs."""
    objects: dict[tuple[tuple[int, ...], int, int], list[tuple[int, int, int]]] = {}
    others = []
    for position, identity in enumerate(identities):
        require(len(identity) == shape.identity, "malformed heap ID")
        if identity[0]:
            others.append(position)
            continue
        middle = 1 + shape.offset
        offset, length = little_endian(identity, 1, shape.offset), little_endian(identity, middle, shape.length)
        cell = _cell(shape, offset)
        at = offset - cell[1]
        require(length > 0 and shape.head <= at and at + length <= cell[2], "malformed heap ID")
        objects.setdefault(cell, []).append((position, at, at + length))
    return tuple(_Cell(*cell, tuple(inside)) for cell, inside in objects.items()), tuple(others)


def _cell(shape: _Shape, offset: int) -> tuple[tuple[int, ...], int, int]:
    """Return path, start in the heap and size of the block at an offset."""
    if shape.rows == 0:
        return (), 0, shape.smallest
    start, rows, size = 0, shape.rows, 0
    path: list[int] = []
    # promise: hdf5-deep-heaps
    while not path or size > shape.largest:
        row = ((offset - start) // shape.band).bit_length()
        require(row < rows, "malformed heap ID")
        first, size = shape.row(row)
        column = (offset - start - first) // size
        path.append(row * shape.width + column)
        start, rows = start + first + column * size, shape.rows_of(size)
    return tuple(path), start, size


Parse: TypeAlias = Callable[[bytes], _T]


def _parse_block(block: bytes, owner: int, shape: _Shape, cell: _Cell, parse: Parse[_T]) -> tuple[_T, ...]:
    """Return the parsed objects of a block, whose header is checked."""
    at = 13 + shape.offset
    position = (little_endian(block, 5, 8), little_endian(block, 13, shape.offset))
    require(block[:5] == b"FHDB\0" and position == (owner, cell.start), "malformed heap block")
    if shape.checked:
        verify(block[:at] + bytes(4) + block[at + 4 :] + block[at : at + 4])
    return tuple(parse(block[start:end]) for _, start, end in cell.objects)


_parse_block_cached = lru_cache(maxsize=2048)(_parse_block)


class FractalHeap:
    """Fractal heap of attributes or links."""

    def __init__(self, data: Data, address: int):
        self._data, self._address = data, address
        self._shape = _shape(data.at(address, _FRACTAL.size))
        # The entries of indirect blocks by their path.
        self._entries: dict[tuple[int, ...], tuple[int, ...]] = {}

    def parsed(self, identities: tuple[bytes, ...], parse: Parse[_T]) -> list[_T]:
        """Return the objects of IDs, parsed by a function."""
        shape = self._shape
        cells, others = _cells(shape, identities)
        results: dict[int, _T] = {}
        for cell in cells:
            block = self._data.at(self._address_of(cell.path), cell.size)
            parse_block = _parse_block_cached if cell.size <= KEPT_BYTES else _parse_block
            parsed = parse_block(block, self._address, shape, cell, parse)
            results.update(zip([position for position, _, _ in cell.objects], parsed, strict=True))
        if others:
            huge: dict[int, tuple[int, int]] = {}
            if shape.huge != UNDEFINED:
                require(shape.identity < 17, "unsupported huge objects")
                stored = map(_HUGE.unpack, records(self._data, shape.huge, _HUGE_TREE, _HUGE.size))
                huge = {number: (address, length) for address, length, number in stored}
            results.update({position: parse(self._other(identities[position], huge)) for position in others})
        return [results[position] for position in range(len(identities))]

    def _address_of(self, path: tuple[int, ...]) -> int:
        return self._children(path[:-1])[path[-1]] if path else self._shape.root

    def _children(self, path: tuple[int, ...]) -> tuple[int, ...]:
        """Return block addresses: direct in the first rows, indirect below."""
        addresses = self._entries.get(path)
        if addresses is not None:
            return addresses
        shape, begin, rows = self._shape, 0, self._shape.rows
        for entry in path:
            row, column = divmod(entry, shape.width)
            first, size = shape.row(row)
            begin, rows = begin + first + column * size, shape.rows_of(size)
        start = 13 + shape.offset
        count = shape.width * rows
        block = self._data.at(self._address_of(path), start + 8 * count + 4)
        verify(block)
        require(block[:5] == b"FHIB\0" and little_endian(block, 5, 8) == self._address, "malformed heap block")
        require(little_endian(block, 13, shape.offset) == begin, "malformed heap block")
        addresses = self._entries[path] = struct.unpack_from(f"<{count}Q", block, start)
        return addresses

    def _other(self, identity: bytes, huge: dict[int, tuple[int, int]]) -> bytes:
        """Return a tiny or huge object; ``huge``: (address, length) by number."""
        id_type = identity[0] >> 4
        if id_type == _TINY:
            # The ID itself holds a tiny object. Longer IDs store the length in another way.
            size = (identity[0] & 15) + 1
            require(len(identity) <= 17 and size < len(identity), "malformed heap ID")
            return identity[1 : 1 + size]
        number = little_endian(identity, 1, len(identity) - 1)
        require(identity[0] == _HUGE_TYPE << 4 and number in huge, "malformed heap ID")
        return self._data.at(*huge[number])


def heap_object(data: Data, address: int, number: int) -> bytes:
    """Return an object of the global heap, whose collections are cached."""
    objects = data.collections.get(address)
    if objects is None:
        objects = data.collections[address] = objects_of(data.at(address, collection_size(data.at(address, 16))))
    require(number in objects, "unknown heap object")
    return objects[number]


def text_at(data: Data, count: int, address: int, number: int) -> bytes:
    """Return a variable-length text, up to the first NUL."""
    if not count and not address:
        return b""
    text = heap_object(data, address, number)
    require(len(text) == count, "wrong length of a text")
    return text.partition(b"\0")[0]


def collection_size(head: bytes | memoryview) -> int:
    """Return the size of a collection from its first bytes."""
    size = little_endian(head, 8, 8)
    require(head[:8] == b"GCOL\1\0\0\0" and 16 <= size <= _COLLECTION, "malformed heap collection")
    return size


def objects_of(block: _Bytes) -> dict[int, _Bytes]:
    """Return the objects of a collection by number."""
    objects: dict[int, _Bytes] = {}
    at, size, unpack = 16, len(block), OBJECT.unpack_from
    while at + 16 <= size:
        number, _, reserved, length = unpack(block, at)
        if number == 0:
            # Object 0 is the free space at the end.
            require(length == size - at, "malformed heap collection")
            break
        start = at + 16
        at = start + (length + 7 & -8)
        if start + length > size or number in objects or reserved:
            raise InvalidError("malformed heap collection")
        objects[number] = block[start : start + length]
    return objects


def local_heap(data: Data, address: int) -> bytes:
    """Return the names in the local heap of a group with a symbol table."""
    signature, size, free, start = struct.unpack("<8sQQQ", data.at(address, 32))
    require(signature == b"HEAP\0\0\0\0", "malformed heap")
    block = data.at(start, size)
    # Free blocks form a chain that ends with 1.
    for _ in range(_FREE_BLOCKS):
        if free in (1, UNDEFINED):
            return block
        require(free + 16 <= size and 16 <= little_endian(block, free + 8, 8) <= size - free, "malformed heap")
        free = little_endian(block, free, 8)
    raise UnsupportedError("fragmented heap")
