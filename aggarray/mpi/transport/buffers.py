"""Buffers of messages, kept for the next ones."""

from __future__ import annotations

import numpy as np

#: Maximum bytes of free buffers.
_MOST = 64 << 20
_HUGE_PAGES = 1 << 22


class BufferPool:
    """Pool of uint8 buffers, because new memory costs as much as decoding.

    >>> pool = BufferPool()
    >>> pool.release(first := pool.acquire(100))
    >>> pool.acquire(50) is first, pool.acquire(50) is first
    (True, False)
    """

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []

    def acquire(self, size: int) -> np.ndarray:
        """Return the smallest sufficient free buffer, or a new one."""
        sufficient = [n for n, buffer in enumerate(self._free) if len(buffer) >= size]
        if sufficient:
            return self._free.pop(min(sufficient, key=lambda n: len(self._free[n])))
        # From this size on NumPy requests huge pages, which fault hundreds of pages at a time.
        return np.empty(max(size, _HUGE_PAGES) if size > _HUGE_PAGES // 8 else size, np.uint8)

    def release(self, buffer: np.ndarray) -> None:
        """Return a buffer to the pool, unless the pool has enough."""
        if sum(map(len, self._free)) + len(buffer) <= _MOST:
            self._free.append(buffer)
