"""Where in the shards of a Zarr store do chunks lie? At places that the index of each shard gives; they may be shards again."""

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
from aggarray.formats.zarr.chunk_keys import Keys, Paths, listing, named
from aggarray.storage import remote
from aggarray.storage.byte_source import version_source
from aggarray.storage.files import stat_file
from aggarray.storage.remote import is_remote, join
from aggarray.storage.state import Versions

#: What stands in a shard's index for a chunk that is not stored.
_ABSENT = 2**64 - 1
#: Remote arrays of more shards are left to zarr-python, which asks for those that it needs.
_MOST_FAR = 4096


@dataclass(frozen=True, slots=True)
class Codecs:
    """How bytes become elements, byte order part of ``dtype``.

    ``shards``: shape of the chunks in a shard, and its settings; then of the chunks in these, if they are shards themselves.
    """

    dtype: np.dtype[Any]
    filters: tuple[Filter, ...]
    shards: tuple[tuple[tuple[int, ...], Mapping[str, Any]], ...] = ()


@dataclass(frozen=True, slots=True)
class _Index:
    """How the index of a shard is written: at its beginning or end, with a checksum or without, and its byte order."""

    first: bool
    checked: bool
    dtype: str

    def size(self, count: int) -> int:
        """Return the bytes of an index of so many chunks."""
        return 16 * count + 4 * self.checked


def _index(settings: Mapping[str, Any]) -> _Index | None:
    steps = [named(step) for step in settings.get("index_codecs") or ()]
    location = settings.get("index_location", "end")
    names = [name for name, _ in steps]
    if location not in ("start", "end") or names not in (["bytes"], ["bytes", "crc32c"]):
        return None
    dtype = {"little": "<u8", "big": ">u8"}.get(steps[0][1].get("endian") or "little")
    return None if dtype is None else _Index(location == "start", len(names) == 2, dtype)


class _Places(NamedTuple):
    """Where chunks lie in shards: their grid, the shape of one, offsets (-1: not stored) and sizes in the file of each."""

    grid: tuple[int, ...]
    chunk: tuple[int, ...]
    offsets: np.ndarray
    sizes: np.ndarray


def of_shards(store: str, within: str, keys: Keys, shards: ChunkIndex, codecs: Codecs) -> ChunkIndex | None:
    """Return the innermost chunks, each with its place in a shard; None where an index is not understood."""
    levels = [(chunk, _index(settings)) for chunk, settings in codecs.shards]
    folder = join(store, *within.split("/"))
    present = _far_names(shards.grid, keys) if is_remote(folder) else listing(folder, keys)
    if any(index is None or (index.checked and not known((Filter("crc32c"),))) for _, index in levels):
        return None
    if present is None or not shards.shape or not needs_chunk_index(shards.grid, len(present)):
        return None
    files = {name: join(folder, *name.split("/")) for name in map(keys.name, np.ndindex(shards.grid))}
    versions = _versions([files[name] for name in present if name in files])
    there = {path: state.size for path, state in versions.states.items()}
    sizes = np.array([there.get(path, -1) for path in files.values()], np.int64).reshape(shards.grid)
    found = _Places(shards.grid, shards.chunk, np.minimum(sizes, 0), sizes)
    most = sum(there.values())
    for chunk, index in levels:
        paths = Paths(folder, keys, found.grid, grid_of(shards.chunk, found.chunk))
        # A shard that is there has its whole index in it, whatever else is claimed, and shards in it have theirs.
        if index is None or not needs_chunk_index(grid_of(shards.shape, chunk), most // 16):
            return None
        indices = int((found.offsets >= 0).sum()) * index.size(math.prod(grid_of(found.chunk, chunk)))
        if found.grid != shards.grid and indices > most:
            return None
        found = _inner_places(shards.shape, found, (chunk, index), paths, versions)
    raw = math.prod(found.chunk) * shards.dtype.itemsize
    odd = (found.offsets >= 0) & (found.sizes != raw)
    if not codecs.filters and odd.any():
        size = int(found.sizes[odd][0])
        raise FormatError(f"{folder}: damaged: a chunk of {size} bytes in a shard where {raw} should be; write it again")
    names_of = Paths(within, keys, found.grid, grid_of(shards.chunk, found.chunk))
    offsets, sizes = found.offsets.ravel(), found.sizes.ravel()
    return replace(shards, chunk=found.chunk, offsets=offsets, sizes=sizes, names=names_of, versions=versions)


def _inner_places(
    shape: tuple[int, ...], shards: _Places, level: tuple[tuple[int, ...], _Index], paths: Paths, versions: Versions
) -> _Places:
    """Return the places of the chunks in shards; ``level``: their shape, and how the index of a shard is written.

    ``paths``: of the file that each shard is in; ``versions``: what these are like.
    """
    chunk, index = level
    if any(outer % side for outer, side in zip(shards.chunk, chunk, strict=True)):
        raise ValueError(f"damaged metadata: shards of {shards.chunk} do not divide into chunks of {chunk}")
    grid, per = grid_of(shape, chunk), grid_of(shards.chunk, chunk)
    offsets, sizes = np.full(grid, -1, np.int64), np.zeros(grid, np.int64)
    numbers = np.flatnonzero(shards.offsets >= 0)
    cells = zip(*np.unravel_index(numbers, shards.grid), strict=True)
    columns = (shards.offsets.ravel()[numbers].tolist(), shards.sizes.ravel()[numbers].tolist())
    spots = list(zip(map(paths, numbers.tolist()), *columns, strict=True))
    indices = _index_bytes(spots, index, index.size(math.prod(per)), versions)
    for cell, spot, data in zip(cells, spots, indices, strict=True):
        ends = [(i * n, min((i + 1) * n, most)) for i, n, most in zip(cell, per, grid, strict=True)]
        box: Box = tuple(slice(start, stop) for start, stop in ends)
        part: Box = tuple(slice(0, stop - start) for start, stop in ends)
        found = _places(spot[0], (spot[2], data), index, per)
        own = found[0][part]
        offsets[box], sizes[box] = np.where(own < 0, -1, own + spot[1]), found[1][part]
    return _Places(grid, chunk, offsets, sizes)


def chunks_in_shard(path: str, data: Any, settings: Mapping[str, Any], outer: Sequence[int]) -> list[tuple[int, int]]:
    """Return offset and size of each chunk in the bytes of a shard, once; nothing where the index is not understood.

    ``settings``: the configuration of the shards, ``outer``: the shape of one. FormatError where the index is damaged.
    """
    index, per = _index(settings), grid_of(outer, settings["chunk_shape"])
    if index is None:
        return []
    size = index.size(math.prod(per))
    if size > len(data):
        raise FormatError(f"{path}: truncated: the index of a shard has {size} bytes, the shard {len(data)}; write it again")
    found = _places(path, (len(data), data[:size] if index.first else data[len(data) - size :]), index, per)
    places = np.unique(found.reshape(2, -1), axis=1)
    offsets, sizes = places[:, places[0] >= 0].tolist()
    # promise: shard-overlapping-chunks
    if sum(sizes) > len(data):
        raise FormatError(f"{path}: damaged: chunks that lie upon each other in a shard; write it again")
    return list(zip(offsets, sizes, strict=True))


def is_index(start: int | None, data: Any, settings: Mapping[str, Any], outer: Sequence[int]) -> bool:
    """Tell whether bytes of a shard are its index; ``start``: where they lie, None at the end.

    ValueError for chunks that lie upon an index at the beginning: they would be taken for it.
    """
    index, per = _index(settings), grid_of(outer, settings["chunk_shape"])
    if index is None or start is None or not index.first:
        return start is None
    if start or len(data) != index.size(math.prod(per)):
        return False
    pairs = np.frombuffer(data, index.dtype, 2 * math.prod(per)).reshape(-1, 2)
    # promise: shard-index-overlap
    if (pairs[:, 0] < len(data)).any():
        raise ValueError("damaged: a chunk that lies upon the index of its shard; write it again")
    return True


def _far_names(grid: tuple[int, ...], keys: Keys) -> list[str] | None:
    """Return the names that the shards of a remote array may have, which nobody lists; None for too many to ask for each."""
    return [keys.name(place) for place in np.ndindex(grid)] if math.prod(grid) <= _MOST_FAR else None


def _versions(paths: Sequence[str]) -> Versions:
    """Return what files are like, of those that are there."""
    remote.prefetch_states(paths)
    found = Versions()
    for path in paths:
        with suppress(FileNotFoundError):
            there = stat_file(path)
            found.states[path] = there
            if is_remote(path) and (tag := remote.status(path).tag):
                found.tags[path] = tag
    return found


def _index_bytes(shards: Sequence[tuple[str, int, int]], index: _Index, size: int, versions: Versions) -> Sequence[bytes]:
    """Return the bytes of the index of each shard, as the shards are; ``shards``: path, offset in the file and size of each."""
    wanted = []
    for path, offset, length in shards:
        if size > length:
            raise FormatError(f"{path}: truncated: the index of a shard has {size} bytes, the shard {length}; write it again")
        wanted.append((path, offset if index.first else offset + length - size, size))
    if any(is_remote(path) for path, *_ in wanted):
        paths, starts, sizes = (list(column) for column in zip(*wanted, strict=True))
        pieces = remote.read_pieces(paths, starts, sizes, versions.tags)
        gone = next((path for path, piece in zip(paths, pieces, strict=True) if piece is None), None)
        if gone is not None:
            raise MissingFileError(f"{gone}: no such file; write the store again")
        return [bytes(piece) for piece in pieces if piece is not None]
    found: list[bytes] = []
    for path, own in groupby(wanted, itemgetter(0)):
        with version_source(path, versions) as source:
            found += map(bytes, source.read_ranges([(start, size) for _, start, size in own]))
    return found


def _places(path: str, shard: tuple[int, bytes], index: _Index, per: tuple[int, ...]) -> np.ndarray:
    """Return offsets (-1: not stored) and sizes of the chunks of one shard, shape (2, *per). FormatError where damaged."""
    count, (length, data) = math.prod(per), shard
    # promise: shard-index-checksum
    if index.checked and not _agrees(data):
        raise FormatError(f"{path}: damaged: the checksum of the shard's index does not agree; write it again")
    pairs = np.frombuffer(data, index.dtype, 2 * count).reshape(count, 2)
    absent = (pairs == _ABSENT).all(axis=1)
    wrong = ~absent & (
        (pairs[:, 1] == 0) | (pairs > length).any(axis=1) | (pairs[:, 0] > length - np.minimum(pairs[:, 1], length))
    )
    if wrong.any():
        offset, bytes_ = pairs[wrong][0].tolist()
        raise FormatError(f"{path}: damaged: a chunk of {bytes_} bytes at {offset} of {length} bytes; write it again")
    found = pairs.T.astype(np.int64)
    found[0, absent], found[1, absent] = -1, 0
    return found.reshape(2, *per)


def _agrees(data: bytes) -> bool:
    """Tell whether the last four bytes are the CRC-32C of those before."""
    import google_crc32c

    return int(google_crc32c.value(data[:-4])) == int.from_bytes(data[-4:], "little")
