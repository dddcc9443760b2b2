"""Does a stored chunk decode to what its metadata say? Asked before zarr-python decodes it, which takes whatever comes out.

zarr-python reads what is not read directly: coordinates of a scan, text, codecs unknown here. A few bytes may decode to many
billion there. So each chunk is first decoded by codecs that stop where more comes than there should; those that are unknown
here cannot be bounded.
"""

import bz2
import lzma
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from zarr.abc.store import Store
from zarr.storage import LocalStore, WrapperStore

from aggarray.codecs import codecs
from aggarray.formats._zarr_chunks import PLAIN
from aggarray.formats._zarr_keys import Layout, Numbering, named, numbering, outer_chunk, sides_of, stated_dtype
from aggarray.formats._zarr_shards import chunks_in_shard, is_index
from aggarray.formats.places import looks
from aggarray.formats.versions import check_version
from aggarray.remote import changed

#: Text of a chunk has at most so many bytes.
_LONGEST_TEXT = 1 << 28
#: An element is encoded in at most so many bytes before it is compressed, and a chunk has so many more.
_WIDEST, _SLACK = 16, 1 << 12
_TEXT = ("vlen-utf8", "vlen-bytes")
_TYPES = ("dtype", "astype", "encode_dtype", "decode_dtype")
_STREAMS: Mapping[str, Callable[[], Any]] = {"bz2": bz2.BZ2Decompressor, "lzma": lzma.LZMADecompressor}

Step = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a chunk may decode to: names of ``compressors``, the first to be undone first; ``most`` bytes, ``count`` elements.

    ``text``: texts one after the other, after their number; ``shards``: settings of the chunks within a shard.
    """

    compressors: tuple[str, ...]
    most: int
    count: int
    text: bool = False
    shards: Mapping[str, Any] | None = None
    outer: tuple[int, ...] = ()

    def check(self, data: bytes) -> None:
        """Raise ValueError for a chunk that decodes to more."""
        most, found = self.most, np.frombuffer(data, np.uint8)
        for position, name in enumerate(self.compressors):
            left = len(self.compressors) - position - 1
            found = _bounded(name, found, most + left * (most // 8 + _SLACK))
        if self.text and int.from_bytes(found[:4].tobytes(), "little") > self.count:
            raise ValueError(f"more texts than the {self.count} of a chunk")

    def check_shard(self, path: str, data: bytes, settings: Mapping[str, Any]) -> None:
        """Raise ValueError or FormatError for a shard of which a chunk decodes to more."""
        for offset, size in chunks_in_shard(path, data, settings, self.outer):
            self.check(data[offset : offset + size])


def _bounded(name: str, data: np.ndarray, most: int) -> np.ndarray:
    """Return what a compressor's data decode to; ValueError for more than ``most`` bytes."""
    if name in _STREAMS:
        machine = _STREAMS[name]()
        found = machine.decompress(data.tobytes(), most + 1)
        if len(found) > most:
            raise ValueError(f"{name}: more than {most} bytes")
        return np.frombuffer(found, np.uint8)
    return codecs()[PLAIN[name]].decode(data, most, (), None)


def bounds_of(layout: Layout) -> Bounds:
    """Return what the chunks of an array may decode to. ValueError for metadata of which too much would become."""
    steps, inner = _steps(layout)
    for _, settings in steps:
        for key in _TYPES:
            if key in settings and stated_dtype(settings[key]).itemsize > max(_WIDEST, layout.dtype.itemsize):
                raise ValueError(f"damaged metadata: a codec of type {settings[key]!r:.60}")
    outer = sides_of(outer_chunk(layout), layout.shape)
    count = math.prod(outer if inner is None else sides_of(inner.get("chunk_shape"), layout.shape))
    text = any(name in _TEXT for name, _ in steps)
    most = _LONGEST_TEXT if text else count * max(_WIDEST, layout.dtype.itemsize) + _SLACK
    names = [name for name, _ in reversed(steps) if name in PLAIN or name in _STREAMS]
    return Bounds(tuple(names), most, count, text, inner, outer)


def _steps(layout: Layout) -> tuple[list[Step], Mapping[str, Any] | None]:
    """Return the codecs of a chunk in the order of encoding, and the settings of the chunks of a shard if there are shards."""
    meta = layout.meta
    if layout.version == 2:
        given = [*(meta.get("filters") or ()), *([meta["compressor"]] if meta.get("compressor") else [])]
        return [(str(step.get("id")), step) for step in given], None
    steps = [_plainly(named(step)) for step in meta.get("codecs") or ()]
    if not steps or steps[0][0] != "sharding_indexed":
        return steps, None
    within = [_plainly(named(step)) for step in steps[0][1].get("codecs") or ()]
    if any(name == "sharding_indexed" for name, _ in within):
        raise ValueError("shards within shards; write the array anew")
    return within, steps[0][1]


def _plainly(step: Step) -> Step:
    return step[0].removeprefix("numcodecs."), step[1]


def _state(path: str | None) -> Any:
    try:
        return None if path is None else looks(path)
    except OSError:
        return None


def guarded(store: Store, path: str, layout: Layout) -> Store:
    """Return a store of one array through which none of its chunks gets that decodes to more than it should."""
    numbers = numbering(layout)
    return store if numbers is None else Guarded(store, path, numbers, bounds_of(layout))


class Guarded(WrapperStore[Store]):
    """A store of one array, whose chunks are looked at before they are handed on."""

    def __init__(self, store: Store, path: str, numbers: Numbering, bounds: Bounds) -> None:
        super().__init__(store)
        self._path, self._numbers, self._bounds = path, numbers, bounds

    def _with_store(self, store: Store) -> "Guarded":
        return Guarded(store, self._path, self._numbers, self._bounds)

    def _file(self, key: str) -> str | None:
        """Return the local file that holds a chunk; stores of references and of remote objects check versions themselves."""
        store: Any = self._store
        local = isinstance(store, LocalStore) and self._numbers.number(key) is not None
        return os.path.join(store.root, key) if local else None

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Return the bytes under a key; ValueError for a chunk that decodes to more than it should."""
        path = self._file(key)
        before = _state(path)
        found = await self._store.get(key, prototype, byte_range)
        if path is not None and before is not None:
            if before != _state(path):
                raise changed(path)
            check_version(path, before)
        if found is None or self._numbers.number(key) is None:
            return found
        data, settings = found.to_bytes(), self._bounds.shards
        if settings is None:
            self._bounds.check(data)
        elif byte_range is None:
            self._bounds.check_shard(self._path, data, settings)
        elif not is_index(data, settings, self._bounds.outer):
            self._bounds.check(data)
        return found
