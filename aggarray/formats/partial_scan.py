"""Requests and results of scans that read part of a file.

Files of one group differ in a few coordinates only. A format that can read these without reading the rest of a file has a
method ``scan_partially``. A format whose files have a layout has a method ``scan_layout``, which reads headers and chunk
indexes, and decodes no values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from aggarray.dataclass import dataclass, replace
from aggarray.errors import AggarrayError
from aggarray.formats.base import SCAN_ELEMENTS, Attributes, Structure, Variable
from aggarray.partition.chunk_index import ChunkIndex
from aggarray.storage.state import FileState, Stamp


@dataclass(frozen=True, slots=True)
class PartialScanRequest:
    """Items to read from a file whose group is known.

    ``coordinates``: {name of a coordinate: its number of dimensions, 0 or 1}, read with values, units and calendar;
    ``attributes``: names of global attributes.
    """

    coordinates: Mapping[str, int]
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartialScan:
    """Requested items that a file has.

    ``attrs``: global attributes; ``variables``: coordinates with values, units and calendar only; ``stamp``: as in `Structure`.
    """

    uri: str
    attrs: Attributes
    variables: tuple[Variable, ...]
    stamp: Stamp | None = None


@dataclass(frozen=True, slots=True)
class ChunkIndexRequest:
    """Names of variables of a file whose chunk indexes are requested."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScannedChunkIndexes:
    """Chunk indexes of a file; ``state``: of the file before the read."""

    uri: str
    state: FileState
    tables: Mapping[str, ChunkIndex]


@dataclass(frozen=True, slots=True)
class LayoutRequest:
    """Request of the `FileLayout` of a file."""


@dataclass(frozen=True, slots=True)
class VariableLayout:
    """How a variable is stored.

    ``dtype``: as stored, with its byte order, None unless plain numbers; ``shape``: as stored, with the length of texts;
    ``chunk``: shape of a chunk, None if contiguous; ``shard``: shape of a shard, None without; ``filters``: of every chunk, as
    texts such as ``deflate 4``; ``count``: number of stored chunks, None if unknown; ``nodes``: number of blocks of the chunk
    index, 0 without; ``index``: kind of the chunk index, "" without; ``unlimited``: axes that may grow.
    """

    dtype: np.dtype[Any] | None
    shape: tuple[int, ...]
    chunk: tuple[int, ...] | None = None
    shard: tuple[int, ...] | None = None
    filters: tuple[str, ...] = ()
    count: int | None = None
    nodes: int = 0
    index: str = ""
    unlimited: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Decoded bytes of all values, 0 unless plain numbers."""
        return math.prod(self.shape) * (self.dtype.itemsize if self.dtype is not None else 0)

    @property
    def chunk_nbytes(self) -> int:
        """Decoded bytes of a chunk; of all values if contiguous."""
        return self.nbytes if self.chunk is None or self.dtype is None else math.prod(self.chunk) * self.dtype.itemsize

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each dimension."""
        return tuple(-(-n // c) for n, c in zip(self.shape, self.chunk or self.shape, strict=True) if c)


@dataclass(frozen=True, slots=True)
class MetadataLayout:
    """Where the metadata of a file lie.

    ``nbytes``: bytes of the metadata that lead to the values; ``scattered``: bytes of them behind the first stored value;
    ``consolidated``: whether all chunk indexes lie before the first chunk, or one document describes the store; ``paged``:
    bytes of a page, 0 unless metadata and values have pages of their own; ``file_nbytes``: bytes of the file, None for a store.
    """

    nbytes: int
    scattered: int
    consolidated: bool
    paged: int = 0
    file_nbytes: int | None = None


@dataclass(frozen=True, slots=True)
class FileLayout:
    """Layout of one file.

    ``uri``: its path or URL; ``structure``: names, dimensions and attributes, without values; ``variables``: by name, empty if
    only the library of the format knows them; ``metadata``: None if unknown; ``reason``: why the layout is unknown, "" if it is
    known.
    """

    uri: str
    structure: Structure
    variables: Mapping[str, VariableLayout]
    metadata: MetadataLayout | None = None
    reason: str = ""


#: A file and the requested part of it; None requests a full scan.
Task = tuple[str, PartialScanRequest | ChunkIndexRequest | LayoutRequest | None]
#: What `scan_one` returns for a task; errors are returned, not raised.
Result = Structure | PartialScan | ScannedChunkIndexes | FileLayout | AggarrayError

#: Attributes of a coordinate in a `PartialScan`.
COORDINATE_ATTRIBUTES = ("units", "calendar")


def select_partial(
    path: str,
    attrs: Attributes,
    variables: Iterable[Variable],
    request: PartialScanRequest,
    read: Callable[[Variable], np.ndarray | None] | None = None,
) -> PartialScan | None:
    """Select requested items, None if a coordinate is missing or differs.

    ``variables`` of other names are ignored; ``read`` returns the stored values of a variable, None: the variables have them.
    """
    selected = []
    for variable in variables:
        if request.coordinates.get(variable.name) != len(variable.shape) or variable.dtype.kind not in "iuf":
            continue
        # An empty dataset may stand for a longer variable: the longest variable decides the length of an unlimited dimension.
        if not 0 < math.prod(variable.shape) <= SCAN_ELEMENTS:
            continue
        attributes = {name: variable.attrs[name] for name in COORDINATE_ATTRIBUTES if name in variable.attrs}
        values = variable.values if read is None else read(variable)
        selected.append(replace(variable, attrs=attributes, values=values))
    if len(selected) != len(request.coordinates):
        return None
    return PartialScan(path, {name: attrs[name] for name in request.attributes if name in attrs}, tuple(selected))
