"""Bitshuffle: transposed bits of elements, in blocks (HDF5 filter 32008).

Parameters: element size in bytes; elements per block (0: default of the library); compressor: 0 none, 2 LZ4, 3 Zstandard.
Compressed data begins with its decoded size (8 bytes) and the size of a block (4 bytes), both big-endian. Each block begins
with its stored size (4 bytes). Trailing elements that fill no group of eight are stored as they are.
"""

from __future__ import annotations

import numpy as np

from aggarray.codecs._blosc_frame import BITS, Frame
from aggarray.codecs._decompressors import decompress_lz4
from aggarray.codecs._sized_blocks import number, split_blocks
from aggarray.codecs.base import MAX_ITEM, Codec, Parameters, output_buffer
from aggarray.codecs.zstd import CODEC as ZSTD

_LZ4, _ZSTD = 2, 3
#: Default block of the library: bytes, and least number of elements.
_TARGET, _LEAST = 8192, 128
#: Bytes that are unshuffled at a time.
_PIECE = 1 << 18


def unshuffle_bits(planes: np.ndarray, itemsize: int, per_block: int, out: np.ndarray) -> None:
    """Unshuffle the bits of ``planes`` into ``out``.

    ``out``: a contiguous array of other memory; ``per_block``: a multiple of 8.

    >>> out = np.empty(8, np.uint8)
    >>> unshuffle_bits(np.array([255, 0, 0, 0, 0, 0, 0, 0], np.uint8), 1, 8, out)
    >>> out.tolist()
    [1, 1, 1, 1, 1, 1, 1, 1]
    """
    width, end = per_block * itemsize, planes.size // (8 * itemsize) * 8 * itemsize
    step = max(1, _PIECE // width) * width
    start = 0
    while start < end:
        size = min(step, end - start)
        # The last block is shorter and has a frame of its own.
        size, blocks = (size // width * width, size // width) if size >= width else (size, 1)
        frame = Frame(itemsize, BITS, size // blocks, blocks)
        frame.rows[...] = planes[start : start + size].reshape(blocks, -1)
        frame.undo(out[start : start + size])
        start += size
    out[end:] = planes[end:]


def _zstd_block(data: np.ndarray, out: np.ndarray) -> None:
    if ZSTD.decode(data, out.size, (), out) is not out:
        raise ValueError(f"damaged: a block does not decode to {out.size} bytes")


class Bitshuffle(Codec):
    """Codec by the bit unshuffle of Blosc and the compressors of numcodecs."""

    name = "bitshuffle"
    ratio = 1 << 16

    def usable(self, parameters: Parameters) -> bool:
        """Return whether sizes (multiples of 8 elements) and compressor are valid."""
        if len(parameters) != 3 or not all(isinstance(p, int) for p in parameters):
            return False
        itemsize, per_block, compressor = (int(p) for p in parameters)
        return 1 <= itemsize <= MAX_ITEM and per_block >= 0 and per_block % 8 == 0 and compressor in (0, _LZ4, _ZSTD)

    def grown(self, size: int, parameters: Parameters) -> int | None:
        """Return ``size``, None for compressed data."""
        return None if parameters[2] else size

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress and unshuffle, into ``out`` if given."""
        itemsize, per_block, compressor = (int(p) for p in parameters)
        if not compressor:
            result = output_buffer(data.size, size, out)
            unshuffle_bits(data, itemsize, per_block or max(_TARGET // itemsize // 8 * 8, _LEAST), result)
            return result
        decoded, block = number(data, 0, 8), number(data, 8, 4)
        result = output_buffer(decoded, size, out)
        if not block or block % (8 * itemsize):
            raise ValueError(f"damaged: blocks of {block} bytes")
        planes, end = np.empty(decoded, np.uint8), decoded // (8 * itemsize) * 8 * itemsize
        starts, decompress = range(0, end, block), decompress_lz4 if compressor == _LZ4 else _zstd_block
        blocks, rest = split_blocks(data, len(starts))
        for start, stored in zip(starts, blocks, strict=True):
            decompress(stored, planes[start : min(start + block, end)])
        if rest.size < decoded - end:
            raise ValueError("truncated")
        planes[end:] = rest[: decoded - end]
        unshuffle_bits(planes, itemsize, block // itemsize, result)
        return result


CODEC = Bitshuffle()
