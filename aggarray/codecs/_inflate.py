"""Inflate by the fastest library installed: libdeflate, ISA-L or zlib."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

#: Largest number of bytes that deflate decodes from one.
RATIO = 1032


def inflate(data: np.ndarray, size: int, wrapper: str) -> np.ndarray:
    """Return the decoded data of a stream, at most ``size`` bytes.

    ``wrapper``: "zlib" or "gzip". The members of a gzip stream are joined. Bytes after a zlib stream are ignored, as by zlib.
    Raises ValueError for damaged or longer data.
    """
    fast = _library(wrapper)
    # The binding of libdeflate returns nothing for a size of 0, whatever the stream.
    if fast is not None and size:
        inflated = np.frombuffer(fast(data, size), np.uint8)
        if wrapper == "zlib" or inflated.size == size:
            return inflated
    return stream(data, size, wrapper)


@functools.cache
def _library(wrapper: str) -> Callable[[np.ndarray, int], Any] | None:
    try:
        import deflate
    except ImportError:
        return None
    function = getattr(deflate, f"{wrapper}_decompress")

    def run(data: np.ndarray, size: int) -> Any:
        try:
            return function(data, size)
        except deflate.DeflateError as error:
            raise ValueError(f"damaged or longer than {size} bytes") from error

    return run


@functools.cache
def _streaming() -> tuple[Callable[[int], Any], type[Exception], dict[str, int]]:
    """Return the constructor of decompressors, its error and the codes of the wrappers."""
    try:
        isal = importlib.import_module("isal.isal_zlib")
    except ImportError:
        zlib = importlib.import_module("zlib")
        return zlib.decompressobj, zlib.error, {"zlib": 15, "gzip": 31}
    return isal.decompressobj, isal.error, {"zlib": 15, "gzip": 31}


def stream(data: np.ndarray, size: int, wrapper: str) -> np.ndarray:
    """Inflate as `inflate` does, by ISA-L or zlib, which report the end of a stream."""
    make, failure, wrappers = _streaming()
    parts: list[bytes] = []
    left, room = data.tobytes(), size
    try:
        while left or not parts:
            decompressor = make(wrappers[wrapper])
            # One byte above the limit detects a longer stream. 0 would mean no limit.
            part = decompressor.decompress(left, room + 1)
            if not decompressor.eof:
                raise ValueError("truncated" if len(part) <= room else f"longer than {size} bytes")
            parts.append(part)
            room -= len(part)
            left = decompressor.unused_data
            if wrapper == "zlib" or not left.strip(b"\0"):
                break
    except failure as error:
        raise ValueError(f"damaged: {error}") from error
    if room < 0:
        raise ValueError(f"longer than {size} bytes")
    return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), np.uint8)
