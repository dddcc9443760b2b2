"""Szip (HDF5 filter 4), by imagecodecs.

Parameters, as HDF5 stores them: options mask, pixels per block, bits per pixel, pixels per scan line. The data begin with the
decoded size in four bytes, little-endian.

The stream is adaptive entropy coding (CCSDS 121.0) of scan lines that are padded to full blocks. Pixels of 32 or 64 bits are
stored as byte planes. For padded lines the library's own decoder does not detect a truncated stream and returns uninitialised
memory. So this codec decodes full lines of single bytes, compares the decoded length, and unshuffles the planes itself.
"""

from __future__ import annotations

import importlib.util

import numpy as np

from aggarray.codecs.base import Codec, Parameters
from aggarray.codecs.shuffle import unshuffle_into

#: Largest numbers of pixels per block, blocks per scan line and pixels per scan line.
_BLOCK, _BLOCKS, _LINE = 32, 128, 4096
#: Largest bits per pixel that are stored without byte planes.
_NARROW = 24


class Szip(Codec):
    """Codec by imagecodecs."""

    name = "szip"
    ratio = 1 << 14

    def usable(self, parameters: Parameters) -> bool:
        """Return whether imagecodecs is installed and HDF5 allows the parameters."""
        if len(parameters) != 4 or not all(isinstance(p, int) and p >= 0 for p in parameters):
            return False
        mask, block, bits, line = (int(p) for p in parameters)
        odd = mask >= 1 << 16 or block % 2 or not 0 < block <= _BLOCK or not block <= line <= min(_LINE, _BLOCKS * block)
        return not odd and (0 < bits <= _NARROW or bits in (32, 64)) and importlib.util.find_spec("imagecodecs") is not None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress the declared number of bytes, at most ``size``."""
        import imagecodecs

        if data.size < 5:
            raise ValueError("truncated")
        decoded = int(data[:4].view("<u4")[0])
        if not 0 < decoded <= size:
            raise ValueError(f"decodes to {decoded} bytes, {size} expected")
        mask, block, bits, line = (int(p) for p in parameters)
        # Pixels of 32 and 64 bits are decoded as byte planes.
        itemsize, bits = (bits // 8, 8) if bits in (32, 64) else (1, bits)
        width = 1 if bits <= 8 else 2 if bits <= 16 else 4
        full = -(-line // block) * block
        pixels = -(-decoded // width)
        lines = -(-pixels // line)
        # Lines are padded to full blocks, the last line too.
        expected = (pixels if full == line else lines * full) * width
        stream = imagecodecs.szip_decode(data[4:].tobytes(), mask, block, bits, full, header=False, out=expected)
        planes = np.frombuffer(stream, np.uint8)
        # promise: szip-truncated
        if planes.size < expected:
            raise ValueError(f"truncated: {planes.size} bytes decoded, {expected} expected")
        if full != line:
            planes = planes.reshape(lines, full * width)[:, : line * width].reshape(-1)
        if itemsize == 1:
            return planes[:decoded]
        result = out if out is not None and decoded == size else np.empty(decoded, np.uint8)
        unshuffle_into(planes[:decoded], itemsize, result)
        return result


CODEC = Szip()
