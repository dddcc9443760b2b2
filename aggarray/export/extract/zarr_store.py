"""Chunks and metadata of an extract to Zarr (version 3)."""

from __future__ import annotations

import json
import os
from typing import Any

import numcodecs
import numpy as np

from aggarray.export.extract.completion import write_complete
from aggarray.output import zarr_codecs
from aggarray.output.chunks import chunk_in, full_chunk
from aggarray.output.compression import NONE, Compression
from aggarray.output.layout import ExtractLayout, StoredForm, Variable, appendable_piece, unlimited_dimensions
from aggarray.output.zarr_metadata import Document, array_document, group_document, json_bytes
from aggarray.storage.atomic import flush

#: Kinds of data types that a store holds.
KINDS = "biufceT"
_DOCUMENT = "zarr.json"


def encode(values: np.ndarray, compression: Compression) -> bytes:
    """Encode a chunk: little-endian, compressed, checksum (CRC32C)."""
    return bytes(zarr_codecs.encode(values, _codecs(compression, values.dtype.itemsize)))


def _codecs(compression: Compression, itemsize: int) -> list[zarr_codecs.CodecMetadata]:
    # Blosc may leave values unchecked.
    # promise: zarr-extract-checksum
    return [*zarr_codecs.compressors_of(compression, itemsize), zarr_codecs.CRC32C]


def set_pieces(layout: ExtractLayout) -> None:
    """Choose chunks of small variables that make few when they grow."""
    unlimited = unlimited_dimensions(layout)
    for variable in layout.variables:
        if variable.chunks is None and variable.shape and variable.dimensions[0] in unlimited:
            variable.piece = appendable_piece(variable.shape)


def write_small(variable: Variable, folder: str, spare: str, skipped: Any = lambda position: False) -> None:
    """Write the chunks of a small variable, except ``skipped`` positions."""
    values = variable.values(...)
    box = [slice(0, size) for size in variable.shape]
    for position in variable.positions():
        if not skipped(position):
            part = chunk_in(values, box, position, variable.stored)
            if variable.dtype.kind == "T":
                padded = full_chunk(np.asarray(part, object), variable.stored, "")
                part = np.frombuffer(numcodecs.VLenUTF8().encode(padded.ravel()), np.uint8)
            else:
                part = full_chunk(part, variable.stored, variable.fill)
            path = os.path.join(folder, variable.name, "c", *map(str, position))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_complete(path, encode(part, Compression(NONE, 0)), spare)


def write_documents(layout: ExtractLayout, folder: str, spare: str, compression: Compression) -> None:
    """Write all metadata, after all chunks, and that of the group last.

    Readers of consolidated metadata see all of it at once.
    """
    documents = {name: group_document({}) for v in layout.variables if (name := os.path.dirname(v.name))}
    documents |= {v.name: _document(v, compression) for v in layout.variables}
    for name, document in documents.items():
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        write_complete(os.path.join(folder, name, _DOCUMENT), json_bytes(document), spare)
    group = group_document(layout.attributes, documents)
    write_complete(os.path.join(folder, _DOCUMENT), json_bytes(group), spare)


def place_chunks(made: str, folder: str) -> None:
    """Move chunks into a store: new ones, and those that replace partial ones.

    The replaced ones have the same values at their earlier positions, and readers ignore the others until the metadata change.
    """
    for inner, _, names in os.walk(made):
        target = os.path.join(folder, os.path.relpath(inner, made))
        if names:
            os.makedirs(target, exist_ok=True)
            for name in names:
                os.replace(os.path.join(inner, name), os.path.join(target, name))
            flush(target)


def stored_forms(path: str) -> dict[str, StoredForm]:
    """Return how the arrays of a store of `write_documents` are stored."""
    with open(os.path.join(path, _DOCUMENT), encoding="utf-8") as file:
        documents = json.load(file)["consolidated_metadata"]["metadata"]
    return {name: _form(document) for name, document in documents.items() if document["node_type"] == "array"}


def _form(document: Document) -> StoredForm:
    stored, codecs, shards = tuple(document["chunk_grid"]["configuration"]["chunk_shape"]), document["codecs"], None
    if codecs[0]["name"] == "sharding_indexed":
        settings = codecs[0]["configuration"]
        stored, codecs, shards = tuple(settings["chunk_shape"]), settings["codecs"], stored
    fill = None
    if "_FillValue" in document["attributes"]:
        fill = np.dtype(document["data_type"]).type(document["fill_value"])
    return StoredForm(stored, shards, zarr_codecs.compression_of(codecs), fill)


def _document(variable: Variable, compression: Compression) -> Document:
    chosen = compression if variable.chunks is not None else Compression(NONE, 0)
    return array_document(variable, _codecs(chosen, variable.dtype.itemsize))
