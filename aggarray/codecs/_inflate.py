"""Which library inflates? libdeflate, the fastest, else ISA-L, else zlib: whichever is installed."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

#: Deflate makes at most so many bytes of one.
RATIO = 1032


def inflate(data: np.ndarray, size: int, wrapper: str) -> np.ndarray:
    """Return the data of a stream of at most ``size`` bytes; ``wrapper``: "zlib" or "gzip", whose members are joined.

    ValueError for damaged or longer data. What follows the end of a zlib stream is ignored, as zlib does.
    """
    fast = _library(wrapper)
    # Asked for nothing, libdeflate's binding returns nothing, whatever there is.
    if fast is not None and size:
        found = np.frombuffer(fast(data, size), np.uint8)
        if wrapper == "zlib" or found.size == size:
            return found
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
            raise ValueError(f"damaged, or more than {size} bytes") from error

    return run


@functools.cache
def _streaming() -> tuple[Callable[[int], Any], type[Exception], dict[str, int]]:
    """Return what makes a decompressor, its error and its names of wrappers."""
    try:
        isal = importlib.import_module("isal.isal_zlib")
    except ImportError:
        zlib = importlib.import_module("zlib")
        return zlib.decompressobj, zlib.error, {"zlib": 15, "gzip": 31}
    return isal.decompressobj, isal.error, {"zlib": 15, "gzip": 31}


def stream(data: np.ndarray, size: int, wrapper: str) -> np.ndarray:
    """Do what `inflate` does by ISA-L or zlib, which know where a stream ends."""
    make, failure, wrappers = _streaming()
    found: list[bytes] = []
    left, room = data.tobytes(), size
    try:
        while left or not found:
            machine = make(wrappers[wrapper])
            # One byte more than there should be shows a longer stream; 0 would mean no limit.
            part = machine.decompress(left, room + 1)
            if not machine.eof:
                raise ValueError("cut short" if len(part) <= room else f"more than {size} bytes")
            found.append(part)
            room -= len(part)
            left = machine.unused_data
            if wrapper == "zlib" or not left.strip(b"\0"):
                break
    except failure as error:
        raise ValueError(f"damaged: {error}") from error
    if room < 0:
        raise ValueError(f"more than {size} bytes")
    return np.frombuffer(found[0] if len(found) == 1 else b"".join(found), np.uint8)
