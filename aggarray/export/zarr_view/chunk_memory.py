"""Memory of chunks that is used again."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

#: Most bytes that wait to be used again.
_MOST_WAITING = 96 << 20
#: The allocator itself uses the memory of smaller chunks again.
_LEAST = 1 << 20


class ChunkMemory:
    """Memory of chunks, which is used again once no reader refers to it.

    Memory that is new to a process costs page faults, which take longer than copying values. Thread-safe.
    """

    def __init__(self) -> None:
        self._waiting: list[np.ndarray] = []

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Return an uninitialised array.

        >>> ChunkMemory().array((2, 3), np.dtype("f4")).shape
        (2, 3)
        """
        size = prod(shape) * dtype.itemsize
        if not _LEAST <= size <= _MOST_WAITING:
            return np.empty(shape, dtype)
        lent = self._taken(size).view(_Lent)
        lent.memory = self
        # Views of arrays refer to the first array: only `data`, a memoryview, keeps what is lent.
        return np.frombuffer(lent.data, dtype).reshape(shape)

    def _taken(self, size: int) -> np.ndarray:
        while self._waiting:
            try:
                memory = self._waiting.pop()
            except IndexError:  # another thread took it
                break
            if memory.nbytes == size:
                return memory
        return np.empty(size, np.uint8)

    def keep(self, memory: np.ndarray) -> None:
        """Let memory wait, unless enough does."""
        if sum(other.nbytes for other in self._waiting[:]) + memory.nbytes <= _MOST_WAITING:
            self._waiting.append(memory)


class _Lent(np.ndarray):
    """Memory in use, which returns at the end of its last view."""

    memory: ChunkMemory | None = None

    def __del__(self) -> None:
        if self.memory is not None and isinstance(self.base, np.ndarray):
            self.memory.keep(self.base)
