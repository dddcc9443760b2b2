"""B-trees of HDF5, versions 1 and 2.

Trees are traversed from the root down. No node is visited twice or lies below its level, so that the traversal of a damaged
tree terminates.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

from aggarray.dataclass import dataclass
from aggarray.formats.hdf5.metadata.data import KEPT_BYTES, UNDEFINED, Data, little_endian, require, verify, width_of

_HEADER = struct.Struct("<4sBBIHHBBQHQI")
#: Bytes of a node of version 2 around its records: signature, version, type, checksum.
_AROUND = 10
#: Greatest depth of a tree.
_DEEPEST = 16

#: Key before, address, key after.
_Entry: TypeAlias = tuple[bytes, int, bytes]

GROUP, CHUNKS = 0, 1
_NODE = struct.Struct("<4sBBHQQ")


@dataclass(frozen=True, slots=True)
class _Tree:
    """Properties of a tree of version 2; ``depth``: levels above the leaves."""

    record_type: int
    node: int
    record: int
    depth: int
    root: int
    count: int
    total: int


@lru_cache(maxsize=1024)
def _tree(block: bytes) -> _Tree:
    verify(block)
    signature, version, record_type, node, record, depth, _, _, root, count, total, _ = _HEADER.unpack(block)
    require((signature, version) == (b"BTHD", 0) and depth <= _DEEPEST, "malformed B-tree")
    require(_AROUND + record <= node <= 1 << 24 and record > 0, "malformed B-tree")
    return _Tree(record_type, node, record, depth, root, count, total)


def records(data: Data, address: int, record_type: int, size: int | None = None) -> tuple[bytes, ...]:
    """Return the records of a tree of version 2 in tree order.

    They must have this type and size; ``size``: None for any size.
    """
    tree = _tree(data.at(address, _HEADER.size))
    require(tree.record_type == record_type and size in (None, tree.record), "malformed B-tree")
    if tree.root == UNDEFINED:
        return ()
    require(tree.total * tree.record <= data.size, "malformed B-tree")
    if tree.depth == 0:
        require(tree.count == tree.total, "wrong number of B-tree records")
        block = data.at(tree.root, _AROUND + tree.count * tree.record)
        return (_kept_leaf if len(block) <= KEPT_BYTES else _leaf)(block, tree)
    collected: list[bytes] = []
    _descend(data, tree, tree.root, tree.count, tree.depth, collected)
    require(len(collected) == tree.total, "wrong number of B-tree records")
    return tuple(collected)


def _leaf(block: bytes, tree: _Tree) -> tuple[bytes, ...]:
    _check(block, b"BTLF", tree.record_type)
    return tuple(block[at : at + tree.record] for at in range(6, len(block) - 4, tree.record))


_kept_leaf = lru_cache(maxsize=2048)(_leaf)


def _descend(data: Data, tree: _Tree, address: int, count: int, level: int, collected: list[bytes]) -> None:
    size = tree.record
    require(len(collected) + count <= tree.total, "wrong number of B-tree records")
    if level == 0:
        collected += _leaf(data.at(address, _AROUND + count * size), tree)
        return
    most, below = _widths(tree, level)
    pointer = 8 + most + below
    block = data.at(address, _AROUND + count * size + (count + 1) * pointer)
    _check(block, b"BTIN", tree.record_type)
    start = 6 + count * size
    for i in range(count + 1):
        at = start + i * pointer
        _descend(data, tree, little_endian(block, at, 8), little_endian(block, at + 8, most), level - 1, collected)
        if i < count:
            collected.append(block[6 + i * size : 6 + (i + 1) * size])


def _check(block: bytes, signature: bytes, record_type: int) -> None:
    verify(block)
    require(block[:4] == signature and block[4] == 0 and block[5] == record_type, "malformed B-tree node")


@lru_cache(maxsize=256)
def _widths(tree: _Tree, level: int) -> tuple[int, int]:
    """Return the widths of a child's counts: records, and records in total."""
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


def leaves(data: Data, address: int, node_type: int, key: int) -> Iterator[_Entry]:
    """Yield the leaf entries of a tree of version 1 in order.

    An entry is the key before, the address and the key after. ``node_type`` and ``key`` as in `leaf_blocks`.
    """
    for block in leaf_blocks(data, address, node_type, key):
        yield from _entries(block, len(block) // (key + 8), key)


def leaf_blocks(data: Data, address: int, node_type: int, key: int) -> Iterator[bytes]:
    """Yield the leaves of a tree of version 1, in order.

    A leaf holds key, address, key, address, ..., and the key after the last. ``node_type``: GROUP or CHUNKS; ``key``: bytes of
    a key.
    """
    require(address != UNDEFINED, "missing B-tree")
    level: int | None = None
    nodes: list[_Entry] = [(b"", address, b"")]
    seen: set[int] = set()
    # Keys of chunks begin with size and filters, which are not compared.
    start = 8 if node_type == CHUNKS else 0
    most = _NODE.size + 2 * data.half * (key + 8) + key
    while nodes:
        # All nodes of a level. Each node has the addresses of its siblings.
        previous, below, own = UNDEFINED, [], 0
        following = [node for _, node, _ in nodes[1:]] + [UNDEFINED]
        for (before, node, after), successor in zip(nodes, following, strict=True):
            require(node not in seen, "cycle in a B-tree")
            seen.add(node)
            page = data.read_uncached(node, most)
            signature, own_type, own, count, left, right = _NODE.unpack_from(page)
            require(count <= 2 * data.half, "malformed B-tree")
            require((signature, own_type, left, right) == (b"TREE", node_type, previous, successor), "malformed B-tree")
            require(own == level if level is not None else own <= _DEEPEST, "malformed B-tree")
            block = page[_NODE.size : _NODE.size + count * (key + 8) + key]
            require(len(block) == count * (key + 8) + key, "truncated B-tree")
            require(level is None or block[start:key] == before[start:], "malformed B-tree")
            require(level is None or block[len(block) - key + start :] == after[start:], "malformed B-tree")
            level, previous = own, node
            if own:
                below += _entries(block, count, key)
            else:
                yield block
        nodes, level = below, own - 1


def _entries(block: bytes, count: int, key: int) -> list[_Entry]:
    entries = []
    for i in range(count):
        at = i * (key + 8)
        child = int.from_bytes(block[at + key : at + key + 8], "little")
        entries.append((block[at : at + key], child, block[at + key + 8 : at + 2 * key + 8]))
    return entries
