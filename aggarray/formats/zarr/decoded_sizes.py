"""Does a stored chunk decode to what its metadata say? Asked before zarr-python decodes it, which takes whatever comes out.

zarr-python reads what is not read directly: coordinates of a scan, text, codecs unknown here. A few bytes may decode to many
billion there. So each chunk is first decoded by codecs that stop where more comes than there should; those that are unknown
here cannot be bounded.
"""

import base64
import json
import lzma
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from zarr.abc.store import RangeByteRequest, Store
from zarr.storage import LocalStore, WrapperStore

from aggarray.codecs import Filter, decode_at_most, known
from aggarray.formats.base import grid_of
from aggarray.formats.zarr.chunk_index import filter_of
from aggarray.formats.zarr.chunk_keys import ArrayLayout, Numbering, named, numbering, outer_chunk, sides_of, stated_dtype
from aggarray.formats.zarr.shards import chunks_in_shard, is_index
from aggarray.storage.files import stat_file
from aggarray.storage.remote import changed
from aggarray.storage.versions import check_version

#: Text of a chunk has at most so many bytes.
_LONGEST_TEXT = 1 << 28
#: An element is encoded in at most so many bytes before it is compressed, and a chunk has so many more.
_WIDEST, _SLACK = 16, 1 << 12
_TEXT = ("vlen-utf8", "vlen-bytes")
_TYPES = ("dtype", "astype", "encode_dtype", "decode_dtype")
_STREAMS: Mapping[str, Callable[[], Any]] = {"lzma": lzma.LZMADecompressor}

Step = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a chunk may decode to: ``most`` bytes, undone by ``filters``, the first to be undone first.

    ``text``: up to ``count`` texts one after the other, after their number; ``inner``: of the chunks, where it is a shard of
    shape ``outer`` with ``settings``.
    """

    filters: tuple[Filter, ...]
    most: int
    count: int
    text: bool
    inner: "Bounds | None" = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    outer: tuple[int, ...] = ()

    def check(self, path: str, data: Any) -> None:
        """Raise ValueError or FormatError for a chunk that decodes to more."""
        found = np.frombuffer(data, np.uint8)
        for position, step in enumerate(self.filters):
            left = len(self.filters) - position - 1
            found = _bounded(step, found, self.most + left * (self.most // 8 + _SLACK))
        # promise: zarr-text-count
        if self.text and int.from_bytes(found[:4].tobytes(), "little") > self.count:
            raise ValueError(f"more texts than the {self.count} of a chunk")
        if self.inner is not None:
            for offset, size in chunks_in_shard(path, found, self.settings, self.outer):
                # promise: zarr-shard-chunk-sizes
                self.inner.check(path, found[offset : offset + size])

    def check_part(self, path: str, data: bytes, start: int | None) -> None:
        """Raise ValueError or FormatError for bytes of a shard that are such a chunk; ``start``: where they lie, None: last."""
        if self.inner is not None and not is_index(start, data, self.settings, self.outer):
            self.inner.check(path, data)


def _bounded(step: Filter, data: np.ndarray, most: int) -> np.ndarray:
    """Return what a compressor's data decode to; ValueError for more than ``most`` bytes."""
    if step.name not in _STREAMS:
        return decode_at_most((step,), data, most)
    found = _STREAMS[step.name]().decompress(data.tobytes(), most + 1)
    if len(found) > most:
        raise ValueError(f"{step.name}: more than {most} bytes")
    return np.frombuffer(found, np.uint8)


def bounds_of(layout: ArrayLayout) -> Bounds:
    """Return what the chunks of an array may decode to. ValueError for metadata of which too much would become."""
    meta = layout.meta
    if layout.version == 2:
        given = [*(meta.get("filters") or ()), *([meta["compressor"]] if meta.get("compressor") else [])]
        steps = [(f"numcodecs.{step.get('id')}", step) for step in given]
    else:
        steps = [named(step) for step in meta.get("codecs") or ()]
    return _bounds(steps, sides_of(outer_chunk(layout), layout.shape), layout.dtype)


def _bounds(steps: Sequence[Step], chunk: tuple[int, ...], dtype: np.dtype[Any]) -> Bounds:
    """Return what chunks of a shape may decode to; ``steps``: codecs in the order of encoding."""
    for _, settings in steps:
        for key in _TYPES:
            # promise: zarr-filter-dtype
            if key in settings and stated_dtype(settings[key]).itemsize > max(_WIDEST, dtype.itemsize):
                raise ValueError(f"damaged metadata: a codec of type {settings[key]!r:.60}")
    # Up to the first codec that is unknown here.
    filters: list[Filter] = []
    for name, settings in reversed(steps):
        own = name.removeprefix("numcodecs.")
        step = Filter(own) if own in _STREAMS else filter_of(name, settings)
        if step is None or (own not in _STREAMS and not known((step,))):
            break
        filters.append(step)
    before = steps[: len(steps) - len(filters)]
    names = [name.removeprefix("numcodecs.") for name, _ in before]
    count = math.prod(chunk)
    text = any(name in _TEXT for name in names)
    most = _LONGEST_TEXT if text else count * max(_WIDEST, dtype.itemsize) + _SLACK
    if not names or names[-1] != "sharding_indexed":
        return Bounds(tuple(filters), most, count, text)
    for name, settings in before[:-1]:
        chunk = _transposed(chunk, settings) if name == "transpose" else chunk
    settings = before[-1][1]
    side = sides_of(settings.get("chunk_shape"), chunk)
    inner = _bounds([named(step) for step in settings.get("codecs") or ()], side, dtype)
    # Each chunk may be as long as its bounds allow, and has a place in the index.
    most = math.prod(grid_of(chunk, side)) * (inner.most + inner.most // 8 + _SLACK)
    return Bounds(tuple(filters), most, count, False, inner, settings, chunk)


def _transposed(chunk: tuple[int, ...], settings: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of a chunk after a codec has put its dimensions in another order."""
    order = settings.get("order")
    if not isinstance(order, list) or sorted(map(str, order)) != sorted(map(str, range(len(chunk)))):
        raise ValueError(f"damaged metadata: order {order!r:.60} of {len(chunk)} dimensions")
    return tuple(chunk[int(axis)] for axis in order)


def _state(path: str | None) -> Any:
    try:
        return None if path is None else stat_file(path)
    except OSError:
        return None


def checked_store(store: Store, path: str, layout: ArrayLayout) -> Store:
    """Return a store of one array through which none of its chunks gets that decodes to more than it should."""
    numbers = numbering(layout)
    return store if numbers is None else CheckedStore(store, path, numbers, bounds_of(layout))


class CheckedStore(WrapperStore[Store]):
    """A store of one array, whose chunks are looked at before they are handed on."""

    def __init__(self, store: Store, path: str, numbers: Numbering, bounds: Bounds) -> None:
        super().__init__(store)
        self._path, self._numbers, self._bounds = path, numbers, bounds

    def _with_store(self, store: Store) -> "CheckedStore":
        return CheckedStore(store, self._path, self._numbers, self._bounds)

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
        if byte_range is None:
            self._bounds.check(self._path, found.to_bytes())
        else:
            start = byte_range.start if isinstance(byte_range, RangeByteRequest) else None
            self._bounds.check_part(self._path, found.to_bytes(), start)
        return found


class BytesOfText(WrapperStore[Store]):
    """A store of one array of text of variable length, whose metadata say that it is bytes: zarr-python decodes UTF-8 alone."""

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Return the bytes under a key."""
        found = await self._store.get(key, prototype, byte_range)
        if found is None or key not in (".zarray", "zarr.json"):
            return found
        meta = _as_bytes(json.loads(found.to_bytes()))
        fill = meta.get("fill_value") or ""
        meta["fill_value"] = base64.standard_b64encode(fill.encode("utf-8", "surrogatepass")).decode()
        if "data_type" in meta:
            meta["data_type"] = "variable_length_bytes"
        return prototype.buffer.from_bytes(json.dumps(meta).encode())


def _as_bytes(meta: Any) -> Any:
    """Return metadata with the codec of bytes in place of that of text, at any depth."""
    if isinstance(meta, dict):
        return {k: "vlen-bytes" if v == "vlen-utf8" else v if k == "attributes" else _as_bytes(v) for k, v in meta.items()}
    return [_as_bytes(v) for v in meta] if isinstance(meta, list) else meta
