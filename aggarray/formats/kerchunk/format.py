"""What do kerchunk references describe, and what are the values of a box?

References are a Zarr store of version 2 or 3 whose chunks are ranges of bytes of other files: netCDF, HDF5, GRIB, Zarr. They
are JSON (version 0 or 1) or a folder of Parquet tables. Chunks are read where they lie; values that need a codec unknown here
go through zarr-python. The files named are other files: a scan reads of the references alone what these hold themselves.
"""

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

import numpy as np

from aggarray.errors import FormatError, NotFoundError
from aggarray.formats.base import ChunkIndex, Handle, Structure, Variable, naming_errors, needs_chunk_index, scan_values
from aggarray.formats.kerchunk.json_references import JSONReferences
from aggarray.formats.kerchunk.parquet_references import ParquetReferences
from aggarray.formats.kerchunk.references import PlacedChunks, References
from aggarray.formats.zarr.chunk_index import build_chunk_index
from aggarray.formats.zarr.chunk_keys import ArrayLayout, Numbering, numbering
from aggarray.formats.zarr.format import ZarrHandle, dtype_of, shape_of, structure_of
from aggarray.formats.zarr.nodes import Node
from aggarray.storage.byte_source import shared_source

#: What tells references from other JSON, in its first bytes.
_KEYS = re.compile(rb'"refs"\s*:|\.z(group|array|attrs)"|/zarr\.json"')
_LOOKED_AT = 1 << 20
#: A chunk that is encoded has at most so many bytes when it is decoded ...
_LARGEST = (1 << 32) - 1
#: ... and more than this only if the array has a good part of as many.
_FREE, _TIMES = 1 << 26, 64
#: What is stored of a chunk is at most so many times as long, and so many bytes more.
_SLACK = 1 << 20
#: The positions along longer dimensions are held only where a good part of them is stored.
_LONG = 1 << 28


@dataclass(frozen=True, slots=True, eq=False)
class _Names:
    """The path of the file that holds a chunk, by the chunk's number: ``files``: which of ``paths``."""

    paths: tuple[str, ...]
    files: np.ndarray

    def __call__(self, number: int) -> str:
        return self.paths[int(self.files[number])]


class _Referenced(ZarrHandle):
    """Open references."""

    #: Files are named that may lie anywhere.
    borrowed = True

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.references = _load(path)
        self._placed: dict[str, tuple[Numbering, PlacedChunks]] = {}
        self._tables: dict[str, ChunkIndex | None] = {}

    def _node(self, variable: str) -> tuple[str, Node, np.dtype[Any]]:
        """Return the path of a variable's array within the store, its metadata and its stored dtype."""
        nodes = self.references.nodes
        single = variable == PurePath(self._path).stem and "" in nodes and nodes[""].meta is not None
        node = nodes.get("" if single else variable)
        if node is None or node.meta is None:
            names = ", ".join(name for name, other in nodes.items() if other.meta is not None)
            raise NotFoundError(f"{self._path}: no variable {variable!r}; it holds {names}")
        dtype = dtype_of(node)
        if isinstance(dtype, str):
            raise FormatError(f"{self._path}, variable {variable!r}: {dtype}")
        return "" if single else variable, node, dtype

    def placed(self, variable: str) -> tuple[Numbering, PlacedChunks]:
        """Return how the chunks of a variable are numbered, and where they are."""
        known = self._placed.get(variable)
        if known is None:
            within, node, dtype = self._node(variable)
            layout = ArrayLayout(node.version, node.meta or {}, shape_of(node), dtype)
            numbers = numbering(layout)
            if numbers is None:
                raise FormatError(f"{self._path}, variable {variable!r}: chunks that are not named as Zarr names them")
            self._check_chunk(variable, numbers, layout)
            placed = self.references.placed(within, numbers)
            self._check_stored(variable, numbers, placed, dtype)
            known = self._placed[variable] = (numbers, placed)
        return known

    def check_shape(self, variable: Variable) -> None:
        """Raise FormatError for an array with a dimension whose positions take much memory, and hardly any of it stored."""
        if max(variable.shape, default=0) > _LONG:
            numbers, placed = self.placed(variable.name)
            if not needs_chunk_index([max(numbers.grid)], len(placed.numbers)):
                text = f"shape {variable.shape}, of which {len(placed.numbers)} chunks are stored"
                raise FormatError(f"{self._path}, key '{variable.name}/.zarray': {text}; write the references again")

    def _check_stored(self, variable: str, numbers: Numbering, placed: PlacedChunks, dtype: np.dtype[Any]) -> None:
        """Raise FormatError for chunks that have far more bytes than encoding makes of any, the index of a shard included."""
        most = _TIMES * math.prod(numbers.chunk) * dtype.itemsize + _SLACK
        if dtype.kind in "biufc" and (placed.sizes > most).any():
            row = int((placed.sizes > most).argmax())
            text = f"chunk {placed.numbers[row]} has {placed.sizes[row]} bytes, of which encoding makes {most} at most"
            raise FormatError(f"{self._path}, key {variable!r}: {text}; write the references again")

    def _check_chunk(self, variable: str, numbers: Numbering, layout: ArrayLayout) -> None:
        """Raise FormatError for chunks that would take memory out of all proportion when they are decoded."""
        itemsize, found = max(layout.dtype.itemsize, 1), build_chunk_index(layout)
        size, whole = math.prod(numbers.chunk) * itemsize, math.prod(layout.shape) * itemsize
        # What is not encoded is read in part, however large it is.
        encoded = found is None or bool(found[1].filters)
        if (encoded and size > _LARGEST) or size > max(_FREE, _TIMES * whole):
            text = f"chunks of {size} bytes of an array of {whole}"
            raise FormatError(f"{self._path}, key '{variable}/.zarray': {text}; write the references again")

    def _stored(self, within: str, node: Node) -> Any:
        """Return what zarr-python reads an array from."""
        from aggarray.formats.kerchunk.store import ReferenceStore

        return ReferenceStore(node, *self.placed(within or PurePath(self._path).stem))

    def chunks(self, variable: str) -> ChunkIndex | None:
        """Return where the values are stored; None for text, codecs that are not known, shards, and arrays hardly stored."""
        if variable not in self._tables:
            with naming_errors(self._path, variable):
                self._tables[variable] = self._table(variable)
        return self._tables[variable]

    def _table(self, variable: str) -> ChunkIndex | None:
        _, node, dtype = self._node(variable)
        found = build_chunk_index(ArrayLayout(node.version, node.meta or {}, shape_of(node), dtype))
        if found is None or found[1].shards:
            return None
        chunks, (_, placed) = found[0], self.placed(variable)
        raw = math.prod(chunks.chunk) * chunks.dtype.itemsize
        # Zarr-python reads whole files without a codec, and refuses what is cut short.
        if not chunks.filters and (placed.sizes != raw).any():
            return None
        if not needs_chunk_index(chunks.grid, len(placed.numbers)):
            return None
        offsets, sizes, files = np.full((3, math.prod(chunks.grid)), -1, np.int64)
        offsets[placed.numbers], sizes[placed.numbers], files[placed.numbers] = placed.offsets, placed.sizes, placed.files
        names = _Names(placed.paths, files.astype(np.int32))
        return replace(chunks, offsets=offsets, sizes=np.maximum(sizes, 0), names=names, inline=placed.inline or None)

    def elsewhere(self, variable: str) -> Sequence[str]:
        """Return the files that hold the values of a variable."""
        with naming_errors(self._path, variable):
            return self.placed(variable)[1].paths

    def held(self, variable: Variable) -> bool:
        """Tell whether the references themselves hold all values of a variable."""
        with naming_errors(self._path, variable.name):
            return not self.placed(variable.name)[1].paths


def _load(path: str) -> References:
    if os.path.isdir(path):
        return ParquetReferences(path)
    with shared_source(path) as source:
        return JSONReferences(path, source.read_ranges([(0, source.state[1])])[0])


class _Kerchunk:
    """References that kerchunk, VirtualiZarr and aggarray write."""

    name = "Kerchunk"

    def recognises(self, path: str, head: bytes) -> bool:
        """Tell whether JSON has the keys of references, or a folder the metadata of Parquet tables of them."""
        if not head:
            return _is_folder(path)
        if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
            return False
        if _KEYS.search(head):
            return True
        with suppress(OSError), open(path, "rb") as file:
            return _KEYS.search(file.read(_LOOKED_AT)) is not None
        return False

    def scan(self, path: str) -> Structure:
        """Read the metadata, and those coordinates that the references hold themselves."""
        store = _Referenced(path)
        nodes: Mapping[str, Node] = store.references.nodes
        bare = structure_of(path, self.name, nodes, store.whole, ())
        for variable in bare.variables:
            store.check_shape(variable)
        named = scan_values(bare.variables)
        held = {v.name for v in bare.variables if v.name in named and store.held(v)}
        return replace(structure_of(path, self.name, nodes, store.whole, held), borrowed=True)

    def open(self, path: str) -> Handle:
        """Open for reading values."""
        return _Referenced(path)


def _is_folder(path: str) -> bool:
    marks = (os.path.join(path, mark) for mark in (".zgroup", ".zarray", "zarr.json"))
    if not os.path.isfile(os.path.join(path, ".zmetadata")) or any(map(os.path.isfile, marks)):
        return False
    with suppress(OSError, ValueError, RecursionError), open(os.path.join(path, ".zmetadata"), "rb") as file:
        found = json.load(file)
        return isinstance(found, dict) and "record_size" in found
    return False


FORMAT = _Kerchunk()
