"""Locations of chunks in the shards of a Zarr store.

The index of each shard gives the offset and size of its chunks, which may be shards themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from aggarray.codecs import Filter, known
from aggarray.codecs.crc32c import crc32c
from aggarray.dataclass import dataclass, replace
from aggarray.errors import FormatError, MissingFileError
from aggarray.formats.base import Box
from aggarray.formats.zarr.chunk_keys import Keys, Paths, check_chunk_shape, list_files, parse_named_configuration
from aggarray.partition.chunk_index import ChunkIndex, grid_of, needs_chunk_index
from aggarray.storage.files import prefetch_states, stat_file
from aggarray.storage.pieces import read_pieces
from aggarray.storage.state import Versions
from aggarray.storage.urls import is_remote, join

#: Offset and size of a missing chunk in the index of a shard.
_ABSENT = 2**64 - 1
#: Remote arrays of more shards are read by zarr-python, which requests only the shards it needs.
_MOST_REMOTE = 4096
_HINT = "write the store again"


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """Encoding of the index of a shard: offset and size of each chunk.

    ``first``: the index is at the start of the shard, not the end; ``checked``: it has a checksum; ``dtype``: of its numbers;
    ``chunk``: shape of a chunk; ``grid``: chunks of a shard along each dimension; ``steps``: names and settings of the codecs
    of the chunks.
    """

    first: bool
    checked: bool
    dtype: str
    chunk: tuple[int, ...]
    grid: tuple[int, ...]
    steps: list[tuple[str, Mapping[str, Any]]]

    @property
    def size(self) -> int:
        """Bytes of the index."""
        return 16 * math.prod(self.grid) + 4 * self.checked

    def entries(self, path: str, length: int, data: Any) -> np.ndarray:
        """Return offsets and sizes of the chunks of a shard.

        Shape (2, *grid); offset -1: not stored. ``length``: bytes of the shard. ``data``: the bytes of the index. Raises
        FormatError for a damaged index.
        """
        # promise: shard-index-checksum
        if self.checked and crc32c(np.frombuffer(data, np.uint8)[:-4]) != int.from_bytes(bytes(data[-4:]), "little"):
            raise FormatError("damaged: checksum mismatch in the index of a shard", path=path, hint=_HINT)
        pairs = np.frombuffer(data, self.dtype, 2 * math.prod(self.grid)).reshape(-1, 2)
        absent = (pairs == _ABSENT).all(axis=1)
        wrong = ~absent & (
            (pairs[:, 1] == 0) | (pairs > length).any(axis=1) | (pairs[:, 0] > length - np.minimum(pairs[:, 1], length))
        )
        if wrong.any():
            offset, size = pairs[wrong][0].tolist()
            what = f"damaged: a chunk of {size} bytes at offset {offset} in a shard of {length} bytes"
            raise FormatError(what, path=path, hint=_HINT)
        entries = pairs.T.astype(np.int64)
        entries[0, absent], entries[1, absent] = -1, 0
        return entries.reshape(2, *self.grid)

    def chunks(self, path: str, data: Any) -> list[tuple[int, int]]:
        """Return distinct offsets and sizes, or raise FormatError if damaged."""
        start = self.start(path, len(data))
        entries = self.entries(path, len(data), data[start : start + self.size])
        distinct = np.unique(entries.reshape(2, -1), axis=1)
        offsets, sizes = distinct[:, distinct[0] >= 0].tolist()
        # promise: shard-overlapping-chunks
        if sum(sizes) > len(data):
            raise FormatError("damaged: overlapping chunks in a shard", path=path, hint=_HINT)
        return list(zip(offsets, sizes, strict=True))

    def start(self, path: str, length: int) -> int:
        """Return the offset of the index, or raise FormatError if truncated."""
        if self.size > length:
            what = f"truncated: the index of a shard has {self.size} bytes, the shard {length}"
            raise FormatError(what, path=path, hint=_HINT)
        return 0 if self.first else length - self.size

    def covers(self, start: int | None, data: Any) -> bool:
        """Return whether a part of a shard is its index.

        ``start``: offset of the part, None for the end of the shard. Raises ValueError for a chunk that overlaps an index at
        the start.
        """
        if start is None or not self.first:
            return start is None
        if start or len(data) != self.size:
            return False
        pairs = np.frombuffer(data, self.dtype, 2 * math.prod(self.grid)).reshape(-1, 2)
        # promise: shard-index-overlap
        if (pairs[:, 0] < len(data)).any():
            raise ValueError(f"damaged: a chunk overlaps the index of its shard; {_HINT}")
        return True


def shard_index(settings: Mapping[str, Any], shard: tuple[int, ...]) -> ShardIndex | None:
    """Return the index of shards, None for an unknown encoding.

    Raises ValueError for damaged metadata.
    """
    chunk = check_chunk_shape(settings.get("chunk_shape"), shard)
    stated = [parse_named_configuration(step) for step in settings.get("index_codecs") or ()]
    location = settings.get("index_location", "end")
    names = [name for name, _ in stated]
    if location not in ("start", "end") or names not in (["bytes"], ["bytes", "crc32c"]):
        return None
    dtype = {"little": "<u8", "big": ">u8"}.get(stated[0][1].get("endian") or "little")
    if dtype is None:
        return None
    steps = [parse_named_configuration(step) for step in settings.get("codecs") or ()]
    return ShardIndex(location == "start", len(names) == 2, dtype, chunk, grid_of(shard, chunk), steps)


def shard_chunk_index(
    store: str, within: str, keys: Keys, shards: ChunkIndex, levels: Sequence[ShardIndex]
) -> ChunkIndex | None:
    """Return the index of innermost chunks, None where zarr-python reads.

    ``levels``: index of the shards, then of the shards in them.
    """
    folder = join(store, *(part for part in within.split("/") if part))
    if any(index.checked for index in levels) and not known((Filter("crc32c"),)):
        return None
    if is_remote(folder):
        # Any shard may exist. An array of many shards would need a request for each.
        present = set(map(keys.name, np.ndindex(shards.grid))) if math.prod(shards.grid) <= _MOST_REMOTE else None
    else:
        present = list_files(folder, keys)
    if present is None or not shards.shape or not needs_chunk_index(shards.grid, len(present)):
        return None
    files = {name: join(folder, *name.split("/")) for name in map(keys.name, np.ndindex(shards.grid))}
    versions = _versions([files[name] for name in present if name in files])
    lengths = {path: state.size for path, state in versions.states.items()}
    sizes = np.array([lengths.get(path, -1) for path in files.values()], np.int64)
    located = replace(shards, offsets=np.minimum(sizes, 0), sizes=sizes)
    most = sum(lengths.values())
    for index in levels:
        paths = Paths(folder, keys, located.grid, grid_of(shards.chunk, located.chunk))
        # A stored shard contains its index, and the indexes of its inner shards: this bounds the number of chunks.
        if not needs_chunk_index(grid_of(shards.shape, index.chunk), most // 16):
            return None
        if index is not levels[0] and int((located.offsets >= 0).sum()) * index.size > most:
            return None
        located = _inner_chunks(located, index, paths, versions)
    raw = math.prod(located.chunk) * shards.dtype.itemsize
    odd = (located.offsets >= 0) & (located.sizes != raw)
    if not shards.filters and odd.any():
        size = int(located.sizes[odd][0])
        raise FormatError(f"damaged: a chunk of {size} bytes in a shard, {raw} expected", path=folder, hint=_HINT)
    names = Paths(within, keys, located.grid, grid_of(shards.chunk, located.chunk))
    return replace(located, names=names, versions=versions)


def _inner_chunks(shards: ChunkIndex, index: ShardIndex, paths: Paths, versions: Versions) -> ChunkIndex:
    if any(outer % side for outer, side in zip(shards.chunk, index.chunk, strict=True)):
        raise ValueError(f"damaged metadata: shards of {shards.chunk} do not divide into chunks of {index.chunk}")
    grid = grid_of(shards.shape, index.chunk)
    offsets, sizes = np.full(grid, -1, np.int64), np.zeros(grid, np.int64)
    numbers = np.flatnonzero(shards.offsets >= 0)
    positions = zip(*np.unravel_index(numbers, shards.grid), strict=True)
    columns = (shards.offsets[numbers].tolist(), shards.sizes[numbers].tolist())
    stored = list(zip(map(paths, numbers.tolist()), *columns, strict=True))
    starts = [start + index.start(path, length) for path, start, length in stored]
    indexes = read_pieces([path for path, _, _ in stored], starts, [index.size] * len(stored), versions)
    for position, (path, start, length), data in zip(positions, stored, indexes, strict=True):
        if data is None:
            raise MissingFileError("no such file", path=path, hint=_HINT)
        ends = [(i * n, min((i + 1) * n, most)) for i, n, most in zip(position, index.grid, grid, strict=True)]
        box: Box = tuple(slice(first, last) for first, last in ends)
        part: Box = tuple(slice(0, last - first) for first, last in ends)
        entries = index.entries(path, length, bytes(data))
        own = entries[0][part]
        offsets[box], sizes[box] = np.where(own < 0, -1, own + start), entries[1][part]
    return replace(shards, chunk=index.chunk, offsets=offsets.ravel(), sizes=sizes.ravel())


def _versions(paths: Sequence[str]) -> Versions:
    prefetch_states(paths)
    versions = Versions()
    for path in paths:
        with suppress(FileNotFoundError):
            status = stat_file(path)
            versions.states[path] = status
            if is_remote(path):
                from aggarray.storage.remote.objects import status as remote_status

                if tag := remote_status(path).tag:
                    versions.tags[path] = tag
    return versions
