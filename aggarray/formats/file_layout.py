"""Layout of a file: how its values and its metadata are stored.

A format whose files have a layout has a method ``scan_layout``. It reads headers and chunk indexes, and decodes no values.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from aggarray.dataclass import dataclass
from aggarray.formats.base import Structure


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
