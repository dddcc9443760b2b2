"""Where do names, attributes and texts lie that are not in an object header: in which heap?"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, TypeVar

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

#: An object of a collection: its number, how often it is referred to, nothing, its length.
_OBJECT = struct.Struct("<HHIQ")
#: Huge objects found by a number in a B-tree of version 2, unfiltered: address, length, number.
_HUGE_TREE = 1
_HUGE = struct.Struct("<QQQ")
_FRACTAL = struct.Struct("<4sBHHBIQQQQQQQQQQQQHQQHHQHI")

#: Kinds of objects by ID; 0 is an object in a block.
_HUGE_KIND, _TINY = 1, 2

_T = TypeVar("_T")
_Bytes = TypeVar("_Bytes", bytes, memoryview)

#: A local heap of more free pieces than this is left to the libraries.
_PIECES = 4096

#: A collection of the global heap is at most so long: larger ones hold one huge text.
_COLLECTION = 1 << 26


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a fractal heap is laid out: bytes of an ID and of the numbers in it, sizes and number of blocks."""

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
        """Bytes of a block before what it holds."""
        return 13 + self.offset + (4 if self.checked else 0)

    @property
    def band(self) -> int:
        """Bytes of the blocks of the first row."""
        return self.width * self.smallest

    def row(self, number: int) -> tuple[int, int]:
        """Return where a row of blocks starts, and the bytes of each."""
        return (self.band << (number - 1), self.smallest << (number - 1)) if number else (0, self.smallest)

    def rows_of(self, size: int) -> int:
        """Return how many rows a block of blocks has that is so large."""
        return (size // self.band).bit_length()


@lru_cache(maxsize=1024)
def _shape(block: bytes) -> _Shape:
    """Return what the header of a fractal heap says."""
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
    """A block of a heap: the numbers of the entries that lead to it, where it starts in the heap, its size; and objects in it.

    ``objects``: (position, start, end).
    """

    way: tuple[int, ...]
    start: int
    size: int
    objects: tuple[tuple[int, int, int], ...]


@lru_cache(maxsize=1024)
def _cells(shape: _Shape, identities: tuple[bytes, ...]) -> tuple[tuple[_Cell, ...], tuple[int, ...]]:
    """Return the blocks that hold the objects of IDs, and the positions of those that no block holds."""
    found: dict[tuple[tuple[int, ...], int, int], list[tuple[int, int, int]]] = {}
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
        found.setdefault(cell, []).append((position, at, at + length))
    return tuple(_Cell(*cell, tuple(objects)) for cell, objects in found.items()), tuple(others)


def _cell(shape: _Shape, offset: int) -> tuple[tuple[int, ...], int, int]:
    """Return the way to the block that holds an offset (entries of blocks of blocks), its start in the heap and its size."""
    if shape.rows == 0:
        return (), 0, shape.smallest
    start, rows, size = 0, shape.rows, 0
    way: list[int] = []
    # promise: hdf5-deep-heaps
    while not way or size > shape.largest:
        row = ((offset - start) // shape.band).bit_length()
        require(row < rows, "malformed heap ID")
        first, size = shape.row(row)
        column = (offset - start - first) // size
        way.append(row * shape.width + column)
        start, rows = start + first + column * size, shape.rows_of(size)
    return tuple(way), start, size


Parse: TypeAlias = Callable[[bytes], _T]


def _pieces(block: bytes, owner: int, shape: _Shape, cell: _Cell, parse: Parse[_T]) -> tuple[_T, ...]:
    """Return the objects of a block, parsed; its header must say that it belongs where it is."""
    at = 13 + shape.offset
    places = (little_endian(block, 5, 8), little_endian(block, 13, shape.offset))
    require(block[:5] == b"FHDB\0" and places == (owner, cell.start), "malformed heap block")
    if shape.checked:
        verify(block[:at] + bytes(4) + block[at + 4 :] + block[at : at + 4])
    return tuple(parse(block[start:end]) for _, start, end in cell.objects)


_kept = lru_cache(maxsize=2048)(_pieces)


class FractalHeap:
    """A heap of attributes or links."""

    def __init__(self, data: Data, address: int):
        self._data, self._address = data, address
        self._shape = _shape(data.at(address, _FRACTAL.size))
        # The entries of blocks of blocks, by the way to them.
        self._entries: dict[tuple[int, ...], tuple[int, ...]] = {}

    def parsed(self, identities: tuple[bytes, ...], parse: Parse[_T]) -> list[_T]:
        """Return the objects of IDs, parsed by a function."""
        shape = self._shape
        cells, others = _cells(shape, identities)
        found: dict[int, _T] = {}
        for cell in cells:
            block = self._data.at(self._place(cell.way), cell.size)
            pieces = (_kept if cell.size <= KEPT_BYTES else _pieces)(block, self._address, shape, cell, parse)
            found.update(zip([position for position, _, _ in cell.objects], pieces, strict=True))
        if others:
            huge = self._huge()
            found.update({position: parse(self._other(identities[position], huge)) for position in others})
        return [found[position] for position in range(len(identities))]

    def _place(self, way: tuple[int, ...]) -> int:
        """Return the address of a block."""
        return self._children(way[:-1])[way[-1]] if way else self._shape.root

    def _children(self, way: tuple[int, ...]) -> tuple[int, ...]:
        """Return the addresses in a block of blocks: those of its first rows are blocks, the others blocks of blocks again."""
        known = self._entries.get(way)
        if known is not None:
            return known
        shape, begin, rows = self._shape, 0, self._shape.rows
        for entry in way:
            row, column = divmod(entry, shape.width)
            first, size = shape.row(row)
            begin, rows = begin + first + column * size, shape.rows_of(size)
        start = 13 + shape.offset
        count = shape.width * rows
        block = self._data.at(self._place(way), start + 8 * count + 4)
        verify(block)
        require(block[:5] == b"FHIB\0" and little_endian(block, 5, 8) == self._address, "malformed heap block")
        require(little_endian(block, 13, shape.offset) == begin, "malformed heap block")
        found = self._entries[way] = struct.unpack_from(f"<{count}Q", block, start)
        return found

    def _huge(self) -> dict[int, tuple[int, int]]:
        """Return address and length of the objects that are too long for a block, by number."""
        if self._shape.huge == UNDEFINED:
            return {}
        require(self._shape.identity < 17, "unsupported huge objects")
        found = records(self._data, self._shape.huge, _HUGE_TREE, _HUGE.size)
        return {key: (address, length) for address, length, key in map(_HUGE.unpack, found)}

    def _other(self, identity: bytes, huge: dict[int, tuple[int, int]]) -> bytes:
        kind = identity[0] >> 4
        if kind == _TINY:
            # Tiny objects are in the ID itself; of longer IDs they have longer lengths.
            size = (identity[0] & 15) + 1
            require(len(identity) <= 17 and size < len(identity), "malformed heap ID")
            return identity[1 : 1 + size]
        number = little_endian(identity, 1, len(identity) - 1)
        require(identity[0] == _HUGE_KIND << 4 and number in huge, "malformed heap ID")
        return self._data.at(*huge[number])


class GlobalHeap:
    """The heap of elements of variable length, by collection."""

    def __init__(self, data: Data):
        self._data = data
        self._collections: dict[int, dict[int, bytes]] = {}

    def get(self, address: int, number: int) -> bytes:
        """Return an object of a collection."""
        found = self._collections.get(address)
        if found is None:
            found = self._collections[address] = self._collection(address)
        require(number in found, "unknown heap object")
        return found[number]

    def _collection(self, address: int) -> dict[int, bytes]:
        return objects_of(self._data.at(address, collection_size(self._data.at(address, 16))))


def collection_size(head: bytes | memoryview) -> int:
    """Return the bytes of a collection that begins with these."""
    size = little_endian(head, 8, 8)
    require(head[:8] == b"GCOL\1\0\0\0" and 16 <= size <= _COLLECTION, "malformed heap collection")
    return size


def objects_of(block: _Bytes) -> dict[int, _Bytes]:
    """Return the objects of a collection by number."""
    found: dict[int, _Bytes] = {}
    at, size, unpack = 16, len(block), _OBJECT.unpack_from
    while at + 16 <= size:
        number, _, reserved, length = unpack(block, at)
        if number == 0:
            # What is left is free.
            require(length == size - at, "malformed heap collection")
            break
        start = at + 16
        at = start + (length + 7 & -8)
        if start + length > size or number in found or reserved:
            raise InvalidError("malformed heap collection")
        found[number] = block[start : start + length]
    return found


def local_heap(data: Data, address: int) -> bytes:
    """Return the names of a group of the first kind."""
    signature, size, free, place = struct.unpack("<8sQQQ", data.at(address, 32))
    require(signature == b"HEAP\0\0\0\0", "malformed heap")
    block = data.at(place, size)
    # Free pieces are a chain that ends with 1.
    for _ in range(_PIECES):
        if free in (1, UNDEFINED):
            return block
        require(free + 16 <= size and 16 <= little_endian(block, free + 8, 8) <= size - free, "malformed heap")
        free = little_endian(block, free, 8)
    raise UnsupportedError("fragmented heap")
