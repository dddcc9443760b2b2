"""Metadata and encoding of the chunks of a Zarr store (version 3)."""

import base64
import json
import os
from collections.abc import Mapping
from typing import Any

import numcodecs
import numpy as np

from aggarray.export import json_scalar
from aggarray.export.extract.pieces import write_complete
from aggarray.output import zarr_codecs
from aggarray.output.compression import NONE, Compression
from aggarray.output.layout import ExtractLayout, Variable

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
    metadata = {v.name: _metadata(v, compression) for v in layout.variables}
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
        write_complete(os.path.join(folder_of_variable, "zarr.json"), _json(metadata[variable.name]), spare)
    # Consolidated metadata: xarray then opens the store with one read.
    inline = {"kind": "inline", "must_understand": False, "metadata": metadata}
    group = {**_head("group"), "attributes": _plain(layout.attributes), "consolidated_metadata": inline}
    write_complete(os.path.join(folder, "zarr.json"), _json(group), spare)


def _metadata(variable: Variable, compression: Compression) -> dict[str, Any]:
    text, dtype = variable.dtype.kind == "T", variable.dtype
    chunks = variable.chunks if variable.chunks is not None else tuple(max(n, 1) for n in variable.shape)
    little = {"name": "bytes", "configuration": {"endian": "little"}} if dtype.itemsize > 1 else {"name": "bytes"}
    codecs: list[zarr_codecs.CodecMetadata] = [{"name": "vlen-utf8"} if text else little]
    codecs += _codecs(compression if variable.chunks is not None else Compression(NONE, 0), dtype.itemsize)
    fill = dtype.type(0 if variable.fill is None else variable.fill) if not text else ""
    attributes = _plain(variable.attributes)
    if variable.fill is not None and dtype.kind == "f":
        # As xarray reads and writes it: bytes, so that it is exact.
        exact = np.float64(variable.fill).astype("<f8").tobytes()
        attributes["_FillValue"] = base64.standard_b64encode(exact).decode()
    return {
        **_head("array"),
        "attributes": attributes,
        "shape": variable.shape,
        "data_type": "string" if text else str(dtype.newbyteorder("=")),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill if text else json_scalar(fill),
        "codecs": codecs,
        "dimension_names": variable.dimensions,
        "storage_transformers": [],
    }


def _head(kind: str) -> dict[str, Any]:
    return {"zarr_format": 3, "node_type": kind}


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    items = {n: v.tolist() if isinstance(v, np.ndarray | np.generic) else v for n, v in attributes.items()}
    return {name: list(map(json_scalar, item)) if isinstance(item, list) else json_scalar(item) for name, item in items.items()}


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2, allow_nan=False).encode()
