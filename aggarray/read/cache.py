"""Bounded caches of decoded chunks and chunk indexes."""

from aggarray.options import get_options
from aggarray.storage.lru_cache import LRUCache

#: Bytes of cached chunk indexes.
TABLE_BYTES = 1 << 26

decoded_chunks = LRUCache(lambda: get_options().cache_bytes, lambda array: array.nbytes)
#: (state of the file, chunk index or None) by file and variable.
chunk_tables = LRUCache(
    lambda: TABLE_BYTES, lambda item: 1000 + (item[1].offsets.nbytes + item[1].sizes.nbytes if item[1] else 0)
)
