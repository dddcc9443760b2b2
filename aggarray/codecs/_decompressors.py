"""C functions of extension modules, called without their packages.

The modules of numcodecs and deflate contain Blosc, LZ4, Zstandard and libdeflate. Loading one as a library takes 0.3 ms,
importing numcodecs 40 ms; the package deflate has no function that fills memory of the caller. If a module does not export a
function, its package is used.
"""

from __future__ import annotations

import ctypes
import functools
from _thread import _local as local
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import Any

import numpy as np

_ADDRESS, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
#: Module, arguments and result of the functions.
_FUNCTIONS: dict[str, tuple[str, list[Any], Any]] = {
    "blosc_decompress_ctx": ("numcodecs.blosc", [_ADDRESS, _ADDRESS, _SIZE, _INT], _INT),
    "LZ4_decompress_safe": ("numcodecs.lz4", [_ADDRESS, _ADDRESS, _INT, _INT], _INT),
    "ZSTD_decompress": ("numcodecs.zstd", [_ADDRESS, _SIZE, _ADDRESS, _SIZE], _SIZE),
    "ZSTD_getErrorName": ("numcodecs.zstd", [_SIZE], ctypes.c_char_p),
    "libdeflate_alloc_decompressor": ("deflate._deflate", [], _ADDRESS),
    "libdeflate_zlib_decompress": ("deflate._deflate", [_ADDRESS, _ADDRESS, _SIZE, _ADDRESS, _SIZE, _ADDRESS], _INT),
    "libdeflate_free_decompressor": ("deflate._deflate", [_ADDRESS], None),
}
#: Largest number of bytes that Blosc and LZ4 decode at once.
_MOST = (1 << 31) - 1


@functools.cache
def _function(name: str) -> Any:
    """Return a function of C, None if its module does not export it.

    It releases the interpreter's lock while it runs.
    """
    module, arguments, result = _FUNCTIONS[name]
    try:
        package = find_spec(module.partition(".")[0])
        own = package and PathFinder.find_spec(module, package.submodule_search_locations)
        function = getattr(ctypes.CDLL(own.origin), name) if own and own.origin else None
    except (AttributeError, ImportError, OSError, ValueError):
        return None
    if function is not None:
        function.argtypes, function.restype = arguments, result
    return function


def _address(array: np.ndarray, written: bool = False) -> int:
    """Return the address of a contiguous array, writable if ``written``."""
    if not array.flags.c_contiguous:
        raise ValueError("the bytes are not contiguous")
    if written and not array.flags.writeable:
        raise ValueError("the buffer is read-only")
    return int(array.__array_interface__["data"][0])  # five times as fast as `ctypes.data`


def decompress_blosc(frame: np.ndarray, out: np.ndarray) -> None:
    """Decode a frame, whose sizes in the header are valid, into ``out``."""
    if out.nbytes > _MOST:
        raise ValueError(f"damaged data: decodes to {out.nbytes} bytes")
    decompress = _function("blosc_decompress_ctx")
    if decompress is None:
        from numcodecs import blosc

        blosc.decompress(frame, out)
        return
    count = decompress(_address(frame), _address(out, written=True), out.nbytes, 1)
    if count != out.nbytes:
        raise RuntimeError(f"damaged data (error {count})")


def decompress_lz4(block: np.ndarray, out: np.ndarray) -> None:
    """Decode a block of bytes that decodes to the size of ``out``."""
    if not block.size:
        raise ValueError("truncated")
    if max(block.size, out.size) > _MOST:
        raise ValueError(f"damaged data: {block.size} bytes decode to {out.size}")
    decompress = _function("LZ4_decompress_safe")
    if decompress is None:
        from numcodecs import lz4

        # numcodecs expects the decoded size before the block.
        lz4.decompress(np.concatenate([np.array([out.size], "<u4").view(np.uint8), block]), out)
        return
    count = decompress(_address(block), _address(out, written=True), block.size, out.size)
    if count != out.size:
        raise RuntimeError(f"damaged data (error {count})" if count < 0 else f"decodes to {count} bytes, {out.size} expected")


def decompress_zstd(frame: np.ndarray, out: np.ndarray) -> int:
    """Decode a frame into ``out``, and return the number of bytes."""
    decompress = _function("ZSTD_decompress")
    if decompress is None:
        return _decompress_zstd(frame, out)
    count = int(decompress(_address(out, written=True), out.size, _address(frame), frame.size))
    if count > out.size:
        name = _function("ZSTD_getErrorName")
        raise RuntimeError("damaged data" if name is None else name(count).decode().lower())
    return count


def _decompress_zstd(frame: np.ndarray, out: np.ndarray) -> int:
    import re

    from numcodecs import zstd

    try:
        zstd.decompress(frame, out)
    except RuntimeError as error:
        # The library requires the exact size, and reports it after it has decoded a frame without a content size.
        exact = re.search(r"expected to decompress \d+, got (\d+)", str(error))
        if exact is None:
            raise
        return int(exact[1])
    return out.size


_OF_INFLATER = ("alloc_decompressor", "zlib_decompress", "free_decompressor")


class _Inflater:
    """Working memory of libdeflate, for one thread at a time."""

    def __init__(self) -> None:
        allocate, self._inflate, self._free = (_function(f"libdeflate_{name}") for name in _OF_INFLATER)
        #: None if a function, or memory, is missing.
        self.address = allocate() if allocate and self._inflate and self._free else None

    def inflate_into(self, stream: np.ndarray, out: np.ndarray) -> bool:
        """Inflate a zlib stream into ``out``; return False if it does not fit."""
        if not self.address:
            return False
        ends = _address(stream), stream.size, _address(out, written=True), out.size
        return bool(self._inflate(self.address, *ends, None) == 0)

    def __del__(self) -> None:
        if self.address:
            self._free(self.address)


_inflaters = local()


def inflate_into(stream: np.ndarray, out: np.ndarray) -> bool:
    """Inflate a zlib stream into ``out``, which it must fill exactly.

    Return False if it does not, is damaged, or there is no function for it. ``out`` is then undefined.
    """
    inflater = getattr(_inflaters, "own", None)
    if inflater is None:
        inflater = _inflaters.own = _Inflater()
    return inflater.inflate_into(stream, out)
