"""Szip (HDF5 filter 4), where imagecodecs is installed.

Parameters, as HDF5 stores them: options mask, pixels per block, bits per pixel, pixels per scan line. The data begins
with its decoded size in four bytes, little-endian.

What is stored is a stream of adaptive entropy coding (CCSDS 121.0), of scan lines that are filled up to whole blocks; of pixels
of 32 or 64 bits, the bytes by their place. The library's routine for all of it does not tell that a stream ends early where
lines are filled up, and hands out memory that nobody has written to: it is given lines that are full, of pixels without planes,
and the length of what it decodes is compared.
"""

import importlib.util

import numpy as np

from aggarray.codecs.base import Parameters
from aggarray.codecs.shuffle import unshuffle_into

#: Pixels in a block, blocks in a scan line and pixels in one, at most.
_BLOCK, _BLOCKS, _LINE = 32, 128, 4096
#: Bits of pixels that are stored as they are; wider ones are stored byte by byte.
_NARROW = 24


class Szip:
    """The codec, by imagecodecs."""

    name = "szip"
    ratio = 1 << 14

    def usable(self, parameters: Parameters) -> bool:
        """Where imagecodecs is installed and there are four parameters such as HDF5 makes: even blocks, up to 128 in a line."""
        if len(parameters) != 4 or not all(isinstance(p, int) and p >= 0 for p in parameters):
            return False
        mask, block, bits, line = (int(p) for p in parameters)
        odd = mask >= 1 << 16 or block % 2 or not 0 < block <= _BLOCK or not block <= line <= min(_LINE, _BLOCKS * block)
        return not odd and (0 < bits <= _NARROW or bits in (32, 64)) and importlib.util.find_spec("imagecodecs") is not None

    def grown(self, size: int, parameters: Parameters) -> None:
        """Depends on the data."""
        return None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Decompress the bytes that the data says it holds, at most ``size``."""
        if data.size < 5:
            raise ValueError("cut short")
        held = int(data[:4].view("<u4")[0])
        if not 0 < held <= size:
            raise ValueError(f"it holds {held} bytes, {size} should come out")
        mask, block, bits, line = (int(p) for p in parameters)
        planes = _pixels(data[4:], held, (mask, block, 8 if bits in (32, 64) else bits, line))
        if bits not in (32, 64):
            return planes
        result = out if out is not None and held == size else np.empty(held, np.uint8)
        unshuffle_into(planes, bits // 8, result)
        return result


def _pixels(data: np.ndarray, held: int, parameters: tuple[int, int, int, int]) -> np.ndarray:
    """Return ``held`` bytes of pixels; ValueError where the stream has fewer."""
    import imagecodecs

    mask, block, bits, line = parameters
    width = 1 if bits <= 8 else 2 if bits <= 16 else 4
    full = -(-line // block) * block
    pixels = -(-held // width)
    lines = -(-pixels // line)
    # Lines that are no whole blocks are filled up, the last one too.
    wanted = (pixels if full == line else lines * full) * width
    stream = imagecodecs.szip_decode(data.tobytes(), mask, block, bits, full, header=False, out=wanted)
    found = np.frombuffer(stream, np.uint8)
    # promise: szip-truncated
    if found.size < wanted:
        raise ValueError(f"cut short: {found.size} bytes where {wanted} should be")
    if full != line:
        found = found.reshape(lines, full * width)[:, : line * width].reshape(-1)
    return found[:held]


CODEC = Szip()
