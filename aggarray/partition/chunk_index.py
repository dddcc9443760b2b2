"""Chunk index: where the chunks of a variable are stored."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.codecs.base import Filter
from aggarray.dataclass import dataclass
from aggarray.storage.state import Versions

#: Number of chunks up to which a chunk index is always built. A longer one needs a sixteenth of its chunks to be stored.
FREE_CHUNKS = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class ChunkIndex:
    """Grid of the chunks of a variable, each a byte range of a file.

    ``shape``: of the variable; ``chunk``: shape of a chunk, all sides positive (edge chunks are stored in full); ``dtype``: as
    stored, including the byte order, plain numbers only; ``filters``: of every chunk, in the order of encoding; ``fill``: value
    of the elements of chunks that are not stored, a native scalar; ``offsets``, ``sizes``: int64, one per chunk in C order of
    the grid, offset -1 = not stored, size 0 = the complete file; ``masks``: uint32 per chunk (bit i: filter i was skipped), or
    None if no filter was skipped; ``names``: None if all chunks lie in the file itself, else a function that returns the path
    of a chunk's file: relative to the store (Zarr), where a missing file holds chunks that are not stored; or absolute, or a
    URL, of a file that must exist; ``inline``: stored bytes by chunk number of chunks outside any file; ``versions``: states of
    the files from which the locations were read. The arrays are read-only. They are not checked against the size of the file.
    """

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    dtype: np.dtype[Any]
    filters: tuple[Filter, ...]
    fill: Any
    offsets: np.ndarray
    sizes: np.ndarray
    masks: np.ndarray | None = None
    names: Callable[[int], str] | None = None
    inline: Mapping[int, bytes] | None = None
    versions: Versions | None = None

    def __post_init__(self) -> None:
        for column in (self.offsets, self.sizes, self.masks):
            if column is not None:
                column.flags.writeable = False

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each dimension."""
        return grid_of(self.shape, self.chunk)


def grid_of(shape: Sequence[int], chunk: Sequence[int]) -> tuple[int, ...]:
    """Return the number of chunks per dimension, the last perhaps partial.

    >>> grid_of((10, 0), (4, 3))
    (3, 0)
    """
    return tuple(-(-n // c) for n, c in zip(shape, chunk, strict=True))


def needs_chunk_index(grid: Sequence[int], stored: int) -> bool:
    """Return whether the stored chunks justify the size of the grid.

    >>> needs_chunk_index((1000, 1000), 0), needs_chunk_index((10**6, 10**6), 500)
    (True, False)
    """
    return math.prod(grid) <= FREE_CHUNKS + 16 * stored


def one_chunk(shape: tuple[int, ...], dtype: np.dtype[Any], fill: Any, offset: int | None) -> ChunkIndex:
    """Return the chunk index of contiguous values.

    ``offset``: None if the values were never written.

    >>> one_chunk((2, 3), np.dtype("f4"), np.float32(0), 100).sizes
    array([24])
    """
    count = 0 if 0 in shape else 1
    offsets = np.full(count, -1 if offset is None or not count else offset, np.int64)
    sizes = np.full(count, math.prod(shape) * dtype.itemsize, np.int64)
    return ChunkIndex(shape, tuple(max(n, 1) for n in shape), dtype, (), fill, offsets, sizes)
