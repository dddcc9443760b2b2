"""Deflate in zlib streams (HDF5 filter 1, Zarr's zlib) and in others."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from aggarray.codecs.base import Codec, Parameters

#: Codes of the wrappers in zlib.
_WRAPPERS = {"zlib": 15, "gzip": 31}
#: Bytes of a chunk from which it is inflated into the memory of the caller, and bytes that a process inflates before it loads
#: the function for this, which takes as long as it saves by then.
_LARGE, _LOAD = 1 << 15, 1 << 25

_inflated = 0


class Inflate(Codec):
    """Codec of deflated streams. Parameters, such as the level, are ignored.

    ``wrapper``: "zlib" or "gzip". The members of a gzip stream are joined. Bytes after a zlib stream are ignored, as by zlib.
    """

    name = ""
    ratio = 1032

    def __init__(self, name: str, wrapper: str) -> None:
        self.name, self._wrapper = name, wrapper

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Inflate and verify the checksum; raise ValueError for damaged data."""
        if out is not None and size >= _LARGE and self._wrapper == "zlib" and _inflate_into(data, out):
            return out
        # The binding of libdeflate returns nothing for a size of 0, whatever the stream.
        if size and (fast := _library(self._wrapper)) is not None:
            function, failure = fast
            try:
                inflated = np.frombuffer(function(data, size), np.uint8)
            except failure as error:
                raise ValueError(f"damaged or longer than {size} bytes") from error
            if self._wrapper == "zlib" or inflated.size == size:
                return inflated
        from aggarray.codecs.streams import decode_streams

        zlib = _zlib()
        make = functools.partial(zlib.decompressobj, _WRAPPERS[self._wrapper])
        return decode_streams(data, size, make, zlib.error, single=self._wrapper == "zlib")


def _inflate_into(data: np.ndarray, out: np.ndarray) -> bool:
    """Inflate into ``out``; return False on failure, or before `_LOAD` bytes."""
    global _inflated
    _inflated += out.size
    if _inflated < _LOAD:
        return False
    from aggarray.codecs._decompressors import inflate_into

    return inflate_into(data, out)


@functools.cache
def _library(wrapper: str) -> tuple[Callable[[np.ndarray, int], Any], type[Exception]] | None:
    """Return libdeflate's function and error, None if it is not installed."""
    try:
        import deflate
    except ImportError:
        return None
    return getattr(deflate, f"{wrapper}_decompress"), deflate.DeflateError


@functools.cache
def _zlib() -> Any:
    """Return ISA-L or zlib, which report the end of a stream."""
    try:
        return importlib.import_module("isal.isal_zlib")
    except ImportError:
        return importlib.import_module("zlib")


CODEC = Inflate("deflate", "zlib")
