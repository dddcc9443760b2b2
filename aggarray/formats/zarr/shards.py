"""Locations of chunks in the shards of a Zarr store.

The index of each shard gives the offset and size of its chunks, which may be shards themselves.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from aggarray.codecs import Filter, known
from aggarray.errors import FormatError, MissingFileError
from aggarray.formats.base import Box, ChunkIndex, grid_of, needs_chunk_index
from aggarray.formats.zarr.chunk_keys import Keys, Paths, list_files, parse_named_configuration
from aggarray.storage import remote
from aggarray.storage.byte_source import version_source
from aggarray.storage.files import stat_file
from aggarray.storage.remote import is_remote, join
from aggarray.storage.state import Versions

#: Offset and size of a missing chunk in the index of a shard.
_ABSENT = 2**64 - 1
#: Remote arrays of more shards are read by zarr-python, which requests only the shards it needs.
_MOST_REMOTE = 4096
_HINT = "write the store again"


@dataclass(frozen=True, slots=True)
class Codecs:
    """Codecs of an array. ``dtype`` includes the byte order.

    ``shards``: shape of the chunks in a shard, and the settings of its codec; then the same for the next inner level.
    """

    dtype: np.dtype[Any]
    filters: tuple[Filter, ...]
    shards: tuple[tuple[tuple[int, ...], Mapping[str, Any]], ...] = ()


@dataclass(frozen=True, slots=True)
class _IndexFormat:
    """Encoding of the index of a shard: at its start (``first``) or end, with a checksum or without, and dtype."""

    first: bool
    checked: bool
    dtype: str

    def size(self, count: int) -> int:
        """Return the bytes of an index of ``count`` chunks."""
        return 16 * count + 4 * self.checked


def _index_format(settings: Mapping[str, Any]) -> _IndexFormat | None:
    steps = [parse_named_configuration(step) for step in settings.get("index_codecs") or ()]
    location = settings.get("index_location", "end")
    names = [name for name, _ in steps]
    if location not in ("start", "end") or names not in (["bytes"], ["bytes", "crc32c"]):
        return None
    dtype = {"little": "<u8", "big": ">u8"}.get(steps[0][1].get("endian") or "little")
    return None if dtype is None else _IndexFormat(location == "start", len(names) == 2, dtype)


class _ChunkLocations(NamedTuple):
    """Locations of chunks: their grid, the shape of one, offsets in its file (-1: not stored) and sizes."""

    grid: tuple[int, ...]
    chunk: tuple[int, ...]
    offsets: np.ndarray
    sizes: np.ndarray


def shard_chunk_index(store: str, within: str, keys: Keys, shards: ChunkIndex, codecs: Codecs) -> ChunkIndex | None:
    """Return the chunk index of the innermost chunks, None for an unknown encoding of the shards' indexes."""
    levels = [(chunk, _index_format(settings)) for chunk, settings in codecs.shards]
    folder = join(store, *within.split("/"))
    present = _remote_names(shards.grid, keys) if is_remote(folder) else list_files(folder, keys)
    if any(index is None or (index.checked and not known((Filter("crc32c"),))) for _, index in levels):
        return None
    if present is None or not shards.shape or not needs_chunk_index(shards.grid, len(present)):
        return None
    files = {name: join(folder, *name.split("/")) for name in map(keys.name, np.ndindex(shards.grid))}
    versions = _versions([files[name] for name in present if name in files])
    lengths = {path: state.size for path, state in versions.states.items()}
    sizes = np.array([lengths.get(path, -1) for path in files.values()], np.int64).reshape(shards.grid)
    located = _ChunkLocations(shards.grid, shards.chunk, np.minimum(sizes, 0), sizes)
    most = sum(lengths.values())
    for chunk, index in levels:
        paths = Paths(folder, keys, located.grid, grid_of(shards.chunk, located.chunk))
        # A stored shard contains its index, and the indexes of its inner shards: this bounds the number of chunks.
        if index is None or not needs_chunk_index(grid_of(shards.shape, chunk), most // 16):
            return None
        indexes = int((located.offsets >= 0).sum()) * index.size(math.prod(grid_of(located.chunk, chunk)))
        if located.grid != shards.grid and indexes > most:
            return None
        located = _inner_locations(shards.shape, located, (chunk, index), paths, versions)
    raw = math.prod(located.chunk) * shards.dtype.itemsize
    odd = (located.offsets >= 0) & (located.sizes != raw)
    if not codecs.filters and odd.any():
        size = int(located.sizes[odd][0])
        raise FormatError(f"damaged: a chunk of {size} bytes in a shard, {raw} expected", path=folder, hint=_HINT)
    names = Paths(within, keys, located.grid, grid_of(shards.chunk, located.chunk))
    offsets, sizes = located.offsets.ravel(), located.sizes.ravel()
    return replace(shards, chunk=located.chunk, offsets=offsets, sizes=sizes, names=names, versions=versions)


def _inner_locations(
    shape: tuple[int, ...],
    shards: _ChunkLocations,
    level: tuple[tuple[int, ...], _IndexFormat],
    paths: Paths,
    versions: Versions,
) -> _ChunkLocations:
    """Return the locations of the chunks in shards.

    ``level``: shape of the chunks, encoding of the index of a shard; ``paths``: file of each shard; ``versions``: file states.
    """
    chunk, index = level
    if any(outer % side for outer, side in zip(shards.chunk, chunk, strict=True)):
        raise ValueError(f"damaged metadata: shards of {shards.chunk} do not divide into chunks of {chunk}")
    grid, per = grid_of(shape, chunk), grid_of(shards.chunk, chunk)
    offsets, sizes = np.full(grid, -1, np.int64), np.zeros(grid, np.int64)
    numbers = np.flatnonzero(shards.offsets >= 0)
    positions = zip(*np.unravel_index(numbers, shards.grid), strict=True)
    columns = (shards.offsets.ravel()[numbers].tolist(), shards.sizes.ravel()[numbers].tolist())
    stored = list(zip(map(paths, numbers.tolist()), *columns, strict=True))
    indexes = _read_indexes(stored, index, index.size(math.prod(per)), versions)
    for position, (path, start, length), data in zip(positions, stored, indexes, strict=True):
        ends = [(i * n, min((i + 1) * n, most)) for i, n, most in zip(position, per, grid, strict=True)]
        box: Box = tuple(slice(first, last) for first, last in ends)
        part: Box = tuple(slice(0, last - first) for first, last in ends)
        entries = _parse_index(path, (length, data), index, per)
        own = entries[0][part]
        offsets[box], sizes[box] = np.where(own < 0, -1, own + start), entries[1][part]
    return _ChunkLocations(grid, chunk, offsets, sizes)


def chunks_in_shard(path: str, data: Any, settings: Mapping[str, Any], outer: Sequence[int]) -> list[tuple[int, int]]:
    """Return the distinct offsets and sizes of chunks in the bytes of a shard, none for an unknown encoding of the index.

    ``settings``: configuration of the codec; ``outer``: shape of the shard. Raises FormatError for a damaged index.
    """
    index, per = _index_format(settings), grid_of(outer, settings["chunk_shape"])
    if index is None:
        return []
    size = index.size(math.prod(per))
    if size > len(data):
        what = f"truncated: the index of a shard has {size} bytes, the shard {len(data)}"
        raise FormatError(what, path=path, hint=_HINT)
    entries = _parse_index(path, (len(data), data[:size] if index.first else data[len(data) - size :]), index, per)
    distinct = np.unique(entries.reshape(2, -1), axis=1)
    offsets, sizes = distinct[:, distinct[0] >= 0].tolist()
    # promise: shard-overlapping-chunks
    if sum(sizes) > len(data):
        raise FormatError("damaged: overlapping chunks in a shard", path=path, hint=_HINT)
    return list(zip(offsets, sizes, strict=True))


def is_index(start: int | None, data: Any, settings: Mapping[str, Any], outer: Sequence[int]) -> bool:
    """Return whether a part of a shard is its index. ``start``: offset of the part, None for the end of the shard.

    Raises ValueError for a chunk that overlaps an index at the start.
    """
    index, per = _index_format(settings), grid_of(outer, settings["chunk_shape"])
    if index is None or start is None or not index.first:
        return start is None
    if start or len(data) != index.size(math.prod(per)):
        return False
    pairs = np.frombuffer(data, index.dtype, 2 * math.prod(per)).reshape(-1, 2)
    # promise: shard-index-overlap
    if (pairs[:, 0] < len(data)).any():
        raise ValueError(f"damaged: a chunk overlaps the index of its shard; {_HINT}")
    return True


def _remote_names(grid: tuple[int, ...], keys: Keys) -> list[str] | None:
    """Return the possible names of shards of a remote array, None if there are too many for a request each."""
    return [keys.name(position) for position in np.ndindex(grid)] if math.prod(grid) <= _MOST_REMOTE else None


def _versions(paths: Sequence[str]) -> Versions:
    """Return the states of the files that exist."""
    remote.prefetch_states(paths)
    versions = Versions()
    for path in paths:
        with suppress(FileNotFoundError):
            status = stat_file(path)
            versions.states[path] = status
            if is_remote(path) and (tag := remote.status(path).tag):
                versions.tags[path] = tag
    return versions


def _read_indexes(
    shards: Sequence[tuple[str, int, int]], index: _IndexFormat, size: int, versions: Versions
) -> Sequence[bytes]:
    """Return the bytes of the index of each shard. ``shards``: path, offset in the file and size of each."""
    ranges = []
    for path, offset, length in shards:
        if size > length:
            what = f"truncated: the index of a shard has {size} bytes, the shard {length}"
            raise FormatError(what, path=path, hint=_HINT)
        ranges.append((path, offset if index.first else offset + length - size, size))
    if any(is_remote(path) for path, *_ in ranges):
        paths, starts, sizes = (list(column) for column in zip(*ranges, strict=True))
        pieces = remote.read_pieces(paths, starts, sizes, versions.tags)
        missing = next((path for path, piece in zip(paths, pieces, strict=True) if piece is None), None)
        if missing is not None:
            raise MissingFileError("no such file", path=missing, hint=_HINT)
        return [bytes(piece) for piece in pieces if piece is not None]
    indexes: list[bytes] = []
    for path, own in groupby(ranges, itemgetter(0)):
        with version_source(path, versions) as source:
            indexes += map(bytes, source.read_ranges([(start, size) for _, start, size in own]))
    return indexes


def _parse_index(path: str, shard: tuple[int, bytes], index: _IndexFormat, per: tuple[int, ...]) -> np.ndarray:
    """Return offsets (-1: not stored) and sizes of the chunks of a shard, shape (2, *per). FormatError for a damaged index."""
    count, (length, data) = math.prod(per), shard
    # promise: shard-index-checksum
    if index.checked and not _checksum_matches(data):
        raise FormatError("damaged: checksum mismatch in the index of a shard", path=path, hint=_HINT)
    pairs = np.frombuffer(data, index.dtype, 2 * count).reshape(count, 2)
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
    return entries.reshape(2, *per)


def _checksum_matches(data: bytes) -> bool:
    """Return whether the last four bytes are the CRC-32C of the bytes before."""
    import google_crc32c

    return int(google_crc32c.value(data[:-4])) == int.from_bytes(data[-4:], "little")
