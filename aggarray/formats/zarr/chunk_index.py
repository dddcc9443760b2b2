"""Where in a Zarr store do the values of an array lie?

In files named after the chunks, whose metadata tell shape, byte order and codecs; which of them are there is seen when they are
read. In a shard several chunks share a file, at places that its index gives. Codecs that are not known here, and settings that
move elements about (transposition, order F), give None: zarr-python reads such arrays.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aggarray.codecs import Filter
from aggarray.formats.base import LIBRARY_ERRORS, ChunkIndex
from aggarray.formats.zarr.chunk_keys import MOST, ArrayLayout, Paths, keys_of, named, outer_chunk, sides_of
from aggarray.formats.zarr.shards import Codecs, of_shards

#: Codecs that need no parameter to be undone, by their names in both versions.
PLAIN = {
    **{"zlib": "deflate", "gzip": "gzip", "zstd": "zstd", "blosc": "blosc", "lz4": "lz4", "bz2": "bz2"},
    **{"fletcher32": "fletcher32", "crc32c": "crc32c"},
}

#: Checksums of numcodecs that stand at either end.
_CHECKSUMS = ("numcodecs.crc32", "numcodecs.adler32", "numcodecs.crc32c")


def chunk_index_of(store: str, within: str, layout: ArrayLayout) -> ChunkIndex | None:
    """Return where an array in the folder ``within`` of a store is stored, or None. ValueError for damaged metadata."""
    found, keys = build_chunk_index(layout), keys_of(layout)
    if found is None or keys is None:
        return None
    chunks, codecs = found
    if codecs.shards:
        return of_shards(store, within, keys, chunks, codecs)
    count = math.prod(chunks.grid)
    if count > MOST:
        return None
    # Chunks whose size varies are whole files, of whatever size when they are read: chunks may be written anew.
    size = 0 if codecs.filters else math.prod(chunks.chunk) * codecs.dtype.itemsize
    offsets, sizes = _same(count, size)
    return replace(chunks, offsets=offsets, sizes=sizes, names=Paths(within, keys, chunks.grid, (1,) * len(chunks.chunk)))


def build_chunk_index(layout: ArrayLayout) -> tuple[ChunkIndex, "Codecs"] | None:
    """Return the grid of chunks (shards, where these are what is named) with no place for any of them, and their codecs."""
    if layout.dtype.kind not in "biufc":
        return None
    fill = _fill(layout.meta.get("fill_value"), layout.dtype.newbyteorder("="))
    codecs = _second(layout) if layout.version == 2 else _third(layout)
    if fill is None or codecs is None:
        return None
    outer = sides_of(outer_chunk(layout), layout.shape)
    return ChunkIndex(layout.shape, outer, codecs.dtype, codecs.filters, fill, *_same(0)), codecs


def _same(count: int, size: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return offsets (all 0) and sizes (all equal) of so many chunks, in no memory whatever their number."""
    return np.broadcast_to(np.int64(0), (count,)), np.broadcast_to(np.int64(size), (count,))


# Metadata


def _second(layout: ArrayLayout) -> Codecs | None:
    meta = layout.meta
    if meta.get("order", "C") != "C" and len(layout.shape) > 1:
        return None
    given = [*(meta.get("filters") or ()), *([meta["compressor"]] if meta.get("compressor") else [])]
    steps = [filter_of(f"numcodecs.{step.get('id')}", step) for step in given]
    filters = tuple(step for step in steps if step is not None)
    return Codecs(layout.dtype, filters) if len(filters) == len(steps) else None


def _third(layout: ArrayLayout) -> Codecs | None:
    meta = layout.meta
    if named(meta.get("chunk_grid"))[0] != "regular" or meta.get("storage_transformers"):
        return None
    given = [named(step) for step in meta.get("codecs") or ()]
    shards = []
    while len(given) == 1 and given[0][0] == "sharding_indexed":
        settings = given[0][1]
        shards.append((sides_of(settings.get("chunk_shape"), layout.shape), settings))
        given = [named(step) for step in settings.get("codecs") or ()]
    found = _bytes(given, layout.dtype)
    return None if found is None else replace(found, shards=tuple(shards))


def _bytes(given: Sequence[tuple[str, Mapping[str, Any]]], dtype: np.dtype[Any]) -> Codecs | None:
    """Return codecs of version 3 that begin with ``bytes``; None where one of them is not known."""
    if not given or given[0][0] != "bytes":
        return None
    endian = given[0][1].get("endian") or "little"
    if endian not in ("little", "big"):
        return None
    steps = [filter_of(name, settings) for name, settings in given[1:]]
    filters = tuple(step for step in steps if step is not None)
    return Codecs(dtype.newbyteorder("<" if endian == "little" else ">"), filters) if len(filters) == len(steps) else None


def filter_of(name: str, settings: Mapping[str, Any]) -> Filter | None:
    """Return one codec of version 3, None where it is not known here.

    >>> filter_of("zlib", {"level": 1}), filter_of("shuffle", {"elementsize": 8}), filter_of("delta", {})
    (Filter(name='deflate', parameters=()), Filter(name='shuffle', parameters=(8,)), None)
    """
    # Versions of numcodecs differ in where its own stands if nobody says so; that of Zarr itself stands at the end.
    location = settings.get("location", None if name == "numcodecs.crc32c" else "start")
    if name in _CHECKSUMS:
        return Filter(name.removeprefix("numcodecs."), (location,)) if location in ("start", "end") else None
    name = name.removeprefix("numcodecs.")
    if name == "shuffle":
        size = settings.get("elementsize", 4)
        return Filter("shuffle", (size,)) if type(size) is int and size > 0 else None
    return Filter(PLAIN[name]) if name in PLAIN else None


def _fill(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a fill value as a scalar of the dtype, None where it does not make one. Null is 0, as zarr-python has it.

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
        made = dtype.type(float(value) if dtype.kind == "f" else value)
    except LIBRARY_ERRORS:
        return None
    return made if dtype.kind == "f" or made == value else None
