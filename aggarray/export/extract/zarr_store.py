"""Chunks and metadata of an extract to Zarr (version 3)."""

import os

import numcodecs
import numpy as np

from aggarray.export.extract.pieces import write_complete
from aggarray.output import zarr_codecs
from aggarray.output.compression import NONE, Compression
from aggarray.output.layout import ExtractLayout, Variable
from aggarray.output.zarr_metadata import Document, array_document, group_document, json_bytes

#: Kinds of data types that a store holds.
KINDS = "biufcT"


def encode(values: np.ndarray, compression: Compression) -> bytes:
    """Encode a chunk: little-endian, compressed, checksum (CRC32C)."""
    return bytes(zarr_codecs.encode(values, _codecs(compression, values.dtype.itemsize)))


def _codecs(compression: Compression, itemsize: int) -> list[zarr_codecs.CodecMetadata]:
    # Blosc may leave values unchecked.
    # promise: zarr-extract-checksum
    return [*zarr_codecs.compressors_of(compression, itemsize), zarr_codecs.CRC32C]


def finish(layout: ExtractLayout, folder: str, spare: str, compression: Compression) -> None:
    """Write the small arrays and all metadata, after all chunks."""
    documents = {v.name: _document(v, compression) for v in layout.variables}
    for variable in layout.variables:
        folder_of_variable = os.path.join(folder, variable.name)
        if variable.chunks is None and variable.source.size:
            path = os.path.join(folder_of_variable, "c", *["0"] * len(variable.shape))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            values = variable.values(...)
            if variable.dtype.kind == "T":
                content = np.frombuffer(numcodecs.VLenUTF8().encode(np.asarray(values, object).ravel()), np.uint8)
            else:
                content = values
            write_complete(path, encode(content, Compression(NONE, 0)), spare)
        os.makedirs(folder_of_variable, exist_ok=True)
        write_complete(os.path.join(folder_of_variable, "zarr.json"), json_bytes(documents[variable.name]), spare)
    group = group_document(layout.attributes, documents)
    write_complete(os.path.join(folder, "zarr.json"), json_bytes(group), spare)


def _document(variable: Variable, compression: Compression) -> Document:
    chosen = compression if variable.chunks is not None else Compression(NONE, 0)
    return array_document(variable, _codecs(chosen, variable.dtype.itemsize))
