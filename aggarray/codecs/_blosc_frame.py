"""How do the vectorised unshuffle routines of Blosc come to work on data that Blosc never saw?

By a frame (version 1 of the Blosc format) whose blocks are stored, not compressed, but flagged as shuffled: 16 bytes of
header, where each block starts, then each block after its length. Decoding it copies and unshuffles, without the
interpreter's lock, two to four times as fast as NumPy's copies with a stride.
"""

import struct

import numpy as np
from numcodecs import blosc

#: What a block was transformed by, as flags of the header say it.
BYTES, BITS = 0x1, 0x4
#: Blosc describes elements of up to so many bytes.
MAX_ITEM = 255

_STORED = 0x10 | 1 << 5  # each block is one stream; LZ4, which is never called


class Frame:
    """A frame of ``blocks`` blocks of ``width`` bytes each, to be filled by way of `rows` and then undone."""

    __slots__ = ("_bytes", "rows")

    def __init__(self, itemsize: int, transform: int, width: int, blocks: int = 1) -> None:
        start, step = 16 + 4 * blocks, 4 + width
        total = start + blocks * step
        self._bytes = np.empty(total, np.uint8)
        head = struct.pack("<4B3I", 2, 1, transform | _STORED, itemsize, blocks * width, width, total)
        self._bytes[:16] = np.frombuffer(head, np.uint8)
        self._bytes[16:start].view("<u4")[...] = np.arange(start, total, step)
        whole = self._bytes[start:].reshape(blocks, step)
        whole[:, :4] = np.frombuffer(struct.pack("<I", width), np.uint8)
        #: The blocks' bytes, (blocks, width), to be written to.
        self.rows = whole[:, 4:]

    def undo(self, out: np.ndarray) -> None:
        """Write the elements to a contiguous buffer of ``blocks * width`` bytes."""
        blosc.decompress(self._bytes, out)
