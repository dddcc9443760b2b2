"""Contents of a Zarr view: documents, and chunks made when they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import product
from math import prod

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.dataclass import dataclass
from aggarray.export.zarr_view.chunk_memory import ChunkMemory
from aggarray.export.zarr_view.layout import Keep, lay_out_groups
from aggarray.output.chunk_sizes import ChunkSizes
from aggarray.output.chunks import Position, full_chunk
from aggarray.output.compression import Compression
from aggarray.output.layout import Variable
from aggarray.output.zarr_codecs import CodecMetadata, compressors_of, encode
from aggarray.output.zarr_metadata import (
    Document,
    array_document,
    array_documents_v2,
    group_document,
    json_bytes,
    plain,
)
from aggarray.storage.urls import is_remote

#: A number as keys have it, without leading zeros.
_NUMBER = re.compile("0|[1-9][0-9]{0,18}", re.ASCII)
#: Most documents that are kept.
_MOST_CACHED = 64


@dataclass(frozen=True, slots=True, eq=False)
class ViewArray:
    """Array of a view; ``codecs``: those of the bytes of its chunks."""

    variable: Variable
    codecs: Sequence[CodecMetadata]
    memory: ChunkMemory

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of every chunk; Zarr pads the last ones."""
        return self.variable.stored

    @property
    def chunk_bytes(self) -> int:
        """Size of the values of a chunk, in bytes."""
        return prod(self.chunk_shape) * self.variable.dtype.itemsize

    @property
    def size(self) -> int | None:
        """Size of an encoded chunk, in bytes; None if it depends on the values."""
        return None if self.codecs or self.variable.dtype.kind == "T" else self.chunk_bytes

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each dimension."""
        return tuple(-(-size // side) for size, side in zip(self.variable.shape, self.chunk_shape, strict=True))

    @property
    def is_remote(self) -> bool:
        """Whether the first of its files is remote."""
        uris = self.variable.source._matrix.references.uris
        return bool(len(uris)) and is_remote(str(uris[0]))

    def read(self, position: Position, threads: int | None = None) -> memoryview:
        """Return the encoded values of a chunk.

        ``threads``: as in `MasterArray.read`.
        """
        axes = zip(position, self.chunk_shape, self.variable.shape, strict=True)
        key = tuple(slice(n * side, min((n + 1) * side, size)) for n, side, size in axes)
        is_text = self.variable.dtype.kind == "T"
        out = None if is_text else self.memory.array(tuple(s.stop - s.start for s in key), self.variable.dtype)
        values = self.variable.source.read(key, out=out, threads=threads)
        if is_text:
            from numcodecs import VLenUTF8

            return memoryview(VLenUTF8().encode(np.asarray(values, object).ravel()))
        return memoryview(encode(full_chunk(values, self.chunk_shape, self.variable.fill), self.codecs))


class ViewContents:
    """Keys of a read-only Zarr store of arrays, and their contents.

    ``chunks``: chunk size by dimension instead of the chosen ones. The keys are those of Zarr 3 and of Zarr 2, whose documents
    describe the same chunks. ``keep``: as in `lay_out_groups`. ``arrays``: by path; ``groups``: attributes by path;
    ``documents``: the keys of metadata.
    """

    def __init__(
        self, arrays: Sequence[MasterArray], chunks: ChunkSizes | None, compression: Compression, keep: Keep | None = None
    ) -> None:
        groups = lay_out_groups(arrays, chunks, keep)
        self.arrays: dict[str, ViewArray] = {}
        memory = ChunkMemory()
        for path, layout in groups.items():
            for variable in layout.variables:
                codecs = () if variable.dtype.kind == "T" else compressors_of(compression, variable.dtype.itemsize)
                self.arrays[joined_path(path, variable.name)] = ViewArray(variable, codecs, memory)
        parents = {path[: match.start()] for path in groups for match in re.finditer("/", path)}
        self.groups = {path: groups[path].attributes if path in groups else {} for path in sorted({"", *parents, *groups})}
        self._nodes = {path: group_document(attributes) for path, attributes in self.groups.items()}
        self._nodes |= {path: array_document(array.variable, array.codecs) for path, array in self.arrays.items()}
        self._nodes_v2 = self._documents_v2()
        names = ((path, name) for path in self.groups for name in ("zarr.json", ".zmetadata"))
        arrays_3 = ((path, "zarr.json") for path in self.arrays)
        self.documents = dict.fromkeys([*(joined_path(*pair) for pair in (*names, *arrays_3)), *self._nodes_v2])
        self._cached = lru_cache(_MOST_CACHED)(self._made)

    def _documents_v2(self) -> dict[str, Document]:
        nodes: dict[str, Document] = {}
        for path, attributes in self.groups.items():
            nodes |= {joined_path(path, ".zgroup"): {"zarr_format": 2}, joined_path(path, ".zattrs"): plain(attributes)}
        for path, array in self.arrays.items():
            nodes[joined_path(path, ".zarray")], nodes[joined_path(path, ".zattrs")] = array_documents_v2(
                array.variable, array.codecs
            )
        return nodes

    def document(self, key: str) -> bytes | None:
        """Return the metadata of a key, None for other keys."""
        return self._cached(key) if key in self.documents else None

    def _made(self, key: str) -> bytes:
        path, _, name = key.rpartition("/")
        if key in self._nodes_v2:
            return json_bytes(self._nodes_v2[key])
        if name == ".zmetadata":
            return json_bytes({"zarr_consolidated_format": 1, "metadata": _below(path, self._nodes_v2)})
        if path in self.arrays:
            return json_bytes(self._nodes[path])
        return json_bytes(group_document(self.groups[path], _below(path, self._nodes)))

    def chunk(self, key: str) -> tuple[ViewArray, Position] | None:
        """Return the array and position of a chunk, None for other keys.

        The keys of position (0, 3) are ``<path>/c/0/3`` in Zarr 3 and ``<path>/0.3`` in Zarr 2.
        """
        path, _, last = key.rpartition("/")
        array = self.arrays.get(path)
        if array is not None:
            scalar = "c" if not array.grid else None
            return _chunk(array, [] if last == scalar or (scalar and last == "0") else last.split("."))
        path, _, last = key.rpartition("/c/")
        array = self.arrays.get(path)
        return None if array is None else _chunk(array, last.split("/"))

    def all_keys(self) -> Iterator[str]:
        """Yield all keys, those of chunks as Zarr 3 has them."""
        yield from self.documents
        for path, array in self.arrays.items():
            for position in product(*map(range, array.grid)):
                yield "/".join([path, "c", *map(str, position)])

    @cached_property
    def _children(self) -> dict[str, dict[str, None]]:
        """Names of documents and nodes by the path of their group or array."""
        children: dict[str, dict[str, None]] = {}
        for key in self.documents:
            parent, _, name = key.rpartition("/")
            while name and name not in children.setdefault(parent, {}):
                children[parent][name] = None
                parent, _, name = parent.rpartition("/")
        return children

    def members(self, path: str) -> Iterator[str]:
        """Yield the names directly below a path.

        They are those of documents, groups and arrays, and parts of keys of chunks.
        """
        yield from self._children.get(path, ())
        if path in self.arrays:
            yield "c"
        head, separator, tail = f"{path}/".rpartition("/c/")
        position = tail.split("/")[:-1]
        array = self.arrays.get(head) if separator else None
        if array is not None and len(position) < len(array.grid) and _numbers(position, array.grid) is not None:
            yield from map(str, range(array.grid[len(position)]))


def _chunk(array: ViewArray, texts: Sequence[str]) -> tuple[ViewArray, Position] | None:
    position = _numbers(texts, array.grid) if len(texts) == len(array.grid) else None
    return None if position is None else (array, position)


def _numbers(texts: Sequence[str], grid: Sequence[int]) -> Position | None:
    """Return the numbers of a part of a key, None if they are not in the grid."""
    pairs = list(zip(texts, grid, strict=False))
    return tuple(int(t) for t in texts) if all(_NUMBER.fullmatch(t) and int(t) < n for t, n in pairs) else None


def joined_path(*parts: str) -> str:
    """Return the path of a node or key; parts may be empty."""
    return "/".join(part for part in parts if part)


def _below(path: str, nodes: Mapping[str, Document]) -> dict[str, Document]:
    start = f"{path}/" if path else ""
    return {key[len(start) :]: document for key, document in nodes.items() if key and key.startswith(start)}
