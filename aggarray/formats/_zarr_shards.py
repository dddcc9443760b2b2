"""Where in the shards of a Zarr store do chunks lie? At places that the index of each shard gives."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aggarray import remote
from aggarray.codecs import Filter, known
from aggarray.errors import FormatError, MissingFileError
from aggarray.formats._zarr_keys import Keys, Paths, listing, named
from aggarray.formats.base import Box, Chunks, grid_of, worth_a_table
from aggarray.formats.places import looks
from aggarray.ranges import Versions
from aggarray.remote import is_remote, join
from aggarray.source import opened_as

#: What stands in a shard's index for a chunk that is not stored.
_ABSENT = 2**64 - 1
#: Remote arrays of more shards are left to zarr-python, which asks for those that it needs.
_MOST_FAR = 4096


@dataclass(frozen=True, slots=True)
class Codecs:
    """How bytes become elements, byte order part of ``dtype``; ``inner``: shape of the chunks in a shard with ``settings``."""

    dtype: np.dtype[Any]
    filters: tuple[Filter, ...]
    inner: tuple[int, ...] = ()
    settings: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Index:
    """How the index of a shard is written: at its beginning or end, with a checksum or without."""

    first: bool
    checked: bool

    def size(self, count: int) -> int:
        """Return the bytes of an index of so many chunks."""
        return 16 * count + 4 * self.checked


def _index(settings: Mapping[str, Any]) -> _Index | None:
    steps = [named(step) for step in settings.get("index_codecs") or ()]
    location = settings.get("index_location", "end")
    names = [name for name, _ in steps]
    if location not in ("start", "end") or names not in (["bytes"], ["bytes", "crc32c"]):
        return None
    if steps[0][1].get("endian", "little") != "little":
        return None
    return _Index(location == "start", len(names) == 2)


def of_shards(store: str, within: str, keys: Keys, shards: Chunks, codecs: Codecs) -> Chunks | None:
    """Return the inner chunks, each with its place in a shard; None where an index is not understood."""
    index, chunk = _index(codecs.settings or {}), codecs.inner
    folder = join(store, *within.split("/"))
    present = _far_names(shards.grid, keys) if is_remote(folder) else listing(folder, keys)
    if index is not None and index.checked and not known((Filter("crc32c"),)):
        return None
    if index is None or present is None or not worth_a_table(shards.grid, len(present)):
        return None
    if any(outer % side for outer, side in zip(shards.chunk, chunk, strict=True)):
        raise ValueError(f"damaged metadata: shards of {shards.chunk} do not divide into chunks of {chunk}")
    grid, per = grid_of(shards.shape, chunk), grid_of(shards.chunk, chunk)
    names = {keys.name(place): place for place in np.ndindex(shards.grid)}
    versions = _versions([join(folder, *name.split("/")) for name in present if name in names])
    # A shard that is there has its whole index in it, whatever else is claimed.
    if not worth_a_table(grid, sum(length // 16 for _, length, _ in versions.states.values())):
        return None
    offsets, sizes = np.full(grid, -1, np.int64), np.zeros(grid, np.int64)
    size = index.size(math.prod(per))
    data = _index_bytes(versions, index, size)
    for name in (name for name in present if name in names):
        path = join(folder, *name.split("/"))
        if path not in versions.states:
            continue
        ends = [(i * n, min((i + 1) * n, most)) for i, n, most in zip(names[name], per, grid, strict=True)]
        box: Box = tuple(slice(start, stop) for start, stop in ends)
        part: Box = tuple(slice(0, stop - start) for start, stop in ends)
        found = _places(path, (versions.states[path][1], data[path]), index, per)
        offsets[box], sizes[box] = found[0][part], found[1][part]
    raw = math.prod(chunk) * shards.dtype.itemsize
    if not codecs.filters and ((offsets >= 0) & (sizes != raw)).any():
        size = int(sizes[(offsets >= 0) & (sizes != raw)][0])
        raise FormatError(f"{folder}: damaged: a chunk of {size} bytes in a shard where {raw} should be; write it again")
    paths = Paths(within, keys, grid, per)
    return replace(shards, chunk=chunk, offsets=offsets.ravel(), sizes=sizes.ravel(), names=paths, versions=versions)


def chunks_in_shard(path: str, data: bytes, settings: Mapping[str, Any], outer: Sequence[int]) -> list[tuple[int, int]]:
    """Return offset and size of each chunk in the bytes of a shard; nothing where the index is not understood.

    ``settings``: the configuration of the shards, ``outer``: the shape of one. FormatError where the index is damaged.
    """
    index, per = _index(settings), grid_of(outer, settings["chunk_shape"])
    if index is None:
        return []
    size = index.size(math.prod(per))
    if size > len(data):
        raise FormatError(f"{path}: truncated: the index of a shard has {size} bytes, the file {len(data)}; write it again")
    found = _places(path, (len(data), data[:size] if index.first else data[len(data) - size :]), index, per)
    offsets, sizes = found.reshape(2, -1)
    return [(int(o), int(n)) for o, n in zip(offsets[offsets >= 0], sizes[offsets >= 0], strict=True)]


def is_index(data: bytes, settings: Mapping[str, Any], outer: Sequence[int]) -> bool:
    """Tell whether bytes of a shard are as long as its index, which takes the place of a chunk of that length."""
    index = _index(settings)
    return index is None or len(data) == index.size(math.prod(grid_of(outer, settings["chunk_shape"])))


def _far_names(grid: tuple[int, ...], keys: Keys) -> list[str] | None:
    """Return the names that the shards of a remote array may have, which nobody lists; None for too many to ask for each."""
    return [keys.name(place) for place in np.ndindex(grid)] if math.prod(grid) <= _MOST_FAR else None


def _versions(paths: Sequence[str]) -> Versions:
    """Return what files are like, of those that are there."""
    remote.look_ahead(paths)
    found = Versions()
    for path in paths:
        with suppress(FileNotFoundError):
            there = looks(path)
            found.states[path] = there.st_mtime_ns, there.st_size, there.st_ino
            if is_remote(path) and (tag := remote.status(path).tag):
                found.tags[path] = tag
    return found


def _index_bytes(versions: Versions, index: _Index, size: int) -> dict[str, bytes]:
    """Return the bytes of the index of each shard, as the shards are."""
    for path, (_, length, _) in versions.states.items():
        if size > length:
            raise FormatError(f"{path}: truncated: the index of a shard has {size} bytes, the file {length}; write it again")
    starts = {path: 0 if index.first else length - size for path, (_, length, _) in versions.states.items()}
    found: dict[str, bytes] = {}
    if any(map(is_remote, starts)):
        pieces = remote.pieces(list(starts), list(starts.values()), [size] * len(starts), versions.tags)
        for path, piece in zip(starts, pieces, strict=True):
            if piece is None:
                raise MissingFileError(f"{path}: no such file; write the store again")
            found[path] = bytes(piece)
        return found
    for path, start in starts.items():
        with opened_as(path, versions) as source:
            found[path] = bytes(source.read_ranges([(start, size)])[0])
    return found


def _places(path: str, shard: tuple[int, bytes], index: _Index, per: tuple[int, ...]) -> np.ndarray:
    """Return offsets (-1: not stored) and sizes of the chunks of one shard, shape (2, *per). FormatError where damaged."""
    count, (length, data) = math.prod(per), shard
    if index.checked and not _agrees(data):
        raise FormatError(f"{path}: damaged: the checksum of the shard's index does not agree; write it again")
    pairs = np.frombuffer(data, "<u8", 2 * count).reshape(count, 2)
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
