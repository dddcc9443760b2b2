"""Bounded caches of decoded chunks and chunk indexes."""

from typing import Any

import numpy as np

from aggarray.formats.base import ChunkIndex
from aggarray.options import get_options
from aggarray.storage.lru_cache import LRUCache

#: Bytes of cached chunk indexes.
TABLE_BYTES = 1 << 26


def _table_bytes(item: tuple[Any, ChunkIndex | None]) -> int:
    table = item[1]
    if table is None:
        return 1000
    return 1000 + table.offsets.nbytes + table.sizes.nbytes


def _array_bytes(array: np.ndarray) -> int:
    return array.nbytes


decoded_chunks = LRUCache(lambda: get_options().cache_bytes, _array_bytes)
chunk_tables = LRUCache(lambda: TABLE_BYTES, _table_bytes)
