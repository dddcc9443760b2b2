"""Chunks of large arrays, written to files of their own in bounded memory.

Each chunk is encoded into a file that gets its name when it is complete, so that a resumed run does not read it again. Values
are read in blocks of several chunks.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import prod

import numpy as np

from aggarray.index.netcdf import updated
from aggarray.options import get_options
from aggarray.output.chunks import Position, chunk_in, full_chunk, positions_in
from aggarray.output.compression import Compression
from aggarray.output.layout import ExtractLayout, Variable
from aggarray.output.netcdf_file import chunk_placer, create_file
from aggarray.partition.block_shapes import in_blocks

#: Bytes of values that are read at a time: a few dozen chunks.
BLOCK = 48 << 20

#: Encodes the values of a chunk (native, in C order) into the stored bytes.
Encode = Callable[[np.ndarray], bytes]


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
                    missing = [p for p in positions_in(box, sides) if not os.path.exists(self.path(variable, p))]
                    values = variable.values(box) if missing else np.array(())
                    chunks = [chunk_in(values, box, position, sides) for position in missing]
                    list(pool.map(self._store, [variable] * len(missing), missing, chunks))
                    advance(prod(s.stop - s.start for s in box) * itemsize, not missing)

    def _store(self, variable: Variable, position: Position, values: np.ndarray) -> None:
        path = self.path(variable, position)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        full = full_chunk(values, variable.chunks or (), variable.fill)
        write_complete(path, self._encode(np.ascontiguousarray(full)), self._spare)

    def assemble(self, layout: ExtractLayout, path: str, compression: Compression) -> None:
        """Write a netCDF-4 file of all variables; their chunks must exist.

        The order is always the same, so that the same chunks give the same bytes.
        """
        create_file(layout, path, compression)
        with updated(path) as file:
            for variable in layout.variables:
                if variable.chunks is None:
                    continue
                place = chunk_placer(file, variable)
                for position in variable.positions():
                    with open(self.path(variable, position), "rb") as chunk:
                        place(position, chunk.read())


def write_complete(path: str, content: bytes, spare: str) -> None:
    """Write a file atomically; ``spare``: a folder of the same file system."""
    temporary = os.path.join(spare, f"{threading.get_ident()}.tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
