"""Szip (HDF5 filter 4), where imagecodecs is installed.

Parameters, as HDF5 stores them: options mask, pixels per block, bits per pixel, pixels per scan line. The data begins
with its decoded size in four bytes, little-endian.

What is stored is a stream of adaptive entropy coding (CCSDS 121.0), of scan lines that are filled up to whole blocks; of pixels
of 32 or 64 bits, the bytes by their place. The library's routine for all of it does not tell that a stream ends early where
lines are filled up, and hands out memory that nobody has written to: the stream alone is left to it, its length looked at.
"""

import importlib.util

import numpy as np

from aggarray.codecs.base import Parameters
from aggarray.codecs.shuffle import unshuffle_into

#: Bits of the options mask, and of the library's own.
_MSB, _NEAREST = 16, 32
_AEC_MSB, _AEC_PREPROCESS = 4, 8
#: Fewest and most pixels in a block, and most in a scan line, that the library knows of. It takes a smaller block for one of 8.
_LEAST_BLOCK, _BLOCK, _LINE = 8, 64, 1 << 16


class Szip:
    """The codec, by imagecodecs."""

    name = "szip"

    def usable(self, parameters: Parameters) -> bool:
        """Where imagecodecs is installed and there are four parameters that the library decodes by."""
        if len(parameters) != 4 or not all(isinstance(p, int) and p >= 0 for p in parameters):
            return False
        mask, block, bits, line = (int(p) for p in parameters)
        valid = mask < 1 << 16 and _LEAST_BLOCK <= block <= _BLOCK and (0 < bits <= 32 or bits == 64) and block <= line <= _LINE
        return valid and importlib.util.find_spec("imagecodecs") is not None

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
    blocks = -(-line // block)
    filled = blocks * block * width
    # Lines are filled up to whole blocks, the last one too.
    lines = -(-(held // width) // line)
    wanted = held if line % block == 0 else lines * filled
    flags = (_AEC_MSB if mask & _MSB else 0) | (_AEC_PREPROCESS if mask & _NEAREST else 0)
    # The last block of the stream is a whole one.
    room = wanted + block * width
    stream = imagecodecs.aec_decode(data.tobytes(), bitspersample=bits, flags=flags, blocksize=block, rsi=blocks, out=room)
    found = np.frombuffer(stream, np.uint8)
    if found.size < wanted:
        raise ValueError(f"cut short: {found.size} bytes where {wanted} should be")
    if line % block == 0:
        return found[:held]
    return found[:wanted].reshape(lines, filled)[:, : line * width].reshape(-1)[:held]


CODEC = Szip()
