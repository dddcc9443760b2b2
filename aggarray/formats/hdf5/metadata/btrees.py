"""What do the B-trees of HDF5 hold, in order?

Trees are walked from the root down. No node is visited twice and none lies deeper than its level says, so that a damaged tree
comes to an end.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from aggarray.formats.hdf5.metadata.data import KEPT_BYTES, UNDEFINED, Data, little_endian, require, verify, width_of

_HEADER = struct.Struct("<4sBBIHHBBQHQI")
#: Bytes of a node of version 2 around its records: signature, version, type, checksum.
_AROUND = 10
#: A tree of version 1 that is deeper than this is none.
_DEEPEST = 16

#: Key before, address, key behind.
_Entry: TypeAlias = tuple[bytes, int, bytes]

GROUP, CHUNKS = 0, 1
_NODE = struct.Struct("<4sBBHQQ")


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
    require((signature, version) == (b"BTHD", 0) and depth <= _DEEPEST, "malformed B-tree")
    require(_AROUND + record <= node <= 1 << 24 and record > 0, "malformed B-tree")
    return _Tree(kind, node, record, depth, root, count, total)


def records(data: Data, address: int, kind: int, size: int | None = None) -> tuple[bytes, ...]:
    """Return the records of a tree of version 2 in its own order, all of one ``kind`` (and ``size``, if given)."""
    tree = _tree(data.at(address, _HEADER.size))
    require(tree.kind == kind and size in (None, tree.record), "malformed B-tree")
    if tree.root == UNDEFINED:
        return ()
    require(tree.total * tree.record <= data.size, "malformed B-tree")
    if tree.depth == 0:
        require(tree.count == tree.total, "wrong number of B-tree records")
        block = data.at(tree.root, _AROUND + tree.count * tree.record)
        return (_kept_leaf if len(block) <= KEPT_BYTES else _leaf)(block, tree)
    found: list[bytes] = []
    _descend(data, tree, tree.root, tree.count, tree.depth, found)
    require(len(found) == tree.total, "wrong number of B-tree records")
    return tuple(found)


def _leaf(block: bytes, tree: _Tree) -> tuple[bytes, ...]:
    """Return the records of a leaf."""
    _check(block, b"BTLF", tree.kind)
    return tuple(block[at : at + tree.record] for at in range(6, len(block) - 4, tree.record))


_kept_leaf = lru_cache(maxsize=2048)(_leaf)


def _descend(data: Data, tree: _Tree, address: int, count: int, level: int, found: list[bytes]) -> None:
    size = tree.record
    require(len(found) + count <= tree.total, "wrong number of B-tree records")
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
        _descend(data, tree, little_endian(block, at, 8), little_endian(block, at + 8, most), level - 1, found)
        if i < count:
            found.append(block[6 + i * size : 6 + (i + 1) * size])


def _check(block: bytes, signature: bytes, kind: int) -> None:
    verify(block)
    require(block[:4] == signature and block[4] == 0 and block[5] == kind, "malformed B-tree node")


@lru_cache(maxsize=256)
def _widths(tree: _Tree, level: int) -> tuple[int, int]:
    """Return the bytes of the number of records in a child, and of that in all below it (0 above leaves)."""
    most = (tree.node - _AROUND) // tree.record
    width, total, below = width_of(most), most, 0
    for _ in range(1, level):
        pointer = 8 + width + below
        inner = (tree.node - _AROUND - pointer) // (tree.record + pointer)
        require(inner > 0, "malformed B-tree")
        total = (inner + 1) * total + inner
        below = width_of(total)
    return width, below


# Version 1


def leaves(data: Data, address: int, kind: int, key: int) -> Iterator[_Entry]:
    """Yield (key before, address, key behind) of what the leaves of a tree of version 1 point to, in order.

    ``kind`` and ``key`` as in `leaf_blocks`.
    """
    for block in leaf_blocks(data, address, kind, key):
        yield from _entries(block, len(block) // (key + 8), key)


def leaf_blocks(data: Data, address: int, kind: int, key: int) -> Iterator[bytes]:
    """Yield the leaves of a tree of version 1, in order: key, address, key, address, ..., and the key behind the last.

    ``kind``: GROUP or CHUNKS; ``key``: bytes of a key.
    """
    require(address != UNDEFINED, "missing B-tree")
    level: int | None = None
    nodes: list[_Entry] = [(b"", address, b"")]
    seen: set[int] = set()
    # Keys of chunks begin with size and filters, which nothing is looked up by.
    start = 8 if kind == CHUNKS else 0
    most = _NODE.size + 2 * data.half * (key + 8) + key
    while nodes:
        # All nodes of a level, each of which knows those beside it.
        ahead, below, own = UNDEFINED, [], 0
        behinds = [node for _, node, _ in nodes[1:]] + [UNDEFINED]
        for (before, node, after), behind in zip(nodes, behinds, strict=True):
            require(node not in seen, "cycle in a B-tree")
            seen.add(node)
            page = data.once(node, most)
            signature, own_kind, own, count, left, right = _NODE.unpack_from(page)
            require(count <= 2 * data.half, "malformed B-tree")
            require((signature, own_kind, left, right) == (b"TREE", kind, ahead, behind), "malformed B-tree")
            require(own == level if level is not None else own <= _DEEPEST, "malformed B-tree")
            block = page[_NODE.size : _NODE.size + count * (key + 8) + key]
            require(len(block) == count * (key + 8) + key, "truncated B-tree")
            require(level is None or block[start:key] == before[start:], "malformed B-tree")
            require(level is None or block[len(block) - key + start :] == after[start:], "malformed B-tree")
            level, ahead = own, node
            if own:
                below += _entries(block, count, key)
            else:
                yield block
        nodes, level = below, own - 1


def _entries(block: bytes, count: int, key: int) -> list[_Entry]:
    found = []
    for i in range(count):
        place = i * (key + 8)
        child = int.from_bytes(block[place + key : place + key + 8], "little")
        found.append((block[place : place + key], child, block[place + key + 8 : place + 2 * key + 8]))
    return found
