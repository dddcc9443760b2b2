"""Block of memory: its owner, access and number of references.

A `Block` keeps the owner of its memory alive. Arrays refer to blocks and know the position of their elements in them. The
block and its owner are released with the last array: a mapped file is closed then.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntFlag
from typing import Any, Protocol, runtime_checkable

import numpy as np

from aggarray.errors import MemoryAccessError
from aggarray.memory.immutable import lock


class Access(IntFlag):
    """Permitted operations on memory; immutable memory never changes."""

    READ = 1
    WRITE = 2
    IMMUTABLE = 4


#: The valid combinations: others are contradictory or not readable.
READ_ONLY, READ_WRITE, READ_IMMUTABLE = Access.READ, Access.READ | Access.WRITE, Access.READ | Access.IMMUTABLE
_ACCESS = {int(access): access for access in (READ_ONLY, READ_WRITE, READ_IMMUTABLE)}

#: external: memory of another library; memmap: a part of a file; pod: allocated for values that were read or computed;
#: array: embedded, allocated with the single array that holds a copy.
KINDS = ("external", "memmap", "pod", "array")


@runtime_checkable
class BlockOwner(Protocol):
    """Owner of memory that describes itself."""

    #: The memory.
    buffer: memoryview

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield the names and values that `debug_repr` shows."""


class Block:
    """Memory of one owner, of a kind and a size in bytes.

    ``kind``: external, memmap, pod or array. ``owner``: the object that keeps the memory alive, usually one with a buffer (PEP
    3118). ``access``: the most that arrays over the block permit. Raises MemoryAccessError for an unknown kind, and for access
    without READ.

    >>> block = Block("external", bytearray(8), Access.READ | Access.WRITE, 8)
    >>> block.kind, block.nbytes, block.references
    ('external', 8, 0)
    """

    __slots__ = ("__weakref__", "_access", "_handles", "kind", "lent", "nbytes", "owner")

    kind: str
    owner: Any
    nbytes: int
    #: Whether writable memory was handed out through a protocol.
    lent: bool

    def __init__(self, kind: str, owner: Any, access: Access, nbytes: int) -> None:
        if kind not in KINDS:
            raise MemoryAccessError(f"unknown kind of block {kind!r}", hint=f"give one of {', '.join(KINDS)}")
        self.kind, self.owner, self._access, self.nbytes, self.lent = kind, owner, check_access(access), int(nbytes), False
        # Appending and popping are atomic, `+= 1` is not; only the length counts.
        self._handles: list[None] = []

    @property
    def access(self) -> Access:
        """The most that arrays over the block permit."""
        return self._access

    def freeze(self) -> None:
        """Make the block immutable: arrays over it no longer permit writing."""
        self._access = READ_IMMUTABLE
        if isinstance(self.owner, np.ndarray):
            lock(self.owner)

    def retain(self) -> None:
        """Increment the number of arrays that refer to the block."""
        self._handles.append(None)

    def release(self) -> None:
        """Decrement the number of arrays that refer to the block."""
        self._handles.pop()

    @property
    def references(self) -> int:
        """Number of arrays that refer to the block, NumPy views excluded."""
        return len(self._handles)

    @property
    def unshared(self) -> bool:
        """Whether at most one array has the memory, never exported for writing."""
        return self.kind in ("pod", "array") and self.references <= 1 and not self.lent

    def buffer(self) -> memoryview:
        """Return the memory (PEP 3118); raises MemoryAccessError without a buffer."""
        try:
            return memoryview(self.owner.buffer if isinstance(self.owner, BlockOwner) else self.owner)
        except (TypeError, ValueError, BufferError) as error:
            what = f"{type(self.owner).__name__} has no buffer: {error}"
            raise MemoryAccessError(what, hint="give an owner with one") from error

    def __repr__(self) -> str:
        facts = f"{self.kind}, {self.nbytes} bytes, {describe_access(self.access)}, {self.references} references"
        return f"<aggarray.memory.Block {facts}>"


def check_access(access: Access | int) -> Access:
    """Return access as one of three constants, or raise MemoryAccessError.

    >>> check_access(3)
    <Access.READ|WRITE: 3>
    """
    if not isinstance(access, int) or access not in _ACCESS:
        raise MemoryAccessError(f"invalid access {access!r}", hint="give Access.READ, with WRITE or with IMMUTABLE")
    return _ACCESS[access]


def describe_access(access: Access) -> str:
    """Return access in describe_access.

    >>> describe_access(Access.READ | Access.IMMUTABLE)
    'read immutable'
    """
    return " ".join(flag.name.lower() for flag in Access if flag in access and flag.name)
