"""Checks of the decoded size of chunks before zarr-python decodes them.

zarr-python reads coordinates during a scan, text, and arrays with unknown codecs. It does not limit the decoded size: a few
bytes may decode to gigabytes. So each chunk is decoded here first, by codecs that stop at the expected size. Unknown codecs
are not limited.
"""

from __future__ import annotations

import base64
import json
import lzma
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from zarr.abc.store import RangeByteRequest, Store
from zarr.storage import LocalStore, WrapperStore

from aggarray.codecs import Filter, decode_at_most, known
from aggarray.codecs.streams import decode_streams
from aggarray.dataclass import dataclass
from aggarray.errors import FormatError
from aggarray.formats.zarr.chunk_index import filter_of
from aggarray.formats.zarr.chunk_keys import (
    ArrayLayout,
    Numbering,
    check_chunk_shape,
    codec_steps,
    numbering,
    outer_chunk,
    parse_dtype,
    parse_named_configuration,
)
from aggarray.formats.zarr.shards import ShardIndex, shard_index
from aggarray.partition.chunk_index import grid_of
from aggarray.storage.files import stat_file
from aggarray.storage.state import changed, check_version

#: Largest size of the text of a chunk in bytes.
_LONGEST_TEXT = 1 << 28
#: Largest size of an encoded element before compression, and extra bytes of a chunk.
_WIDEST, _SLACK = 16, 1 << 12
_TEXT = ("vlen-utf8", "vlen-bytes")
_TYPES = ("dtype", "astype", "encode_dtype", "decode_dtype")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of the decoded size of a chunk.

    ``filters``: in the order of decoding; ``most``: largest decoded size in bytes; ``text``: the chunk holds at most ``count``
    texts after their number. For a shard with an ``index`` of known encoding, ``inner`` has the limits of its chunks. ``raw``:
    the exact size of a chunk of numbers without codecs.
    """

    filters: tuple[Filter, ...]
    most: int
    count: int
    text: bool
    inner: Bounds | None = None
    index: ShardIndex | None = None
    raw: int | None = None

    def check(self, path: str, data: Any) -> None:
        """Raise ValueError or FormatError for a chunk that decodes to more."""
        decoded = np.frombuffer(data, np.uint8)
        for position, step in enumerate(self.filters):
            most = self.most + (len(self.filters) - position - 1) * (self.most // 8 + _SLACK)
            if step.name == "lzma":
                decoded = decode_streams(decoded, most, lzma.LZMADecompressor, lzma.LZMAError)
            else:
                decoded = decode_at_most((step,), decoded, most)
        # promise: zarr-text-count
        if self.text and int.from_bytes(decoded[:4].tobytes(), "little") > self.count:
            raise ValueError(f"damaged: more than {self.count} texts in a chunk")
        if self.inner is not None and self.index is not None:
            for offset, size in self.index.chunks(path, decoded):
                # promise: zarr-shard-chunk-sizes
                self.inner.check(path, decoded[offset : offset + size])

    def check_part(self, path: str, data: bytes, start: int | None) -> None:
        """Check a part of a shard that is a chunk.

        ``start``: offset of the part, None for the end of the shard. Raises ValueError or FormatError for a chunk that decodes
        to more.
        """
        is_index = start is None if self.index is None else self.index.covers(start, data)
        if self.inner is not None and not is_index:
            self.inner.check(path, data)


def _bounds(steps: Sequence[tuple[str, Mapping[str, Any]]], chunk: tuple[int, ...], dtype: np.dtype[Any]) -> Bounds:
    for _, settings in steps:
        for key in _TYPES:
            # promise: zarr-filter-dtype
            if key in settings and parse_dtype(settings[key]).itemsize > max(_WIDEST, dtype.itemsize):
                raise ValueError(f"damaged metadata: a codec of type {settings[key]!r:.60}")
    # Filters in the order of decoding, up to the first unknown codec.
    filters: list[Filter] = []
    for name, settings in reversed(steps):
        step = Filter("lzma") if name.removeprefix("numcodecs.") == "lzma" else filter_of(name, settings)
        if step is None or (step.name != "lzma" and not known((step,))):
            break
        filters.append(step)
    before = steps[: len(steps) - len(filters)]
    names = [name.removeprefix("numcodecs.") for name, _ in before]
    count = math.prod(chunk)
    text = any(name in _TEXT for name in names)
    most = _LONGEST_TEXT if text else count * max(_WIDEST, dtype.itemsize) + _SLACK
    if not names or names[-1] != "sharding_indexed":
        plain = not names or names == ["bytes"]
        raw = count * dtype.itemsize if plain and not filters and dtype.kind in "biufc" else None
        return Bounds(tuple(filters), most, count, text, raw=raw)
    for name, settings in before[:-1]:
        if name == "transpose":
            order = settings.get("order")
            if not isinstance(order, list) or sorted(map(str, order)) != sorted(map(str, range(len(chunk)))):
                raise ValueError(f"damaged metadata: order {order!r:.60} of {len(chunk)} dimensions")
            chunk = tuple(chunk[int(axis)] for axis in order)
    settings = before[-1][1]
    inner_chunk = check_chunk_shape(settings.get("chunk_shape"), chunk)
    inner = _bounds([parse_named_configuration(step) for step in settings.get("codecs") or ()], inner_chunk, dtype)
    # Each chunk has at most the bytes of its limits, and an entry in the index.
    most = math.prod(grid_of(chunk, inner_chunk)) * (inner.most + inner.most // 8 + _SLACK)
    return Bounds(tuple(filters), most, count, False, inner, shard_index(settings, chunk))


def _state(path: str | None) -> Any:
    try:
        return None if path is None else stat_file(path)
    except OSError:
        return None


def checked_store(store: Store, path: str, layout: ArrayLayout) -> Store:
    """Return a store that checks the decoded size of each chunk.

    Raises ValueError for damaged metadata.
    """
    numbers = numbering(layout)
    if numbers is None:
        return store
    return CheckedStore(store, path, numbers, _bounds(codec_steps(layout), outer_chunk(layout), layout.dtype))


class CheckedStore(WrapperStore[Store]):
    """A store of one array that checks the decoded size of each chunk."""

    def __init__(self, store: Store, path: str, numbers: Numbering, bounds: Bounds) -> None:
        super().__init__(store)
        self._path, self._numbers, self._bounds = path, numbers, bounds

    def _with_store(self, store: Store) -> CheckedStore:
        return CheckedStore(store, self._path, self._numbers, self._bounds)

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Return the bytes of a key, or raise ValueError for an oversized chunk."""
        store: Any = self._store
        if self._numbers.number(key) is None:
            return await store.get(key, prototype, byte_range)
        # Stores of references and of remote objects check versions themselves.
        path = os.path.join(store.root, key) if isinstance(store, LocalStore) else None
        before = _state(path)
        data = await store.get(key, prototype, byte_range)
        if path is not None and before is not None:
            if before != _state(path):
                raise changed(path)
            check_version(path, before)
        if data is not None and byte_range is None:
            if self._bounds.raw not in (None, len(data)):
                what = f"damaged: chunk {key} has {len(data)} bytes, {self._bounds.raw} expected"
                raise FormatError(what, path=self._path, hint="fetch or write it again")
            self._bounds.check(self._path, data.to_bytes())
        elif data is not None:
            start = byte_range.start if isinstance(byte_range, RangeByteRequest) else None
            self._bounds.check_part(self._path, data.to_bytes(), start)
        return data


class BytesOfText(WrapperStore[Store]):
    """Store of variable-length text with metadata of bytes.

    zarr-python decodes only UTF-8.
    """

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Return the bytes of a key."""
        data = await self._store.get(key, prototype, byte_range)
        if data is None or key not in (".zarray", "zarr.json"):
            return data
        meta = _as_bytes(json.loads(data.to_bytes()))
        fill = meta.get("fill_value") or ""
        meta["fill_value"] = base64.standard_b64encode(fill.encode("utf-8", "surrogatepass")).decode()
        if "data_type" in meta:
            meta["data_type"] = "variable_length_bytes"
        return prototype.buffer.from_bytes(json.dumps(meta).encode())


def _as_bytes(meta: Any) -> Any:
    """Replace ``vlen-utf8`` by ``vlen-bytes`` in metadata, at any depth."""
    if isinstance(meta, dict):
        return {k: "vlen-bytes" if v == "vlen-utf8" else v if k == "attributes" else _as_bytes(v) for k, v in meta.items()}
    return [_as_bytes(v) for v in meta] if isinstance(meta, list) else meta
