"""Arrays as references of Icechunk: metadata, and the bytes of each chunk.

An array of Zarr 3 describes the values as they are stored: its codecs are those of the files, and packed values stay packed,
with the attributes that decode them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.codecs import Filter
from aggarray.dataclass import NamedTuple
from aggarray.errors import MissingFileError
from aggarray.export.chunk_grid import (
    ChunkGrid,
    StoredChunk,
    check_filters,
    find_chunk_grid,
    located_chunks,
    packing_attributes,
    refuse,
)
from aggarray.index.container import in_memory
from aggarray.output.layout import Variable
from aggarray.output.zarr_codecs import CodecMetadata
from aggarray.output.zarr_metadata import Document, array_document

#: Arrays of at most this many bytes are written by value.
SMALL = 1 << 16
#: Codecs of Zarr 3, or of numcodecs in zarr-python, by filter name.
_CODECS: dict[str, tuple[str, dict[str, Any]]] = {
    "deflate": ("numcodecs.zlib", {"level": 1}),
    "gzip": ("gzip", {"level": 1}),
    "zstd": ("zstd", {"level": 1, "checksum": False}),
    "blosc": ("blosc", {"cname": "zstd", "clevel": 1, "shuffle": "noshuffle", "typesize": 1, "blocksize": 0}),
    "lz4": ("numcodecs.lz4", {}),
    "bz2": ("numcodecs.bz2", {"level": 1}),
    "fletcher32": ("numcodecs.fletcher32", {}),
}


class Reference(NamedTuple):
    """Bytes of a chunk: part of a file not modified after a date; or inline."""

    position: tuple[int, ...]
    path: str
    offset: int
    size: int
    modified: datetime
    inline: bytes | None


class StoredVariable(Variable):
    """Variable that is described as its chunks are stored in files."""

    def __init__(self, variable: Variable, grid: ChunkGrid) -> None:
        attributes = {**variable.attributes, **_packing(grid)}
        attributes.pop("_FillValue", None)
        if grid.fill is not None:
            attributes["_FillValue"] = grid.fill
        super().__init__(variable.name, variable.dimensions, variable.source, grid.chunk, grid.fill, attributes)
        self._stored = grid.dtype

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the stored values."""
        return self._stored


def find_references(array: MasterArray) -> ChunkGrid | None:
    """Return the grid of the stored chunks of an array.

    None for an array that is written by value: small, or in memory. Raises GridError with the reason why references cannot
    give the values.
    """
    if in_memory(array._matrix) or array.nbytes <= SMALL:
        return None
    grid = find_chunk_grid(array)
    check_filters(grid, lambda step: _codec(step) is not None)
    for piece in grid.pieces:
        _check_path(StoredChunk((), piece, piece.uri, 0, 0))
    if any(piece.table.names is not None for piece in grid.pieces):
        for chunk in located_chunks(grid):
            _check_path(chunk)
    return grid


def stored_document(variable: Variable, grid: ChunkGrid) -> Document:
    """Return the document of an array of references."""
    return array_document(StoredVariable(variable, grid), [_metadata(step) for step in grid.filters])


def references(array: MasterArray, grid: ChunkGrid) -> Iterator[Reference]:
    """Yield the reference of each stored chunk.

    The date is the modification time of the file when it was scanned, rounded up to the seconds that Icechunk stores.
    """

    @cache
    def stat(path: str) -> os.stat_result:
        array._access.check(path)
        try:
            return os.stat(path)
        except FileNotFoundError as error:
            raise MissingFileError("no such file", path=path, variable=array.name, hint="restore it") from error

    for position, piece, path, offset, size, inline in located_chunks(grid):
        if inline is not None:
            yield Reference(position, "", 0, 0, _NEVER, inline)
            continue
        # promise: icechunk-changed-files
        modified = piece.state.mtime_ns if piece.state is not None else stat(path).st_mtime_ns
        date = datetime.fromtimestamp(-(-modified // 10**9), UTC)
        yield Reference(position, path, offset, size or stat(path).st_size, date, None)


_NEVER = datetime.fromtimestamp(0, UTC)


def _packing(grid: ChunkGrid) -> dict[str, Any]:
    packing = packing_attributes(grid.encoding)
    missing = [value for value in packing.pop("missing_value", ()) if value == value]
    # NaN is a missing value of floats for every reader.
    return {**packing, "missing_value": np.array(missing)} if missing else packing


def _codec(step: Filter) -> tuple[str, dict[str, Any]] | None:
    if step.name == "shuffle":
        return "numcodecs.shuffle", {"elementsize": step.parameters[0]}
    if step.name in ("crc32c", "crc32", "adler32"):
        location = step.parameters[0] if step.parameters else "end"
        if (step.name, location) == ("crc32c", "end"):
            return "crc32c", {}
        return f"numcodecs.{step.name}", {"location": location}
    return _CODECS.get(step.name)


def _metadata(step: Filter) -> CodecMetadata:
    name, configuration = _codec(step) or ("", {})  # check_filters refuses steps without a codec
    return {"name": name, "configuration": configuration}


def _check_path(chunk: StoredChunk) -> None:
    """Refuse a file that Icechunk does not read by a local path."""
    if "://" in chunk.uri:
        refuse(chunk.piece, f"{chunk.uri} is not a local file, and only local files are referenced")
    if not chunk.uri.isprintable():
        refuse(chunk.piece, "its path has characters that Icechunk does not read")
