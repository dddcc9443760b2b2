"""Reader of kerchunk references.

References are a Zarr store of version 2 or 3 whose chunks are byte ranges of other files: netCDF, HDF5, GRIB, Zarr. They are
JSON (version 0 or 1) or a folder of Parquet tables. Chunks are read directly from those files. zarr-python reads values whose
codec has no decoder in `aggarray.codecs`. A scan opens no other files: it reads only coordinates that are stored inline.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.dataclass import dataclass, replace
from aggarray.errors import FormatError
from aggarray.formats.base import Structure, naming_errors, scan_values, with_values
from aggarray.formats.kerchunk.json_references import JSONReferences
from aggarray.formats.kerchunk.parquet_references import ParquetReferences
from aggarray.formats.kerchunk.references import References, ReferenceTable
from aggarray.formats.zarr.chunk_index import build_chunk_index
from aggarray.formats.zarr.chunk_keys import ArrayLayout, Numbering, numbering, outer_chunk
from aggarray.formats.zarr.format import ZarrHandle, structure_of
from aggarray.formats.zarr.nodes import Node
from aggarray.partition.chunk_index import ChunkIndex, needs_chunk_index
from aggarray.storage.byte_source import shared_source
from aggarray.storage.urls import stem

#: Largest decoded size of an encoded chunk in bytes.
_LARGEST = (1 << 32) - 1
#: A chunk larger than ``_FREE`` bytes has at most ``_TIMES`` times the bytes of its array.
_FREE, _TIMES = 1 << 26, 64
#: A stored chunk has at most ``_TIMES`` times its decoded size plus ``_SLACK`` bytes.
_SLACK = 1 << 20
#: Longer dimensions are accepted only if a good part of their chunks is stored.
_LONG = 1 << 28


@dataclass(frozen=True, slots=True, eq=False)
class _Names:
    """File of a chunk, by chunk number. ``files``: positions in ``paths``."""

    paths: tuple[str, ...]
    files: np.ndarray

    def __call__(self, number: int) -> str:
        return self.paths[int(self.files[number])]


class ReferencedFile(ZarrHandle):
    """Open references."""

    #: Values are in other files.
    has_external_coordinates = True

    def __init__(self, path: str) -> None:
        super().__init__(path)
        if os.path.isdir(path):
            self.references: References = ParquetReferences(path)
        else:
            with shared_source(path) as source:
                self.references = JSONReferences(path, source.read_ranges([(0, source.state[1])])[0])
        self._tables: dict[str, tuple[Numbering, ReferenceTable]] = {}
        self._indexes: dict[str, ChunkIndex | None] = {}

    def _all_nodes(self) -> Mapping[str, Node]:
        return self.references.nodes

    def _find(self, variable: str) -> tuple[str, Node | None]:
        nodes = self.references.nodes
        single = variable == stem(self._path) and "" in nodes and nodes[""].meta is not None
        return ("", nodes[""]) if single else (variable, nodes.get(variable))

    def table(self, variable: str) -> tuple[Numbering, ReferenceTable]:
        """Return the chunk numbering and the references of a variable."""
        cached = self._tables.get(variable)
        if cached is None:
            within, _, layout = self._layout(variable)
            numbers = numbering(layout)
            if numbers is None:
                raise FormatError("unknown chunk grid or chunk key encoding", path=self._path, variable=variable)
            table = self.references.table(within, numbers)
            self._check_sizes(variable, layout, table)
            cached = self._tables[variable] = (numbers, table)
        return cached

    def _check_sizes(self, variable: str, layout: ArrayLayout, table: ReferenceTable) -> None:
        """Raise FormatError for implausible sizes of chunks."""
        itemsize, built = max(layout.dtype.itemsize, 1), build_chunk_index(layout)
        size, total = math.prod(outer_chunk(layout)) * itemsize, math.prod(layout.shape) * itemsize
        # Chunks without a codec are read in part, whatever their size.
        encoded = built is None or bool(built[0].filters)
        if (encoded and size > _LARGEST) or size > max(_FREE, _TIMES * total):
            raise self.references.error(f"{variable}/.zarray", f"chunks of {size} bytes of an array of {total}")
        # A shard includes an index.
        most = _TIMES * size + _SLACK
        if layout.dtype.kind in "biufc" and (table.sizes > most).any():
            row = int((table.sizes > most).argmax())
            what = f"chunk {table.numbers[row]} has {table.sizes[row]} bytes, at most {most} expected"
            raise self.references.error(variable, what)

    def _stored(self, within: str, node: Node) -> Any:
        from aggarray.formats.kerchunk.store import ReferenceStore

        return ReferenceStore(node, *self.table(within or stem(self._path)))

    def chunks(self, variable: str) -> ChunkIndex | None:
        """Return the chunk index, None if only `read` returns the values."""
        if variable not in self._indexes:
            with naming_errors(self._path, variable):
                self._indexes[variable] = self._index(variable)
        return self._indexes[variable]

    def _index(self, variable: str) -> ChunkIndex | None:
        built = build_chunk_index(self._layout(variable)[2])
        if built is None or built[1]:
            return None
        chunks, (_, table) = built[0], self.table(variable)
        raw = math.prod(chunks.chunk) * chunks.dtype.itemsize
        # zarr-python reads entire files without a codec, and raises an error for truncated chunks.
        if not chunks.filters and (table.sizes != raw).any():
            return None
        if not needs_chunk_index(chunks.grid, len(table.numbers)):
            return None
        offsets, sizes, files = np.full((3, math.prod(chunks.grid)), -1, np.int64)
        offsets[table.numbers], sizes[table.numbers], files[table.numbers] = table.offsets, table.sizes, table.files
        names = _Names(table.paths, files.astype(np.int32))
        return replace(chunks, offsets=offsets, sizes=np.maximum(sizes, 0), names=names, inline=table.inline or None)

    def external_files(self, variable: str) -> Sequence[str]:
        """Return the files that hold values of a variable."""
        with naming_errors(self._path, variable):
            return self.table(variable)[1].paths


def scan(path: str) -> Structure:
    """Return the structure and the coordinates that are stored inline."""
    store = ReferencedFile(path)
    structure = structure_of(path, "Kerchunk", store.references.nodes)
    for variable in structure.variables:
        if max(variable.shape, default=0) > _LONG:
            numbers, table = store.table(variable.name)
            if not needs_chunk_index([max(numbers.grid)], len(table.numbers)):
                what = f"shape {variable.shape}, of which {len(table.numbers)} chunks are stored"
                raise store.references.error(f"{variable.name}/.zarray", what)
    inline = {name for name in scan_values(structure.variables) if not store.external_files(name)}
    variables = with_values(structure.variables, store.all_values, inline)
    return replace(structure, variables=variables, has_external_coordinates=True)
