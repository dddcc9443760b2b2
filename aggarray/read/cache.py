"""Which decoded chunks, and which tables of chunks, are kept? As many bytes as the options allow, the latest used ones."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from aggarray.formats.base import Chunks
from aggarray.options import get_options

#: Bytes of chunk tables that are kept.
TABLE_BYTES = 1 << 26


class Kept:
    """A cache of so many bytes, safe under threads; after a fork the child starts with an empty one."""

    def __init__(self, most: Callable[[], int], size: Callable[[Any], int]) -> None:
        self._most, self._size = most, size
        self._lock = threading.Lock()
        self._items: OrderedDict[Hashable, Any] = OrderedDict()
        self._bytes = 0
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        # The lock may have been held by a thread that the child does not have.
        self._lock, self._items, self._bytes = threading.Lock(), OrderedDict(), 0

    def get(self, key: Hashable) -> Any:
        """Return an item, None where there is none."""
        if not self._items:
            return None
        with self._lock:
            if key in self._items:
                self._items.move_to_end(key)
            return self._items.get(key)

    def lose(self, key: Hashable) -> None:
        """Drop an item, if it is there."""
        with self._lock:
            if key in self._items:
                self._bytes -= self._size(self._items.pop(key))

    def keep(self, key: Hashable, item: Any) -> None:
        """Keep an item, if there is room for it at all; the least recently used ones go."""
        most = self._most()
        if not most:
            return
        size = self._size(item)
        with self._lock:
            if key in self._items:
                self._bytes -= self._size(self._items.pop(key))
            if size <= most:
                self._items[key] = item
                self._bytes += size
            while self._bytes > most:
                self._bytes -= self._size(self._items.popitem(last=False)[1])


def _table_bytes(item: tuple[Any, Chunks | None]) -> int:
    table = item[1]
    if table is None:
        return 1000
    return 1000 + table.offsets.nbytes + table.sizes.nbytes


def _array_bytes(array: np.ndarray) -> int:
    return array.nbytes


decoded_chunks = Kept(lambda: get_options().cache_bytes, _array_bytes)
chunk_tables = Kept(lambda: TABLE_BYTES, _table_bytes)
