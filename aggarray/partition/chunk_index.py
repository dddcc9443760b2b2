"""Chunk index: where the chunks of a variable are stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.codecs.base import Filter
from aggarray.dataclass import dataclass
from aggarray.errors import MissingFileError
from aggarray.storage.state import Versions
from aggarray.storage.urls import below

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

    def file_of(self, path: str, number: int) -> tuple[str, bool]:
        """Return the path of a chunk's file, and whether it must exist.

        ``path``: file or store of the variable.
        """
        if self.names is None:
            return path, True
        name = self.names(number)
        outside = name.startswith("/") or "://" in name
        return (name if outside else below(path, name)), outside

    def describe(self, path: str, number: int) -> str:
        """Return position and place of a chunk, for errors."""
        index = ", ".join(str(int(i)) for i in np.unravel_index(number, self.grid)) if self.grid else ""
        if number in (self.inline or {}):
            return f"chunk [{index}] in the references"
        file, _ = self.file_of(path, number)
        within = "" if file == path else f" of {file.removeprefix(f'{path}/')}"
        return f"chunk [{index}] at byte {self.offsets[number]}{within}"


def grid_of(shape: Sequence[int], chunk: Sequence[int]) -> tuple[int, ...]:
    """Return the number of chunks per dimension, the last perhaps partial.

    >>> grid_of((10, 0), (4, 3))
    (3, 0)
    """
    return tuple(-(-n // c) for n, c in zip(shape, chunk, strict=True))


def read_parts(path: str, table: ChunkIndex, numbers: Sequence[int], versions: Versions) -> list[memoryview | None]:
    """Return the stored bytes of chunks in several files; None: fill value.

    ``versions``: as in `read_pieces`. Raises MissingFileError for a file that must exist.
    """
    from aggarray.storage.pieces import read_pieces

    inline = table.inline or {}
    parts: list[memoryview | None] = [memoryview(inline[number]) if number in inline else None for number in numbers]
    offsets, sizes = table.offsets[numbers].tolist(), table.sizes[numbers].tolist()
    rows = [i for i, number in enumerate(numbers) if number not in inline and offsets[i] >= 0]
    files = [table.file_of(path, numbers[i]) for i in rows]
    pieces = read_pieces([file for file, _ in files], [offsets[i] for i in rows], [sizes[i] for i in rows], versions)
    for i, (file, needed), part in zip(rows, files, pieces, strict=True):
        if part is None and needed:
            raise MissingFileError("no such file", path=file, hint="restore it, or open with missing='fill'")
        parts[i] = part
    return parts


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
