"""How are large arrays written in bounded memory so that whoever is stopped can go on?

Chunk by chunk, each encoded into a file of its own, which gets its name only when it is whole: chunks that are there need
not be read again. Blocks of chunks are read at a time.
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

#: Bytes of values that are read at a time: about as much as a few dozen chunks.
BLOCK = 48 << 20

#: Turns the values of a chunk, native and in C order, into the bytes that are stored.
Encode = Callable[[np.ndarray], bytes]
Place = tuple[int, ...]


class Pieces:
    """The chunks of variables as files below ``folder``, named as Zarr (version 3) names them.

    ``spare``: an empty folder of the same file system, where files are until they are whole.
    """

    def __init__(self, folder: str, spare: str, encode: Encode) -> None:
        self._folder, self._spare, self._encode = folder, spare, encode
        self._made: set[str] = set()
        self._lock = threading.Lock()

    def path(self, variable: Variable, place: Place) -> str:
        """Return the file of a chunk, by its place in the grid of chunks."""
        return os.path.join(self._folder, variable.name, "c", *map(str, place))

    def write(self, layout: ExtractLayout, advance: Callable[[int, bool], None]) -> None:
        """Write all chunks that are not there; ``advance`` is told bytes of values, and whether they were there."""
        threads = get_options().threads
        with ThreadPoolExecutor(threads, thread_name_prefix="aggarray-extract") as pool:
            for variable in layout.variables:
                if variable.chunks is not None:
                    for box in in_blocks(variable.shape, variable.chunks, BLOCK // variable.dtype.itemsize):
                        self._write_block(pool, variable, box, advance)

    def _write_block(
        self, pool: ThreadPoolExecutor, variable: Variable, box: tuple[slice, ...], advance: Callable[[int, bool], None]
    ) -> None:
        """Read a block, and write its chunks."""
        size = prod(s.stop - s.start for s in box) * variable.dtype.itemsize
        missing = [p for p in places(variable, box) if not os.path.exists(self.path(variable, p))]
        if missing:
            values = variable.values(box)
            chunks = (_chunk(values, variable, box, place) for place in missing)
            for _ in pool.map(self._store, [variable] * len(missing), missing, chunks):
                pass
        advance(size, not missing)

    def _store(self, variable: Variable, place: Place, values: np.ndarray) -> None:
        path = self.path(variable, place)
        self._make_folder(os.path.dirname(path))
        write_whole(path, self._encode(_whole_chunk(values, variable)), self._spare)

    def _make_folder(self, folder: str) -> None:
        with self._lock:
            if folder not in self._made:
                os.makedirs(folder, exist_ok=True)
                self._made.add(folder)


def places(variable: Variable, box: Sequence[slice] | None = None) -> Iterator[Place]:
    """Yield the places of the chunks of a box (None: of all), in C order."""
    sides = variable.chunks or ()
    ends = [(0, n) if box is None else (box[d].start, box[d].stop) for d, n in enumerate(variable.shape)]
    return product(*(range(a // side, -(-b // side)) for (a, b), side in zip(ends, sides, strict=True)))


def _chunk(values: np.ndarray, variable: Variable, box: Sequence[slice], place: Place) -> np.ndarray:
    """Return the part of a block that lies in a chunk."""
    sides = variable.chunks or ()
    starts = (n * side - s.start for n, side, s in zip(place, sides, box, strict=True))
    return values[tuple(slice(a, a + side) for a, side in zip(starts, sides, strict=True))]


def _whole_chunk(values: np.ndarray, variable: Variable) -> np.ndarray:
    """Return a chunk in C order; those at the edge are stored whole, too."""
    shape = variable.chunks or ()
    if values.shape == shape:
        return np.ascontiguousarray(values)
    whole = np.full(shape, variable.fill if variable.fill is not None else 0, variable.dtype)
    whole[tuple(map(slice, values.shape))] = values
    return whole


def write_whole(path: str, content: bytes, spare: str) -> None:
    """Write a file that has its name only when all of it is there; ``spare``: a folder of the same file system."""
    temporary = os.path.join(spare, f"{threading.get_ident()}.tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
