"""Chunk indexes of arrays in Zarr stores.

Each chunk is a file named after it. The metadata give shape, byte order and codecs. Missing chunks are detected when they are
read. The chunks of a shard share a file, at the offsets of its index. Unknown codecs, and settings that reorder elements
(transpose, order F), give None: zarr-python reads such arrays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from aggarray.codecs import Filter
from aggarray.dataclass import replace
from aggarray.errors import LIBRARY_ERRORS
from aggarray.formats.zarr.chunk_keys import (
    MOST,
    ArrayLayout,
    Paths,
    codec_steps,
    key_encoding,
    outer_chunk,
    parse_named_configuration,
)
from aggarray.formats.zarr.shards import ShardIndex, shard_chunk_index, shard_index
from aggarray.partition.chunk_index import ChunkIndex

#: Codecs that decode without parameters, by their names in both versions.
_PLAIN = {"zlib": "deflate", **{name: name for name in ("gzip", "zstd", "blosc", "lz4", "bz2", "fletcher32", "crc32c")}}

#: Checksums of numcodecs, at the start or end of the data.
_CHECKSUMS = ("numcodecs.crc32", "numcodecs.adler32", "numcodecs.crc32c")


def chunk_index_of(store: str, within: str, layout: ArrayLayout) -> ChunkIndex | None:
    """Return the chunk index of the array in a folder, or None.

    Raises ValueError for damaged metadata.
    """
    built, keys = build_chunk_index(layout), key_encoding(layout)
    if built is None or keys is None:
        return None
    chunks, levels = built
    if levels:
        return shard_chunk_index(store, within, keys, chunks, levels)
    count = math.prod(chunks.grid)
    if count > MOST:
        return None
    # A size of 0 is the size of the file when it is read: encoded chunks may be rewritten with another size.
    size = 0 if chunks.filters else math.prod(chunks.chunk) * chunks.dtype.itemsize
    offsets, sizes = _constant_columns(count, size)
    return replace(chunks, offsets=offsets, sizes=sizes, names=Paths(within, keys, chunks.grid, (1,) * len(chunks.chunk)))


def of_complete_files(index: ChunkIndex) -> ChunkIndex:
    """Return an index that reads files of one chunk completely.

    An unencoded chunk whose file is too long then raises an error when it is decoded.
    """
    if index.versions is not None or not isinstance(index.names, Paths):
        return index
    return replace(index, sizes=_constant_columns(len(index.sizes))[1])


def build_chunk_index(layout: ArrayLayout) -> tuple[ChunkIndex, tuple[ShardIndex, ...]] | None:
    """Return an index without locations, and those of nested shards."""
    if layout.dtype.kind not in "biufc":
        return None
    fill, codecs = _fill(layout.meta.get("fill_value"), layout.dtype.newbyteorder("=")), _codecs(layout)
    if fill is None or codecs is None:
        return None
    dtype, filters, levels = codecs
    return ChunkIndex(layout.shape, outer_chunk(layout), dtype, filters, fill, *_constant_columns(0)), levels


def _constant_columns(count: int, size: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return offsets 0 and equal sizes of chunks without memory per chunk."""
    return np.broadcast_to(np.int64(0), (count,)), np.broadcast_to(np.int64(size), (count,))


def _codecs(layout: ArrayLayout) -> tuple[np.dtype[Any], tuple[Filter, ...], tuple[ShardIndex, ...]] | None:
    """Return dtype, filters and shards, None for unknown codecs."""
    meta, steps, dtype = layout.meta, codec_steps(layout), layout.dtype
    shards: list[ShardIndex] = []
    if layout.version == 2:
        if meta.get("order", "C") != "C" and len(layout.shape) > 1:
            return None
    else:
        if parse_named_configuration(meta.get("chunk_grid"))[0] != "regular" or meta.get("storage_transformers"):
            return None
        while len(steps) == 1 and steps[0][0] == "sharding_indexed":
            index = shard_index(steps[0][1], shards[-1].chunk if shards else outer_chunk(layout))
            if index is None:
                return None
            shards.append(index)
            steps = index.steps
        # The codecs of version 3 begin with the conversion to bytes.
        endian = steps[0][1].get("endian") or "little" if steps and steps[0][0] == "bytes" else None
        if endian not in ("little", "big"):
            return None
        dtype, steps = dtype.newbyteorder("<" if endian == "little" else ">"), steps[1:]
    filters = tuple(f for step in steps if (f := filter_of(*step)) is not None)
    return (dtype, filters, tuple(shards)) if len(filters) == len(steps) else None


def filter_of(name: str, settings: Mapping[str, Any]) -> Filter | None:
    """Return the filter of a codec by its name in version 3, None if unknown.

    >>> filter_of("zlib", {"level": 1}), filter_of("shuffle", {"elementsize": 8}), filter_of("delta", {})
    (Filter(name='deflate', parameters=()), Filter(name='shuffle', parameters=(8,)), None)
    """
    # The default location of numcodecs.crc32c differs between versions of numcodecs: it must be stated.
    location = settings.get("location", None if name == "numcodecs.crc32c" else "start")
    if name in _CHECKSUMS:
        return Filter(name.removeprefix("numcodecs."), (location,)) if location in ("start", "end") else None
    name = name.removeprefix("numcodecs.")
    if name == "shuffle":
        size = settings.get("elementsize", 4)
        return Filter("shuffle", (size,)) if type(size) is int and size > 0 else None
    return Filter(_PLAIN[name]) if name in _PLAIN else None


def _fill(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a fill value as a scalar, None if invalid; null is 0.

    >>> _fill("-Infinity", np.dtype("f4")), _fill(None, np.dtype("i2")), _fill(300, np.dtype("u1"))
    (np.float32(-inf), np.int16(0), None)
    """
    if value is None:
        return dtype.type(0)
    try:
        if dtype.kind == "c":
            return dtype.type(complex(*map(float, value))) if isinstance(value, list) and len(value) == 2 else None
        if dtype.kind == "f" and isinstance(value, str) and value.startswith("0x"):
            return np.frombuffer(bytes.fromhex(value[2:]), dtype.newbyteorder(">"))[0].astype(dtype)
        if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
            return None
        fill = dtype.type(float(value) if dtype.kind == "f" else value)
    except LIBRARY_ERRORS:
        return None
    return fill if dtype.kind == "f" or fill == value else None
