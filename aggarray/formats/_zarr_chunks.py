"""Where in a Zarr store do the values of an array lie?

In files named after the chunks, whose metadata tell shape, byte order and codecs; which of them are there is seen when they are
read. In a shard several chunks share a file, at places that its index gives. Codecs that are not known here, and settings that
move elements about (transposition, order F), give None: zarr-python reads such arrays.
"""

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from aggarray import remote
from aggarray.codecs import Filter
from aggarray.errors import AggarrayError, FormatError
from aggarray.formats.base import LIBRARY_ERRORS, Box, Chunks, grid_of, worth_a_table
from aggarray.formats.places import File, looks
from aggarray.remote import is_remote, join

#: Codecs that need no parameter to be undone, by their names in both versions.
_PLAIN = {
    **{"zlib": "deflate", "gzip": "gzip", "zstd": "zstd", "blosc": "blosc", "lz4": "lz4"},
    **{"fletcher32": "fletcher32", "crc32c": "crc32c"},
}
#: What stands in a shard's index for a chunk that is not stored.
_ABSENT = 2**64 - 1
#: Chunks are numbered in 64 bits.
_MOST = 2**62
#: Remote arrays of more shards are left to zarr-python, which asks for those that it needs.
_MOST_FAR = 4096


@dataclass(frozen=True, slots=True)
class Layout:
    """An array as its metadata describe it: ``meta`` is the whole JSON object, ``dtype`` native or that of version 2."""

    version: Literal[2, 3]
    meta: Mapping[str, Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class _Codecs:
    """How bytes become elements, byte order part of ``dtype``; ``inner``: shape of the chunks in a shard with ``settings``."""

    dtype: np.dtype[Any]
    filters: tuple[Filter, ...]
    inner: tuple[int, ...] = ()
    settings: Mapping[str, Any] | None = None


def describe(store: str, within: str, layout: Layout) -> Chunks | None:
    """Return where an array in the folder ``within`` of a store is stored, or None. ValueError for damaged metadata."""
    found, keys = laid_out(layout), _keys(layout)
    if found is None or keys is None:
        return None
    chunks, codecs = found
    if codecs.settings is not None:
        return _of_shards(store, within, keys, chunks, codecs)
    count = math.prod(chunks.grid)
    if count > _MOST:
        return None
    # Chunks whose size varies are whole files, of whatever size when they are read: chunks may be written anew.
    size = 0 if codecs.filters else math.prod(chunks.chunk) * codecs.dtype.itemsize
    offsets, sizes = _same(count, size)
    return replace(chunks, offsets=offsets, sizes=sizes, names=_Paths(within, keys, chunks.grid, (1,) * len(chunks.chunk)))


def laid_out(layout: Layout) -> tuple[Chunks, "_Codecs"] | None:
    """Return the grid of chunks (shards, where these are what is named) with no place for any of them, and their codecs."""
    if layout.dtype.kind not in "biufc":
        return None
    fill = _fill(layout.meta.get("fill_value"), layout.dtype.newbyteorder("="))
    codecs = _second(layout) if layout.version == 2 else _third(layout)
    if fill is None or codecs is None:
        return None
    outer = _sides(_outer_chunk(layout), layout.shape)
    return Chunks(layout.shape, outer, codecs.dtype, codecs.filters, fill, *_same(0)), codecs


def _same(count: int, size: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return offsets (all 0) and sizes (all equal) of so many chunks, in no memory whatever their number."""
    return np.broadcast_to(np.int64(0), (count,)), np.broadcast_to(np.int64(size), (count,))


# Names of chunks


@dataclass(frozen=True, slots=True)
class _Keys:
    """How the files of chunks are named: ``lead``, then the position along each dimension, separated.

    >>> _Keys("c/", "/").name((0, 1)), _Keys("", ".").name(()), _Keys("c.", ".").name(())
    ('c/0/1', '0', 'c')
    """

    lead: str
    separator: str

    def name(self, place: Sequence[int]) -> str:
        """Return the name of the chunk at a place of the grid."""
        return self.lead + self.separator.join(map(str, place)) if place else self.lead[:-1] or "0"


@dataclass(frozen=True, slots=True)
class Numbering:
    """What the chunks of an array are named, and which number each has in C order of the ``grid``.

    >>> numbering = Numbering(_Keys("c/", "/"), (2, 4))
    >>> numbering.number("c/1/2"), numbering.number("c/2/0"), numbering.number("c/1")
    (6, None, None)
    """

    keys: _Keys
    grid: tuple[int, ...]
    #: Shape of a chunk, or of a shard.
    chunk: tuple[int, ...] = ()

    def number(self, name: str) -> int | None:
        """Return the number of a chunk, None where the name is none of a chunk."""
        if not self.grid:
            return 0 if name == self.keys.name(()) else None
        if not name.startswith(self.keys.lead):
            return None
        places = name[len(self.keys.lead) :].split(self.keys.separator)
        if len(places) != len(self.grid):
            return None
        number = 0
        for side, place in zip(self.grid, places, strict=True):
            if not (place.isascii() and place.isdecimal() and len(place) < 20 and int(place) < side):
                return None
            number = number * side + int(place)
        return number


def numbering(layout: Layout) -> Numbering | None:
    """Return how the chunks of an array are named, None where nobody knows. ValueError for damaged metadata."""
    keys = _keys(layout)
    if keys is None or (layout.version == 3 and _named(layout.meta.get("chunk_grid"))[0] != "regular"):
        return None
    chunk = _sides(_outer_chunk(layout), layout.shape)
    grid = grid_of(layout.shape, chunk)
    return Numbering(keys, grid, chunk) if math.prod(grid) <= _MOST else None


@dataclass(frozen=True, slots=True)
class _Paths:
    """The path of the file that holds a chunk, by the chunk's number in C order: made when it is asked for.

    ``grid``: of the chunks; ``per``: how many of them a file holds along each dimension.

    >>> paths = _Paths("tas", _Keys("c/", "/"), (2, 4), (1, 2))
    >>> paths(5), paths(6)
    ('tas/c/1/0', 'tas/c/1/1')
    """

    within: str
    keys: _Keys
    grid: tuple[int, ...]
    per: tuple[int, ...]

    def __call__(self, number: int) -> str:
        place: list[int] = []
        for side, many in zip(reversed(self.grid), reversed(self.per), strict=True):
            number, at = divmod(number, side)
            place.append(at // many)
        name = self.keys.name(place[::-1])
        return f"{self.within}/{name}" if self.within else name


def _keys(layout: Layout) -> _Keys | None:
    meta = layout.meta
    if layout.version == 2:
        separator = meta.get("dimension_separator") or "."
        return _Keys("", separator) if separator in (".", "/") else None
    name, settings = _named(meta.get("chunk_key_encoding") or "default")
    separator = settings.get("separator", "/" if name == "default" else ".")
    if name not in ("default", "v2") or separator not in (".", "/"):
        return None
    return _Keys(f"c{separator}" if name == "default" else "", separator)


def _listing(folder: str, keys: _Keys) -> set[str] | None:
    """Return the names of the files of a folder, with those of the folders below where names of chunks run through them.

    None where a folder is a link: it may lead back above, and zarr-python looks for one chunk at a time.
    """
    found: set[str] = set()
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        try:
            entries = list(os.scandir(os.path.join(folder, prefix)))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            if not entry.is_dir():
                found.add(prefix + entry.name)
            elif keys.separator == "/" and (entry.name.isdigit() or entry.name == "c"):
                if entry.is_symlink():
                    return None
                waiting.append(f"{prefix}{entry.name}/")
    return found


# Metadata


def _named(given: Any) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the settings of a codec or the like, which may be a bare name."""
    if isinstance(given, str):
        return given, {}
    settings = given.get("configuration") if isinstance(given, dict) else None
    name = given.get("name") if isinstance(given, dict) else None
    if not isinstance(name, str) or not isinstance(settings or {}, dict):
        raise ValueError(f"damaged metadata: {given!r:.60}")
    return name, settings or {}


def _outer_chunk(layout: Layout) -> Any:
    if layout.version == 2:
        return layout.meta.get("chunks")
    return _named(layout.meta.get("chunk_grid"))[1].get("chunk_shape")


def _sides(given: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a chunk; ValueError where it is none."""
    if not isinstance(given, list) or len(given) != len(shape) or not all(type(n) is int and n > 0 for n in given):
        raise ValueError(f"damaged metadata: chunks {given!r:.60} of shape {shape}")
    return tuple(given)


def _second(layout: Layout) -> _Codecs | None:
    meta = layout.meta
    if meta.get("order", "C") != "C" and len(layout.shape) > 1:
        return None
    given = [*(meta.get("filters") or ()), *([meta["compressor"]] if meta.get("compressor") else [])]
    steps = [_filter(f"numcodecs.{step.get('id')}", step) for step in given]
    filters = tuple(step for step in steps if step is not None)
    return _Codecs(layout.dtype, filters) if len(filters) == len(steps) else None


def _third(layout: Layout) -> _Codecs | None:
    meta = layout.meta
    if _named(meta.get("chunk_grid"))[0] != "regular" or meta.get("storage_transformers"):
        return None
    given = [_named(step) for step in meta.get("codecs") or ()]
    if not given or given[0][0] != "sharding_indexed":
        return _bytes(given, layout.dtype)
    inner = given[0][1]
    found = _bytes([_named(step) for step in inner.get("codecs") or ()], layout.dtype)
    if found is None or len(given) > 1:
        return None
    return _Codecs(found.dtype, found.filters, _sides(inner.get("chunk_shape"), layout.shape), inner)


def _bytes(given: Sequence[tuple[str, Mapping[str, Any]]], dtype: np.dtype[Any]) -> _Codecs | None:
    """Return codecs of version 3 that begin with ``bytes``; None where one of them is not known."""
    if not given or given[0][0] != "bytes":
        return None
    endian = given[0][1].get("endian") or "little"
    if endian not in ("little", "big"):
        return None
    steps = [_filter(name, settings) for name, settings in given[1:]]
    filters = tuple(step for step in steps if step is not None)
    return _Codecs(dtype.newbyteorder("<" if endian == "little" else ">"), filters) if len(filters) == len(steps) else None


def _filter(name: str, settings: Mapping[str, Any]) -> Filter | None:
    """Return one codec.

    >>> _filter("zlib", {"level": 1}), _filter("shuffle", {"elementsize": 8}), _filter("delta", {})
    (Filter(name='deflate', parameters=()), Filter(name='shuffle', parameters=(8,)), None)
    """
    # The checksum of numcodecs may stand at either end, that of Zarr itself stands at the end.
    name = "" if name == "numcodecs.crc32c" else name.removeprefix("numcodecs.")
    if name == "shuffle":
        size = settings.get("elementsize", 4)
        return Filter("shuffle", (size,)) if type(size) is int and size > 0 else None
    return Filter(_PLAIN[name]) if name in _PLAIN else None


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


# Shards


@dataclass(frozen=True, slots=True)
class _Index:
    """How the index of a shard is written: at its beginning or end, with a checksum or without."""

    first: bool
    checked: bool

    def size(self, count: int) -> int:
        """Return the bytes of an index of so many chunks."""
        return 16 * count + 4 * self.checked


def _index(settings: Mapping[str, Any]) -> _Index | None:
    steps = [_named(step) for step in settings.get("index_codecs") or ()]
    location = settings.get("index_location", "end")
    names = [name for name, _ in steps]
    if location not in ("start", "end") or names not in (["bytes"], ["bytes", "crc32c"]):
        return None
    if steps[0][1].get("endian", "little") != "little":
        return None
    return _Index(location == "start", len(names) == 2)


def _of_shards(store: str, within: str, keys: _Keys, shards: Chunks, codecs: _Codecs) -> Chunks | None:
    """Return the inner chunks, each with its place in a shard; None where an index is not understood."""
    index, chunk = _index(codecs.settings or {}), codecs.inner
    folder = join(store, *within.split("/"))
    present = _far_names(shards.grid, keys) if is_remote(folder) else _listing(folder, keys)
    if index is None or present is None or not worth_a_table(shards.grid, len(present)):
        return None
    if any(outer % side for outer, side in zip(shards.chunk, chunk, strict=True)):
        raise ValueError(f"damaged metadata: shards of {shards.chunk} do not divide into chunks of {chunk}")
    grid, per = grid_of(shards.shape, chunk), grid_of(shards.chunk, chunk)
    names = {keys.name(place): place for place in np.ndindex(shards.grid)}
    there = _lengths([join(folder, *name.split("/")) for name in present if name in names])
    # A shard that is there has its whole index in it, whatever else is claimed.
    if not worth_a_table(grid, sum(length // 16 for length in there.values())):
        return None
    offsets, sizes = np.full(grid, -1, np.int64), np.zeros(grid, np.int64)
    size = index.size(math.prod(per))
    data = _index_bytes(there, index, size)
    for name in (name for name in present if name in names):
        path = join(folder, *name.split("/"))
        if path not in there:
            continue
        ends = [(i * n, min((i + 1) * n, most)) for i, n, most in zip(names[name], per, grid, strict=True)]
        box: Box = tuple(slice(start, stop) for start, stop in ends)
        part: Box = tuple(slice(0, stop - start) for start, stop in ends)
        found = _places(path, (there[path], data[path]), index, per)
        offsets[box], sizes[box] = found[0][part], found[1][part]
    raw = math.prod(chunk) * shards.dtype.itemsize
    if not codecs.filters and ((offsets >= 0) & (sizes != raw)).any():
        size = int(sizes[(offsets >= 0) & (sizes != raw)][0])
        raise FormatError(f"{folder}: damaged: a chunk of {size} bytes in a shard where {raw} should be; write it again")
    paths = _Paths(within, keys, grid, per)
    return replace(shards, chunk=chunk, offsets=offsets.ravel(), sizes=sizes.ravel(), names=paths)


def _far_names(grid: tuple[int, ...], keys: _Keys) -> list[str] | None:
    """Return the names that the shards of a remote array may have, which nobody lists; None for too many to ask for each."""
    return [keys.name(place) for place in np.ndindex(grid)] if math.prod(grid) <= _MOST_FAR else None


def _lengths(paths: Sequence[str]) -> dict[str, int]:
    """Return the bytes of files, of those that are there."""
    remote.look_ahead(paths)
    found = {}
    for path in paths:
        with suppress(FileNotFoundError):
            found[path] = looks(path).st_size
    return found


def _read(path: str, start: int, size: int) -> bytes:
    with File(path) as file:
        return file.pread(size, start)


def _index_bytes(there: Mapping[str, int], index: _Index, size: int) -> dict[str, bytes]:
    """Return the bytes of the index of each shard; ``there``: {path: bytes of the shard}."""
    for path, length in there.items():
        if size > length:
            raise FormatError(f"{path}: truncated: the index of a shard has {size} bytes, the file {length}; write it again")
    starts = {path: 0 if index.first else length - size for path, length in there.items()}
    if not any(map(is_remote, there)):
        return {path: _read(path, start, size) for path, start in starts.items()}
    found = {}
    for path, data in zip(starts, remote.fetch([remote.Wish(p, s, size) for p, s in starts.items()]), strict=True):
        if isinstance(data, AggarrayError):
            raise data
        found[path] = data
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
