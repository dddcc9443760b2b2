"""Chunks or shards of arrays, written to files in bounded memory.

Each is encoded into a file that gets its name when it is complete, so that a resumed run does not read it again. Values are
read in blocks of several chunks. A shard that is larger than a block is written block by block.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import BinaryIO

import numpy as np

from aggarray.export.extract.completion import created_complete
from aggarray.export.extract.earlier import EarlierExtract
from aggarray.export.extract.zarr_store import write_small
from aggarray.index.netcdf import updated
from aggarray.options import get_options
from aggarray.output.chunks import Position, chunk_in, full_chunk, positions_in
from aggarray.output.compression import Compression
from aggarray.output.layout import ExtractLayout, Variable
from aggarray.output.netcdf_file import chunk_placer, create_file
from aggarray.output.zarr_codecs import write_shard
from aggarray.partition.block_shapes import in_blocks

#: Bytes of values that are read at a time: a few dozen chunks.
BLOCK = 48 << 20

#: Encodes the values of a chunk (native, in C order) into the stored bytes.
Encode = Callable[[np.ndarray], bytes]
_Box = tuple[slice, ...]


class Pieces:
    """Shards or chunks as files, with the names of Zarr version 3.

    ``folder``: that of the files; ``spare``: an empty folder of the same file system, for files that are not complete;
    ``earlier``: the extract that is appended to, whose complete chunks are not written again.
    """

    def __init__(self, folder: str, spare: str, encode: Encode, earlier: EarlierExtract | None = None) -> None:
        self._folder, self._spare, self._encode, self._earlier = folder, spare, encode, earlier

    def path(self, variable: Variable, position: Position) -> str:
        """Return the file of a shard or chunk, by its position in their grid."""
        return os.path.join(self._folder, variable.name, "c", *map(str, position))

    def total(self, layout: ExtractLayout) -> int:
        """Return the bytes of the values that `write` writes."""
        return sum(_nbytes(v, box) for v in layout.variables if v.chunks is not None for box in self._boxes(v))

    def write(self, layout: ExtractLayout, advance: Callable[[int, bool], None]) -> None:
        """Write missing files; ``advance`` receives bytes and if they existed."""
        with ThreadPoolExecutor(get_options().threads, thread_name_prefix="aggarray-extract") as pool:
            for variable in layout.variables:
                for box in self._boxes(variable) if variable.chunks is not None else ():
                    positions = list(positions_in(box, variable.stored))
                    missing = [p for p in positions if not os.path.exists(self.path(variable, p))]
                    if missing and variable.shards and len(positions) == 1:
                        self._store_shard(pool, variable, positions[0], box)
                    elif missing:
                        values = variable.values(box)
                        parts = [chunk_in(values, box, position, variable.stored) for position in missing]
                        list(pool.map(self._store, [variable] * len(missing), missing, parts))
                    advance(_nbytes(variable, box), not missing)

    def _boxes(self, variable: Variable) -> Iterator[_Box]:
        """Yield boxes of whole shards or chunks that are not stored yet."""
        starts = (0,) * len(variable.shape) if self._earlier is None else self._earlier.starts(variable)
        shape = [size - start for size, start in zip(variable.shape, starts, strict=True)]
        for box in in_blocks(shape, variable.stored, BLOCK // variable.dtype.itemsize):
            yield tuple(slice(s.start + start, s.stop + start) for s, start in zip(box, starts, strict=True))

    def _store(self, variable: Variable, position: Position, values: np.ndarray) -> None:
        """Write a chunk, or a shard, of values in memory."""
        with self._created(variable, position) as file:
            if variable.shards is None:
                file.write(self._encode_full(variable, values))
                return
            chunk = variable.chunks or ()
            box = [slice(0, n) for n in values.shape]
            encoded = ((p, self._encode_full(variable, chunk_in(values, box, p, chunk))) for p in positions_in(box, chunk))
            write_shard(file, _grid(variable), encoded)

    def _store_shard(self, pool: ThreadPoolExecutor, variable: Variable, position: Position, box: _Box) -> None:
        """Write a shard block by block; threads encode the chunks."""
        chunk = variable.chunks or ()

        def encoded() -> Iterator[tuple[Position, bytes]]:
            shape = [s.stop - s.start for s in box]
            for block in in_blocks(shape, chunk, BLOCK // variable.dtype.itemsize):
                region = tuple(slice(b.start + s.start, b.stop + s.start) for b, s in zip(block, box, strict=True))
                values, inner = variable.values(region), list(positions_in(block, chunk))
                parts = [chunk_in(values, block, p, chunk) for p in inner]
                yield from zip(inner, pool.map(self._encode_full, [variable] * len(inner), parts), strict=True)

        with self._created(variable, position) as file:
            write_shard(file, _grid(variable), encoded())

    def _encode_full(self, variable: Variable, values: np.ndarray) -> bytes:
        return self._encode(np.ascontiguousarray(full_chunk(values, variable.chunks or (), variable.fill)))

    @contextmanager
    def _created(self, variable: Variable, position: Position) -> Iterator[BinaryIO]:
        path = self.path(variable, position)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with created_complete(path, self._spare) as file:
            yield file

    def write_small(self, layout: ExtractLayout) -> None:
        """Write the chunks of the small variables of a Zarr store."""
        for variable in layout.variables:
            if variable.chunks is None and variable.source.size:
                has = None if self._earlier is None else partial(self._earlier.has, variable)
                write_small(variable, self._folder, self._spare, has or (lambda position: False))

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
                    place(position, *self._chunk(variable, position))

    def _chunk(self, variable: Variable, position: Position) -> tuple[bytes, int]:
        """Return the bytes of a chunk, and the mask of filters left out."""
        if self._earlier is not None and self._earlier.has(variable, position):
            return self._earlier.chunk(variable, position)
        with open(self.path(variable, position), "rb") as chunk:
            return chunk.read(), 0


def _grid(variable: Variable) -> Sequence[int]:
    """Return the number of chunks of a shard along each dimension."""
    return [shard // chunk for shard, chunk in zip(variable.stored, variable.chunks or (), strict=True)]


def _nbytes(variable: Variable, box: _Box) -> int:
    return int(prod(s.stop - s.start for s in box)) * variable.dtype.itemsize
