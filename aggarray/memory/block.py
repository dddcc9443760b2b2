"""Whose memory is it, what may be done with it, and who still uses it?

A `Block` is memory with an owner, which it keeps alive. Arrays refer to blocks; where in the block their elements lie is
their own affair. The last array that goes takes the block along, and the block its owner: a mapped file closes then.
"""

from collections.abc import Iterator
from enum import IntFlag
from typing import Any, Protocol, runtime_checkable

import numpy as np

from aggarray.errors import MemoryAccessError
from aggarray.memory.immutable import lock


class Access(IntFlag):
    """What may be done with memory: it is read, written to, or never changes again, whoever has it."""

    READ = 1
    WRITE = 2
    IMMUTABLE = 4


#: All there is of it: what contradicts itself, or cannot even be read, is none.
READ_ONLY, READ_WRITE, FOREVER = Access.READ, Access.READ | Access.WRITE, Access.READ | Access.IMMUTABLE
_ACCESS = {int(access): access for access in (READ_ONLY, READ_WRITE, FOREVER)}

#: external: an object of others; memmap: a part of a file; pod: made for values that were read or computed;
#: array: embedded, made together with the one array that a copy is.
KINDS = ("external", "memmap", "pod", "array")


@runtime_checkable
class BlockOwner(Protocol):
    """An owner that says itself what its memory is."""

    #: The memory.
    buffer: memoryview

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield what `debug_repr` shows: a word and what it is."""


class Block:
    """Memory of one owner: ``kind`` is one of external, memmap, pod and array; ``nbytes``: how much it is.

    ``owner``: what keeps the memory: an object with a buffer (PEP 3118), or any other that arrays are laid over by hand.
    ``access``: what arrays over it may do at most. Raises MemoryAccessError for another kind, and for access without reading.

    >>> block = Block("external", bytearray(8), Access.READ | Access.WRITE, 8)
    >>> block.kind, block.nbytes, block.references
    ('external', 8, 0)
    """

    __slots__ = ("__weakref__", "_access", "_handles", "kind", "lent", "nbytes", "owner")

    kind: str
    owner: Any
    nbytes: int
    #: Whether memory that may be written to went out through a protocol, to whom nobody knows.
    lent: bool

    def __init__(self, kind: str, owner: Any, access: Access, nbytes: int) -> None:
        if kind not in KINDS:
            raise MemoryAccessError(f"a block of kind {kind!r}: give one of {', '.join(KINDS)}")
        self.kind, self.owner, self._access, self.nbytes, self.lent = kind, owner, checked(access), int(nbytes), False
        # Appending and popping are atomic, which adding one is not; nothing but the length counts.
        self._handles: list[None] = []

    @property
    def access(self) -> Access:
        """What arrays over the block may do at most."""
        return self._access

    def freeze(self) -> None:
        """Have nobody write to the memory any more, who goes by way of the block."""
        self._access = FOREVER
        if isinstance(self.owner, np.ndarray):
            lock(self.owner)

    def retain(self) -> None:
        """Count one more array that refers to the block."""
        self._handles.append(None)

    def release(self) -> None:
        """Count one array less."""
        self._handles.pop()

    @property
    def references(self) -> int:
        """How many arrays refer to the block; NumPy's views keep theirs alive, and are not counted beside it."""
        return len(self._handles)

    @property
    def unshared(self) -> bool:
        """Whether one array at most can reach the memory: it is no one else's, and was never lent out for writing."""
        return self.kind in ("pod", "array") and self.references <= 1 and not self.lent

    def buffer(self) -> memoryview:
        """Return the memory by PEP 3118; MemoryAccessError where the owner has no buffer."""
        try:
            return memoryview(self.owner.buffer if isinstance(self.owner, BlockOwner) else self.owner)
        except (TypeError, ValueError, BufferError) as error:
            raise MemoryAccessError(f"{type(self.owner).__name__} has no buffer: {error}; give an owner that has") from error

    def __repr__(self) -> str:
        return f"<aggarray.memory.Block {self.kind}, {self.nbytes} bytes, {words(self.access)}, {self.references} references>"


def checked(access: Access | int) -> Access:
    """Return access as one of `READ_ONLY`, `READ_WRITE` and `FOREVER`, the very object; MemoryAccessError for all else.

    >>> checked(3)
    <Access.READ|WRITE: 3>
    """
    found = _ACCESS.get(access) if isinstance(access, int) else None
    if found is None:
        raise MemoryAccessError(f"access {access!r}: give Access.READ, with WRITE or with IMMUTABLE")
    return found


def words(access: Access) -> str:
    """Return access in words.

    >>> words(Access.READ | Access.IMMUTABLE)
    'read immutable'
    """
    return " ".join(flag.name.lower() for flag in Access if flag in access and flag.name)
