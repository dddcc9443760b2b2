"""Chunks of large arrays, written to files of their own in bounded memory.

Each chunk is encoded into a file that gets its name when it is complete, so that a resumed run does not read it again. Values
are read in blocks of several chunks.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from math import prod

import numpy as np

from aggarray.export.extract.layout import ExtractLayout, Variable
from aggarray.options import get_options
from aggarray.partition.block_shapes import in_blocks

#: Bytes of values that are read at a time: a few dozen chunks.
BLOCK = 48 << 20

#: Encodes the values of a chunk (native, in C order) into the stored bytes.
Encode = Callable[[np.ndarray], bytes]
Position = tuple[int, ...]


class Pieces:
    """Chunks of variables as files, with the names of Zarr version 3.

    ``folder``: that of the files; ``spare``: an empty folder of the same file system, for files that are not complete.
    """

    def __init__(self, folder: str, spare: str, encode: Encode) -> None:
        self._folder, self._spare, self._encode = folder, spare, encode

    def path(self, variable: Variable, position: Position) -> str:
        """Return the file of a chunk, by its position in the grid of chunks."""
        return os.path.join(self._folder, variable.name, "c", *map(str, position))

    def write(self, layout: ExtractLayout, advance: Callable[[int, bool], None]) -> None:
        """Write missing chunks; ``advance`` receives bytes and if they existed."""
        with ThreadPoolExecutor(get_options().threads, thread_name_prefix="aggarray-extract") as pool:
            for variable in layout.variables:
                sides, itemsize = variable.chunks or (), variable.dtype.itemsize
                for box in in_blocks(variable.shape, sides, BLOCK // itemsize) if variable.chunks is not None else ():
                    missing = [p for p in chunk_positions(variable, box) if not os.path.exists(self.path(variable, p))]
                    values = variable.values(box) if missing else np.array(())
                    chunks = []
                    for position in missing:
                        starts = [n * side - s.start for n, side, s in zip(position, sides, box, strict=True)]
                        chunks.append(values[tuple(slice(a, a + side) for a, side in zip(starts, sides, strict=True))])
                    list(pool.map(self._store, [variable] * len(missing), missing, chunks))
                    advance(prod(s.stop - s.start for s in box) * itemsize, not missing)

    def _store(self, variable: Variable, position: Position, values: np.ndarray) -> None:
        path, shape = self.path(variable, position), variable.chunks or ()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if values.shape != shape:  # chunks at the edge are stored at full size
            padded = np.full(shape, variable.fill if variable.fill is not None else 0, variable.dtype)
            padded[tuple(map(slice, values.shape))] = values
            values = padded
        write_complete(path, self._encode(np.ascontiguousarray(values)), self._spare)


def chunk_positions(variable: Variable, box: Sequence[slice] | None = None) -> Iterator[Position]:
    """Yield the positions of the chunks of a box (None: of all), in C order."""
    sides = variable.chunks or ()
    ends = [(0, n) if box is None else (box[d].start, box[d].stop) for d, n in enumerate(variable.shape)]
    return product(*(range(a // side, -(-b // side)) for (a, b), side in zip(ends, sides, strict=True)))


def write_complete(path: str, content: bytes, spare: str) -> None:
    """Write a file atomically; ``spare``: a folder of the same file system."""
    temporary = os.path.join(spare, f"{threading.get_ident()}.tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
