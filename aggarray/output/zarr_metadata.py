"""Metadata documents of Zarr stores, versions 3 and 2."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.output.layout import Variable
from aggarray.output.zarr_codecs import CodecMetadata, sharding

#: A metadata document, as JSON.
Document = dict[str, Any]


def group_document(attributes: Mapping[str, Any], members: Mapping[str, Document] | None = None) -> Document:
    """Return the document of a group; ``members``: documents by path in it.

    With these the group is consolidated: xarray opens the store with one read.
    """
    document = {**_head("group"), "attributes": plain(attributes)}
    if members is not None:
        document["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": members}
    return document


def array_document(variable: Variable, codecs: Sequence[CodecMetadata]) -> Document:
    """Return the document of an array; ``codecs``: of the bytes of a chunk."""
    text, dtype = variable.dtype.kind == "T", variable.dtype
    endian = {"endian": "big" if dtype.byteorder == ">" else "little"}
    numbers = {"name": "bytes", "configuration": endian} if dtype.itemsize > 1 else {"name": "bytes"}
    stages = [{"name": "vlen-utf8"} if text else numbers, *codecs]
    attributes = plain(variable.attributes)
    if variable.fill is not None and dtype.kind == "f":
        # As xarray reads and writes it: bytes, so that it is exact.
        exact = np.float64(variable.fill).astype("<f8").tobytes()
        attributes["_FillValue"] = base64.standard_b64encode(exact).decode()
    return {
        **_head("array"),
        "attributes": attributes,
        "shape": variable.shape,
        "data_type": "string" if text else str(dtype.newbyteorder("=")),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": variable.stored}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": "" if text else json_scalar(_padding(variable)),
        "codecs": stages if variable.shards is None else [sharding(variable.chunks or (), stages)],
        "dimension_names": variable.dimensions,
        "storage_transformers": [],
    }


def array_documents_v2(variable: Variable, codecs: Sequence[CodecMetadata]) -> tuple[Document, Document]:
    """Return the documents ``.zarray`` and ``.zattrs`` of an array."""
    text = variable.dtype.kind == "T"
    settings: list[Document] = [{"id": c["name"], **c.get("configuration", {})} for c in codecs]
    for codec in settings:
        codec.pop("typesize", None)
        if codec["id"] == "blosc":
            codec["shuffle"] = 1
    # Readers of version 2 take the fill value as missing.
    fill = None if variable.fill is None or text else json_scalar(_padding(variable))
    attributes = {k: v for k, v in plain(variable.attributes).items() if k != "_FillValue"}
    array = {
        "zarr_format": 2,
        "shape": variable.shape,
        "chunks": variable.stored,
        "dtype": "|O" if text else variable.dtype.newbyteorder("<").str,
        "fill_value": fill,
        "order": "C",
        "filters": [{"id": "vlen-utf8"}] if text else None,
        "dimension_separator": ".",
        "compressor": settings[0] if settings else None,
    }
    return array, {**attributes, "_ARRAY_DIMENSIONS": variable.dimensions}


def plain(attributes: Mapping[str, Any]) -> Document:
    """Return attributes as JSON has them."""
    items = {n: v.tolist() if isinstance(v, np.ndarray | np.generic) else v for n, v in attributes.items()}
    return {name: list(map(json_scalar, item)) if isinstance(item, list) else json_scalar(item) for name, item in items.items()}


def json_bytes(document: Document) -> bytes:
    """Return a document as it is stored."""
    return json.dumps(document, indent=2, allow_nan=False).encode()


def json_scalar(value: Any) -> Any:
    """Return a scalar as Zarr's JSON: complex as pairs, non-finite as text."""
    item = value.item() if isinstance(value, np.generic | np.ndarray) else value
    if isinstance(item, complex):
        return [json_scalar(item.real), json_scalar(item.imag)]
    if isinstance(item, float) and not np.isfinite(item):
        return "NaN" if np.isnan(item) else "Infinity" if item > 0 else "-Infinity"
    return item


def _padding(variable: Variable) -> Any:
    return variable.dtype.type(0 if variable.fill is None else variable.fill)


def _head(kind: str) -> Document:
    return {"zarr_format": 3, "node_type": kind}
