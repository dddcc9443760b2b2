"""What do the B-trees of HDF5 hold, in order?

Trees are walked from the root down. No node is visited twice and none lies deeper than its level says, so that a damaged tree
comes to an end.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from aggarray.formats._h5.data import KEPT_BYTES, UNDEFINED, Data, UnmodelledError, little, require, verify, width_of

_HEADER = struct.Struct("<4sBBIHHBBQHQI")
#: Bytes of a node of version 2 around its records: signature, version, type, checksum.
_AROUND = 10
#: A tree of version 1 that is deeper than this is none.
_DEEPEST = 16

GROUP, CHUNKS = 0, 1


@dataclass(frozen=True, slots=True)
class _Tree:
    """A tree of version 2: kind and size of its records, bytes of a node, levels above the leaves, the root."""

    kind: int
    node: int
    record: int
    depth: int
    root: int
    count: int
    total: int


@lru_cache(maxsize=1024)
def _tree(block: bytes) -> _Tree:
    verify(block)
    signature, version, kind, node, record, depth, _, _, root, count, total, _ = _HEADER.unpack(block)
    require((signature, version) == (b"BTHD", 0) and depth <= _DEEPEST, "an odd tree")
    require(_AROUND + record <= node <= 1 << 24 and record > 0, "an odd tree")
    return _Tree(kind, node, record, depth, root, count, total)


def records(data: Data, address: int, kind: int, size: int | None = None) -> tuple[bytes, ...]:
    """Return the records of a tree of version 2 in its own order, all of one ``kind`` (and ``size``, if given)."""
    tree = _tree(data.at(address, _HEADER.size))
    require(tree.kind == kind and size in (None, tree.record), "an odd tree")
    if tree.root == UNDEFINED:
        return ()
    require(tree.total * tree.record <= data.size, "an odd tree")
    if tree.depth == 0:
        require(tree.count == tree.total, "an odd number of records")
        block = data.at(tree.root, _AROUND + tree.count * tree.record)
        return (_kept_leaf if len(block) <= KEPT_BYTES else _leaf)(block, tree)
    found: list[bytes] = []
    _descend(data, tree, tree.root, tree.count, tree.depth, found)
    require(len(found) == tree.total, "an odd number of records")
    return tuple(found)


def _leaf(block: bytes, tree: _Tree) -> tuple[bytes, ...]:
    """Return the records of a leaf."""
    _check(block, b"BTLF", tree.kind)
    return tuple(block[at : at + tree.record] for at in range(6, len(block) - 4, tree.record))


_kept_leaf = lru_cache(maxsize=2048)(_leaf)


def _descend(data: Data, tree: _Tree, address: int, count: int, level: int, found: list[bytes]) -> None:
    size = tree.record
    require(len(found) + count <= tree.total, "an odd number of records")
    if level == 0:
        found += _leaf(data.at(address, _AROUND + count * size), tree)
        return
    most, below = _widths(tree, level)
    pointer = 8 + most + below
    block = data.at(address, _AROUND + count * size + (count + 1) * pointer)
    _check(block, b"BTIN", tree.kind)
    start = 6 + count * size
    for i in range(count + 1):
        at = start + i * pointer
        _descend(data, tree, little(block, at, 8), little(block, at + 8, most), level - 1, found)
        if i < count:
            found.append(block[6 + i * size : 6 + (i + 1) * size])


def _check(block: bytes, signature: bytes, kind: int) -> None:
    verify(block)
    require(block[:4] == signature and block[4] == 0 and block[5] == kind, "an odd node")


@lru_cache(maxsize=256)
def _widths(tree: _Tree, level: int) -> tuple[int, int]:
    """Return the bytes of the number of records in a child, and of that in all below it (0 above leaves)."""
    most = (tree.node - _AROUND) // tree.record
    width, total, below = width_of(most), most, 0
    for _ in range(1, level):
        pointer = 8 + width + below
        inner = (tree.node - _AROUND - pointer) // (tree.record + pointer)
        require(inner > 0, "an odd tree")
        total = (inner + 1) * total + inner
        below = width_of(total)
    return width, below


# Version 1


def leaves(data: Data, address: int, kind: int, key: int) -> Iterator[tuple[bytes, int]]:
    """Yield (key, address) of what the leaves of a tree of version 1 point to, in order.

    ``kind``: GROUP or CHUNKS; ``key``: bytes of a key.
    """
    seen: set[int] = set()

    def walk(at: int, level: int | None) -> Iterator[tuple[bytes, int]]:
        require(at not in seen, "a tree that runs in a circle")
        seen.add(at)
        head = data.at(at, 24)
        own, count = head[5], little(head, 6, 2)
        require(head[:4] == b"TREE" and head[4] == kind and own <= _DEEPEST, "an odd tree")
        require(level is None or own == level, "an odd tree")
        block = data.at(at + 24, count * (key + 8) + key)
        for i in range(count):
            place = i * (key + 8)
            child = little(block, place + key, 8)
            if own:
                yield from walk(child, own - 1)
            else:
                yield block[place : place + key], child

    if address == UNDEFINED:
        raise UnmodelledError("a tree that is not there")
    yield from walk(address, None)
