"""Bounded cache that evicts the least recently used items."""

from __future__ import annotations

import os
from _thread import allocate_lock
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any


class LRUCache:
    """Thread-safe cache of items whose sizes add up to at most ``most()``.

    It is empty in the child of a fork. ``in_use``: which items are evicted last, if any.
    """

    def __init__(
        self, most: Callable[[], int], size: Callable[[Any], int] = lambda _: 1, in_use: Callable[[Any], bool] | None = None
    ) -> None:
        self._most, self._size, self._in_use = most, size, in_use
        self._forked()
        if hasattr(os, "register_at_fork"):
            # promise: cache-lock-fork
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        # A thread that does not exist in the child may have held the lock.
        self._lock = allocate_lock()
        self._items: OrderedDict[Hashable, Any] = OrderedDict()
        self._total = 0

    def clear(self) -> None:
        """Drop all items."""
        with self._lock:
            self._items, self._total = OrderedDict(), 0

    def get(self, key: Hashable) -> Any:
        """Return an item, None if it is not cached."""
        if not self._items:
            return None
        with self._lock:
            if (item := self._items.get(key)) is not None:
                self._items.move_to_end(key)
            return item

    def discard(self, key: Hashable) -> None:
        """Drop an item, if it is cached."""
        with self._lock:
            if key in self._items:
                self._total -= self._size(self._items.pop(key))

    def discard_where(self, chosen: Callable[[Any], bool]) -> None:
        """Drop the items whose keys are chosen."""
        with self._lock:
            for key in [key for key in self._items if chosen(key)]:
                self._total -= self._size(self._items.pop(key))

    def keep(self, key: Hashable, item: Any) -> None:
        """Cache an item, unless it is too large; evict the least recently used."""
        most = self._most()
        if not most:
            return
        size = self._size(item)
        with self._lock:
            if key in self._items:
                self._total -= self._size(self._items.pop(key))
            if size <= most:
                self._items[key] = item
                self._total += size
            while self._total > most:
                oldest = next(iter(self._items))
                if self._in_use is not None and self._in_use(self._items[oldest]):
                    oldest = next((k for k, i in self._items.items() if not self._in_use(i)), oldest)
                self._total -= self._size(self._items.pop(oldest))
